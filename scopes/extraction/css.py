"""Style sheets: declarations, rules, and which of them a medium lets through (CSS Syntax 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from scopes.extraction.elements import Node, Tries, matches
from scopes.extraction.selectors import Selector, parse_selectors

MAX_CSS = 200_000  # characters of all sheets of one document
MAX_RULES = 5_000
MAX_TRIES = 300_000  # comparisons of an element with a selector
MAX_DECLARATIONS = 500  # of one element
MAX_NESTING = 8
DESKTOP = 1_000.0  # pixels; a rule for narrower windows than this may not apply

Applies = Literal["always", "sometimes", "never"]
Declaration = tuple[str, str]
"""A property in lower case and its value; a custom property keeps its case."""

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_STRING = r"\"(?:[^\"\\\n]|\\.)*(?:\"|$)|'(?:[^'\\\n]|\\.)*(?:'|$)|\\.|url\([^\"')]{0,1000}\)"
_MARK = re.compile(rf"{_STRING}|[{{}};]", re.DOTALL | re.IGNORECASE | re.MULTILINE)
_PLAIN = re.compile(r"([^{}@;\"'\\]*)\{([^{}\"'\\]*)\}")
"""A rule without strings, escapes or anything nested, as most are."""
_SIMPLE = re.compile(r"\s*(\.[\w-]{1,1000})\s*\{([^{}\"'\\]*)\}")
"""Of these, one for the elements of one class, as again most are."""
_PLACE = re.compile(r"[+~]|:(?!:|hover|focus|active|visited|link|root|before|after)")
"""What asks where an element stands, or may."""
_PART = re.compile(rf"{_STRING}|[();]", re.DOTALL | re.IGNORECASE | re.MULTILINE)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_IMPORTANT = re.compile(r"!\s*important\s*$", re.IGNORECASE)

_ELSEWHERE = re.compile(r"\s*(?:only\s+)?(?:print|speech|aural|braille|embossed|tty|tv)\b")
_NOT_ELSEWHERE = re.compile(r"\s*not\s+(?:print|speech)\s*$")
_UNSURE = re.compile(
    r"max-|<|>|\bnot\b|dark|none|coarse|portrait|forced|contrast|reduce|reduced|inverted"
)
_WIDTH = re.compile(r"(max|min)-(?:device-)?width\s*:\s*([\d.]{1,9})\s*(px|r?em)?")


class CssRule(NamedTuple):
    """One selector with what it declares."""

    selector: Selector
    block: str
    """The declarations as they are written; most rules of a page are never looked at."""
    sure: bool
    """Whether it applies wherever a page is read; else it may hide, but never show."""
    rank: tuple[int, int, int, int]
    """Specificity, then order of appearance."""

    @property
    def normal(self) -> tuple[Declaration, ...]:
        return declarations(self.block)[0]

    @property
    def important(self) -> tuple[Declaration, ...]:
        return declarations(self.block)[1]


def unescaped(text: str) -> str:
    """`\\64isplay` as `display`."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    if match[2] is not None:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"


@lru_cache(maxsize=4000)
def declarations(text: str) -> tuple[tuple[Declaration, ...], tuple[Declaration, ...]]:
    """Return what a block or a `style` attribute declares: normal and important ones, each in
    order.

    It ends behind MAX_DECLARATIONS: so many hide an element, see `styled`.
    """
    normal: list[Declaration] = []
    important: list[Declaration] = []
    for part in _split(_COMMENT.sub(" ", text)):
        name, colon, value = part.partition(":")
        name, value = unescaped(name).strip(), unescaped(value).strip()
        if not colon or not name:
            continue
        name = name if name.startswith("--") else name.lower().removeprefix("-webkit-box-")
        plain = _IMPORTANT.sub("", value).strip()
        kept = plain if name.startswith("--") else plain.lower()
        (normal if plain == value else important).append((name, kept))
        if len(normal) + len(important) > MAX_DECLARATIONS:
            break
    return tuple(normal), tuple(important)


