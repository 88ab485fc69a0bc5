"""Elements of a page in the order in which they are met, and the selectors that match them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scopes.extraction.selectors import Compound, Selector

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True, eq=False)
class Node:
    """An element with what came before it."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    parent: Node | None = None
    before: Node | None = None
    """The sibling in front of it."""
    place: int = 1
    """1 for the first child of its parent."""
    of_type: int = 1
    """1 for the first child of this tag."""
    last: Node | None = None
    """The child that was met last."""
    counts: dict[str, int] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    folded: frozenset[str] = frozenset()
    """The classes in lower case: without a doctype a browser takes no notice of case."""

    @staticmethod
    def root(tag: str, attributes: Mapping[str, str]) -> Node:
        """Return the element that all others are in."""
        made = Node("").child(tag, attributes)
        made.parent = None
        return made

    def child(self, tag: str, attributes: Mapping[str, str]) -> Node:
        count = self.counts[tag] = self.counts.get(tag, 0) + 1
        place = 1 if self.last is None else self.last.place + 1
        name = attributes.get("class", "")
        classes = frozenset(name.split()) if name else _NONE
        folded = frozenset(name.lower().split()) if name else _NONE
        made = Node(tag, attributes, self, self.last, place, count, None, {}, classes, folded)
        self.last = made
        return made


@dataclass(slots=True)
class Tries:
    """How many more comparisons a document may cost."""

    left: int


def matches(selector: Selector, node: Node, tries: Tries, fold: bool = False) -> bool:
    """Return whether an element matches, `fold` without regard to case.

    False once no try is left.
    """
    return _from(selector.compounds, len(selector.compounds) - 1, node, tries, fold)


def _from(parts: tuple[Compound, ...], at: int, node: Node, tries: Tries, fold: bool) -> bool:
    tries.left -= 1
    if tries.left < 0 or not _is(parts[at], node, tries, fold):
        return False
    if at == 0:
        return True
    combinator = parts[at].combinator
    up = combinator in (" ", ">")
    other = node.parent if up else node.before
    while other is not None:
        if _from(parts, at - 1, other, tries, fold):
            return True
        if combinator in (">", "+"):
            return False
        other = other.parent if up else other.before
    return False


def _is(part: Compound, node: Node, tries: Tries, fold: bool) -> bool:
    if part.tag and part.tag != node.tag:
        return False
    own, named = node.attributes.get("id", ""), part.ids
    if named and not all(each == own or (fold and each.lower() == own.lower()) for each in named):
        return False
    if fold:
        if not all(each.lower() in node.folded for each in part.classes):
            return False
    elif not part.classes <= node.classes:
        return False
    return (
        all(_has(node.attributes.get(name), op, value) for name, op, value in part.attributes)
        and all(_stands(node, *place) for place in part.places)
        and all(
            wanted == any(matches(each, node, tries, fold) for each in selectors)
            for wanted, selectors in part.choices
        )
    )


def _has(held: str | None, op: str, value: str) -> bool:
    if held is None or not op:
        return held is not None
    held, value = held.lower(), value.lower()
    if op == "=":
        return held == value
    if not value:
        return False
    return {
        "~=": value in held.split(),
        "|=": held == value or held.startswith(f"{value}-"),
        "^=": held.startswith(value),
        "$=": held.endswith(value),
        "*=": value in held,
    }[op]


def _stands(node: Node, kind: str, step: int, offset: int) -> bool:
    distance = (node.of_type if kind == "type" else node.place) - offset
    return distance == 0 if step == 0 else distance % step == 0 and distance // step >= 0
