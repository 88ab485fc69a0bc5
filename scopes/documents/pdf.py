"""The text of a PDF, by PDFium.

PDFium is C++: it ends its process if it gets no memory, or if a file triggers one of its faults. So
only our own programs call it, `scopes.documents.worker` and `scopes.pages.worker`.
"""

from __future__ import annotations

from ctypes import POINTER, c_char
from typing import Final

from pypdfium2 import PdfDocument, PdfiumError, raw

from scopes.documents.text import (
    DAMAGED_MESSAGE,
    DocumentRefused,
    DocumentText,
    facts_of,
    pictures,
)

NO_FONTS: Final = (POINTER(c_char) * 1)()
"""Folders of fonts: none. Otherwise PDFium opens all fonts of the machine; the text needs none."""
raw.FPDF_DestroyLibrary()  # pypdfium2 has started it with those of the machine
raw.FPDF_InitLibraryWithConfig(raw.FPDF_LIBRARY_CONFIG(version=2, m_pUserFontPaths=NO_FONTS))
HYPHEN: Final = "\ufffe"
"""PDFium's character for a hyphen at the end of a line."""


LOCKED_MESSAGE: Final = "is a PDF with a password, which I cannot open: send it without one"


def text_of(data: bytes, max_pages: int, max_chars: int) -> DocumentText:
    """Return the text of the first pages without damaged ones. Raises DocumentRefused.

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
        raise DocumentRefused(LOCKED_MESSAGE if locked else DAMAGED_MESSAGE) from None
    if not parts:
        raise DocumentRefused(DAMAGED_MESSAGE)
    text, read = "\n\n".join(parts), f"PDF, text of {len(parts)} of {pages} pages"
    cut = len(text) > max_chars or len(parts) < pages
    return DocumentText(text[:max_chars], facts_of(read, pictures(images)), cut)
