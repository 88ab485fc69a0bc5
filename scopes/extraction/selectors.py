"""CSS selectors (level 4), as far as they speak of what stands in front of an element."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_SELECTOR = 2_000  # characters
MAX_COMPOUNDS = 20

_IDENT = r"(?:[\w-]|[^\x00-\x7f]|\\[0-9a-fA-F]{1,6}\s?|\\.)+"
_TOKEN = re.compile(
    rf"""\s*(?P<combinator>[>+~])\s*|(?P<space>\s+)|\.(?P<cls>{_IDENT})|\#(?P<id>{_IDENT})
    |\[\s*(?P<attr>{_IDENT})\s*(?:(?P<op>[~|^$*]?=)\s*(?P<value>"[^"]*"|'[^']*'|[^\]\s]*)
    \s*(?P<flag>[isIS])?\s*)?\]
    |(?P<element>::{_IDENT})|:(?P<pseudo>{_IDENT})(?P<call>\()?|(?P<tag>{_IDENT}|\*|&)""",
    re.VERBOSE,
)
_BRACKET = re.compile(r"[()\[\]]")
_CLASS = re.compile(r"\.[\w-]{1,1000}")
_NEVER = frozenset(
    "hover focus active visited checked target focus-visible focus-within before after first-line "
    "first-letter -moz-focusring fullscreen disabled invalid -moz-placeholder "
    "-ms-input-placeholder placeholder-shown popover-open autofill".split()
)
"""What no element is while a page is only read, and parts that hold no text of ours."""
_NTH = re.compile(r"([+-]?\d{0,6})n\s*(?:([+-])\s*(\d{1,6}))?$|([+-]?\d{1,6})$")


class Compound(NamedTuple):
    """What one element must be: `p.note[lang]:first-child`."""

    tag: str = ""
    ids: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()
    attributes: tuple[tuple[str, str, str], ...] = ()
    """Name, operator, value."""
    places: tuple[tuple[str, int, int], ...] = ()
    """`child` or `type`, and the a and b of an+b."""
    choices: tuple[tuple[bool, tuple[Selector, ...]], ...] = ()
    """Whether one of the selectors must match (`:is`) or none may (`:not`)."""
    combinator: str = ""
    """What joins it to the compound in front of it."""


class Selector(NamedTuple):
    """Compounds from left to right."""

    compounds: tuple[Compound, ...]
    sure: bool
    """Whether all of it was understood; else it matches more than it says."""
    weight: tuple[int, int, int]
    """Its specificity."""

    @property
    def key(self) -> str:
        """`#id`, `.class`, `tag` or `*`: what every element that it matches has, in lower case."""
        last = self.compounds[-1]
        if last.ids:
            return f"#{last.ids[0]}".lower()
        return f".{min(last.classes)}".lower() if last.classes else last.tag or "*"


def _name(text: str) -> str:
    if "\\" not in text:
        return text
    hexed = re.sub(r"\\([0-9a-fA-F]{1,6})\s?", lambda m: chr(min(int(m[1], 16), 0xFFFF)), text)
    return hexed.replace("\\", "")


def parse_selectors(text: str, depth: int = 0) -> tuple[Selector, ...]:
    """Return the selectors of a list that may match while a page is read; others are left out."""
    if _CLASS.fullmatch(text) and depth < 4:  # as most are
        return (Selector((Compound(classes=frozenset({text[1:]})),), True, (0, 1, 0)),)
    parts = _commas(text[:MAX_SELECTOR]) if depth < 4 else []
    return tuple(s for part in parts if (s := _Parser(part.strip(), depth).selector()) is not None)


def _commas(text: str) -> list[str]:
    if not _BRACKET.search(text):
        return text.split(",")
    parts, start, depth = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


class _Parser:
    def __init__(self, text: str, depth: int) -> None:
        self.text, self.depth = text, depth
        self.sure, self.never = True, False
        self.weight = [0, 0, 0]
        self.done: list[Compound] = []
        self.begin("")

    def begin(self, combinator: str) -> None:
        self.combinator, self.tag = combinator, ""
        self.ids: list[str] = []
        self.classes: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.places: list[tuple[str, int, int]] = []
        self.choices: list[tuple[bool, tuple[Selector, ...]]] = []

    def end(self) -> None:
        self.done.append(
            Compound(
                self.tag,
                tuple(self.ids),
                frozenset(self.classes),
                tuple(self.attributes),
                tuple(self.places),
                tuple(self.choices),
                self.combinator,
            )
        )

    def selector(self) -> Selector | None:
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                return None  # a browser drops the whole rule
            at = self.take(match)
        self.end()
        if self.never or not self.text or len(self.done) > MAX_COMPOUNDS:
            return None
        ids, classes, tags = self.weight
        return Selector(tuple(self.done), self.sure, (ids, classes, tags))

    def take(self, match: re.Match[str]) -> int:
        kind = match.lastgroup
        if match["combinator"] or match["space"]:
            self.end()
            self.begin(match["combinator"] or " ")
        elif match["cls"]:
            self.classes.append(_name(match["cls"]))
        elif match["id"]:
            self.ids.append(_name(match["id"]))
        elif match["attr"]:
            value = (match["value"] or "").strip("\"'")
            self.attributes.append((_name(match["attr"]).lower(), match["op"] or "", value))
        elif match["element"]:
            self.never = True
        elif match["pseudo"]:
            return self.pseudo(_name(match["pseudo"]).lower(), match)
        elif match["tag"] not in ("*", "&"):
            self.tag = _name(match["tag"]).lower()
            self.weight[2] += 1
        self.weight[0] += kind == "id"
        self.weight[1] += bool(match["cls"] or match["attr"])
        return match.end()

    def pseudo(self, name: str, match: re.Match[str]) -> int:
        argument, end = "", match.end()
        if match["call"]:
            end = _closing(self.text, end)
            argument = self.text[match.end() : end - 1]
        if name in ("is", "where", "not", "matches", "-webkit-any", "-moz-any"):
            self.choose(name, argument)
            return end
        self.weight[1] += 1
        if name in _NEVER:
            self.never = True
        elif name == "root":
            self.tag = "html"
        elif name in ("link", "any-link"):
            self.attributes.append(("href", "", ""))
        else:
            self.place(name, argument)
        return end

    def choose(self, name: str, argument: str) -> None:
        chosen = parse_selectors(argument, self.depth + 1)
        if name == "not" and not all(each.sure for each in chosen):
            self.sure = False
            return
        self.sure = self.sure and all(each.sure for each in chosen)
        self.choices.append((name != "not", chosen))
        if name != "where" and chosen:
            heaviest = max(each.weight for each in chosen)
            self.weight = [a + b for a, b in zip(self.weight, heaviest, strict=True)]

    def place(self, name: str, argument: str) -> None:
        kind = "type" if name.endswith("type") else "child"
        if name in ("first-child", "first-of-type"):
            self.places.append((kind, 0, 1))
            return
        wanted = {"odd": "2n+1", "even": "2n"}.get(argument.strip(), argument.strip())
        nth = _NTH.match(wanted)
        if name not in ("nth-child", "nth-of-type") or nth is None:
            self.sure = False
            return
        if nth[4]:
            step, offset = 0, int(nth[4])
        else:
            step = int(nth[1] + "1") if nth[1] in ("", "+", "-") else int(nth[1])
            offset = int((nth[2] or "") + (nth[3] or "0"))
        self.places.append((kind, step, offset))


def _closing(text: str, at: int) -> int:
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return at
