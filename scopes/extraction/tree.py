"""Elements of a page, and the lists that its tree is built with (WHATWG HTML, 13.2.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

FORMATTING = frozenset(
    "a b big code em font i nobr s small strike strong tt u".split()
)  # opened again in what follows when something else closes them
_FOREIGN = frozenset(
    {"math mi", "math mo", "math mn", "math ms", "math mtext", "math annotation-xml"}
    | {"svg foreignobject", "svg desc", "svg title"}
)
SPECIAL = _FOREIGN | frozenset(
    "address applet area article aside base basefont bgsound blockquote body br button caption "
    "center col colgroup dd details dir div dl dt embed fieldset figcaption figure footer form "
    "frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe img input keygen li link "
    "listing main marquee menu meta nav noembed noframes noscript object ol p param plaintext pre "
    "script search section select source style summary table tbody td template textarea tfoot th "
    "thead title tr track ul wbr xmp".split()
)
TABLE_PARTS = frozenset("table tbody thead tfoot tr".split())
MARKERS = frozenset("applet object marquee template td th caption".split())
"""Formatting does not go on across their edges."""
SCOPE = _FOREIGN | frozenset(
    "applet caption html table td th marquee object select template".split()
)
TABLE_SCOPE = frozenset({"html", "table", "template"})


class Stop(Exception):
    """A limit that ends the reading of a document, as a sentence."""


@dataclass(slots=True, eq=False)
class Element:
    """An element as it was written, with what is in it."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    space: str = ""
    """`svg` or `math`; empty for HTML."""
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)
    kind: str = field(init=False)
    """The tag, behind the space if there is one: `svg title`."""

    def __post_init__(self) -> None:
        self.kind = f"{self.space} {self.tag}" if self.space else self.tag

    def append(self, child: Element | str) -> None:
        self.children.append(child)
        if isinstance(child, Element):
            child.parent = self

    def insert_before(self, child: Element | str, other: Element) -> None:
        at = next(n for n, each in enumerate(reversed(self.children), 1) if each is other)
        self.children.insert(len(self.children) - at, child)
        if isinstance(child, Element):
            child.parent = self

    def detach(self) -> None:
        if self.parent is not None:
            above = self.parent.children
            del above[len(above) - 1 - next(n for n, e in enumerate(reversed(above)) if e is self)]
            self.parent = None


class OpenElements:
    """The stack of open elements."""

    def __init__(self, first: Iterable[Element]) -> None:
        self.stack = list(first)
        self.names = Counter(each.kind for each in self.stack)

    def __len__(self) -> int:
        return len(self.stack)

    def __getitem__(self, index: int) -> Element:
        return self.stack[index]

    def __contains__(self, element: Element) -> bool:
        return self.names[element.kind] > 0 and element in self.stack

    def down(self) -> Iterator[Element]:
        """From the innermost outwards."""
        return reversed(self.stack)

    @property
    def current(self) -> Element:
        return self.stack[-1]

    def push(self, element: Element) -> None:
        self.stack.append(element)
        self.names[element.kind] += 1

    def pop(self) -> Element:
        element = self.stack.pop()
        self.names[element.kind] -= 1
        return element

    def index(self, element: Element) -> int:
        return self.stack.index(element)

    def remove(self, element: Element) -> None:
        del self.stack[self.index(element)]
        self.names[element.kind] -= 1

    def insert(self, index: int, element: Element) -> None:
        self.stack.insert(index, element)
        self.names[element.kind] += 1

    def in_scope(self, *kinds: str, bounds: frozenset[str] = SCOPE) -> bool:
        """Return whether one of them is open, with no bound of the scope inside it."""
        if not any(self.names[kind] for kind in kinds):
            return False
        for each in reversed(self.stack):
            if each.kind in kinds:
                return True
            if each.kind in bounds:
                return False
        return False


@dataclass(slots=True)
class Formatting:
    """The list of active formatting elements; None is a marker."""

    entries: list[Element | None] = field(default_factory=list)

    def section(self) -> Iterator[Element]:
        """Yield those behind the last marker, the last one first."""
        for each in reversed(self.entries):
            if each is None:
                return
            yield each

    def push(self, element: Element) -> None:
        same = [
            e for e in self.section() if (e.tag, e.attributes) == (element.tag, element.attributes)
        ]
        if len(same) >= 3:
            self.remove(same[-1])
        self.entries.append(element)

    def index(self, element: Element) -> int:
        return self.entries.index(element) if element in self.entries else -1

    def remove(self, element: Element) -> None:
        at = self.index(element)
        if at >= 0:
            del self.entries[at]

    def replace(self, old: Element, new: Element, mark: Element | None) -> None:
        """Put one in the place of another, or behind `mark`."""
        where = self.index(old if mark is None else mark)
        if mark is None:
            self.entries[where] = new
            return
        self.entries.insert(where + 1, new)
        self.remove(old)

    def clear(self) -> None:
        """Drop what stands behind the last marker, and that marker."""
        while self.entries and self.entries.pop() is not None:
            pass
