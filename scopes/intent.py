"""What a requester asked for, in words of their own: the one text of a run that is trusted.

It may name channels (`#name`, a mark, an id, a link to a message), and places to write to: writing
there needs no approval card. Only a plain order does: `<verb> <what> to <place>` or `<verb>
<person> ...`, at the start of a sentence, in the first line of the message, outside quotes and
questions. Every other wording waits for a card, so an order that is missed here costs its requester
one click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

LINK = re.compile(r"/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
MARK = re.compile(r"<#([CGD][A-Z0-9]{2,})(?:\|([^>]*))?>")
CHANNEL = re.compile(
    r"<#([CGD][A-Z0-9]{2,})(?:\|[^>]*)?>|(?<![\w&/])#([^\s#<>|,.;:!?()\"']+)|\b(C[A-Z0-9]{8,})\b"
)


class Channels:
    """Channels that a requester can see, found by id or name."""

    def __init__(self, channels: Iterable[tuple[str, str]]) -> None:
        """Of (id, name) pairs."""
        self.names = dict(channels)
        self._exact: dict[str, list[str]] = {}
        self._folded: dict[str, list[str]] = {}
        for id, name in self.names.items():
            self._exact.setdefault(name, []).append(id)
            self._folded.setdefault(name.casefold(), []).append(id)

    def find(self, name: str) -> str:
        """Return the id of the channel so called, else of the only one so called in any case, else
        "".
        """
        found = self._exact.get(name) or self._folded.get(name.casefold(), [])
        return found[0] if len(found) == 1 else ""


def names_any(request: str) -> bool:
    """Return whether a request may name a channel at all, so that they are worth listing."""
    return bool(LINK.search(request) or CHANNEL.search(request))


def named_in(request: str, channels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what a request names (`#name`, a mention, an id, a permalink): id -> title.

    `channels` are (id, name) pairs that the requester can see; anything else names nothing.
    """
    known = Channels(channels)
    links = [g for g in LINK.findall(request) if g[0] in known.names]
    named = [g[0] for g in links]
    for mention, name, bare in CHANNEL.findall(request):
        named.append(mention or bare or known.find(name) or name)
    threads = {f"{channel}/{whole}.{part}": "a linked thread" for channel, whole, part in links}
    return {**{id: f"#{known.names[id]}" for id in named if id in known.names}, **threads}


def marked_in(request: str) -> dict[str, str]:
    """Return the channels that a request marks or links to: id -> title, as the request has it."""
    links = dict.fromkeys((channel for channel, *_ in LINK.findall(request)), "")
    marks = dict(MARK.findall(request))
    found = {**links, **marks}
    return {id: f"#{name}" if name else id for id, name in found.items()}


MAX_CHARS = 2_000
"""Characters of a first line; a longer one is pasted."""
QUOTE, FIRST = "\uf8ff", 0xE000
"""Characters that stand for a quote, and for the first place."""
PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
PERSON = re.compile(r"<@([UW][A-Z0-9]{2,})(?:\|[^>]*)?>")
LINKED = re.compile(
    rf"<?https?://[^\s<>|]{{0,200}}?{LINK.pattern}(?:\?[\w=&;.%-]*\w)?(?:\|[^<>]*>|>)?"
)
MARKS = re.compile(
    r"(?<!\w)\"[^\"]*\"(?!\w)|(?<![\w>])'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)|“[^“”]*”|„[^„“”]*[“”]"
    r"|«[^«»]*»|»[^«»]*«|‘[^‘\n]*?’(?!\w)|「[^「」]*」|『[^『』]*』|`[^`]*`"
    rf"|{LINKED.pattern}|{PERSON.pattern}|{CHANNEL.pattern}"
    r"|<?https?://[^\s<>|]+(?:\|[^<>]*>|>)?|(?<!\w):[\w+-]+:"
)
"""Quotes, places, other links and emoji."""
OTHERS = re.compile(r"[:\uff1a](?=\s|\Z)|[\"“”„«»`‘「」『』]|(?<![\w\ue000-\uf8fe])'")
"""From here on a line quotes somebody, perhaps without an end."""
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b\w\.)\s+|(?<=[。\uff01\uff1f])|;")
QUESTION = re.compile("[?\uff1f\u061f]")


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE)


PLACE = r"[\ue000-\uf8fe](?!['’]s\b)"
GROUP = rf"""(?P<places>{PLACE}(?:(?:\s*,\s*|\s*,?\s*(?:[&+/]|\b(?:and|und|y|e|et|en)\b)\s*)
    (?:(?:to|in|an|en|à|dans|naar|do|v)\s+)?{PLACE})*)"""
