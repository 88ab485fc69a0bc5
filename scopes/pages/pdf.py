"""The text of a PDF: a program of its own, so that a hostile file can take nothing down with it.

It reads the file and prints one JSON object, either `{"text", "pages", "read"}` or
`{"error": "encrypted" | "damaged"}`. It limits its own memory and time. PDFium, which is C++, ends
the program that it runs in where it gets no memory, or has a fault that a file sets off.
"""

from __future__ import annotations

import json
import sys
from ctypes import POINTER, c_char, c_ushort
from typing import Any, Final

import pypdfium2_raw as pdfium

from scopes.confinement import confined
from scopes.process_limits import limit

MAX_MEMORY = 512 << 20
NO_FONTS: Final = (POINTER(c_char) * 1)()
"""Folders of fonts: none, or PDFium opens all that the machine has, and the text needs none."""
HYPHEN: Final = "\ufffe"
"""What PDFium makes of a hyphen and the end of its line."""


def text_of(data: bytes, max_pages: int, max_chars: int) -> dict[str, Any]:
    """Return the text of the first pages, up to so many characters, without damaged ones.

    What a reader does not see is read as all else: what is white, covered, on a layer that is off,
    outside of the page or of its crop box. Where the file has other words for what it draws
    (`ToUnicode`, `ActualText`), it is those. Comments and the fields of forms are not read.
    """
    config = pdfium.FPDF_LIBRARY_CONFIG(version=2, m_pUserFontPaths=NO_FONTS)
    pdfium.FPDF_InitLibraryWithConfig(config)  # once; it does nothing from then on
    document = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not document:
        locked = pdfium.FPDF_GetLastError() == pdfium.FPDF_ERR_PASSWORD
        return {"error": "encrypted" if locked else "damaged"}
    parts: list[str] = []
    try:
        pages = pdfium.FPDF_GetPageCount(document)
        for number in range(min(pages, max_pages)):
            if page := pdfium.FPDF_LoadPage(document, number):
                parts.append(_text_of_page(page))
            if sum(map(len, parts)) > max_chars:
                break
    finally:
        pdfium.FPDF_CloseDocument(document)
    if not parts:
        return {"error": "damaged"}
    return {"text": "\n\n".join(parts)[: max_chars + 1], "pages": pages, "read": len(parts)}


def _text_of_page(page: Any) -> str:
    """Return the text of a page, which is closed."""
    letters = pdfium.FPDFText_LoadPage(page)
    try:
        count = pdfium.FPDFText_CountChars(letters)
        found = (c_ushort * (count + 1))()
        written = pdfium.FPDFText_GetText(letters, 0, count, found)
    finally:
        pdfium.FPDFText_ClosePage(letters)
        pdfium.FPDF_ClosePage(page)
    text = bytes(found)[: 2 * max(written - 1, 0)].decode("utf-16-le", "replace")
    return text.replace("\r\n", "\n").replace(HYPHEN, "-\n")


def main(seconds: int, max_pages: int, max_chars: int) -> None:
    limit(memory=MAX_MEMORY, seconds=seconds, file_bytes=0)
    confined()
    sys.stdout.write(json.dumps(text_of(sys.stdin.buffer.read(), max_pages, max_chars)))
