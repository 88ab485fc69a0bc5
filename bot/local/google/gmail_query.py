"""Gmail's search language: a `q` as a tree of terms (support.google.com/mail/answer/7190).

Operators that are not in OPERATORS find nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bot.local.google.errors import GoogleRefused

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
