"""Style sheets: declarations, rules, and which of them a medium lets through (CSS Syntax 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import tinycss2
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

DESKTOP_WIDTH_PX = 1_000.0  # pixels; a rule for narrower windows than this may not apply

Applicability = Literal["always", "sometimes", "never"]
Declaration = tuple[str, str]
"""A property in lower case and its value; a custom property keeps its case."""
Declarations = tuple[tuple[Declaration, ...], tuple[Declaration, ...]]
"""Normal and important declarations, each in order."""
Weight = tuple[int, int, int]
"""Specificity: ids, classes, tags."""

_UNMATCHED_PSEUDOS = frozenset(
    "hover focus active visited checked target focus-visible focus-within before after first-line "
    "first-letter fullscreen disabled invalid placeholder-shown popover-open autofill".split()
)
"""States that no element has while a page is only read, and parts without text of its source."""
_PSEUDO = re.compile(r":[\w-]+(?:\([^()]*\))?")
_OTHER_MEDIA = re.compile(r"\s*(?:only\s+)?(?:print|speech|aural|braille|embossed|tty|tv)\b")
_NOT_ELSEWHERE = re.compile(r"\s*not\s+(?:print|speech)\s*$")
_UNSURE = re.compile(
    r"max-|<|>|\bnot\b|dark|none|coarse|portrait|forced|contrast|reduce|reduced|inverted"
)
_WIDTH = re.compile(r"(max|min)-(?:device-)?width\s*:\s*(\d{1,9}(?:\.\d{0,9})?)\s*(px|r?em)?")


class CssRule(NamedTuple):
    """One selector with its declarations."""

    selector: str
    declared: Declarations
    sure: bool
    """Whether it applies to every reader; otherwise it may only hide, never show."""
    rank: tuple[Weight, int]
    """Specificity, then order of appearance."""


@lru_cache(maxsize=4000)
def declarations(text: str) -> Declarations:
    """Return the declarations of a `style` attribute."""
    return _read_declarations(tinycss2.parse_blocks_contents(text, True, True))


def _read_declarations(nodes: Sequence[Any]) -> Declarations:
    normal: list[Declaration] = []
    important: list[Declaration] = []
    for node in nodes:
        if node.type == "declaration":
            custom, value = node.name.startswith("--"), _plain(node.value)
            name = node.name if custom else node.lower_name.removeprefix("-webkit-box-")
            declared = (name, value if custom else value.lower())
            (important if node.important else normal).append(declared)
    return tuple(normal), tuple(important)


def _plain(tokens: Sequence[Any]) -> str:
    """Return component values as text, without comments and escapes."""
    parts = (_spell(each) for each in tokens if each.type != "comment")
    return " ".join("".join(parts).split())


def _spell(token: Any) -> str:
    if token.type == "ident":
        return str(token.value)
    if token.type == "function":
        return f"{token.name}({_plain(token.arguments)})"
    return str(token.serialize())


def applies(media: str) -> Applicability:
    """Return whether a media query matches a reader's screen: a light desktop."""
    found = {_query(part) for part in media.lower().split(",")}
    return "always" if "always" in found else "sometimes" if "sometimes" in found else "never"


def _query(query: str) -> Applicability:
    if _OTHER_MEDIA.match(query):
        return "never"
    if _NOT_ELSEWHERE.match(query):
        return "always"
    for limit, number, unit in _WIDTH.findall(query):
        pixels = float(number) * (16 if unit.endswith("em") else 1)
        if (limit == "max") == (pixels < DESKTOP_WIDTH_PX):
            return "sometimes"
    return "sometimes" if _UNSURE.search(_WIDTH.sub("", query)) else "always"


