"""The tree that a browser makes of HTML (WHATWG HTML, 13.2.6), within limits.

Where a tree differs from a browser's, text can be shown to one and hidden from the other: libxml2
ends a `<b>` where a `<p>` begins, and no longer sees what the `<b>` hides. The libraries that build
the trees of browsers have no limits: a megabyte can become millions of elements.
"""

from __future__ import annotations

from collections.abc import Mapping

from scopes.extraction.tokens import CssTokens, Token
from scopes.extraction.tree import (
    FORMATTING,
    MARKERS,
    SCOPE,
    SPECIAL,
    TABLE_PARTS,
    TABLE_SCOPE,
    Element,
    Stop,
)
from scopes.extraction.tree_builder import BUTTON_SCOPE, HEAD_PARTS, TOO_MANY, Tree, integrates

FRAMES = "The document is made of frames, which were left out."

_VOID = frozenset(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param "
    "source track wbr".split()
)
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_BLOCKS = frozenset(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure "
    "footer header hgroup main menu nav ol p search section summary ul pre listing form "
    "plaintext xmp hr".split()
)  # end an open p
_IMPLIED = frozenset("dd dt li optgroup option p rb rp rt rtc".split())
_ITEMS = {"li": frozenset({"li"}), "dd": frozenset({"dd", "dt"}), "dt": frozenset({"dd", "dt"})}
_CLOSED_IN = frozenset({"table", "iframe", "noembed", "textarea"})
_RUBY = frozenset({"rb", "rt", "rp", "rtc"})
_NO_REOPEN = (_BLOCKS - {"xmp"}) | _HEADINGS | _ITEMS.keys() | _RUBY | HEAD_PARTS | _CLOSED_IN
"""What begins without formatting opened again round it."""
_BREAKOUT = frozenset(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img "
    "li listing menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul "
    "var".split()
)  # end svg and math
_PARTS = frozenset("caption col colgroup tbody td tfoot th thead tr".split())
_SECTIONS = frozenset({"tbody", "thead", "tfoot"})
_CELLS = frozenset({"td", "th"})


_ENDED = {
    **{
        tag: ((tag,), SCOPE)
        for tag in (_BLOCKS - {"hr", "plaintext", "xmp", "p"})
        | {"button", "dd", "dt", "select"}
        | MARKERS
    },
    **{tag: ((tag,), TABLE_SCOPE) for tag in _PARTS | {"table"}},
    **{tag: (tuple(_HEADINGS), SCOPE) for tag in _HEADINGS},
    "li": (("li",), SCOPE | {"ol", "ul"}),
    "template": (("template",), frozenset({"html"})),
}
"""What an end tag ends, and the bounds of the scope in which that must be open."""


