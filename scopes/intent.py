"""The request in its requester's own words, the only trusted text of a run.

It may name channels (`#name`, a mark, an id, a link to a message), and places to write to: writing
there needs no approval card. Only a plain order does: `<verb> <what> to <place>` or `<verb>
<person> ...`, at the start of a sentence, in the first line of the message, outside quotes and
questions. Every other wording waits for a card, so an order that is missed here costs its requester
one click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

LINK = re.compile(r"/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
CHANNEL_MENTION = re.compile(r"<#([CGD][A-Z0-9]{2,})(?:\|([^>]*))?>")
CHANNEL = re.compile(
    r"<#([CGD][A-Z0-9]{2,})(?:\|[^>]*)?>|(?<![\w&/])#([^\s#<>|,.;:!?()\"']+)|\b(C[A-Z0-9]{8,})\b"
)


class Channels:
    """Channels that a requester can see, found by id or name."""

    def __init__(self, channels: Iterable[tuple[str, str]]) -> None:
        """Index (id, name) pairs."""
        self.names = dict(channels)
        self._exact: dict[str, list[str]] = {}
        self._folded: dict[str, list[str]] = {}
        for id, name in self.names.items():
            self._exact.setdefault(name, []).append(id)
            self._folded.setdefault(name.casefold(), []).append(id)

    def find(self, name: str) -> str:
        """Return the id of the channel with this name, else of the only one with it in any case,
        else "".
        """
        found = self._exact.get(name) or self._folded.get(name.casefold(), [])
        return found[0] if len(found) == 1 else ""


def names_any(request: str) -> bool:
    """Return whether a request may name a channel at all, so that listing them is worthwhile."""
    return bool(LINK.search(request) or CHANNEL.search(request))


def find_named(request: str, channels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the places that a request names (`#name`, a mention, an id, a permalink): id -> title.

    `channels` are (id, name) pairs that the requester can see; anything else names nothing.
    """
    visible = Channels(channels)
    links = [g for g in LINK.findall(request) if g[0] in visible.names]
    named = [g[0] for g in links]
    for mention, name, bare in CHANNEL.findall(request):
        named.append(mention or bare or visible.find(name) or name)
    threads = {f"{channel}/{whole}.{part}": "a linked thread" for channel, whole, part in links}
    return {**{id: f"#{visible.names[id]}" for id in named if id in visible.names}, **threads}


def find_marked(request: str) -> dict[str, str]:
    """Return the channels that a request mentions or links to: id -> title as in the request."""
    links = dict.fromkeys((channel for channel, *_ in LINK.findall(request)), "")
    marks = dict(CHANNEL_MENTION.findall(request))
    found = {**links, **marks}
    return {id: f"#{name}" if name else id for id, name in found.items()}


MAX_CHARS = 2_000
"""Characters of a first line; a longer one is pasted."""
QUOTE, PLACE_AT, MESSAGE_AT = "\uf8ff", 0xE000, 0xF000
"""Characters that stand for a quote; for the first place; for the first that is a message."""
PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
PERSON = re.compile(r"<@([UW][A-Z0-9]{2,})(?:\|[^>]*)?>")
FULL_MESSAGE_LINK = re.compile(
    rf"<?https?://[^\s<>|]{{0,200}}?{LINK.pattern}(?:\?[\w=&;.%-]*\w)?(?:\|[^<>]*>|>)?"
)
QUOTES_AND_PLACES = re.compile(
    r"(?<!\w)\"[^\"]*\"(?!\w)|(?<![\w>])'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)|“[^“”]*”|„[^„“”]*[“”]"
    r"|«[^«»]*»|»[^«»]*«|‘[^‘\n]*?’(?!\w)|「[^「」]*」|『[^『』]*』|`[^`]*`"
    rf"|{FULL_MESSAGE_LINK.pattern}|{PERSON.pattern}|{CHANNEL.pattern}"
    r"|<?https?://[^\s<>|]+(?:\|[^<>]*>|>)?|(?<!\w):[\w+-]+:"
)
"""Quotes, places, other links and emoji."""
QUOTE_START = re.compile(r"[:\uff1a](?=\s|\Z)|[\"“”„«»`‘「」『』]|(?<![\w\ue000-\uf8fe])'")
"""The start of a quote in a line, perhaps without an end."""
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\b\w\.)\s+|(?<=[。\uff01\uff1f])|;")
QUESTION = re.compile("[?\uff1f\u061f]")


