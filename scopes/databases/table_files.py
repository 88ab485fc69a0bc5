"""A folder of CSV, Parquet, SQLite and Excel files as tables of DuckDB; runs in the child alone.

Whatever a file holds, it costs no more than the limits of that process, and one that cannot be read
is listed with the reason.
"""

from __future__ import annotations

import re
import sqlite3
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

import duckdb

CSV, PARQUET = (".csv", ".tsv"), (".parquet",)
SQLITE, EXCEL = (".sqlite", ".sqlite3", ".db"), (".xlsx", ".xlsm")
OTHER = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx",
    ".gz": "unpack it",
    ".zip": "unpack it",
    ".duckdb": "name it as a database of its own",
}
"""What people take for tables, and what to do about it."""
MAX_FILES = 100
MAX_FILE, MAX_ALL, MAX_UNPACKED = 100_000_000, 300_000_000, 300_000_000
"""Bytes."""
FILE_S = 15.0
"""Seconds that one SQLite or Excel file may take."""
MAX_TITLE = 4
"""Rows of a title above an Excel table."""
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
MEMORY = "it needs more memory than data.memory_mb allows; give it as a DuckDB file"


class Unreadable(Exception):
    """Why a file is no table, as an operator can act on it."""


@dataclass
class Loaded:
    """What became of a folder."""

    tables: dict[str, str] = field(default_factory=dict)
    """Name -> the file that it came from."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """File -> why it is no table."""


def candidates(place: Path) -> list[Path]:
    """The files of a folder that may be tables, by name; a file is a folder of one."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    known = (*CSV, *PARQUET, *SQLITE, *EXCEL, *OTHER)
    return [f for f in files if f.suffix.lower() in known and f.name[0] not in ".~" and f.is_file()]


def load(connection: duckdb.DuckDBPyConnection, place: Path) -> Loaded:
    """Make a table of each file, sheet and table of SQLite, named after it."""
    loaded, room = Loaded(), MAX_ALL
    for at, file in enumerate(candidates(place)):
        try:
            size = file.stat().st_size
            _check(file, size, room, at)
            _load(connection, file, loaded)
            room -= size
        except Unreadable as error:
            loaded.unreadable[file.name] = str(error)
        except (MemoryError, duckdb.OutOfMemoryException):
            loaded.unreadable[file.name] = MEMORY
        except Exception as error:  # the seam: one file that breaks a parser hides no other
            loaded.unreadable[file.name] = _reason(error, file)
    return loaded


def _reason(error: Exception, file: Path) -> str:
    """What a reader says of a file, without where the file lies."""
    said = str(error).partition("LINE 1")[0].replace(str(file), "this file")
    return " ".join(said.split())[:200]


def _is_what_it_says(file: Path) -> bool:
    """Whether a `.duckdb` is one; of other kinds nothing is known."""
    with file.open("rb") as opened:
        return file.suffix.lower() != ".duckdb" or opened.read(12)[8:] == b"DUCK"


def _check(file: Path, size: int, room: int, at: int) -> None:
    suffix = file.suffix.lower()
    if suffix in OTHER:
        raise Unreadable(OTHER[suffix] if _is_what_it_says(file) else "it is no DuckDB file")
    if at >= MAX_FILES:
        raise Unreadable(f"only the first {MAX_FILES} files of a folder are read")
    if size > min(MAX_FILE, room):
        raise Unreadable(
            f"more than {MAX_FILE // 1_000_000} MB, or {MAX_ALL // 1_000_000} MB with the files "
            "before it; make a DuckDB file of it"
        )
    if not size:
        raise Unreadable("it is empty")
    if set(file.name) & set("*?["):
        raise Unreadable("rename it without * ? [")


def _load(connection: duckdb.DuckDBPyConnection, file: Path, loaded: Loaded) -> None:
    suffix = file.suffix.lower()
    if suffix in CSV:
        _csv(connection, file, _named(file.stem, file, loaded))
    elif suffix in PARQUET:
        _create(connection, _named(file.stem, file, loaded), f"read_parquet({_text(file)})")
    else:
        parts = _sheets(file) if suffix in EXCEL else _sqlite(file)
        until = time.monotonic() + FILE_S
        empty = True
        for title, columns, rows in parts:
            name = _named(title, file, loaded)
            _insert(connection, name, columns, _until(rows, until))
            empty = False
        if empty:
            raise Unreadable("it holds no table")


def _named(title: str, file: Path, loaded: Loaded) -> str:
    """A name that a query may use without quotes, unlike any other."""
    base = re.sub(r"\W+", "_", title).strip("_")[:60] or "table"
    base = f"t_{base}" if base[0].isdigit() else base
    taken = {name.casefold() for name in loaded.tables}
    name, n = base, 1
    while name.casefold() in taken:
        n += 1
        name = f"{base}_{n}"
    loaded.tables[name] = file.name
    return name


