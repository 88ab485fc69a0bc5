"""The text of a PDF, by PDFium.

PDFium is C++: it ends its process if it gets no memory, or if a file triggers one of its faults. So
only our own programs call it, `scopes.documents.worker` and `scopes.pages.worker`.
"""

from __future__ import annotations

from ctypes import POINTER, c_char
from dataclasses import dataclass
from typing import Final

from pypdfium2 import PdfDocument, PdfiumError, raw

NO_FONTS: Final = (POINTER(c_char) * 1)()
"""Folders of fonts: none. Otherwise PDFium opens all fonts of the machine; the text needs none."""
raw.FPDF_DestroyLibrary()  # pypdfium2 has started it with those of the machine
raw.FPDF_InitLibraryWithConfig(raw.FPDF_LIBRARY_CONFIG(version=2, m_pUserFontPaths=NO_FONTS))
HYPHEN: Final = "\ufffe"
"""PDFium's character for a hyphen at the end of a line."""


class PdfUnreadable(Exception):
    """A PDF that gives no text: it is `encrypted`, with a password, or `damaged`."""


@dataclass(frozen=True, slots=True)
class PdfText:
    """The text of the pages that were read."""

    text: str
    """At most the requested characters, and one more if there are more."""
    pages: int
    """Pages in all."""
    read: int
    images: int


def text_of(data: bytes, max_pages: int, max_chars: int) -> PdfText:
    """Return the text of the first pages without damaged ones. Raises PdfUnreadable.

    Text that a reader does not see is included: white, covered, on a layer that is off, outside of
    the page or of its crop box. If the file has other words for a drawn text (`ToUnicode`,
    `ActualText`), they are returned. Fields of forms are read as they look, comments are not.
    """
    parts, images = list[str](), 0
    try:
        with PdfDocument(data) as document:
            document.init_forms()  # draws the fields that the file does not
            pages = len(document)
            for number in range(min(pages, max_pages)):
                try:
                    page = document[number]
                    if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) == raw.FLATTEN_SUCCESS:
                        page.close()
                        page = document[number]  # now with its fields as text
                except PdfiumError:
                    continue
                images += sum(1 for _ in page.get_objects([raw.FPDF_PAGEOBJ_IMAGE], max_depth=1))
                text = page.get_textpage().get_text_range()
                parts.append(text.replace("\r\n", "\n").replace(HYPHEN, "-\n"))
                page.close()
                if sum(map(len, parts)) > max_chars:
                    break
    except PdfiumError as error:
        locked = error.err_code == raw.FPDF_ERR_PASSWORD
        raise PdfUnreadable("encrypted" if locked else "damaged") from None
    if not parts:
        raise PdfUnreadable("damaged")
    return PdfText("\n\n".join(parts)[: max_chars + 1], pages, len(parts), images)