def _places(letters: str) -> str:
    """Return the pattern of places that belong together: `#a, #b and #c`."""
    place = rf"[{letters}](?!['’]s\b)"
    parted = r"(?:\s*(?:[,&+/]|\b(?:and|und|y|et)\b))+\s*(?:(?:to|in|en|dans)\s+)?"
    return rf"{place}(?:{parted}{place})*"


ANY, LINKS = _places("\ue000-\uf8fe"), _places("\uf000-\uf8fe")
TO_ANY, TO_MESSAGE = f"(?P<places>{ANY})", f"(?P<places>{LINKS})"
WRITE = r"""(?:post|sende?|write|share|announce|publish|say|put|poste|schreibe?|schicke?|teile
    |publica|envía|manda|comparte|publie|envoie|partage)"""
NOUN = r"""(?:summary|report|list|overview|update|answers?|results?|numbers|news|check\s+mark
    |Zusammenfassung|Bericht|Liste|resumen|informe|lista|résumé|rapport|liste)"""
THING = rf"""(?:it|this|that|them|hi|{QUOTE}|es|das|esto|eso|cela|(?:the|an?|die|das|den|eine?n?|el
    |la|una?|les?|une)\s+(?:[^\W\d]+(?:-[^\W\d]+)*\s+)?{NOUN}(?:\s+(?:of|von|de)\s+(?:it|this|{ANY}))?)"""
TO = r"(?:to|in|an|en|a|à|dans)\s+(?:the\s+)?"
END = r"""(?:\s*(?:[,.!?\uff1f]|(?:please|now|today|thanks|bitte|jetzt|heute|danke|por\s+favor|ahora
    |gracias|merci)\b))*\s*\Z"""
"""Only politeness and hurry may follow a place."""
MESSAGE = rf"\s+(?:that|about|of|what|how|we|our|my|the|an?|to|dass|que|{QUOTE})(?:\s|\Z)"
START = rf"""(?:(?:please|kindly|now|then|also|hi|ok|bitte|dann|por\s+favor|luego|puis)[\s,!]+)*
    (?P<asked>(?:can|could|will)\s+you\s+(?:please\s+)?|would\s+you\s+please\s+)?
    (?:[^\W\d]+\s+(?:it|this|{ANY})(?:\s+zusammen)?\s*,?\s+(?:and|then|und|y|et|puis)\s+
    (?:(?:then|dann)\s+)?)?"""
"""Politeness, `can you`, and `summarize #a and`, in front of an order."""
ORDERS = tuple(
    re.compile(START + order, re.IGNORECASE | re.VERBOSE)
    for order in (
        rf"{WRITE}\s+{THING}\s+{TO}{TO_ANY}{END}",
        rf"{WRITE}\s+{TO}{TO_ANY}(?:\s+(?:that|dass|que|{QUOTE})|{END})",
        rf"(?:tell|notify|inform|remind|dm|message|ping|send)\s+{TO_ANY}(?:{MESSAGE}|{END})",
        rf"let\s+{TO_ANY}\s+know\b",
        rf"(?:(?:reply|react)\s+to|answer)\s+{TO_MESSAGE}(?:\s+(?:with|that)\s|{END})",
        rf"put\s+{THING}\s+on\s+{TO_MESSAGE}{END}",
        rf"(?:react|reply)\s+with\s+{QUOTE}\s+to\s+{TO_MESSAGE}{END}",
    )
)


