"""The text of a PDF, by PDFium.

PDFium, which is C++, ends the program that it runs in where it gets no memory, or has a fault that
a file sets off: it is called in our own programs alone, `scopes.documents.worker` and
`scopes.pages.worker`.
"""

from __future__ import annotations

from ctypes import POINTER, c_char, c_ushort
from dataclasses import dataclass
from typing import Any, Final

import pypdfium2_raw as pdfium

NO_FONTS: Final = (POINTER(c_char) * 1)()
"""Folders of fonts: none, or PDFium opens all that the machine has, and the text needs none."""
HYPHEN: Final = "\ufffe"
"""What PDFium makes of a hyphen and the end of its line."""


class PdfUnreadable(Exception):
    """A PDF that gives no text: it is `encrypted`, with a password, or `damaged`."""


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of the pages that were read."""

    text: str
    """Up to so many characters as were asked for, and one more where there are more."""
    pages: int
    """In all."""
    read: int
    images: int


def text_of(data: bytes, max_pages: int, max_chars: int) -> PdfText:
    """Return the text of the first pages without damaged ones. Raises PdfUnreadable.

    What a reader does not see is read as all else: what is white, covered, on a layer that is off,
    outside of the page or of its crop box. Where the file has other words for what it draws
    (`ToUnicode`, `ActualText`), it is those. Comments and the fields of forms are not read.
    """
    config = pdfium.FPDF_LIBRARY_CONFIG(version=2, m_pUserFontPaths=NO_FONTS)
    pdfium.FPDF_InitLibraryWithConfig(config)  # once; it does nothing from then on
    document = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not document:
        locked = pdfium.FPDF_GetLastError() == pdfium.FPDF_ERR_PASSWORD
        raise PdfUnreadable("encrypted" if locked else "damaged")
    parts, images = list[str](), 0
    try:
        pages = pdfium.FPDF_GetPageCount(document)
        for number in range(min(pages, max_pages)):
            if page := pdfium.FPDF_LoadPage(document, number):
                images += _images_of_page(page)
                parts.append(_text_of_page(page))
            if sum(map(len, parts)) > max_chars:
                break
    finally:
        pdfium.FPDF_CloseDocument(document)
    if not parts:
        raise PdfUnreadable("damaged")
    return PdfText("\n\n".join(parts)[: max_chars + 1], pages, len(parts), images)


def _images_of_page(page: Any) -> int:
    objects = (
        pdfium.FPDFPage_GetObject(page, n) for n in range(pdfium.FPDFPage_CountObjects(page))
    )
    return sum(pdfium.FPDFPageObj_GetType(each) == pdfium.FPDF_PAGEOBJ_IMAGE for each in objects)


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