def _split(text: str) -> Iterator[str]:
    start = depth = 0
    for match in _PART.finditer(text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth = max(0, depth - 1)
        elif match[0] == ";" and not depth:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _blocks(css: str) -> Iterator[tuple[str, str | None]]:
    """Preludes with what stands in their braces; None for a statement without any."""
    start = 0
    while start < len(css):
        prelude, inside, start = _first(css, start)
        yield prelude, inside


def _first(css: str, start: int) -> tuple[str, str | None, int]:
    """Return the prelude and block that begin here, and where they end."""
    plain = _PLAIN.match(css, start)
    if plain and "url(" not in plain[0].lower():
        return plain[1], plain[2], plain.end()
    return _statement(css, start)


def _statement(css: str, start: int) -> tuple[str, str | None, int]:
    """Return the same for what is not plain."""
    depth = opened = 0
    for match in _MARK.finditer(css, start):
        mark = match[0]
        if mark == "{":
            if depth == 0:
                opened = match.end()
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth == 0:
                return css[start : opened - 1], css[opened : match.start()], match.end()
            if depth < 0:
                depth, start = 0, match.end()
        elif mark == ";" and depth == 0:
            return css[start : match.start()], None, match.end()
    if depth:  # an open brace holds the rest
        return css[start : opened - 1], css[opened:], len(css)
    return css[start:], None, len(css)


def applies(media: str) -> Applies:
    """Return whether a media query holds where a page is read: a light desktop screen."""
    found = {_query(part) for part in media.lower().split(",")}
    return "always" if "always" in found else "sometimes" if "sometimes" in found else "never"


def _query(query: str) -> Applies:
    if _ELSEWHERE.match(query):
        return "never"
    if _NOT_ELSEWHERE.match(query):
        return "always"
    for width in _WIDTH.finditer(query):
        pixels = float(width[2].replace(".", "", width[2].count(".") - 1) or 0)
        pixels *= 16 if (width[3] or "").endswith("em") else 1
        if (width[1] == "max") == (pixels < DESKTOP):
            return "sometimes"
    return "sometimes" if _UNSURE.search(_WIDTH.sub("", query)) else "always"


@dataclass(slots=True)
class CssSheet:
    """The style sheets of one document."""

    rules: dict[str, list[CssRule]] = field(default_factory=dict)
    """By the key of their selector."""
    unread: dict[str, list[tuple[str, str, bool, int]]] = field(default_factory=dict)
    """Rules for one class by the same key: selector, declarations, sure, order of appearance. Those
    of a class that no element has are never looked at."""
    tries: Tries = field(default_factory=lambda: Tries(MAX_TRIES))
    size: int = 0
    count: int = 0
    complete: bool = True
    """Whether all of it was read."""
    by_place: bool = False
    """Whether a rule asks where an element stands among others."""

    @property
    def cut(self) -> bool:
        """Return whether some of it was not heeded: then nobody can say what is hidden."""
        return not self.complete or self.tries.left < 0

    def add(self, css: str, media: str = "", sure: bool = True) -> None:
        """Read one `<style>` element."""
        room = MAX_CSS - self.size
        self.complete = self.complete and len(css) <= room
        self.size += len(css)
        medium = applies(media)
        if medium != "never":
            text = _COMMENT.sub(" ", css[: max(0, room)])
            self._read(text, sure and medium == "always", "", 0)

    def _read(self, css: str, sure: bool, outer: str, depth: int) -> None:
        if depth > MAX_NESTING:
            self.complete = False
            return
        start = 0
        while start < len(css):
            simple = None if outer else _SIMPLE.match(css, start)
            if simple and "url(" not in simple[2].lower():
                self._simple(simple[1], simple[2], sure)
                start = simple.end()
                continue
            prelude, inside, start = _first(css, start)
            if inside is not None:
                self._block(prelude.strip(), inside, sure, outer, depth)

    def _block(self, prelude: str, inside: str, sure: bool, outer: str, depth: int) -> None:
        if not prelude.startswith("@"):
            if outer:
                prelude = ",".join(
                    part.replace("&", f":is({outer})") if "&" in part else f":is({outer}) {part}"
                    for part in prelude.split(",")
                )
            self._rule(prelude, inside, sure)
            if "{" in inside:
                self._read(inside, sure, prelude, depth + 1)
            return
        name, _, query = unescaped(prelude[1:]).lower().partition(" ")
        name, bracket, more = name.partition("(")
        if name == "media":
            medium = applies(f"{bracket}{more} {query}")
            if medium != "never":
                self._read(inside, sure and medium == "always", outer, depth + 1)
        elif name in ("supports", "layer", "scope", "container", "document", "-moz-document"):
            certain = name in ("layer", "supports") and "not" not in query
            self._read(inside, sure and certain, outer, depth + 1)
        if outer and name in ("media", "supports", "layer", "container"):
            self._rule(outer, inside, False)

    def _simple(self, prelude: str, inside: str, sure: bool) -> None:
        if ":" in inside and self._counts():
            rule = prelude, inside, sure, self.count
            self.unread.setdefault(prelude.lower(), []).append(rule)

    def _counts(self) -> bool:
        """Return whether one rule more is heeded."""
        self.count += 1
        self.complete = self.complete and self.count <= MAX_RULES
        return self.count <= MAX_RULES

    def _rule(self, prelude: str, inside: str, sure: bool) -> None:
        own = inside if "{" not in inside else ";".join(p for p, b in _blocks(inside) if b is None)
        if ":" not in own:
            return
        self.by_place = self.by_place or _PLACE.search(prelude) is not None
        for selector in parse_selectors(prelude):
            if not self._counts():
                return
            rank = (*selector.weight, self.count)
            rule = CssRule(selector, own, sure and selector.sure, rank)
            self.rules.setdefault(selector.key, []).append(rule)

    def matching(self, node: Node) -> tuple[list[CssRule], list[CssRule]]:
        """Return the rules that apply to an element, the weakest first, and those that only may."""
        if not self.rules and not self.unread:
            return [], []
        keys = [node.tag, "*", *(f".{each}" for each in node.folded)]
        if "id" in node.attributes:
            keys.append(f"#{node.attributes['id'].lower()}")
        for key in keys:
            if key in self.unread:
                self._parse(key)
        found: list[CssRule] = []
        unsure: list[CssRule] = []
        for rule in (rule for key in keys for rule in self.rules.get(key, ())):
            if self.tries.left < 0:
                break
            if matches(rule.selector, node, self.tries, fold=True):
                sure = rule.sure and matches(rule.selector, node, self.tries)
                (found if sure else unsure).append(rule)
        found.sort(key=lambda rule: rule.rank)
        return found, unsure

    def _parse(self, key: str) -> None:
        """Make rules of those for a class, among the others of this key."""
        rules = self.rules.setdefault(key, [])
        for prelude, block, sure, count in self.unread.pop(key):
            for selector in parse_selectors(prelude):
                rank = (*selector.weight, count)
                rules.append(CssRule(selector, block, sure and selector.sure, rank))
        rules.sort(key=lambda rule: rule.rank[-1])
