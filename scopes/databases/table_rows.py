"""Rows of SQLite files, and how rows become tables of DuckDB; runs in the child alone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any

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
