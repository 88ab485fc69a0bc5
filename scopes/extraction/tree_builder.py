"""Build the tree of a document: where elements go, and which of them close others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scopes.extraction.tree import (
    MARKERS,
    SCOPE,
    SPECIAL,
    TABLE_PARTS,
    Element,
    Formatting,
    OpenElements,
    Stop,
)

TOO_MANY = "The document has too many elements; its end was left out."
TOO_DEEP = "The document is nested too deeply; what came from there on was left out."

HEAD_PARTS = frozenset(
    "script style template title link meta base noscript param source track noframes".split()
)  # make no body, and do not open formatting again
BUTTON_SCOPE = SCOPE | {"button"}
_BELONGS = frozenset(
    "caption col colgroup tbody td tfoot th thead tr style script template form".split()
)
_TEXT_POINTS = frozenset("mi mo mn ms mtext".split())


class Tree:
    """A document's tree with the elements that are open."""

    def __init__(self, max_depth: int, max_elements: int) -> None:
        self.html, self.head, self.body = Element("html"), Element("head"), Element("body")
        self.html.append(self.head)
        self.html.append(self.body)
        self.open = OpenElements([self.html, self.body])
        self.formatting = Formatting()
        self.max_depth, self.max_elements = max_depth, max_elements
        self.count = 0
        self.begun = False
        """Whether the body has begun."""

    @property
    def foreign(self) -> bool:
        """Return whether a start tag or text here is one of svg or math."""
        current = self.open.stack[-1]
        return bool(current.space) and not integrates(current)

    def make(self, tag: str, attributes: Mapping[str, str], space: str = "") -> Element:
        self.count += 1
        if self.count > self.max_elements:
            raise Stop(TOO_MANY)
        return Element(tag, dict(attributes), space)

    def insert(self, element: Element, push: bool = True) -> None:
        """Put an element where the document stands, and into it what comes next."""
        in_head = element.kind in HEAD_PARTS and not self.begun and self.open.current is self.body
        self.place(element, self.head if in_head else self.open.current)
        if push:
            if len(self.open) >= self.max_depth:
                raise Stop(TOO_DEEP)
            self.open.push(element)
            if element.kind in MARKERS:
                self.formatting.entries.append(None)

    @property
    def in_head_part(self) -> bool:
        return len(self.open) > 2 and self.open[2].tag in HEAD_PARTS

    def place(self, child: Element | str, target: Element) -> None:
        """Put it last into `target`; of a table, in front of it, as browsers do."""
        if target.kind in TABLE_PARTS and not _belongs(child):
            for at in range(len(self.open) - 1, 0, -1):
                table = self.open[at]
                if table.kind == "table":
                    if table.parent is not None:
                        table.parent.insert_before(child, table)
                    else:
                        self.open[at - 1].append(child)
                    return
        target.append(child)

    def text(self, text: str) -> None:
        if text.strip(" \t\n\f"):
            self.begun = self.begun or not self.in_head_part
            if not self.foreign:
                self.reopen()
        self.place(text, self.open.current)

    def reopen(self) -> None:
        """Open formatting again that something else than its own end tag has closed."""
        entries = self.formatting.entries
        at = len(entries)
        while at and (each := entries[at - 1]) is not None and each not in self.open:
            at -= 1
        for index in range(at, len(entries)):
            old = entries[index]
            if old is not None:
                new = self.make(old.tag, old.attributes)
                self.insert(new)
                entries[index] = new

    def pop(self) -> Element:
        element = self.open.pop()
        if element.kind in MARKERS:
            self.formatting.clear()
        return element

    def pop_to(self, *tags: str) -> None:
        """Close everything up to and with the innermost element of one of the tags."""
        while len(self.open) > 2:
            element = self.pop()
            if element.kind in tags:
                return

    def pop_while(self, wanted: Callable[[Element], bool]) -> None:
        while len(self.open) > 2 and wanted(self.open.current):
            self.pop()

    def close(self, element: Element) -> None:
        """Close an open element and all in it."""
        while len(self.open) > 2 and self.pop() is not element:
            pass

    def end_p(self) -> None:
        if self.open.in_scope("p", bounds=BUTTON_SCOPE):
            self.pop_to("p")

    def end_other(self, tag: str) -> None:
        """The end tag of what is not special."""
        for each in self.open.down():
            if each.kind == tag:
                self.close(each)
                return
            if each.kind in SPECIAL:
                return

    def adopt(self, tag: str) -> None:
        """The end tag of formatting: the adoption agency algorithm, step by step."""
        current = self.open.current
        if current.kind == tag and self.formatting.index(current) < 0:
            self.pop()
            return
        if current.kind == tag and self.formatting.entries[-1] is current:
            self.pop()  # as all the steps below would do
            self.formatting.entries.pop()
            return
        for _ in range(8):
            entry = next((each for each in self.formatting.section() if each.tag == tag), None)
            if entry is None:
                self.end_other(tag)
                return
            if entry not in self.open:
                self.formatting.remove(entry)
                return
            at = self.open.index(entry)
            inside = self.open.stack[at + 1 :]
            if any(each.kind in SCOPE for each in inside):
                return
            block = next((each for each in inside if each.kind in SPECIAL), None)
            if block is None:
                self.close(entry)
                self.formatting.remove(entry)
                return
            self.rehouse(entry, block, self.open[at - 1])

    def rehouse(self, entry: Element, block: Element, ancestor: Element) -> None:
        """Take a block out of formatting that ends in it, and put the formatting into the block."""
        mark: Element | None = None
        last = block
        first, end = self.open.index(entry) + 1, self.open.index(block)
        for count, node in enumerate(reversed(self.open.stack[first:end]), 1):
            if count > 3:
                self.formatting.remove(node)
            where = self.formatting.index(node)
            if where < 0:
                self.open.remove(node)
                continue
            new = self.make(node.tag, node.attributes)
            self.formatting.entries[where] = new
            self.open.stack[self.open.index(node)] = new
            mark = mark or new
            last.detach()
            new.append(last)
            last = new
        last.detach()
        self.place(last, ancestor)
        copy = self.make(entry.tag, entry.attributes)
        for child in block.children:
            copy.append(child)
        block.children.clear()
        block.append(copy)
        self.formatting.replace(entry, copy, mark)
        self.open.remove(entry)
        self.open.insert(self.open.index(block) + 1, copy)


def integrates(element: Element) -> bool:
    """Return whether what is in an element of svg or math is HTML again."""
    if element.space == "svg":
        return element.tag in ("foreignobject", "desc", "title")
    encoding = element.attributes.get("encoding", "").lower()
    return element.tag in _TEXT_POINTS or (
        element.tag == "annotation-xml" and encoding in ("text/html", "application/xhtml+xml")
    )


def _belongs(child: Element | str) -> bool:
    """Return whether it may stand in a table outside of its cells."""
    if isinstance(child, str):
        return not child.strip(" \t\n\f")
    hidden = child.tag == "input" and child.attributes.get("type", "").lower() == "hidden"
    return child.tag in _BELONGS or hidden