class Builder(Tree):
    """A document's tree, built token by token."""

    def __init__(self, source: str, max_depth: int, max_elements: int) -> None:
        super().__init__(max_depth, max_elements)
        self.tokens = CssTokens(source)
        self.tags = 0
        self.wrote = False
        self.form: Element | None = None

    def build(self) -> str:
        """Build it; a sentence where a limit ended that."""
        try:
            tokens = self.tokens
            while (token := tokens.next(self.foreign, bool(self.open.current.space))) is not None:
                self.take(token)
        except Stop as stop:
            return str(stop)
        return ""

    def take(self, token: Token) -> None:
        if token.kind == "text":
            self.wrote = self.wrote or not token.text.isspace()
            self.text(token.text)
            return
        self.tags += 1
        if self.tags > 3 * self.max_elements:
            raise Stop(TOO_MANY)
        if token.kind == "end":
            self.end(token.name)
        else:
            self.start(token)

    def start(self, token: Token) -> None:
        tag, attributes = token.name, token.attributes
        if tag not in HEAD_PARTS and tag not in ("html", "head") and not self.in_head_part:
            self.begun = True
        if self.foreign and not self.breaks_out(token):
            self.insert(self.make(tag, attributes, self.open.current.space), not token.closed)
        elif tag in _PARTS:
            self.table_part(tag, attributes)
        elif tag == "form":
            self.start_form(attributes)
        elif not self.is_root(token):
            self.make_room(tag)
            if tag not in _NO_REOPEN:
                self.reopen()
            self.element(token)

    def is_root(self, token: Token) -> bool:
        """Return whether a tag makes no element: it adds to a root, or ends the select that it is
        in.
        """
        tag = token.name
        if tag in ("html", "body") and not self.open.names["template"]:
            root = self.html if tag == "html" else self.body
            for name, value in token.attributes.items():
                root.attributes.setdefault(name, value)
        if tag == "frameset" and not self.wrote:
            raise Stop(FRAMES)
        if tag == "select" and self.open.in_scope("select"):
            self.pop_to("select")
            return True
        return tag in ("html", "body", "head", "frame", "frameset")

    def start_form(self, attributes: Mapping[str, str]) -> None:
        """A form, unless one is open; in a table it holds nothing."""
        if self.form is None or self.open.names["template"]:
            form = self.make("form", attributes)
            in_table = self.table_mode() in TABLE_PARTS
            if not in_table:
                self.end_p()
            self.insert(form, push=not in_table)
            self.form = form

    def end_form(self) -> None:
        form, self.form = self.form, None
        if form is not None and form in self.open and self.open.in_scope("form"):
            self.pop_while(lambda each: each.kind in _IMPLIED)
            self.open.remove(form)

    def breaks_out(self, token: Token) -> bool:
        """Return whether a tag is none of svg or math, which it then ends."""
        font = token.name == "font" and {"color", "face", "size"} & token.attributes.keys()
        if token.name not in _BREAKOUT and not font:
            return False
        self.pop_while(lambda each: bool(each.space) and not integrates(each))
        return True

    def element(self, token: Token) -> None:
        tag = "img" if token.name == "image" else token.name
        space = tag if tag in ("svg", "math") else ""
        element = self.make(tag, token.attributes, space)
        void = tag in _VOID or (bool(space) and token.closed)
        self.insert(element, push=not void)
        if token.text and tag == "plaintext":
            self.text(token.text)
        elif token.text:
            element.append(token.text)
        if tag in FORMATTING:
            self.formatting.push(element)

    def make_room(self, tag: str) -> None:
        """Close what cannot be open when an element begins."""
        current = self.open.current.kind
        if tag in _BLOCKS or tag in _HEADINGS or (tag == "table" and not self.tokens.quirks):
            self.end_p()
            if tag in _HEADINGS and self.open.current.kind in _HEADINGS:
                self.pop()
        elif tag in _ITEMS:
            self.end_item(_ITEMS[tag])
            self.end_p()
        if tag == "table" and self.table_mode() in TABLE_PARTS:
            self.pop_to("table")
        elif tag in ("option", "optgroup") and current == "option":
            self.pop()
        elif tag in _RUBY and self.open.in_scope("ruby"):
            self.pop_while(lambda each: each.kind in _IMPLIED)
        elif tag in ("button", "nobr") and self.open.in_scope(tag):
            self.end(tag)
        elif tag == "input" and self.open.in_scope("select"):
            self.pop_to("select")
        elif tag == "a":
            self.end_link()

    def end_link(self) -> None:
        last = next((each for each in self.formatting.section() if each.tag == "a"), None)
        if last is not None:
            self.adopt("a")
            self.formatting.remove(last)
            if last in self.open:
                self.open.remove(last)

    def end_item(self, tags: frozenset[str]) -> None:
        for each in self.open.down():
            if each.kind in tags:
                self.pop_to(*tags)
                return
            if each.kind in SPECIAL and each.kind not in ("address", "div", "p"):
                return

    def table_part(self, tag: str, attributes: Mapping[str, str]) -> None:
        """A cell, row or section, with what is missing between it and its table."""
        inmost = self.table_mode()
        if inmost in _CELLS or inmost == "caption":
            self.pop_to(inmost)
            inmost = self.table_mode()
        if inmost == "":
            return  # without a table it is nothing
        if inmost == "tr" and tag not in _CELLS:
            self.pop_to("tr")
            inmost = self.table_mode()
        if inmost in _SECTIONS and tag not in _CELLS and tag != "tr":
            self.pop_to(inmost)
            inmost = "table"
        self.pop_while(lambda each: each.kind != inmost)
        if inmost == "table" and (tag in _CELLS or tag == "tr"):
            self.insert(self.make("tbody", {}))
        if inmost != "tr" and tag in _CELLS:
            self.insert(self.make("tr", {}))
        self.insert(self.make(tag, attributes), push=tag not in ("col", "colgroup"))

    def table_mode(self) -> str:
        """Return the part of a table that is open innermost; empty outside of tables."""
        for each in self.open.down():
            if each.kind == "template":
                return ""
            if each.kind in _PARTS or each.kind == "table":
                return each.kind
        return ""

    def end(self, tag: str) -> None:
        if self.open.current.space and self.end_foreign(tag):
            return
        self.begun = self.begun or tag in ("body", "html", "br")
        if tag == "br":
            self.start(Token("start", "br"))
        elif tag in FORMATTING:
            self.adopt(tag)
        elif tag == "form":
            self.end_form()
        elif tag == "p":
            if not self.open.in_scope("p", bounds=BUTTON_SCOPE):
                self.insert(self.make("p", {}))
            self.pop_to("p")
        elif tag in _ENDED:
            tags, bounds = _ENDED[tag]
            if self.open.in_scope(*tags, bounds=bounds):
                self.pop_to(*tags)
        elif self.open.names[tag] and tag not in ("html", "body"):
            self.end_other(tag)

    def end_foreign(self, tag: str) -> bool:
        """Return whether an end tag was one of svg or math; else it is one of HTML."""
        if tag in ("p", "br"):
            self.pop_while(lambda each: bool(each.space) and not integrates(each))
            return False
        for each in self.open.down():
            if not each.space:
                return False
            if each.tag == tag:
                self.close(each)
                return True
        return False
