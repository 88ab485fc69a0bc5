"""Rows of SQLite, CSV and Excel files as tables of DuckDB; runs in the child alone.

Of a CSV file DuckDB guesses separator, header and types; what it takes for a title above the table
is counted. Of an Excel sheet we tell which row names columns, and which are rows.
"""

from __future__ import annotations

import codecs
import os
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from importlib import import_module
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import duckdb

OPEN = Path("/proc/self/fd")
"""Where this process has its open files by their numbers, on Linux."""
BUSY_S = 1.0
"""How long who writes an SQLite file is waited for."""
BATCH = 2_000
TEXT = "VARCHAR"
KINDS: tuple[tuple[frozenset[type], str], ...] = (
    (frozenset({bool}), "BOOLEAN"),
    (frozenset({int}), "BIGINT"),
    (frozenset({int, float}), "DOUBLE"),
    (frozenset({date}), "DATE"),
    (frozenset({date, datetime}), "TIMESTAMP"),
)
"""Types of all values of a column -> what the column becomes; text where none holds."""


class TableUnreadable(Exception):
    """Why a file is no table, as an operator can act on it."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


Row = Sequence[Any]


@dataclass(frozen=True)
class RowsPart:
    """The part of a file that becomes a table."""

    title: str
    rows: Iterator[Row]
    """The names of the columns, then the rows."""
    notes: list[str] = field(default_factory=list)
    """What is to be known of it; complete when all rows are read."""


def sqlite(file: Path) -> Iterator[RowsPart]:
    """Yield the tables of an SQLite file, then its views, which may have no end."""
    connected = sqlite3.connect(_uri(file), uri=True, timeout=BUSY_S)
    with file.open("rb") as opened, closing(connected) as source:
        if opened.read(16) != b"SQLite format 3\0":
            raise TableUnreadable("it is no SQLite file")
        if OPEN in file.parents and _times_open(opened.fileno()) < 3:
            raise TableUnreadable("it was replaced meanwhile")
        source.text_factory = lambda raw: raw.decode(errors="replace")
        source.set_progress_handler(lambda: 0, 10_000)  # Python code, which can be ended
        listed = source.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
        ).fetchall()
        for (name,) in listed:
            yield RowsPart(name, _selected(source, name))


def _selected(source: sqlite3.Connection, name: str) -> Iterator[Row]:
    rows = source.execute(f"SELECT * FROM {quoted(name)}")
    yield [c[0] for c in rows.description]
    yield from islice(rows, None)  # a cursor alone would be closed with this, after its connection


def _uri(file: Path) -> str:
    """Return how to open it, without a lock where nobody can be writing.

    In the mode WAL a lock is a file beside it, which may not be made here; what is not yet in the
    file itself lies in another.
    """
    uri = f"{file.absolute().as_uri()}?mode=ro"
    log = Path(f"{file.resolve()}-wal")
    is_whole = not log.exists() or not log.stat().st_size
    with file.open("rb") as opened:
        is_logged = opened.read(20)[18:] == b"\2\2"
    return f"{uri}&immutable=1" if is_logged and is_whole else uri


def _times_open(number: int) -> int:
    """Return how often this process has a file open.

    SQLite looks where a path of `OPEN` leads and opens what has that name by now, maybe by a link.
    """
    times = 0
    for each in OPEN.iterdir():
        with suppress(OSError):  # the list of them is no longer open
            times += os.path.sameopenfile(number, int(each.name))
    return times


def insert(connection: duckdb.DuckDBPyConnection, name: str, rows: Iterator[Row]) -> None:
    """A table of rows whose types are seen on the way: as text first, cast at the end."""
    names = _distinct(next(rows))
    kinds: list[set[type]] = [set() for _ in names]
    staged = ", ".join(f"{quoted(c)} {TEXT}" for c in names)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE staged ({staged})")
    batch: list[list[str | None]] = []
    for row in rows:
        batch.append([_seen(row[n] if n < len(row) else None, k) for n, k in enumerate(kinds)])
        if len(batch) == BATCH:
            _append(connection, batch)
            batch = []
    _append(connection, batch)
    cast = ", ".join(_cast(quoted(c), _type(k)) for c, k in zip(names, kinds, strict=True))
    connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT {cast} FROM staged")
    connection.execute("DROP TABLE staged")


def _append(connection: duckdb.DuckDBPyConnection, batch: list[list[str | None]]) -> None:
    if batch:
        columns = ", ".join(f"unnest(?::{TEXT}[])" for _ in batch[0])
        turned = [list(column) for column in zip(*batch, strict=True)]
        connection.execute(f"INSERT INTO staged SELECT {columns}", turned)


def _cast(column: str, kind: str) -> str:
    """Return the value; an empty text among numbers or days is none."""
    value = column if kind == TEXT else f"CAST(NULLIF({column}, '') AS {kind})"
    return f"{value} AS {column}"


def _distinct(columns: Sequence[str]) -> list[str]:
    names: dict[str, str] = {}
    for n, column in enumerate(columns, 1):
        name = base = " ".join(column.split())[:100] or f"column{n}"
        again = 1
        while name.casefold() in names:
            again += 1
            name = f"{base}_{again}"
        names[name.casefold()] = name
    return [*names.values()]


def _seen(value: Any, kinds: set[type]) -> str | None:
    """Return a value as text; its type is remembered."""
    if value is None:
        return None
    if value == "":
        return ""
    if isinstance(value, bytes):
        value = value.hex()
    kinds.add(type(value) if not isinstance(value, int) or abs(value) < 1 << 63 else str)
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _type(kinds: set[type]) -> str:
    return next((name for types, name in KINDS if kinds and kinds <= types), TEXT)


DESCRIPTORS = Path("/dev/fd")
"""Where a process has by its number what it has open, a pipe too."""
CHUNK = 1 << 18
WAIT_S = 1.0
"""Until the thread has ended that wrote the last of a pipe."""
TITLE_LINES = 10
"""Lines above a table that may be its title; more are rows with fewer cells than later ones."""
SEPARATORS = ",;|\t"
PADDED = ", null_padding = true, parallel = false"
"""For lines of unlike length; where quotes hold line breaks, DuckDB does it not in parallel."""
TRIES = ("", PADDED, f"{PADDED}, all_varchar = true")
UNLIKE = "its lines are of unlike length, and what one lacks is NULL"
BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
WINDOWS = "cp1252"
"""Latin-1 with the euro, quotation marks and dashes; DuckDB reads no file in it."""
FAILURES = (duckdb.InvalidInputException, duckdb.ConversionException)


def csv(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> str:
    """Make a table of a file; return what is to be known of it. Raises what DuckDB does."""
    encoding = _encoding(path)
    for options in TRIES:
        try:
            create = f"CREATE OR REPLACE TABLE {quoted(name)} AS FROM read_csv"
            _read(connection, create, path, encoding, options)
        except FAILURES:
            if options == TRIES[-1]:
                raise
            continue
        if options:
            return UNLIKE
        sniffed = "SELECT SkipRows, HasHeader FROM sniff_csv"
        ((skipped, header),) = _read(connection, sniffed, path, encoding, options)
        above = _not_empty(path, encoding, min(skipped, TITLE_LINES))
        may_be_title = not skipped or (header and skipped <= TITLE_LINES)
        if may_be_title and _is_table(connection, name, above):
            return f"lines left out above it: {len(above)}" if above else ""
    raise AssertionError("the last try returns or raises")


def _is_table(connection: duckdb.DuckDBPyConnection, name: str, above: list[str]) -> bool:
    """Return whether it is split into columns, and whether the lines above it are a title.

    They are where they have one cell or the header is one for certain, and are not more than rows.
    """
    described = connection.execute(f"FROM {quoted(name)} LIMIT 0").description or []
    counted = connection.execute(f"SELECT count(*) FROM {quoted(name)}").fetchall()
    is_split = len(described) > 1 or not set(SEPARATORS) & set(str(described[0][0]))
    is_typed = any(str(column[1]) != "VARCHAR" for column in described)
    is_title = is_typed or not set(SEPARATORS) & set("".join(above))
    return is_split and is_title and len(above) <= int(counted[0][0])


def _read(
    connection: duckdb.DuckDBPyConnection, head: str, path: Path, encoding: str, options: str
) -> list[Any]:
    with _readable(path, encoding) as (readable, option):
        source = "'" + str(readable).replace("'", "''") + "'"
        asked = f"{head}({source}, sample_size = -1, comment = ''{option}{options})"
        return connection.execute(asked).fetchall()


def _not_empty(path: Path, encoding: str, lines: int) -> list[str]:
    """Return those of the first lines that are not empty."""
    with path.open(encoding=encoding, errors="replace") as opened:
        return [line for line in islice(opened, lines) if line.strip()]


def _chunks(opened: BinaryIO) -> Iterator[bytes]:
    opened.seek(0)
    while chunk := opened.read(CHUNK):
        yield chunk


def _encoding(path: Path) -> str:
    """UTF-8 where it can be, else what Windows writes in the west."""
    with path.open("rb", buffering=0) as opened:
        if opened.read(2) in BOMS:
            return "utf-16"
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for chunk in _chunks(opened):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return WINDOWS
        return "utf-8"


@contextmanager
def _readable(path: Path, encoding: str) -> Iterator[tuple[Path, str]]:
    """A path that DuckDB may read once, and an option of `read_csv`."""
    if encoding != WINDOWS:
        yield path, f", encoding = '{encoding}'"
        return
    taken, given = os.pipe()
    failed: list[Exception] = []
    feeder = Thread(target=_feed, args=(path, given, failed), daemon=True)
    try:
        feeder.start()
        yield DESCRIPTORS / str(taken), ""
    finally:
        os.close(taken)
    feeder.join(WAIT_S)
    if failed:
        raise failed[0]


def _feed(path: Path, pipe: int, failed: list[Exception]) -> None:
    """Write a file of Windows in UTF-8 into a pipe, until it ends or nobody reads on."""
    try:
        with (
            suppress(BrokenPipeError),
            open(pipe, "wb") as out,
            path.open("rb", buffering=0) as opened,
        ):
            for chunk in _chunks(opened):
                out.write(chunk.decode(WINDOWS, "replace").encode())
    except Exception as error:  # the seam: it is raised where the file is read
        failed.append(error)


MAX_UNPACKED = 300_000_000
"""Bytes of an Excel file."""
TITLE_ROWS = 4
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
    _check_packed(file)
    open_workbook = import_module("scopes.documents.workbook").open_workbook
    with file.open("rb") as opened, closing(open_workbook(opened)) as book:
        there = book.worksheets
        for sheet in there:
            rows = (r for r in sheet.iter_rows(values_only=True) if any(_filled(r)))
            begin = list(islice(rows, LOOKED))
            if begin:
                title = name if len(there) == 1 else f"{name}_{sheet.title}"
                yield _part(title, begin, rows)


def _check_packed(file: Path) -> None:
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
    first = begin[: TITLE_ROWS + 2]
    at = next((n for n, row in enumerate(first) if sum(_filled(row)) > 1), 0)
    is_table = all(sum(_filled(row)) > 1 for row in first[at : at + 2])
    return at if is_table else 0


def _filled(row: Row) -> list[bool]:
    return [cell is not None and cell != "" for cell in row]