def places_to_write(request: str, channels: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the ids of the conversations, messages and people that the words ask to write to.

    `request` is the message as Slack sent it, with its marks for channels and people; `channels`
    are (id, name) pairs that the requester can see. People count by their mark only, never by name.
    """
    ids: list[str] = []
    sentences = SENTENCE_END.split(_own_line(request, Channels(channels), ids))
    named = {place for each in sentences for place in _find_places(" ".join(each.split()))}
    return frozenset(ids[ord(place) & 0xFFF] for place in named)


def _find_places(sentence: str) -> list[str]:
    """Return the characters of the places that an order names; a question is none."""
    for order in ORDERS:
        if found := order.match(sentence):
            is_order = found["asked"] or not QUESTION.search(sentence)
            return PRIVATE_USE.findall(found["places"]) if is_order else []
    return []


def remove_quotes(request: str) -> str:
    """Return the author's own words: the first line without its quotes."""
    return _own_line(request, Channels(()), [])


def _own_line(request: str, visible: Channels, ids: list[str]) -> str:
    """Return the first line up to an open quote, with a character for each place in `ids`."""

    def mark(found: re.Match[str]) -> str:
        id = _id(found[0], visible)
        if not id:
            return QUOTE
        ids.append(id)
        return chr((MESSAGE_AT if "/" in id else PLACE_AT) + len(ids) - 1)

    line = request.strip().partition("\n")[0]
    if len(line) > MAX_CHARS or line.startswith((">", "&gt;", "```")):
        return ""
    marked = QUOTES_AND_PLACES.sub(mark, PRIVATE_USE.sub("", line).replace("&amp;", "&"))
    own, *rest = QUOTE_START.split(marked, maxsplit=1)
    return own + "?" if any(map(QUESTION.search, rest)) else own


def _id(mark: str, visible: Channels) -> str:
    """Return the id of a mark; empty for a quote, or a place that the requester cannot see."""
    if person := PERSON.fullmatch(mark):
        return person[1]
    if link := FULL_MESSAGE_LINK.fullmatch(mark):
        return f"{link[1]}/{link[2]}.{link[3]}" if link[1] in visible.names else ""
    channel = CHANNEL.fullmatch(mark)
    if not channel:
        return ""
    id = channel[1] or channel[3] or visible.find(channel[2])
    return id if id in visible.names else ""


URL = re.compile(r"https?://[^\s<>|\"'`\\^{}]+", re.IGNORECASE)
CLOSING_PUNCTUATION = ".,;:!?)]"
"""Characters that end a sentence, not the address before them."""
LEAST_LITERAL = 2
"""Minimum characters of a text that counts as part of a request."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The request for the gate, without anything that a model wrote or read."""

    text: str = ""
    """The requester's own message, without quotes that code added around it."""
    named: frozenset[str] = frozenset()
    """Ids of the conversations and people that these words name."""
    home: str = ""
    """The conversation that the answer goes to; empty on the command line."""
    thread: str = ""
    """The message in `home` that the answer replies to, as `<channel>/<ts>`."""
    own: str = ""
    """The requester's own message, as `<channel>/<ts>`."""
    lookups: frozenset[str] = frozenset()
    """Addresses, and words of searches, that the requester has approved exactly."""
    scheduled: bool = False
    """True for a scheduled request, in words that its owner approved: nobody can decide then."""

    def says(self, text: str) -> bool:
        """Return whether the request contains the text word for word, ignoring spaces."""
        wanted = _flat(text)
        return len(wanted) >= LEAST_LITERAL and f" {wanted} " in f" {_flat(self.text)} "

    def says_unquoted(self, text: str) -> bool:
        """Return whether their own words contain it, without quotes: see `remove_quotes`."""
        return Intent(remove_quotes(self.text)).says(text)

    def addresses(self) -> frozenset[str]:
        """Return the URLs in the request, and those that the requester has approved."""
        named = frozenset(found.rstrip(CLOSING_PUNCTUATION) for found in URL.findall(self.text))
        return named | {each for each in self.lookups if URL.fullmatch(each)}

    def to_json(self) -> dict[str, Any]:
        data = asdict(self) | {"named": sorted(self.named), "lookups": sorted(self.lookups)}
        return {k: v for k, v in data.items() if v or k not in ("lookups", "scheduled")}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Intent:
        """Return the intent from the result of `to_json`."""
        return _INTENT_ADAPTER.validate_python(stored)


_INTENT_ADAPTER: Final = TypeAdapter(Intent)


EMPTY_INTENT: Final = Intent()
"""Of a context that nobody asked for anything."""


@lru_cache(maxsize=64)
def _flat(text: str) -> str:
    """Return words with one space between them; quotes and ends of sentences are words, too."""
    return " ".join(re.sub(r"([\"'`“”„«»().,;:!?])", r" \1 ", text).split())