def _csv(connection: duckdb.DuckDBPyConnection, file: Path, name: str) -> None:
    """By what DuckDB guesses; where that fails in another encoding, then with text alone."""
    tries = ["", ", encoding = 'latin-1'", ", all_varchar = true, null_padding = true"]
    with file.open("rb") as opened:
        if opened.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            tries = [", encoding = 'utf-16'"]
    for options in tries:
        try:
            source = f"read_csv({_text(file)}, sample_size = -1{options})"
            _create(connection, name, source)
            break
        except (duckdb.InvalidInputException, duckdb.ConversionException):
            if options == tries[-1]:
                raise


def _create(connection: duckdb.DuckDBPyConnection, name: str, source: str) -> None:
    connection.execute(f"CREATE TABLE {quoted(name)} AS FROM {source}")


def _text(file: Path) -> str:
    return "'" + str(file).replace("'", "''") + "'"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


Row = Sequence[Any]
Part = tuple[str, Sequence[str], Iterable[Row]]
"""Title, columns, rows."""


def _sqlite(file: Path) -> Iterator[Part]:
    """The tables and views of an SQLite file."""
    with file.open("rb") as opened:
        if opened.read(16) != b"SQLite format 3\0":
            raise Unreadable("it is no SQLite file")
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source:
        source.text_factory = lambda raw: raw.decode(errors="replace")
        until = time.monotonic() + FILE_S
        source.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        listed = source.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        ).fetchall()
        for (name,) in listed:
            rows = source.execute(f"SELECT * FROM {quoted(name)}")
            yield name, [c[0] for c in rows.description], rows


def _sheets(file: Path) -> Iterator[Part]:
    """The sheets of an Excel file that hold anything: the first row below a title names columns.

    What reads them is loaded only where there is such a file: it takes 0.2 s.
    """
    with zipfile.ZipFile(file) as packed:
        if sum(entry.file_size for entry in packed.infolist()) > MAX_UNPACKED:
            raise Unreadable(f"it unpacks to more than {MAX_UNPACKED // 1_000_000} MB")
    with closing(
        import_module("openpyxl").load_workbook(file, read_only=True, data_only=True)
    ) as book:
        sheets = book.worksheets
        for sheet in sheets:
            rows = _below_title(r for r in sheet.iter_rows(values_only=True) if any(_filled(r)))
            if (head := next(rows, None)) is not None:
                width = max(n for n, there in enumerate(_filled(head), 1) if there)
                title = file.stem if len(sheets) == 1 else f"{file.stem}_{sheet.title}"
                yield title, [str(c or "") for c in head[:width]], rows


def _below_title(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows from the header on: above a table of several columns may stand some of one cell."""
    begin = list(islice(rows, MAX_TITLE + 2))
    at = next((n for n, row in enumerate(begin) if sum(_filled(row)) > 1), 0)
    is_table = all(sum(_filled(row)) > 1 for row in begin[at : at + 2])
    return chain(begin[at if is_table else 0 :], rows)


def _filled(row: Row) -> list[bool]:
    return [cell is not None and cell != "" for cell in row]


def _until(rows: Iterable[Row], until: float) -> Iterator[Row]:
    for n, row in enumerate(rows):
        if n % 100 == 0 and time.monotonic() > until:
            raise Unreadable(f"it takes more than {FILE_S:g} s to read; save it as CSV")
        yield row


def _insert(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[str],
    rows: Iterable[Row],
) -> None:
    """A table of rows whose types are seen on the way: as text first, cast at the end."""
    names = _distinct(columns)
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
    cast = ", ".join(
        f"CAST({quoted(c)} AS {_type(k)}) AS {quoted(c)}" for c, k in zip(names, kinds, strict=True)
    )
    _create(connection, name, f"(SELECT {cast} FROM staged)")
    connection.execute("DROP TABLE staged")


def _append(connection: duckdb.DuckDBPyConnection, batch: list[list[str | None]]) -> None:
    if batch:
        columns = ", ".join(f"unnest(?::{TEXT}[])" for _ in batch[0])
        turned = [list(column) for column in zip(*batch, strict=True)]
        connection.execute(f"INSERT INTO staged SELECT {columns}", turned)


def _distinct(columns: Sequence[str]) -> list[str]:
    names: list[str] = []
    for n, column in enumerate(columns, 1):
        name = base = " ".join(column.split())[:100] or f"column{n}"
        again = 1
        while name.casefold() in {known.casefold() for known in names}:
            again += 1
            name = f"{base}_{again}"
        names.append(name)
    return names


def _seen(value: Any, kinds: set[type]) -> str | None:
    """A value as text; its type is remembered."""
    if value is None or value == "":
        return None
    if isinstance(value, bytes):
        value = value.hex()
    kinds.add(type(value) if not isinstance(value, int) or abs(value) < 1 << 63 else str)
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _type(kinds: set[type]) -> str:
    return next((name for types, name in KINDS if kinds and kinds <= types), TEXT)