"""Places that belong together: `#a, #b and #c`."""
WRITE = r"""(?:post|send|write|share|announce|publish|say|put|forward|poste|schreibe?|schicke?
    |sende?|teile|veröffentliche|publica|envía|manda|escribe|comparte|publie|envoie|écris|partage|plaats
    |stuur|schrijf|deel|pošli|napiš|zveřejni)"""
TELL = r"""(?:tell|notify|inform|remind|informiere|sage?|avisa\s+a|dile\s+a|informe|dis\s+à|zeg)"""
NOUN = r"""(?:summary|report|list|overview|update|answers?|results?|numbers|news|open\s+points|text
    |check\s+mark|Zusammenfassung|Bericht|Liste|Zahlen|resumen|informe|lista|résumé|rapport|liste
    |samenvatting|lijst|shrnutí|seznam)"""
THING = rf"""(?:it|this|that|them|hi|{QUOTE}|es|das|dies|esto|eso|cela|ça|dit|dat|het|to
    |(?:the|an?|my|our|die|das|den|eine?n?|el|la|una?|le|les|une?|de|een)\s+
    (?:[^\W\d]+(?:-[^\W\d]+)*\s+)?{NOUN}
    (?:\s+(?:of|from|about|von|de|van|z)\s+(?:it|this|that|{PLACE}(?:\s+(?:and|und|y|et|en)\s+
    {PLACE})?))?(?:\s+(?:davon|daraus))?)"""
TO = r"(?:to|into|in|an|en|a|à|dans|naar|do|v|na)\s+(?:the\s+)?"
CLOSING = r"""(?:\s*(?:[,.!]|\([^()]*\)|\[[^\[\]]*\]|(?:please|(?:right\s+|straight\s+)?(?:now|away)
    |today|immediately|asap|thanks|thank\s+you|bitte|jetzt|sofort|heute|danke|por\s+favor|ahora|hoy
    |gracias|s['’]il\s+(?:te|vous)\s+pla[iî]t|maintenant|merci|alsjeblieft|nu|vandaag|bedankt
    |prosím|hned|dnes|díky)\b))*\s*\Z"""
"""Nothing else stands after a place: brackets, politeness, hurry."""
MESSAGE = rf"""(?:that|about|of|what|how|we|our|my|the|an?|to|dass|que|dat|že|was|wat|{QUOTE})
    (?:\s|\Z)"""
ORDERS = (
    _words(rf"{WRITE}\s+{THING}\s+{TO}{GROUP}{CLOSING}"),
    _words(rf"{WRITE}\s+{TO}{GROUP}\s+(?:that|dass|que|dat|že|{QUOTE})"),
    _words(rf"{TELL}\s+{GROUP}(?:\s+{MESSAGE}|{CLOSING})"),
    _words(rf"let\s+{GROUP}\s+know\b"),
    _words(rf"(?:dm|message|ping|send)\s+{GROUP}(?:\s+{MESSAGE}|{CLOSING})"),
)
REPLIES = (
    _words(rf"(?:(?:reply|respond|react)\s+to|answer)\s+{GROUP}(?:\s+(?:with|that)\s|{CLOSING})"),
    _words(rf"put\s+{THING}\s+on\s+{GROUP}{CLOSING}"),
    _words(rf"(?:react|reply)\s+with\s+{QUOTE}\s+to\s+{GROUP}{CLOSING}"),
)
"""Orders whose place is a linked message."""
OPENING = _words(
    r"""(?:(?:please|kindly|now|then|also|hi|hello|ok|bitte|dann|por\s+favor|luego|puis|ensuite
    |alsjeblieft|dan|prosím|pak)[\s,!]+)*"""
)
ASKING = _words(r"(?:can|could|will)\s+you\s+(?:please\s+)?|would\s+you\s+please\s+")
"""How a question may begin that is an order."""
FIRST_STEP = _words(
    rf"[^\W\d]+\s+(?:it|this|{GROUP})(?:\s+zusammen)?\s*,?\s+(?:and|then|und|y|luego|et|puis|en|a)\s+"
    r"(?:(?:then|dann)\s+)?"
)
"""`Summarize #a and`, in front of an order."""