class CssSheet:
    """The style sheets of one document."""

    def __init__(self) -> None:
        self._rules: list[CssRule] = []
        self._found: dict[int, tuple[list[CssRule], list[CssRule]]] = {}

    def add(self, css: str, media: str = "", sure: bool = True) -> None:
        """Read one `<style>` element."""
        medium = applies(media)
        if medium != "never":
            self._read(tinycss2.parse_stylesheet(css, True, True), sure and medium == "always", "")

    def _read(self, nodes: Sequence[Any], sure: bool, outer: str) -> None:
        """Read rules; `outer` is the selector of the rule around them."""
        for node in nodes:
            if node.type == "qualified-rule":
                selectors = [_nest(part, outer) for part in _parts(node.prelude)]
                self._block(node.content, sure, selectors)
            elif node.type == "at-rule" and node.content is not None:
                self._at_rule(node, sure, outer)

    def _block(self, content: Sequence[Any], sure: bool, selectors: list[str]) -> None:
        inside = tinycss2.parse_blocks_contents(content, True, True)
        declared = _read_declarations(inside)
        for selector in selectors if any(declared) else ():
            tokens = tinycss2.parse_component_value_list(selector, True)
            if not any(_is_never(tokens)):
                rank = _weight(tokens), len(self._rules)
                self._rules.append(CssRule(selector, declared, sure, rank))
        self._read(inside, sure, ", ".join(selectors))

    def _at_rule(self, node: Any, sure: bool, outer: str) -> None:
        name, query = node.lower_at_keyword, _plain(node.prelude).lower()
        if name == "media":
            medium = applies(query)
            if medium == "never":
                return
            sure = sure and medium == "always"
        elif name in ("supports", "layer", "scope", "container", "document", "-moz-document"):
            sure = sure and name in ("layer", "supports") and "not" not in query
        else:
            return
        if outer:
            self._block(node.content, False, [outer])
        else:
            self._read(tinycss2.parse_rule_list(node.content, True, True), sure, "")

    def match(self, page: LexborHTMLParser) -> None:
        """Find the elements of a page to which the rules apply; `match_rules` returns the rules."""
        for rule in sorted(self._rules, key=lambda rule: rule.rank):
            elements, understood = _select(page, rule.selector)
            for id in elements:
                certain, unsure = self._found.setdefault(id, ([], []))
                (certain if rule.sure and understood else unsure).append(rule)

    def match_rules(self, element: int) -> tuple[list[CssRule], list[CssRule]]:
        """Return the rules that apply to an element (`mem_id`), the weakest first, and those that
        may apply."""
        return self._found.get(element) or ([], [])


def _parts(prelude: Sequence[Any]) -> Iterator[str]:
    """Yield the selectors of a list."""
    part: list[Any] = []
    for token in prelude:
        if token == ",":
            yield tinycss2.serialize(part).strip()
            part = []
        elif token.type != "comment":
            part.append(token)
    yield tinycss2.serialize(part).strip()


def _nest(selector: str, outer: str) -> str:
    if not outer:
        return selector
    return selector.replace("&", f":is({outer})") if "&" in selector else f":is({outer}) {selector}"


def _is_never(tokens: Sequence[Any]) -> Iterator[bool]:
    """Yield whether parts of a selector are states or pseudo-elements, which hold no text."""
    for before, token in zip(["", *tokens], tokens, strict=False):
        yield before == ":" and (
            token == ":" or (token.type == "ident" and token.lower_value in _UNMATCHED_PSEUDOS)
        )


def _select(page: LexborHTMLParser, selector: str) -> tuple[set[int], bool]:
    """Return the elements that match, and whether the whole selector was understood.

    One with an unknown pseudo-class may match every element that fits its other parts.
    """
    for tried in (selector, _PSEUDO.sub("", selector).strip() or "*"):
        try:
            return {node.mem_id for node in page.css(tried)}, tried == selector
        except SelectolaxError:
            pass
    return set(), False  # a browser drops the whole rule


def _weight(tokens: Sequence[Any]) -> Weight:
    """Return the specificity of a selector, the greatest of a list (Selectors 4)."""
    weights, ids, classes, tags, before = list[Weight](), 0, 0, 0, ""
    for token in tokens:
        if token == ",":
            weights.append((ids, classes, tags))
            ids = classes = tags = 0
        elif token.type == "hash":
            ids += 1
        elif token.type == "[] block" or (token.type == "ident" and before in (".", ":")):
            classes += 1
        elif token.type == "ident":
            tags += 1
        elif token.type == "function" and token.lower_name in ("is", "not", "has", "matches"):
            inside = _weight(token.arguments)
            ids, classes, tags = ids + inside[0], classes + inside[1], tags + inside[2]
        elif token.type == "function" and token.lower_name != "where":
            classes += 1
        before = token.value if token.type == "literal" else ""
    return max([*weights, (ids, classes, tags)])
