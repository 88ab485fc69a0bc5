"""The places that a request asks to write to: writing there needs no approval card.

Only a plain order names a place: `<verb> <what> to <place>` or `<verb> <person> ...`, at the start
of a sentence, in the first line of the message, outside quotes and questions. Every other wording
waits for a card, so an order that is missed here costs its requester one click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scopes.slack_names import CHANNEL, LINK, Channels

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
