"""The text of a Word document; python-docx opens its parts, and this module reads their content.

python-docx itself leaves out content controls, text boxes, notes and insertions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from docx.opc.part import Part, XmlPart
from docx.oxml.parser import parse_xml
from docx.package import Package

from scopes.documents.text import pictures

W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
SKIPPED_ELEMENTS: Final = frozenset(
    "pPr rPr tblPr tblGrid trPr tcPr sectPr sdtPr del moveFrom Fallback instrText delText".split()
)
"""Elements without words, or with deleted words; a fallback repeats its original."""
SIGNS: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
REFERENCES: Final = {
    "footnoteReference": "[^{}]",
    "endnoteReference": "[^end {}]",
    "commentReference": "[comment {}]",
}
PICTURES: Final = frozenset(("blip", "imagedata", "chart", "relIds"))
"""Elements that refer to an image, a chart or a SmartArt."""
MARGINS: Final = {"header": "Header", "footer": "Footer"}
NOTES: Final = {
    "footnotes": ("Footnotes:", "[^{}]"),
    "endnotes": ("Endnotes:", "[^end {}]"),
    "comments": ("Comments:", "[comment {}]"),
}
"""End of a relationship's type -> the heading, and the prefix of each note."""
HEADING: Final = re.compile(r"heading ([1-9])")


@dataclass
class WordDocument:
    """One pass over a document; hidden text is read, too."""

    file: BytesIO
    levels: dict[str, int] = field(default_factory=dict)
    """Id of a style -> its level as a heading."""
    pictures: int = 0
    hidden: bool = False

    def blocks(self, parent: Any) -> Iterator[str]:
        """Yield the paragraphs and the rows of tables in an element, one a line."""
        for child, name in _children(parent):
            if name == "p":
                if words := self.paragraph(child):
                    yield words
            elif name == "tr":
                cells = [self.cell(c) for c in child.iter(f"{W}tc") if _row_of(c) is child]
                if any(cells):
                    yield " | ".join(cells)
            elif name not in SKIPPED_ELEMENTS:
                yield from self.blocks(child)

    def cell(self, cell: Any) -> str:
        """Return the text of a cell; merged cells have it in the first one."""
        merged = cell.find(f"{W}tcPr/{W}vMerge")
        if merged is not None and merged.get(f"{W}val") != "restart":
            return ""
        return " / ".join(self.blocks(cell))

    def paragraph(self, paragraph: Any) -> str:
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        level = self.levels.get(style.get(f"{W}val"), 0) if style is not None else 0
        listed = "- " if paragraph.find(f"{W}pPr/{W}numPr") is not None else ""
        words = "".join(self.words(paragraph)).strip()
        return f"{'#' * level} {words}" if level and words else f"{listed}{words}" if words else ""

    def words(self, parent: Any) -> Iterator[str]:
        for child, name in _children(parent):
            self.pictures += name in PICTURES
            self.hidden = self.hidden or _is_hidden(child)
            if name == "r" and _value(child.find(f"{W}rPr/{W}vertAlign")) == "superscript":
                yield "^"  # otherwise 10 to the power of 6 is 106
            if name == "t":
                yield child.text or ""
            elif name == "sym":
                yield f"[{child.get(f'{W}font')} {child.get(f'{W}char')}]"
            elif name in SIGNS:
                yield SIGNS[name]
            elif name in REFERENCES:
                yield REFERENCES[name].format(child.get(f"{W}id"))
            elif name == "txbxContent":
                yield "\n".join(("", *self.blocks(child), ""))
            elif name not in SKIPPED_ELEMENTS:
                yield from self.words(child)

    def lines(self) -> Iterator[str]:
        main = Package.open(self.file).main_document_part
        parts = [(r.reltype.rpartition("/")[2], r) for r in main.rels.values()]
        related = [(kind, rel.target_part) for kind, rel in parts if not rel.is_external]
        for style in (s for k, p in related if k == "styles" for s in _root(p).iter(f"{W}style")):
            found = HEADING.match(_value(style.find(f"{W}name")).lower())
            if found:
                self.levels[style.get(f"{W}styleId")] = int(found[1])
        yield from self.blocks(_root(main))
        margins = [
            f"{MARGINS[kind]}: {text}"
            for kind, part in related
            if kind in MARGINS and (text := " / ".join(self.blocks(_root(part))))
        ]
        yield from dict.fromkeys(margins)
        for kind, part in related:
            if kind in NOTES:
                yield from self.notes(_root(part), *NOTES[kind])

    def notes(self, root: Any, heading: str, mark: str) -> Iterator[str]:
        """Yield footnotes, endnotes or comments; those with a type are lines that separate them."""
        found = [note for note, _ in _children(root) if note.get(f"{W}type") is None]
        if found:
            yield heading
        for note in found:
            author = note.get(f"{W}author")
            by = f" {author}:" if author else ""
            yield f"{mark.format(note.get(f'{W}id'))}{by} {' / '.join(self.blocks(note))}"

    def facts(self) -> tuple[str, ...]:
        hidden = "has hidden text, which is shown here" if self.hidden else ""
        return "Word document", pictures(self.pictures), hidden


def _root(part: Part) -> Any:
    """Return the tree of a part; python-docx knows no footnotes and no document with macros."""
    return part.element if isinstance(part, XmlPart) else parse_xml(part.blob)


def _children(parent: Any) -> Iterator[tuple[Any, str]]:
    """Yield the elements in an element with their names, without namespaces."""
    for child in parent:
        if isinstance(child.tag, str):  # for comments and entities it is a function
            yield child, child.tag.rpartition("}")[2]


def _row_of(cell: Any) -> Any:
    """Return the row of a cell, which may be in a content control."""
    return next(cell.iterancestors(f"{W}tr"))


def _is_hidden(run: Any) -> bool:
    mark = run.find(f"{W}rPr/{W}vanish")
    return mark is not None and _value(mark) not in ("0", "false", "off")


def _value(element: Any) -> str:
    return "" if element is None else element.get(f"{W}val") or ""
