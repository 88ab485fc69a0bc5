"""Match messages with Gmail's search language (support.google.com/mail/answer/7190).

Operators that are not in `_OPERATORS` count as ordinary words.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from bot.local.google.api import GoogleRefused
from bot.local.google.gmail_mime import decode_words, every
from bot.local.google.gmail_state import GmailState, MailboxMessage

MAX_DEPTH = 50
"""Depth of nested groups."""
DATE_ZONE = timezone(timedelta(hours=-8))
"""Dates mean midnight in this zone (PST), not in the user's: use seconds instead.
developers.google.com/gmail/api/guides/filtering"""
_TOKEN = re.compile(
    r"""
    (?P<open>[({])
    | (?P<close>[)}])
    | (?P<or>OR(?=[\s(){}]|$)|\|)
    | (?P<not>-(?=[^\s)}]))
    | (?P<key>[A-Za-z_]+):(?=["({])
    | "(?P<phrase>[^"]*)(?:"|$)
    | (?P<word>[^\s(){}"]+)
    """,
    re.VERBOSE,
)
_ANYWHERE = re.compile(r"(?<![-\w])(?:in|is|label):(?:anywhere|spam|trash)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_AGE = re.compile(r"(\d{1,5})([hdmy])")
_SECONDS = {"h": 3600, "d": 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
_DATE = re.compile(r"(\d{4})[/.-](\d{1,2})[/.-](\d{1,2})")
_HEADERS = {
    "cc": ("cc",),
    "from": ("from",),
    "subject": ("subject",),
    "to": ("to", "cc", "bcc"),
    "": ("subject", "from", "to", "cc", "bcc"),
}
_PLACES = {"drafts": "draft", "primary": "category_personal"}
_UNSPACED_SCRIPTS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts with few or no spaces between words."""

MessagePredicate = Callable[[MailboxMessage, GmailState], bool]


class Query(NamedTuple):
    holds: MessagePredicate
    """Match one message."""
    anywhere: bool
    """True = it includes spam or trash, which are left out otherwise."""


def parse_query(text: str) -> Query:
    """Parse a query. Every text is a valid one unless its groups are nested too deeply."""
    tokens = [(m.lastgroup or "", m[m.lastgroup or 0]) for m in _TOKEN.finditer(text)]
    return Query(_Parser(tokens).group(all, ""), bool(_ANYWHERE.search(text)))


@dataclass(slots=True)
class _Parser:
    tokens: list[tuple[str, str]]
    at: int = 0
    depth: int = 0

    def group(self, combine: Callable[[list[bool]], bool], key: str) -> MessagePredicate:
        """Read up to the closing bracket; `key` is the operator in front of the opening one."""
        items: list[list[MessagePredicate]] = []
        either = False
        while self.at < len(self.tokens):
            kind, _ = self.tokens[self.at]
            if kind in ("close", "or"):
                self.at += 1
                if kind == "close" and self.depth:
                    break
                either = kind == "or" and bool(items)
            elif item := self._item(key):
                if either:
                    items[-1].append(item)
                else:
                    items.append([item])
                either = False
        return lambda held, state: combine(
            [any(each(held, state) for each in one) for one in items]
        )

    def _item(self, key: str) -> MessagePredicate | None:
        if self.at == len(self.tokens):
            return None
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "word":
            name, _, value = text.partition(":")
            return _term(name.lower(), value) if value and _is_operator(name) else _term(key, text)
        if kind == "phrase":
            return _term(key, text)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GoogleRefused("invalidArgument", "Invalid query")
        found = self._inner(kind, text, key)
        self.depth -= 1
        return found

    def _inner(self, kind: str, text: str, key: str) -> MessagePredicate | None:
        if kind == "open":
            return self.group(any if text == "{" else all, key)
        if kind == "key":
            return self._item(text.lower() if _is_operator(text) else key)
        inner = self._item(key)
        return (lambda held, state: not inner(held, state)) if inner else None


def _is_operator(name: str) -> bool:
    return name.lower() in _OPERATORS


def _term(key: str, value: str) -> MessagePredicate:
    return lambda held, state: _OPERATORS[key](value, key, held, state)


def normalize_words(text: str) -> str:
    """Return the words of a text in lower case, without accents, each between spaces."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    words = _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))
    return f" {' '.join(words)} "


def _bag(held: MailboxMessage, key: str) -> str:
    """Return the words of the headers that an operator searches; without one, also of the texts."""
    if key not in held.bags:
        values = [decode_words(value) for value in every(held.headers, *_HEADERS[key])]
        if not key:
            values += [*held.texts, *(part.filename for part in held.root.walk())]
        held.bags[key] = normalize_words("\n".join(values))
    return held.bags[key]


def _in_text(value: str, key: str, held: MailboxMessage, state: GmailState) -> bool:
    is_own = key in ("cc", "from", "to") and value.lower() == "me"
    words = normalize_words(state.address if is_own else value)
    if not key and not words.strip():
        return True
    return (words.strip() if _UNSPACED_SCRIPTS.search(words) else words) in _bag(held, key)


def _match_label(value: str, key: str, held: MailboxMessage, state: GmailState) -> bool:
    """Match `in:`, `is:` and `label:`, which all name labels, with hyphens for spaces."""
    name = value.casefold()
    if name in ("anywhere", "read"):
        return name == "anywhere" or "UNREAD" not in held.labels
    name = f"category_{name}" if key == "category" else _PLACES.get(name, name)
    return any(_slug(state.labels[id]) == _slug(name) for id in held.labels)


def _slug(name: str) -> str:
    return re.sub(r"[\s/]+", "-", name.casefold())


def _has(value: str, key: str, held: MailboxMessage, state: GmailState) -> bool:
    files = [part.filename.casefold() for part in held.root.walk() if part.filename]
    if key == "has":
        return value.lower() == "attachment" and bool(files)
    return any(value.casefold() in file for file in files)


def _time(value: str) -> float | None:
    """Return seconds since 1970, from a number or from a date at midnight PST."""
    try:
        if value.isdecimal():
            return datetime.fromtimestamp(int(value), UTC).timestamp()
        if not (found := _DATE.fullmatch(value)):
            return None
        year, month, day = map(int, found.groups())
        return datetime(year, month, day, tzinfo=DATE_ZONE).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _match_date(value: str, key: str, held: MailboxMessage, state: GmailState) -> bool:
    if key.endswith("_than"):
        found = _AGE.fullmatch(value.lower())
        at = state.now() - int(found[1]) * _SECONDS[found[2]] if found else None
    else:
        at = _time(value)
    if at is None:
        return False
    later = held.at.timestamp() >= at
    return later if key in ("after", "newer", "newer_than") else not later


_OPERATORS: dict[str, Callable[[str, str, MailboxMessage, GmailState], bool]] = {
    **dict.fromkeys(("", "cc", "from", "subject", "to"), _in_text),
    **dict.fromkeys(("category", "in", "is", "label"), _match_label),
    **dict.fromkeys(("filename", "has"), _has),
    **dict.fromkeys(("after", "before", "newer", "newer_than", "older", "older_than"), _match_date),
}