def places_to_write(request: str, channels: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the ids of the conversations, messages and people that the words ask to write to.

    `request` is the message as Slack sent it, with its marks for channels and people; `channels`
    are (id, name) pairs that the requester can see. People count by their mark only, never by name.
    """
    ids: list[str] = []
    line = _own_line(request, Channels(channels), ids)
    named = {i for sentence in _sentences(line) for i in _named(sentence, ids)}
    return frozenset(ids[i] for i in named)


def unquoted(request: str) -> str:
    """Return what its author says in words of their own: the first line without its quotes."""
    return _own_line(request, Channels(()), [])


def _own_line(request: str, known: Channels, ids: list[str]) -> str:
    """Return the first line up to a quote without an end, with a character for each place.

    Its number is the index of the place in `ids`.
    """

    def mark(found: re.Match[str]) -> str:
        id = _id(found[0], known)
        if not id:
            return QUOTE
        ids.append(id)
        return chr(FIRST + len(ids) - 1)

    line = request.strip().partition("\n")[0]
    if len(line) > MAX_CHARS or line.startswith((">", "&gt;", "```")):
        return ""
    marked = MARKS.sub(mark, PRIVATE_USE.sub("", line).replace("&amp;", "&"))
    own, *rest = OTHERS.split(marked, maxsplit=1)
    return own + "?" if any(map(QUESTION.search, rest)) else own


def _id(mark: str, known: Channels) -> str:
    """Return what a mark stands for; empty for a quote, or what the requester cannot see."""
    if person := PERSON.fullmatch(mark):
        return person[1]
    if link := LINKED.fullmatch(mark):
        return f"{link[1]}/{link[2]}.{link[3]}" if link[1] in known.names else ""
    channel = CHANNEL.fullmatch(mark)
    if not channel:
        return ""
    id = channel[1] or channel[3] or known.find(channel[2])
    return id if id in known.names else ""


def _sentences(line: str) -> Iterator[str]:
    """Yield the sentences of a line that may be orders: no questions, or `can you ...?`."""
    for sentence in SENTENCE_END.split(line):
        words = " ".join(sentence.split())
        words = words[_end(OPENING, words) :]
        if QUESTION.search(words):
            start = _end(ASKING, words)
            words = words[start:].rstrip("?\uff1f ") if start else ""
        yield words


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


def _named(sentence: str, ids: list[str]) -> Iterator[int]:
    """Yield the indexes of the places that an order names."""
    start = _end(FIRST_STEP, sentence)
    for pattern in (*ORDERS, *REPLIES):
        if found := pattern.match(sentence) or pattern.match(sentence, start):
            places = [ord(each) - FIRST for each in PRIVATE_USE.findall(found["places"])]
            if pattern in ORDERS or all("/" in ids[i] for i in places):
                yield from places
            return


URL = re.compile(r"https?://[^\s<>|\"'`\\^{}]+", re.IGNORECASE)
STOPS = ".,;:!?)]"
"""What ends a sentence rather than the address in front of it."""
LEAST_LITERAL = 2
"""Characters from which on a text can be said to stand in a request."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The request as the gate reads it; nothing that a model wrote or read is in it."""

    text: str = ""
    """The requester's own message, without anything that was quoted around it by code."""
    named: frozenset[str] = frozenset()
    """Ids of the conversations and people that these words name."""
    home: str = ""
    """The conversation that the answer goes to; empty on the command line."""
    thread: str = ""
    """The message in `home` that the answer replies to, as `<channel>/<ts>`."""
    own: str = ""
    """The requester's own message, as `<channel>/<ts>`."""
    lookups: frozenset[str] = frozenset()
    """Addresses, and words of searches, that the requester has approved to the letter."""
    scheduled: bool = False
    """Whether a schedule asks, in words that its owner approved: nobody is there to decide."""

    def says(self, text: str) -> bool:
        """Return whether the text stands in the request word for word, spaces aside."""
        wanted = _flat(text)
        return len(wanted) >= LEAST_LITERAL and f" {wanted} " in f" {_flat(self.text)} "

    def says_unquoted(self, text: str) -> bool:
        """Return whether it stands so in what is certainly the requester's own: see `unquoted`."""
        return Intent(unquoted(self.text)).says(text)

    def addresses(self) -> frozenset[str]:
        """Return the URLs that stand in the request, and those that the requester has approved."""
        named = frozenset(found.rstrip(STOPS) for found in URL.findall(self.text))
        return named | {each for each in self.lookups if URL.fullmatch(each)}

    def to_json(self) -> dict[str, Any]:
        where = {"home": self.home, "thread": self.thread, "own": self.own}
        lookups = {"lookups": sorted(self.lookups)} if self.lookups else {}
        scheduled = {"scheduled": True} if self.scheduled else {}
        return {
            "text": self.text,
            "named": sorted(self.named),
            **where,
            **lookups,
            **scheduled,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Intent:
        """Return the intent that `to_json` gave."""
        sets = {
            "named": frozenset(stored["named"]),
            "lookups": frozenset(stored.get("lookups", ())),
        }
        return cls(**{**stored, **sets})


UNASKED: Final = Intent()
"""Of a context that nobody asked for anything."""


@lru_cache(maxsize=64)
def _flat(text: str) -> str:
    """Words with one space between them; quotes and what ends a sentence stand apart."""
    return " ".join(re.sub(r"([\"'`“”„«»().,;:!?])", r" \1 ", text).split())
