"""The text of a PowerPoint presentation, with its speaker notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

from lxml import etree
from pptx.opc.package import Part
from pptx.oxml import parse_xml
from pptx.package import Package
from pptx.shapes.graphfrm import GraphicFrame
from pptx.shapes.group import GroupShape
from pptx.shapes.picture import Picture

from scopes.documents.text import pictures
from scopes.tool import format_count


class Presentation:
    """One pass over a presentation; hidden slides are read, too."""

    def __init__(self, file: BytesIO) -> None:
        self.slides = Package.open(file).presentation_part.presentation.slides
        self.pictures = self.hidden = 0

    def lines(self) -> Iterator[str]:
        for number, slide in enumerate(self.slides, 1):
            hidden = slide.element.get("show") in ("0", "false")
            self.hidden += hidden
            yield f"Slide {number}{' (hidden)' * hidden}:"
            yield from self.shapes(slide.shapes)
            frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
            if frame and (words := _words(frame)):
                yield f"Speaker notes: {words}"
            for relation in slide.part.rels.values():
                if relation.reltype.endswith("/comments") and not relation.is_external:
                    yield from _comments(relation.target_part)

    def shapes(self, shapes: Iterable[Any]) -> Iterator[str]:
        for shape in shapes:
            if isinstance(shape, GroupShape):
                yield from self.shapes(shape.shapes)
            elif isinstance(shape, GraphicFrame):
                yield from self.frame(shape)
            elif shape.has_text_frame and (words := _words(shape.text_frame)):
                yield words
            self.pictures += isinstance(shape, Picture)

    def frame(self, shape: GraphicFrame) -> Iterator[str]:
        """Yield the rows of a table; charts and drawings are pictures."""
        if not shape.has_table:
            self.pictures += 1
            return
        for row in shape.table.rows:
            yield " | ".join("" if c.is_spanned else _words(c.text_frame) for c in row.cells)

    def facts(self) -> tuple[str, ...]:
        count = f"PowerPoint presentation, {format_count(len(self.slides), 'slide')}"
        return count, f"{self.hidden} hidden" if self.hidden else "", pictures(self.pictures)


def _words(frame: Any) -> str:
    """Return the text of a frame; a line break in a paragraph is a vertical tab to python-pptx."""
    return str(frame.text).replace("\v", "\n").strip()


def _comments(part: Part) -> Iterator[str]:
    """Yield the comments on a slide, in the words of the old (`text`) or the new (`t`) kind."""
    root: Any = parse_xml(part.blob)
    for element in root.iter(etree.Element):
        if element.tag.rpartition("}")[2] in ("text", "t") and element.text:
            yield f"Comment: {element.text}"
