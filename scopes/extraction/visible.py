"""HTML reduced to its visible text; hidden text is left out, and the result says so.

Only the document itself is read: nothing is loaded. Not detected: fonts that draw other letters,
elements on top of each other, scripts, animations, and the colours that tables of pages without a
doctype take from the body. The parser has no limits (95 KB of broken markup become 8 million
elements): call it in a process that has some, such as `scopes.pages.worker`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

from scopes.clean import decode_text, printable, smuggles_text
from scopes.extraction.style import Style, colour, compute_style
from scopes.extraction.stylesheet import CssSheet, declarations

MAX_BYTES = 2_000_000
MAX_ELEMENTS = 20_000

_DROPPED_TAGS = frozenset(
    "head style script template noscript title iframe object embed applet frameset noframes "
    "noembed svg canvas audio video select datalist textarea progress meter rp annotation "
    "annotation-xml meta link base input img source track param xml".split()
)
"""Elements without text of their own, or with text that is no part of the writing."""
_METADATA_TAGS = frozenset("head title base meta".split())
"""Elements about the page itself."""
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol p "
    "pre section summary table tbody tfoot thead tr ul caption".split()
)
_PARAGRAPH_TAGS = frozenset("p h1 h2 h3 h4 h5 h6 table blockquote pre ul ol dl".split())
_STYLE_ATTRIBUTES = frozenset("style bgcolor link color text href hidden open".split())
"""Attributes that affect the style of an element, independent of style sheets."""
_STYLED_TAGS = frozenset("pre listing xmp plaintext mark dialog bdo".split())
"""Elements that a browser styles without any attribute."""
_SPACES = re.compile(r"[ \t\r\n\f]+")
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w:.+-]{1,40})", re.IGNORECASE)
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Visible:
    """The part of an HTML document that a person sees."""

    text: str
    """Blocks as lines, links as their words."""
    hidden: bool
    """Whether there was, or may have been, text that a person would not see."""
    cut: bool = False
    """Whether its end was left out by a limit."""


def visible_text(html: str | bytes) -> Visible:
    """Reduce a document or a fragment."""
    return visible_page(html)[0]


def visible_page(html: str | bytes) -> tuple[Visible, str]:
    """Reduce a document; return also its HTML without hidden parts, empty if it was cut."""
    parser = LexborHTMLParser(
        source_of(html[:MAX_BYTES]).replace("\0", "").encode(errors="replace")
    )
    page = _Page(_sheet_of(parser))
    if parser.root is not None:
        page.read(parser.root)
    cut = page.cut or len(html) > MAX_BYTES
    text = "".join(page.out)
    seen = Visible(_tidy(printable(text)), page.hidden or smuggles_text(text), cut)
    if cut:
        return seen, ""
    for node in page.unseen:
        node.decompose()
    return seen, parser.html or ""


def source_of(html: str | bytes) -> str:
    """Return the document as characters, decoded with its declared charset."""
    if isinstance(html, str):
        return html
    meta = _META.search(html[:4_000])
    named = meta[1].decode("ascii", "replace") if meta else ""
    return decode_text(html, "" if named.lower().startswith("utf-16") else named)


def _sheet_of(page: LexborHTMLParser) -> CssSheet:
    """Return all style sheets, matched with the page; those that are not sure only hide."""
    sheet = CssSheet()
    for element in page.css("style"):
        held = element.attributes
        kind = (held.get("type") or "").strip().lower()
        sure = kind in ("", "text/css") and not _is_in_noscript(element)
        sheet.add(element.text(deep=True), held.get("media") or "", sure)
    sheet.match(page)
    return sheet


def _is_in_noscript(element: LexborNode | None) -> bool:
    while element is not None and element.tag != "noscript":
        element = element.parent
    return element is not None


def _tidy(text: str) -> str:
    text = "\n".join(each.rstrip() for each in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


@dataclass(slots=True)
class _Open:
    """An element in progress."""

    tag: str
    style: Style
    dropped: bool
    rest: LexborNode | None
    """The next node in it."""


class _Page:
    """The text of a document, and what hides it."""

    def __init__(self, sheet: CssSheet) -> None:
        self.sheet = sheet
        self.out: list[str] = []
        self.hidden = self.cut = False
        self.unseen: list[LexborNode] = []
        """Hidden texts, and elements that show no text of their own."""
        self.elements = 0
        self.breaks = 2  # line breaks at the end of the output

    def read(self, root: LexborNode) -> None:
        todo = [self.start(root, _Open("", Style(), False, None))]
        while todo:
            node = todo[-1].rest
            if node is None:
                self.end(todo.pop())
                continue
            todo[-1].rest = node.next
            if node.is_text_node:
                self.text(node, todo[-1])
            elif node.is_element_node:
                self.elements += 1
                if self.elements > MAX_ELEMENTS:
                    self.cut = True
                    return
                todo.append(self.start(node, todo[-1]))

    def start(self, node: LexborNode, above: _Open) -> _Open:
        tag = node.tag or ""
        held = {name: value or "" for name, value in node.attributes.items()}
        dropped = above.dropped or tag in _DROPPED_TAGS
        style = above.style if dropped else self.style(node.mem_id, tag, held, above.style)
        if dropped and tag not in _METADATA_TAGS:
            self.unseen.append(node)
        inside = None if dropped and tag not in _METADATA_TAGS else node.child
        opened = _Open(tag, style, dropped, inside)
        if style.shown and not dropped:
            self.show(opened)
        return opened

    def style(self, id: int, tag: str, held: Mapping[str, str], above: Style) -> Style:
        """Return the style of an element by the sheets and its own; either can hide it."""
        found, unsure = self.sheet.match_rules(id)
        if not (found or unsure or tag in _STYLED_TAGS or _STYLE_ATTRIBUTES & held.keys()):
            return above.inherited
        normal, important = declarations(held.get("style", ""))
        cascade = [*_hints(tag, held, above), *(d for rule in found for d in rule.declared[0])]
        cascade += [*normal, *(d for rule in found for d in rule.declared[1]), *important]
        style = compute_style(above, cascade)
        others = [
            compute_style(above, [*cascade, *rule.declared[0], *rule.declared[1]])
            for rule in unsure
        ]
        if found:
            others.append(compute_style(Style(variables=above.variables), [*normal, *important]))
        style.hidden = style.hidden or any(each.boxed_away for each in others)
        return style

    def show(self, opened: _Open) -> None:
        tag = opened.tag
        if tag == "br":
            self.out.append("\n")
            self.breaks += 1
        elif tag in _BLOCKS or opened.style.block:
            self.line_break(2 if tag in _PARAGRAPH_TAGS else 1)
            if tag == "li":
                self.out.append("- ")
        elif tag in ("td", "th") and not self.breaks:
            self.out.append("\t")

    def line_break(self, count: int) -> None:
        self.out.append("\n" * max(0, count - self.breaks))
        self.breaks = max(self.breaks, count)

    def text(self, node: LexborNode, inside: _Open) -> None:
        text = node.text_content or ""
        if inside.dropped:
            return
        if not inside.style.shown:
            self.unseen.append(node)
            self.hidden = self.hidden or _WORD.search(text) is not None or smuggles_text(text)
            return
        if not inside.style.keeps_breaks:
            text = _SPACES.sub(" ", text)
            if self.breaks or (self.out and self.out[-1].endswith((" ", "\t"))):
                text = text.lstrip(" ")
        if text:
            self.out.append(text)
            self.breaks = 0

    def end(self, opened: _Open) -> None:
        block = opened.tag in _BLOCKS or opened.style.block
        if block and not opened.dropped and opened.style.shown:
            self.line_break(2 if opened.tag in _PARAGRAPH_TAGS else 1)


def _hints(tag: str, held: Mapping[str, str], above: Style) -> list[tuple[str, str]]:
    """Return the declarations of old attributes and `hidden`, before any style sheet."""
    hints = [("white-space", "pre")] if tag in ("pre", "listing", "xmp", "plaintext") else []
    if tag == "a" and "href" in held:
        red, green, blue, _ = above.link
        hints.append(("color", f"rgb({red:.0f},{green:.0f},{blue:.0f})"))
    if tag == "mark":
        hints += [("background-color", "yellow"), ("color", "black")]
    for name, property_ in (("bgcolor", "background-color"), ("link", "link")):
        if name in held:
            hints.append((property_, _legacy(held[name])))
    ink = held.get("color" if tag in ("font", "basefont") else "text")
    if ink is not None and tag in ("font", "basefont", "body"):
        hints.append(("color", _legacy(ink)))
    if "hidden" in held or (tag == "dialog" and "open" not in held):
        hints.append(("display", "none"))
    if tag == "bdo":
        hints.append(("unicode-bidi", "bidi-override"))
    return hints


def _legacy(value: str) -> str:
    """Return a colour of an attribute, in which the # may be missing."""
    value = value.strip().lower()
    return value if colour(value) else f"#{value}"
