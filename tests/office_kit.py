"""Office files for tests: written by the libraries, and by hand where these cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import docx
import openpyxl
import pptx
from docx.document import Document
from PIL import Image
from pptx.presentation import Presentation

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def _png() -> bytes:
    file = BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    return file.getvalue()


PNG = _png()


def file_bytes(document: Document | Presentation | openpyxl.Workbook) -> bytes:
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def word(*paragraphs: str) -> bytes:
    document = docx.Document()
    for each in paragraphs:
        document.add_paragraph(each)
    return file_bytes(document)


def word_of(body: str) -> bytes:
    """Return a Word document whose body is this XML."""
    text = (
        f'<w:document xmlns:w="{W}" xmlns:mc="http://schemas.openxmlformats.org/'
        f'markup-compatibility/2006"><w:body>{body}</w:body></w:document>'
    )
    return with_parts(word(), {"word/document.xml": text.encode()})


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def with_related_part(data: bytes, kind: str, xml: str) -> bytes:
    """Add a part to a Word document: `footnotes`, `endnotes`."""
    with ZipFile(BytesIO(data)) as packed:
        types = packed.read("[Content_Types].xml").decode()
        rels = packed.read("word/_rels/document.xml.rels").decode()
    part = (
        f'<Override PartName="/word/{kind}.xml" ContentType="application/vnd.openxmlformats-'
        f'officedocument.wordprocessingml.{kind}+xml"/></Types>'
    )
    relation = (
        f'<Relationship Id="rId{kind}" Target="{kind}.xml" Type="http://schemas.openxmlformats.org/'
        f'officeDocument/2006/relationships/{kind}"/></Relationships>'
    )
    return with_parts(
        data,
        {
            "[Content_Types].xml": types.replace("</Types>", part).encode(),
            "word/_rels/document.xml.rels": rels.replace("</Relationships>", relation).encode(),
            f"word/{kind}.xml": f'<w:{kind} xmlns:w="{W}">{xml}</w:{kind}>'.encode(),
        },
    )


def deck(*slides: tuple[str, str], hidden: Sequence[int] = ()) -> bytes:
    """Return a presentation whose slides have a title, and notes of the speaker."""
    presentation = pptx.Presentation()
    for number, (title, notes) in enumerate(slides, 1):
        slide = presentation.slides.add_slide(presentation.slide_layouts[5])
        assert slide.shapes.title is not None
        slide.shapes.title.text = title
        if notes:
            frame = slide.notes_slide.notes_text_frame
            assert frame is not None
            frame.text = notes
        if number in hidden:
            slide.element.set("show", "0")
    return file_bytes(presentation)


def book(
    sheets: Mapping[str, Sequence[Sequence[Any]]], hidden: Sequence[str] = ()
) -> openpyxl.Workbook:
    """Return a workbook of these rows."""
    workbook = openpyxl.Workbook()
    workbook.remove(workbook.worksheets[0])
    for title, rows in sheets.items():
        sheet = workbook.create_sheet(title)
        sheet.sheet_state = "hidden" if title in hidden else "visible"
        for row in rows:
            sheet.append(list(row))
    return workbook


def book_of(rows: str, strings: str = "") -> bytes:
    """Return a workbook of one sheet with these rows and these shared strings, as XML."""
    data = file_bytes(book({"Data": [["text"]]}))
    with ZipFile(BytesIO(data)) as packed:
        types = packed.read("[Content_Types].xml").decode()
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    part = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
    return with_parts(
        data,
        {
            "[Content_Types].xml": types.replace("</Types>", part).encode(),
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}">{rows}</worksheet>'.encode(),
            "xl/sharedStrings.xml": f'<sst xmlns="{main}">{strings}</sst>'.encode(),
        },
    )


def with_parts(data: bytes, parts: Mapping[str, bytes | None]) -> bytes:
    """Replace parts of a zip; those that are None are left out."""
    file = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as new:
        originals = {name: old.read(name) for name in old.namelist()}
        for name, content in {**originals, **parts}.items():
            if content is not None:
                new.writestr(name, content)
    return file.getvalue()


def compound(*streams: str) -> bytes:
    """Return a file as of Office before 2007, or with a password: a directory of these streams."""
    entries = [name.encode("utf-16-le").ljust(64, b"\0").ljust(128, b"\0") for name in streams]
    return OLE + bytes(504) + b"".join(entries).ljust(1024, b"\0")
