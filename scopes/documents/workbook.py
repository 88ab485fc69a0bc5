"""The rows of an Excel workbook, sheet by sheet, as they were when it was last computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from io import BytesIO
from typing import BinaryIO, Final
from zipfile import ZipFile

from openpyxl import Workbook
from openpyxl.comments.comment_sheet import CommentSheet
from openpyxl.reader.excel import ExcelReader
from openpyxl.xml.functions import fromstring

from scopes.documents.text import DocumentText, beginning, facts_of, pictures

COMMENTS: Final = re.compile(r"xl/comments/?(?:comment)?\d*\.xml")
SHEETS: Final = re.compile(r"xl/worksheets/[^/]+\.xml")
MEDIA: Final = re.compile(r"xl/(?:media|charts)/[^/]+\.\w+")
UNCOMPUTED: Final = re.compile(
    rb"<c\b(?![^>]*\bt=.str.)[^>]*><f\b[^<]*</f>(?:<v>\s*</v>|<v\s*/>)?</c>"
)
"""A cell with a formula and no value; the value of one that gives a text may be empty."""
GAP: Final = re.compile(r"(?: \| ){6,}")
"""Empty cells in a row, so many that they are left out."""
LOOKED: Final = 4_000_000
"""Bytes of a sheet in which formulas are looked for."""


def open_workbook(file: BinaryIO) -> Workbook:
    """Return a workbook whose sheets are read row by row, with the values of formulas.

    Its own way to do so fails for a sheet of a chart that is not there; it holds no rows.
    """
    reader = ExcelReader(file, read_only=True, data_only=True)
    reader.read_chartsheet = lambda *_: None
    reader.read()
    return reader.wb


def text_of(file: BytesIO, max_chars: int) -> DocumentText:
    """Return the rows of all sheets; hidden ones are read like all others."""
    book = open_workbook(file)
    with ZipFile(file) as packed:
        text, cut = beginning(_lines(book, packed), max_chars)
        images = sum(MEDIA.fullmatch(name) is not None for name in packed.namelist())
        uncomputed = _uncomputed(packed)
    count, hidden = len(book.worksheets), sum(s.sheet_state != "visible" for s in book.worksheets)
    return DocumentText(
        text,
        facts_of(
            f"Excel workbook, {count} sheet{'s' * (count != 1)}",
            f"{hidden} hidden" if hidden else "",
            f"{uncomputed} formula{'s' * (uncomputed > 1)} without a stored value"
            if uncomputed
            else "",
            pictures(images),
        ),
        cut,
    )


def _lines(book: Workbook, packed: ZipFile) -> Iterator[str]:
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # a sheet may claim any
        yield f"Sheet {sheet.title}{' (hidden)' * (sheet.sheet_state != 'visible')}:"
        for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
            if any(cell is not None for cell in row):
                yield f"{number}: {_row(row)}"
    for name in filter(COMMENTS.fullmatch, packed.namelist()):
        for ref, comment in CommentSheet.from_tree(fromstring(packed.read(name))).comments:
            yield f"Comment on {ref} by {comment.author}: {comment.text}"


def _row(row: Sequence[object]) -> str:
    return GAP.sub(" | ... | ", " | ".join(map(_cell, row))).strip()


def _cell(value: object) -> str:
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return "" if value is None else str(value)


def _uncomputed(packed: ZipFile) -> int:
    """Return how many formulas have no value: they were written by a program that computes none."""
    count = 0
    for name in filter(SHEETS.fullmatch, packed.namelist()):
        with packed.open(name) as sheet:
            count += len(UNCOMPUTED.findall(sheet.read(LOOKED)))
    return count
