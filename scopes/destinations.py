"""Where a request asks to write: the conversations and people that its own words name for that.

A place that is only read from is no place to write to. Only a plain order names one: a verb that
begins its clause, what is to be written, and where. Where the words leave anything open, nothing is
named, and what would be written waits for approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scopes import orders
from scopes.orders import ARTICLE, AT, CONTENT, TO, words
from scopes.slack_names import CHANNEL, LINK, Channels

PERSON = re.compile(r"<@([UW][A-Z0-9]{2,})(?:\|[^>]*)?>")

MOST_CHARS = 2_000
"""Of a request that are looked at for places; what is pasted further down names none."""
MOST_WORDS = 4
"""Words between an order and `in #place`, outside quotes, for it to be where to write."""
PASTED = re.compile(
    r"```.*?(?:```|\Z)|^[ \t]*(?:>>>|&gt;&gt;&gt;).*|^[ \t]*(?:>|&gt;)[^\n]*",
    re.DOTALL | re.MULTILINE,
)
"""Text of somebody else's that a request is about: what it asks for does not count."""
QUOTED = (
    r"(?<!\w)\"[^\"]*\"(?!\w)|(?<![\w>])'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)|“[^“”]*”|„[^„“”]*[“”]"
    r"|«[^«»]*»|»[^«»]*«|‘[^‘\n]*?’(?!\w)|「[^「」]*」|『[^『』]*』|`[^`]*`"
)
OTHERS = re.compile(
    r"""[:\uff1a](?=\s|\Z)(?!\s*\uf8ff)            # what follows is said, listed or forwarded
    |[\"“”„«»`‘「」『』]|(?<![\w\ue000-\uf8fe])'  # a quote without an end
    |-{3,}|_{5,}|={3,}|\bforwarded\s+message|\boriginal\s+message|\bweitergeleitete\s+nachricht
    |\n(?:hi|hello|hey|dear|hallo|liebe[rs]?|sehr\s+geehrte|hola|estimad[oa]s?|bonjour|beste
    |ch[eè]re?s?|geachte|ahoj|dobrý\s+den|ciao|olá|cześć)\b[^\n]{0,40}(?:,|!|(?=\n)|\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
"""From here on the words may be somebody else's."""
ENDS = re.compile(
    r"(?<=[.!?…])(?<!\b\w\.)\s+|(?<=[。\uff01\uff1f])|;|\n(?=(?:[-*•–]\s|\d+[.)]|[A-ZÀ-ÖØ-ÞČŘŠŽ]))"
)
"""Between sentences; a line that goes on in small letters belongs to the one before."""

ASKS = re.compile("[?\uff1f\u061f]")
SAID, FIRST = "\uf8ff", 0xE000
PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
LINKED = re.compile(
    rf"<?https?://[^\s<>|]{{0,200}}?{LINK.pattern}(?:\?[\w=&;.%-]*\w)?(?:\|[^<>]*>|>)?"
)
ATOM = re.compile(
    rf"{QUOTED}|{LINKED.pattern}|{PERSON.pattern}|{CHANNEL.pattern}"
    r"|<?https?://[^\s<>|]+(?:\|[^<>]*>|>)?|(?<!\w):[\w+-]+:"
)
PLACE = r"[\ue000-\uf8fe](?!['’]s\b)"
GROUP = rf"""{PLACE}(?:(?:\s*,\s*{PLACE})*\s*(?:,\s*)?(?:[&+/]|\b(?:and|und|y|e|et)\b)\s*
    (?:(?:also|auch)\s+)?(?:(?:to|in|an|nach|dans|à|naar|do|v)\s+)?{PLACE})*"""
"""Places that belong together: `#a, #b and #c`."""
GROUPS = words(GROUP)
OPENS, ASKED, NEXT = words(orders.OPENS), words(orders.ASKED), words(orders.NEXT)
ORDER = words(
    rf"(?:(?P<tell>{orders.TELL}|{orders.LET}|(?P<call>{orders.CALL}))|(?P<answer>{orders.ANSWER})"
    rf"|{orders.SURE}|{orders.NOUNS})(?=\s|\Z)"
)
VERB, LEADS = words(orders.VERB), words(rf"{orders.VERB}|{orders.ACTS}")
SUBORDINATE = words(orders.SUBORDINATE)
TELLING = words(rf"\s+(?:{orders.WHOM}\s+)?(?P<places>{GROUP})(?!\s+{orders.TOLD}\b)")
GIVING = words(rf"{orders.SEND}\s+(?P<places>{GROUP})\s+(?={CONTENT})")
"""`send @ana the list`"""
STRAIGHT = words(rf"\s+(?:(?P<to>{TO})|{AT})(?P<places>{GROUP})")
"""A place right after the verb: `post to #b what happened`."""
OBJECT = words(rf"\s+(?:{orders.GIVEN}|(?:what|was|lo\s+que|ce\s+qui|ce\s+que|wat)\s|{SAID})")
BARE = words(rf"{orders.BARE}\s+(?=\w)")
TOWARDS, INTO = words(rf"{TO}\Z"), words(rf"{AT}\Z")
TOLD = words(rf"\b{orders.TOLD}\s+(?:it\s+)?\Z")
FOUND = words(rf"{orders.FOUND}\Z")
DIVERTS, RELATES, BACK = words(orders.DIVERTS), words(orders.RELATES), words(orders.BACK)
AFTER_AT, AFTER_TO = words(orders.AFTER_AT), words(orders.AFTER_TO)
CLOSED = words(orders.CLOSED)
THEREIN = words(rf"\s+(?:{CONTENT}|{orders.WITH})")
SOURCE = words(
    rf"\b(?:of|from|about|de|del|von|vom|aus|über|du|van|over|sobre|z|o)\s+(?:{ARTICLE}\s+)*{PLACE}"
)
"""What is said somewhere else: `a summary of #a in #b` is to stand in #b."""


def places_to_write(request: str, channels: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the ids of the conversations, messages and people that the words ask to write to.

    `request` is the message as Slack sent it, with its marks for channels and people; `channels`
    are (id, name) pairs that the requester can see. People count by their mark only, never by name.
    """
    ids: list[str] = []
    own = _marked(request, Channels(channels), ids)
    named = (
        letter
        for sentence in _sentences(own)
        for clause, asked in _clauses(sentence)
        for letter in PRIVATE_USE.findall(_places(clause, asked, ids))
    )
    return frozenset(ids[ord(letter) - FIRST] for letter in named)


def _marked(request: str, known: Channels, ids: list[str]) -> str:
    """Return the text with a letter for each place, whose number is its place in `ids`."""

    def put(found: re.Match[str]) -> str:
        id = _id(found[0], known)
        if not id:
            return SAID
        ids.append(id)
        return chr(FIRST + len(ids) - 1)

    looked_at = PRIVATE_USE.sub("", request[: MOST_CHARS + 1])
    if len(request) > MOST_CHARS:  # the last sentence may go on
        looked_at = looked_at[: max(looked_at.rfind(mark) for mark in ".!?\n") + 1]
    own = PASTED.sub("\n", looked_at).replace("&amp;", "&")
    return ATOM.sub(put, "\n".join(filter(None, map(str.strip, own.splitlines()))))


def _id(mark: str, known: Channels) -> str:
    """Return what a mark stands for.

    Empty where it is a quote, or nothing that the requester can see.
    """
    if person := PERSON.fullmatch(mark):
        return person[1]
    if link := LINKED.fullmatch(mark):
        return f"{link[1]}/{link[2]}.{link[3]}" if link[1] in known.names else ""
    channel = CHANNEL.fullmatch(mark)
    if not channel:
        return ""
    id = channel[1] or channel[3] or known.find(channel[2])
    return id if id in known.names else ""


def _sentences(text: str) -> Iterator[str]:
    """Yield the requester's own sentences. One that leads to a question ends in a question mark."""
    other = OTHERS.search(text)
    own = text[: other.end()] if other else text
    *whole, last = ENDS.split(own)
    if other and ASKS.search(text, other.end()):
        last += "?"
    yield from (" ".join(sentence.split()) for sentence in (*whole, last))


def _clauses(sentence: str) -> Iterator[tuple[str, bool]]:
    """Yield the orders of a sentence that begins with one, and whether it is put as a question."""
    asked = ASKS.search(sentence) is not None
    head = (ASKED if asked else OPENS).match(sentence)
    if not head or not LEADS.match(sentence, head.end()):
        return
    for clause in NEXT.split(sentence[head.end() :]):
        if VERB.match(clause):
            yield clause, asked
        if SUBORDINATE.search(clause):
            return


def _places(clause: str, asked: bool, ids: list[str]) -> str:
    """Return the letters of the places that an order names."""
    order = ORDER.match(clause)
    assert order
    after = order.end()
    match order.lastgroup:
        case "tell":
            told = TELLING.match(clause, after)
            plain = told and (not order["call"] or AFTER_TO.match(clause, told.end()))
            return told["places"] if told and plain else ""
        case "answer":
            answered = GROUPS.match(clause, after + 1)
            if answered and "/" in ids[ord(answered[0][0]) - FIRST]:
                return answered[0] if AFTER_TO.match(clause, answered.end()) else ""
            return _straight(clause, after, asked) or _towards(clause, after, after)
    if given := GIVING.match(clause):
        return given["places"]
    thing = OBJECT.match(clause, after) or BARE.match(clause)
    if not thing:
        return _straight(clause, after, asked)
    return _towards(clause, after, thing.end()) or _into(clause, after)


def _straight(clause: str, after: int, asked: bool) -> str:
    """Right after the verb; what is to be written has to follow, or it may be a noun."""
    found = STRAIGHT.match(clause, after)
    if not found:
        return ""
    closed = found["to"] and not asked and CLOSED.fullmatch(clause, found.end())
    return found["places"] if closed or THEREIN.match(clause, found.end()) else ""


def _towards(clause: str, after: int, thing: int) -> str:
    """Return the first place with `to`."""
    for group in GROUPS.finditer(clause, after):
        before = clause[thing : group.start()]
        goal = TOWARDS.search(before)
        if goal:
            to = before[: goal.start()]
            odd = TOLD.search(f"{to} ") or DIVERTS.search(to)
            return group[0] if not odd and AFTER_TO.match(clause, group.end()) else ""
    return ""


def _into(clause: str, after: int) -> str:
    """Return the only place with `in`, if it is near and does not tell where something happened."""
    near = [
        group
        for group in GROUPS.finditer(clause, after)
        if (place := INTO.search(clause, after, group.start()))
        and _is_short(clause[after : place.start()])
    ]
    if len(near) != 1 or not AFTER_AT.match(clause, near[0].end()):
        return ""
    return near[0][0]


def _is_short(between: str) -> bool:
    """Return whether a place so far from the order is where to write, not where
    something happened.
    """
    if FOUND.search(between) or TOLD.search(between):
        return False
    bare = BACK.sub(" ", SOURCE.sub(" ", between.replace(SAID, " ")))
    return len(bare.split()) <= MOST_WORDS and not RELATES.search(bare)
