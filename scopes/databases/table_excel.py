"""The sheets of Excel files: which row names columns, which are rows; runs in the child alone."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, time, timedelta
from importlib import import_module
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from scopes.databases.table_rows import Row, RowsPart, TableUnreadable

MAX_UNPACKED = 300_000_000
"""Bytes of an Excel file."""
MAX_TITLE = 4
"""Rows of a title above an Excel table."""
LOOKED = 100
"""Rows by which header and width are told."""
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""What Office before 2007 begins a file with, and any Office one that has a password."""
YEARS = range(1900, 2101)


def sheets(file: Path, name: str) -> Iterator[RowsPart]:
    """Yield the sheets that hold anything.

    What reads them is loaded only where there is such a file: it takes 0.2 s.
    """
    _check(file)
    open_workbook = import_module("scopes.documents.workbook").open_workbook
    with file.open("rb") as opened, closing(open_workbook(opened)) as book:
        there = book.worksheets
        for sheet in there:
            rows = (r for r in sheet.iter_rows(values_only=True) if any(_filled(r)))
            begin = list(islice(rows, LOOKED))
            if begin:
                title = name if len(there) == 1 else f"{name}_{sheet.title}"
                yield _part(title, begin, rows)


def _check(file: Path) -> None:
    """Raises Unreadable."""
    with file.open("rb") as opened:
        if opened.read(len(OLE)) == OLE:
            raise TableUnreadable("it has a password, is an old .xls, or is damaged")
        opened.seek(0)
        try:
            with zipfile.ZipFile(opened) as packed:
                size = sum(entry.file_size for entry in packed.infolist())
        except zipfile.BadZipFile:
            raise TableUnreadable("it is damaged, or no Excel file") from None
    if size > MAX_UNPACKED:
        raise TableUnreadable(f"it unpacks to more than {MAX_UNPACKED // 1_000_000} MB")


def _part(title: str, begin: list[Row], rest: Iterator[Row]) -> RowsPart:
    """Return a table with the columns of its first row, and those right of it that are
    filled soon.
    """
    above = _title(begin)
    head, *below = begin[above:]
    filled = [
        {n for n, is_filled in enumerate(_filled(row)) if is_filled} for row in (head, *below)
    ]
    named = range(max(filled[0]) + 1)
    columns = [*named, *sorted(set().union(*filled).difference(named))]
    notes = [f"rows left out above it: {above}"] if above else []
    is_header = _is_header(head, below)
    cells = _cells(head, columns)
    names = ["" if cell is None or not is_header else str(cell) for cell in cells]
    rows = chain(below if is_header else (head, *below), rest)
    return RowsPart(title, _rows(names, columns, rows, notes), notes)


def _rows(
    names: list[str], columns: list[int], rows: Iterable[Row], notes: list[str]
) -> Iterator[Row]:
    yield names
    cut = 0
    for row in rows:
        kept = _cells(row, columns)
        if len(row) > len(columns):
            cut += sum(_filled(row)) > sum(_filled(kept))
        yield kept
    if cut:
        notes.append(f"rows with more cells than it has columns: {cut}")


def _cells(row: Row, columns: list[int]) -> list[Any]:
    """Return those of some columns; an empty text is none."""
    return [row[n] if n < len(row) and row[n] != "" else None for n in columns]


def _is_header(head: Row, below: Sequence[Row]) -> bool:
    """By the types: a text above no text names a column, and so does what is unlike all below.

    Where all are texts, the first row is taken for the header.
    """
    found = [(n, _kind(cell)) for n, cell in enumerate(head) if _filled([cell])[0]]
    if not below:
        return all(kind is str for _, kind in found)
    is_like = False
    for n, kind in found:
        kinds = {_kind(row[n]) for row in below if _filled(row[n : n + 1]) == [True]}
        if kind is str and kinds and str not in kinds:
            return True
        is_like = is_like or (kind is not str and kind in kinds)
    return not is_like or (_has_years(head) and not any(map(_has_years, below)))


def _kind(cell: object) -> type:
    kinds = ((bool, bool), ((int, float), float), ((date, time, timedelta), date))
    return next((kind for types, kind in kinds if isinstance(cell, types)), str)


def _has_years(row: Row) -> bool:
    """Return whether the numbers of a row are years that follow one another: names
    above numbers.
    """
    numbers = [cell for cell in row if isinstance(cell, int | float)]
    rising = all(b - a == 1 for a, b in pairwise(numbers))
    return len(numbers) > 1 and rising and all(n in YEARS for n in numbers)


def _title(begin: Sequence[Row]) -> int:
    """Return how many rows of one cell stand above a table of several columns."""
    first = begin[: MAX_TITLE + 2]
    at = next((n for n, row in enumerate(first) if sum(_filled(row)) > 1), 0)
    is_table = all(sum(_filled(row)) > 1 for row in first[at : at + 2])
    return at if is_table else 0


def _filled(row: Row) -> list[bool]:
    return [cell is not None and cell != "" for cell in row]
