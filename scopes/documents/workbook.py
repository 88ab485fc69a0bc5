"""The rows of an Excel workbook, sheet by sheet, with the values of the last computation."""

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

from scopes.documents.text import pictures
from scopes.tool import format_count

COMMENTS: Final = re.compile(r"xl/comments/?(?:comment)?\d*\.xml")
SHEETS: Final = re.compile(r"xl/worksheets/[^/]+\.xml")
MEDIA: Final = re.compile(r"xl/(?:media|charts)/[^/]+\.\w+")
UNCOMPUTED_CELL: Final = re.compile(
    rb"<c\b(?![^>]*\bt=.str.)[^>]*><f\b[^<]*</f>(?:<v>\s*</v>|<v\s*/>)?</c>"
)
"""A cell with a formula and no value; the value of one that gives a text may be empty."""
EMPTY_CELLS: Final = re.compile(r"(?: \| ){6,}")
"""Empty cells in a row, enough to be left out."""
MAX_SEARCHED_BYTES: Final = 4_000_000
"""Bytes of a sheet that are searched for formulas."""


def open_workbook(file: BinaryIO) -> Workbook:
    """Return a workbook whose sheets are read row by row, with the values of formulas.

    openpyxl's own way fails for a missing sheet of a chart, which has no rows anyway.
    """
    reader = ExcelReader(file, read_only=True, data_only=True)
    reader.read_chartsheet = lambda *_: None
    reader.read()
    return reader.wb


class ExcelWorkbook:
    """One pass over the rows of all sheets; hidden ones are read, too."""

    def __init__(self, file: BytesIO) -> None:
        self.book, self.packed = open_workbook(file), ZipFile(file)

    def lines(self) -> Iterator[str]:
        for sheet in self.book.worksheets:
            sheet.reset_dimensions()  # a sheet may claim wrong ones
            yield f"Sheet {sheet.title}{' (hidden)' * (sheet.sheet_state != 'visible')}:"
            for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                if any(cell is not None for cell in row):
                    yield f"{number}: {_row(row)}"
        for name in filter(COMMENTS.fullmatch, self.packed.namelist()):
            for ref, comment in CommentSheet.from_tree(fromstring(self.packed.read(name))).comments:
                yield f"Comment on {ref} by {comment.author}: {comment.text}"

    def facts(self) -> tuple[str, ...]:
        sheets, uncomputed = self.book.worksheets, count_uncomputed(self.packed)
        hidden = sum(sheet.sheet_state != "visible" for sheet in sheets)
        return (
            f"Excel workbook, {format_count(len(sheets), 'sheet')}",
            f"{hidden} hidden" if hidden else "",
            f"{format_count(uncomputed, 'formula')} without a stored value" if uncomputed else "",
            pictures(sum(MEDIA.fullmatch(name) is not None for name in self.packed.namelist())),
        )


def _row(row: Sequence[object]) -> str:
    return EMPTY_CELLS.sub(" | ... | ", " | ".join(map(_cell, row))).strip()


def _cell(value: object) -> str:
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return "" if value is None else str(value)


def count_uncomputed(packed: ZipFile) -> int:
    """Return how many formulas have no value: the program that wrote them computes none."""
    count = 0
    for name in filter(SHEETS.fullmatch, packed.namelist()):
        with packed.open(name) as sheet:
            count += len(UNCOMPUTED_CELL.findall(sheet.read(MAX_SEARCHED_BYTES)))
    return count
