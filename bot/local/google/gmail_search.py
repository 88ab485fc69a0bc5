"""Gmail's search language (support.google.com/mail/answer/7190), and what a message matches.

Operators that are not in OPERATORS find nothing.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from bot.local.google.api import GoogleRefused
from bot.local.google.gmail_headers import decoded, every
from bot.local.google.gmail_state import SYSTEM_LABELS, GmailState, Held

OPERATORS = frozenset(
    """after before category cc filename from has in is label newer newer_than older older_than
    subject to""".split()
)
MAX_DEPTH = 50
"""Groups within groups."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<open>[({])
    | (?P<close>[)}])
    | (?P<not>-(?=[^\s)}]))
    | (?P<or>OR(?=[\s(){}]|$)|\|)
    | (?P<and>AND(?=[\s(){}]|$))
    | (?P<operator>[A-Za-z0-9_]+):(?=["({])
    | (?P<plus>\+(?=\S))
    | "(?P<phrase>[^"]*)(?:"|$)
    | (?P<word>[^\s(){}"]+)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that is looked for."""

    operator: str
    """One of OPERATORS; empty for words in the text."""
    value: str


@dataclass(frozen=True, slots=True)
class Group:
    """Terms and groups of which all, or any, or none have to be there."""

    kind: str
    """all, any or none."""
    items: tuple["Group | Term", ...]


@dataclass(frozen=True, slots=True)
class Query:
    root: Group
    anywhere: bool
    """Whether it asks for spam or trash, which are left out otherwise."""


def parsed(text: str) -> Query:
    """The tree of a query; nothing is a wrong query but one nested beyond all sense."""
    tokens = [
        (found.lastgroup or "word", found[found.lastgroup or 0])
        for found in _TOKEN.finditer(text)
        if found.lastgroup not in ("space", "and", "plus")
    ]
    root = _Parser(tokens).group("all", "", 0)
    return Query(root, any(_asks_for_all(term) for term in _wanted(root)))


@dataclass(slots=True)
class _Parser:
    tokens: list[tuple[str, str]]
    at: int = 0

    def group(self, kind: str, operator: str, depth: int) -> Group:
        """What stands up to the closing bracket; `operator` is that in front of the opening one."""
        items: list[Group | Term] = []
        either = False
        while self.at < len(self.tokens):
            token = self.tokens[self.at][0]
            if token == "close":
                self.at += 1
                if depth:
                    break
            elif token == "or":
                self.at += 1
                either = bool(items)
            elif item := self._item(operator, depth):
                items.append(_either(items.pop(), item) if either else item)
                either = False
        return Group(kind, tuple(items))

    def _item(self, operator: str, depth: int) -> Group | Term | None:
        if depth > MAX_DEPTH:
            raise GoogleRefused("invalidArgument", "Invalid query")
        if self.at == len(self.tokens):
            return None
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "not":
            item = self._item(operator, depth + 1)
            return Group("none", (item,)) if item else None
        if kind == "operator":
            known = text.lower() if text.lower() in OPERATORS else ""
            return self._item(known or operator, depth + 1)
        if kind == "open":
            return self.group("any" if text == "{" else "all", operator, depth + 1)
        if kind == "phrase":
            return Term(operator, text)
        return _term(operator, text) if kind == "word" else None


def _either(first: Group | Term, second: Group | Term) -> Group:
    if isinstance(first, Group) and first.kind == "any":
        return Group("any", (*first.items, second))
    return Group("any", (first, second))


def _term(operator: str, text: str) -> Term:
    name, colon, value = text.partition(":")
    if colon and value and name.lower() in OPERATORS:
        return Term(name.lower(), value)
    return Term(operator, text)


def _wanted(node: Group | Term) -> Iterator[Term]:
    if isinstance(node, Term):
        yield node
    elif node.kind != "none":
        for item in node.items:
            yield from _wanted(item)


def _asks_for_all(term: Term) -> bool:
    return term.operator in ("in", "is", "label") and term.value.lower() in (
        "anywhere",
        "spam",
        "trash",
    )


MIDNIGHT = timezone(timedelta(hours=-8))
"""Dates mean midnight there (PST), whatever the user's zone is: use seconds instead.
developers.google.com/gmail/api/guides/filtering"""

_WORD = re.compile(r"\w+")
_AGE = re.compile(r"(\d{1,5})([hdmy])")
_SECONDS = {"h": 3600, "d": 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
_DATE = re.compile(r"(\d{4})[/.-](\d{1,2})[/.-](\d{1,2})|(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})")
_HEADERS = {
    "cc": ("cc",),
    "from": ("from",),
    "subject": ("subject",),
    "to": ("to", "cc", "bcc"),
    "": ("subject", "from", "to", "cc", "bcc"),
}
_PLACES = {"draft": "DRAFT", "drafts": "DRAFT", "chats": "CHAT", "primary": "CATEGORY_PERSONAL"}
_BEYOND_ASCII = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts that put no space between words, or few."""


def matches(query: Query, held: Held, state: GmailState) -> bool:
    """Whether this message is one of those that the query asks for."""
    return _holds(query.root, held, state)


def _holds(node: Group | Term, held: Held, state: GmailState) -> bool:
    if isinstance(node, Term):
        return _TERMS.get(node.operator, _in_header)(node, held, state)
    inner = (_holds(item, held, state) for item in node.items)
    if node.kind == "any":
        return any(inner)
    return all(inner) if node.kind == "all" else not any(inner)


def normalised(text: str) -> str:
    """The words of a text, in lower case and without accents, each between spaces."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    words = _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))
    return f" {' '.join(words)} "


def _contains(bag: str, wanted: str) -> bool:
    words = normalised(wanted)
    return (words.strip() if _BEYOND_ASCII.search(words) else words) in bag


def _bag(held: Held, operator: str) -> str:
    """The words of the headers that an operator looks at; without one, those of the texts too."""
    if operator not in held.bags:
        values = [decoded(value) for value in every(held.headers, *_HEADERS[operator])]
        if not operator:
            values += [*held.texts(), *(part.filename for part in held.root.walk())]
        held.bags[operator] = normalised("\n".join(values))
    return held.bags[operator]


def _in_header(term: Term, held: Held, state: GmailState) -> bool:
    own = term.operator in ("cc", "from", "to") and term.value.lower() == "me"
    return _contains(_bag(held, term.operator), state.address if own else term.value)


def _in_text(term: Term, held: Held, state: GmailState) -> bool:
    return normalised(term.value) == "  " or _contains(_bag(held, ""), term.value)


def _labelled(term: Term, held: Held, state: GmailState) -> bool:
    """`in:`, `is:` and `label:` all ask for labels; a space in a name is written as a hyphen."""
    name = term.value.casefold()
    if name == "anywhere":
        return True
    if name == "read":
        return "UNREAD" not in held.labels
    wanted = {_slug(name), _PLACES.get(name, "").casefold(), f"category_{name}"} - {""}
    if term.operator != "category":
        wanted.discard(f"category_{name}")
    return any(_slug(state.labels[id]) in wanted for id in held.labels)


def _slug(name: str) -> str:
    return re.sub(r"[\s/]+", "-", name.casefold())


def _has(term: Term, held: Held, state: GmailState) -> bool:
    own = held.labels - set(SYSTEM_LABELS)
    match term.value.lower():
        case "attachment":
            return any(part.filename for part in held.root.walk())
        case "userlabels":
            return bool(own)
        case "nouserlabels":
            return not own
    return False


def _named(term: Term, held: Held, state: GmailState) -> bool:
    wanted = term.value.casefold()
    names = [part.filename.casefold() for part in held.root.walk() if part.filename]
    return any(name.endswith(f".{wanted}") or _contains(normalised(name), wanted) for name in names)


def _after(term: Term, held: Held, state: GmailState) -> bool:
    at = _time(term.value)
    return at is not None and held.at >= at


def _before(term: Term, held: Held, state: GmailState) -> bool:
    at = _time(term.value)
    return at is not None and held.at < at


def _time(value: str) -> datetime | None:
    """A date at midnight PST (a year alone is its first day), or seconds since 1970."""
    try:
        if value.isdecimal() and len(value) == 4:
            return datetime(int(value), 1, 1, tzinfo=MIDNIGHT)
        if value.isdecimal():
            return datetime.fromtimestamp(int(value), UTC)
        found = _DATE.fullmatch(value)
        if not found:
            return None
        year, month, day = found.group(1, 2, 3) if found[1] else (found[6], *found.group(4, 5))
        return datetime(int(year), int(month), int(day), tzinfo=MIDNIGHT)
    except (ValueError, OverflowError, OSError):
        return None


def _newer(term: Term, held: Held, state: GmailState) -> bool:
    age = _age(term.value)
    return age is not None and held.at.timestamp() >= state.now() - age


def _older(term: Term, held: Held, state: GmailState) -> bool:
    age = _age(term.value)
    return age is not None and held.at.timestamp() < state.now() - age


def _age(value: str) -> int | None:
    found = _AGE.fullmatch(value.lower())
    return int(found[1]) * _SECONDS[found[2]] if found else None


_TERMS: dict[str, Callable[[Term, Held, GmailState], bool]] = {
    "": _in_text,
    "after": _after,
    "before": _before,
    "category": _labelled,
    "filename": _named,
    "has": _has,
    "in": _labelled,
    "is": _labelled,
    "label": _labelled,
    "newer": _after,
    "newer_than": _newer,
    "older": _before,
    "older_than": _older,
}
