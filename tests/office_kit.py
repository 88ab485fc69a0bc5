"""Office files as tests need them: written by the libraries, and by hand where these stop."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import docx
import openpyxl
import pptx
from docx.document import Document
from pptx.presentation import Presentation

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
PNG = (
    b"\x89PNG\r\n\x1a\n"
    + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in (
            (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
            (b"IDAT", zlib.compress(b"\0\0")),
            (b"IEND", b""),
        )
    )
)  # fmt: skip


def file_bytes(made: Document | Presentation | openpyxl.Workbook) -> bytes:
    file = BytesIO()
    made.save(file)
    return file.getvalue()


def word(*paragraphs: str) -> bytes:
    made = docx.Document()
    for each in paragraphs:
        made.add_paragraph(each)
    return file_bytes(made)


def word_of(body: str) -> bytes:
    """A Word document whose body is this XML."""
    text = (
        f'<w:document xmlns:w="{W}" xmlns:mc="http://schemas.openxmlformats.org/'
        f'markup-compatibility/2006"><w:body>{body}</w:body></w:document>'
    )
    return with_parts(word(), {"word/document.xml": text.encode()})


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def with_related_part(data: bytes, kind: str, xml: str) -> bytes:
    """A Word document with another part: `footnotes`, `endnotes`."""
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
    """A presentation of slides with a title, and what its speaker says."""
    made = pptx.Presentation()
    for number, (title, notes) in enumerate(slides, 1):
        slide = made.slides.add_slide(made.slide_layouts[5])
        assert slide.shapes.title is not None
        slide.shapes.title.text = title
        if notes:
            frame = slide.notes_slide.notes_text_frame
            assert frame is not None
            frame.text = notes
        if number in hidden:
            slide.element.set("show", "0")
    return file_bytes(made)


def book(
    sheets: Mapping[str, Sequence[Sequence[Any]]], hidden: Sequence[str] = ()
) -> openpyxl.Workbook:
    """A workbook of these rows."""
    made = openpyxl.Workbook()
    made.remove(made.worksheets[0])
    for title, rows in sheets.items():
        sheet = made.create_sheet(title)
        sheet.sheet_state = "hidden" if title in hidden else "visible"
        for row in rows:
            sheet.append(list(row))
    return made


def book_of(rows: str, strings: str = "") -> bytes:
    """A workbook of one sheet with these rows and these shared strings, as XML."""
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
    """A zip with other parts; those that are None are left out."""
    file = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as new:
        kept = {name: old.read(name) for name in old.namelist()}
        for name, content in {**kept, **parts}.items():
            if content is not None:
                new.writestr(name, content)
    return file.getvalue()


def compound(*streams: str) -> bytes:
    """What Office before 2007 wrote, or any that has a password: a directory of these streams."""
    entries = [name.encode("utf-16-le").ljust(64, b"\0").ljust(128, b"\0") for name in streams]
    return OLE + bytes(504) + b"".join(entries).ljust(1024, b"\0")
