"""Extract the text of documents in a program of its own, so that none can crash the bot.

Its content decides the kind of a document, never its name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from typing import Final
from zipfile import ZipFile

from lxml import etree

from scopes.clean import BOMS, decode_text, printable
from scopes.confinement import serve_confined
from scopes.documents import pdf
from scopes.documents.slides import Presentation
from scopes.documents.text import (
    DocumentRefused,
    DocumentText,
    beginning,
    facts_of,
    json_reply,
)
from scopes.documents.word import WordDocument
from scopes.documents.workbook import ExcelWorkbook
from scopes.extraction.visible import visible_text

MAX_CPU_S: Final = 2
"""Seconds of computing for one document."""
MAX_UNPACKED: Final = 100_000_000
"""Maximum bytes of all parts of an Office file together; zipfile unpacks no more of a part."""
MAX_PARTS: Final = 5_000
MAX_PAGES: Final = 200
MAX_TEXT: Final = 4_000_000
"""Characters of a plain text."""
OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of a file of Office before 2007, and of any Office file with a password."""
OFFICE: Final = {"word/": WordDocument, "ppt/": Presentation, "xl/": ExcelWorkbook}
"""Folder of the parts of an Office file -> its reader."""
OLE_REFUSALS: Final = {
    "EncryptedPackage": "has a password, which I cannot open: send it without one",
    "WordDocument": "is a Word file of the old kind, which I cannot read: save it as .docx",
    "Workbook": "is an Excel file of the old kind, which I cannot read: save it as .xlsx",
    "PowerPoint Document": "is a PowerPoint file of the old kind, which I cannot read: "
    "save it as .pptx",
}
"""Name of a stream in such a file -> why it is not read."""
UNKNOWN: Final = "is of a kind that I cannot read: save it as text, CSV, PDF, .docx, .xlsx or .pptx"
NO_TEXT_MESSAGE: Final = (
    "has no text that I can read ({}): if its pages are pictures, send them as images"
)
HTML: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}>\s*)?"
    rb"<(?:(?:!doctype html|html|head|body)\b|div class=.quip-canvas-content)",
    re.IGNORECASE,
)
"""The start of a page, and of a canvas of Slack."""


def text_of(data: bytes, max_chars: int, source: bool, charset: str) -> DocumentText:
    """Return the text of a document. Raises DocumentRefused, and any error of libraries."""
    if not data:
        raise DocumentRefused("is empty")
    if b"%PDF-" in data[:1024]:
        return pdf.text_of(data, MAX_PAGES, max_chars)
    if data.startswith(b"PK\x03\x04"):
        return _office(data, max_chars)
    if data.startswith(OLE):
        why = (why for name, why in OLE_REFUSALS.items() if name.encode("utf-16-le") in data)
        raise DocumentRefused(next(why, UNKNOWN))
    if HTML.match(data[:1024]) and not source:
        return _page(data, max_chars)
    return _plain(data, charset)


def _office(data: bytes, max_chars: int) -> DocumentText:
    file = BytesIO(data)
    with ZipFile(file) as packed:
        parts = packed.infolist()
    if any(part.flag_bits & 1 for part in parts):
        raise DocumentRefused(OLE_REFUSALS["EncryptedPackage"])
    size = sum(part.file_size for part in parts)
    if size > MAX_UNPACKED or len(parts) > MAX_PARTS:
        raise DocumentRefused(
            f"unpacks to more than {MAX_UNPACKED // 1_000_000} MB or {MAX_PARTS} parts, which I do "
            "not open: send a smaller file"
        )
    names = [part.filename for part in parts]
    readers = [kind for folder, kind in OFFICE.items() if any(n.startswith(folder) for n in names)]
    if not readers or "[Content_Types].xml" not in names or "xl/workbook.bin" in names:
        raise DocumentRefused(UNKNOWN)
    reading = readers[0](file)
    text, cut = beginning(reading.lines(), max_chars)
    return DocumentText(text, facts_of(*reading.facts()), cut)


def _page(data: bytes, max_chars: int) -> DocumentText:
    seen = visible_text(data)
    hidden = "hidden text was left out" if seen.hidden else ""
    return DocumentText(
        seen.text[:max_chars],
        facts_of("HTML, as a reader sees it", hidden),
        seen.cut or len(seen.text) > max_chars,
    )


def _plain(data: bytes, charset: str) -> DocumentText:
    for mark, codec in BOMS:
        if data.startswith(mark):
            return _text(data[len(mark) :].decode(codec, "replace"), f"text, {codec}")
    if b"\x00" in data[:4096]:
        raise DocumentRefused(UNKNOWN)
    try:
        text, how = decode_text(data, charset) if charset else data.decode("utf-8"), "text"
    except UnicodeDecodeError:
        text, how = data.decode("cp1252", "replace"), "text, charset guessed: Windows-1252"
    controls = len(re.findall(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]", text[:20_000]))
    if data.startswith(b"\x1f\x8b") or controls > len(text[:20_000]) // 100:
        raise DocumentRefused(UNKNOWN)
    return _text(text, how)


def _text(text: str, how: str) -> DocumentText:
    """Return a whole text, cut if it is too long to be made printable in time."""
    return DocumentText(text[:MAX_TEXT], how, len(text) > MAX_TEXT)


def read(data: bytes, max_chars: int, source: bool, charset: str = "") -> DocumentText:
    """Return a document, its text without invisible characters. Raises the errors of `text_of`.

    `charset` is the declared one of a plain text.
    """
    try:
        found = text_of(data, max_chars, source, charset)
    except etree.XMLSyntaxError as error:
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY:
            raise MemoryError from error
        raise
    text = printable(found.text)
    if not text.strip():
        raise DocumentRefused(NO_TEXT_MESSAGE.format(found.facts))
    return replace(found, text=text)


def main() -> None:
    serve_confined(json_reply(read), MAX_CPU_S)
