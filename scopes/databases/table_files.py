"""A folder of CSV, Parquet, SQLite and Excel files as tables of DuckDB; runs only in the child.

The limits of that process bound the cost of a file; a file that cannot be read is listed with the
reason.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import sqlite3
import stat
import time
import zipfile
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from importlib import import_module
from itertools import chain, count, islice
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import duckdb

from scopes.clean import normalize_unicode
from scopes.databases.table_kinds import CSV, EXCEL, PARQUET, TABLES, is_duckdb

UNSUPPORTED_SUFFIXES = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx",
    ".gz": "unpack it",
    ".zip": "unpack it",
    ".duckdb": "name it as a database of its own",
}
"""Other endings that people use for tables, and the advice for them."""
MAX_FILES = 100
MAX_FILE, MAX_ALL, MAX_UNPACKED = 100_000_000, 300_000_000, 300_000_000
"""Maximum bytes: of a file, of all together, of an unpacked Excel file."""
FOLDER_S = 20.0
"""Seconds that all files of a folder may take; one takes at most half of the remaining ones."""
TIMEOUT_MESSAGE = "not all of it could be read in time; make a DuckDB file of it"
MEMORY = "it needs more memory than data.memory_mb allows; give it as a DuckDB file"

Row = Sequence[Any]


class TableUnreadable(Exception):
    """A file that is no table; the text tells an operator why."""


class Late(Exception):
    """The time of a file was up."""


@dataclass
class LoadedFolder:
    """The result of loading a folder."""

    tables: dict[str, str] = field(default_factory=dict)
    """Name -> the file that it came from."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """File, or view of one -> why it is no table."""


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def candidates(place: Path) -> list[Path]:
    """Return the files of a folder that may be tables by name, in order; a file counts as one."""
    if not place.is_dir():
        return [place] if _is_known(place.name) else []
    with os.scandir(place) as listing:
        found = [
            e.name for e in listing if _is_known(e.name) and not e.is_dir(follow_symlinks=False)
        ]
    return [place / name for name in sorted(found)]


def _is_known(name: str) -> bool:
    suffixes = (*TABLES, *UNSUPPORTED_SUFFIXES)
    return name[0] not in ".~" and name.lower().endswith(suffixes)


def load(connection: duckdb.DuckDBPyConnection, place: Path) -> LoadedFolder:
    """Make a table of each file, sheet and table of SQLite, named after it."""
    loaded, room, files = LoadedFolder(), MAX_ALL, candidates(place)
    until = time.monotonic() + FOLDER_S
    for file in files[:MAX_FILES]:
        now = time.monotonic()
        reading = FileReading(file, connection, loaded, now + max(until - now, 0.0) / 2)
        try:
            room -= reading.read(room)
        except TableUnreadable as error:
            loaded.unreadable[file.name] = str(error)
        except (Late, duckdb.InterruptException):
            loaded.unreadable[file.name] = TIMEOUT_MESSAGE
        except (MemoryError, duckdb.OutOfMemoryException, duckdb.TransactionException):
            # in memory nothing else prevents a commit of a table
            loaded.unreadable[file.name] = MEMORY
        except Exception as error:  # top-level boundary: a broken file hides no other
            loaded.unreadable[file.name] = _reason(error, file)
    if (more := len(files) - MAX_FILES) > 0:
        why = f"only the first {MAX_FILES} files of a folder are read"
        loaded.unreadable[f"{more} more files"] = why
    return loaded


@dataclass
class FileReading:
    """One file, which becomes tables."""

    file: Path
    connection: duckdb.DuckDBPyConnection
    loaded: LoadedFolder
    until: float
    """By `time.monotonic`."""

    def read(self, room: int) -> int:
        """Make its tables; return its bytes. Raises TableUnreadable, Late, errors of readers."""
        size = _size(self.file, room)
        suffix, before = self.file.suffix.lower(), len(self.loaded.tables)
        timer = Timer(max(self.until - time.monotonic(), 0.0), self.connection.interrupt)
        timer.start()
        try:
            if suffix in CSV:
                name = self._name(self.file.stem)
                self._record_table(name, csv(self.connection, name, self.file))
            elif suffix in PARQUET:
                name = self._name(self.file.stem)
                source = _literal(self.file)
                statement = f"CREATE TABLE {quote_identifier(name)} AS FROM read_parquet({source})"
                self.connection.execute(statement)
                self._record_table(name)
            elif suffix in EXCEL:
                self._sheets()
            else:
                self._sqlite()
        finally:
            timer.cancel()
        if len(self.loaded.tables) == before:
            raise TableUnreadable("it holds no table")
        return size

    def _sheets(self) -> None:
        """Read the sheets that are not empty; openpyxl is loaded only here: it takes 0.2 s."""
        _check_packed(self.file)
        workbook = import_module("scopes.documents.workbook")
        with self.file.open("rb") as opened, closing(workbook.open_workbook(opened)) as book:
            there = book.worksheets
            uncomputed = workbook.count_uncomputed(zipfile.ZipFile(opened))
            note = f"formulas of the file without a stored value: {uncomputed}" * bool(uncomputed)
            for sheet in there:
                rows = filter(_width, self._limit_time(sheet.iter_rows(values_only=True)))
                begin = list(islice(rows, WIDTH_SAMPLE_ROWS))
                if begin:
                    stem = self.file.stem
                    name = self._name(stem if len(there) == 1 else f"{stem}_{sheet.title}")
                    notes = insert_sheet(self.connection, name, begin, rows), note
                    self._record_table(name, "; ".join(filter(None, notes)))

    def _sqlite(self) -> None:
        """Read the tables, then the views, which may have no end; a failure affects no other."""
        with closing(sqlite3.connect(_uri(self.file), uri=True, timeout=BUSY_S)) as source:
            source.text_factory = lambda raw: raw.decode(errors="replace")
            source.set_progress_handler(lambda: time.monotonic() > self.until, 10_000)
            listed = source.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
                " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
            ).fetchall()
            for (title,) in listed:
                name = self._name(title)
                try:
                    rows = source.execute(f"SELECT * FROM {quote_identifier(title)}")
                    names = [column[0] for column in rows.description]
                    insert(self.connection, name, names, self._limit_time(rows))
                except sqlite3.Error as error:
                    if time.monotonic() > self.until:
                        raise Late from None
                    view = f"{self.file.name}: {' '.join(title.split())[:60]}"
                    self.loaded.unreadable[view] = _reason(error, self.file)
                else:
                    self._record_table(name)

    def _limit_time(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            if time.monotonic() > self.until:
                raise Late
            yield row

    def _name(self, title: str) -> str:
        """Return a unique name that needs no quotes in a query."""
        base = re.sub(r"\W+", "_", normalize_unicode(title)).strip("_")[:60] or "table"
        base = f"t_{base}" if base[0].isdigit() else base
        return _free(base, {name.casefold() for name in self.loaded.tables})

    def _record_table(self, name: str, note: str = "") -> None:
        if note:
            self.connection.execute(f"COMMENT ON TABLE {quote_identifier(name)} IS '{note}'")
        self.loaded.tables[name] = self.file.name


def _size(file: Path, room: int) -> int:
    """Return the bytes of a file that can be read. Raises TableUnreadable."""
    seen, suffix = file.lstat(), file.suffix.lower()
    if stat.S_ISLNK(seen.st_mode):
        raise TableUnreadable("it is a link, and links are not followed")
    if not stat.S_ISREG(seen.st_mode):
        raise TableUnreadable("it is no file")
    if suffix in UNSUPPORTED_SUFFIXES:
        is_other = suffix != ".duckdb" or is_duckdb(file)
        raise TableUnreadable(UNSUPPORTED_SUFFIXES[suffix] if is_other else "it is no DuckDB file")
    if seen.st_size > min(MAX_FILE, room):
        raise TableUnreadable(
            f"more than {MAX_FILE // 1_000_000} MB, or {MAX_ALL // 1_000_000} MB with those "
            "read before; make a DuckDB file of it"
        )
    if not seen.st_size:
        raise TableUnreadable("it is empty")
    if set(file.name) & set("*?["):
        raise TableUnreadable("rename it without * ? [")
    return seen.st_size


def _reason(error: Exception, file: Path) -> str:
    """Return the advice for an operator, or the error of a reader, without the path."""
    if isinstance(error, OSError):
        return "it may not be read" if isinstance(error, PermissionError) else "it cannot be read"
    code = getattr(error, "sqlite_errorcode", None)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return "another program writes to it, or has ended while it did"
    if code != sqlite3.SQLITE_ERROR and file.suffix.lower() not in CSV:
        return "it is damaged, or of a kind that is not read"
    message = str(error).partition("LINE 1")[0]
    message = re.sub(rf"{re.escape(str(file))}|{DESCRIPTORS}/\d+", "this file", message)
    return " ".join(message.split())[:200]


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


BATCH_ROWS = 2_000
TEXT = "VARCHAR"
COLUMN_TYPES: tuple[tuple[frozenset[type], str], ...] = (
    (frozenset({bool}), "BOOLEAN"),
    (frozenset({int}), "BIGINT"),
    (frozenset({int, float}), "DOUBLE"),
    (frozenset({date}), "DATE"),
    (frozenset({date, datetime}), "TIMESTAMP"),
)
"""Types of all values of a column -> type of the column; text if none matches."""


def insert(
    connection: duckdb.DuckDBPyConnection, name: str, head: Sequence[Any], rows: Iterator[Row]
) -> None:
    """Make a table of rows, first as text, and cast it at the end to the types found."""
    names = _distinct(head)
    kinds: list[set[type]] = [set() for _ in names]
    connection.execute(f"CREATE OR REPLACE TEMP TABLE staged (cells {TEXT}[])")
    while batch := list(islice(rows, BATCH_ROWS)):
        cells = [
            [_note_type(row[n] if n < len(row) else None, kind) for n, kind in enumerate(kinds)]
            for row in batch
        ]
        connection.execute(f"INSERT INTO staged SELECT unnest(?::{TEXT}[][])", [cells])
    cast = ", ".join(
        f"{_cast(f'cells[{n}]', _type(kind))} AS {quote_identifier(column)}"
        for n, (column, kind) in enumerate(zip(names, kinds, strict=True), 1)
    )
    connection.execute(f"CREATE TABLE {quote_identifier(name)} AS SELECT {cast} FROM staged")
    connection.execute("DROP TABLE staged")


def _cast(cell: str, kind: str) -> str:
    """Return the SQL of the value; an empty text among numbers or days is NULL."""
    return cell if kind == TEXT else f"CAST(NULLIF({cell}, '') AS {kind})"


def _distinct(head: Sequence[Any]) -> list[str]:
    names: dict[str, str] = {}
    for n, column in enumerate(head, 1):
        title = "" if column is None else str(column)
        name = _free(" ".join(title.split())[:100] or f"column{n}", names)
        names[name.casefold()] = name
    return [*names.values()]


def _free(name: str, used: Container[str]) -> str:
    """Return the name, with a number after it if it is used already, in any case."""
    names = chain([name], (f"{name}_{n}" for n in count(2)))
    return next(each for each in names if each.casefold() not in used)


def _note_type(value: Any, kinds: set[type]) -> str | None:
    """Return a value as text; add its type to `kinds`."""
    if value is None:
        return None
    if value == "":
        return ""
    if isinstance(value, bytes):
        value = value.hex()
    kinds.add(type(value) if not isinstance(value, int) or abs(value) < 1 << 63 else str)
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _type(kinds: set[type]) -> str:
    return next((name for types, name in COLUMN_TYPES if kinds and kinds <= types), TEXT)


BUSY_S = 1.0
"""Seconds to wait for a writer of an SQLite file."""


def _uri(file: Path) -> str:
    """Return the URI of an SQLite file, without a lock if nobody can be writing.

    In the mode WAL a lock is a file next to it, which may not be made here; data that is not yet in
    the file is in another one.
    """
    with file.open("rb") as opened:
        head = opened.read(20)
    if not head.startswith(b"SQLite format 3\0"):
        raise TableUnreadable("it is no SQLite file")
    uri = f"{file.absolute().as_uri()}?mode=ro"
    log = Path(f"{file}-wal")
    is_whole = not log.exists() or not log.stat().st_size
    return f"{uri}&immutable=1" if head[18:] == b"\2\2" and is_whole else uri


DESCRIPTORS = "/dev/fd"
"""Folder of the open files of a process by number, including pipes."""
CHUNK = 1 << 18
PADDED_CSV_OPTIONS = "comment = '', null_padding = true, parallel = false"
"""Without padding DuckDB skips lines as a title if others are longer; it cannot pad in parallel if
quotes contain line breaks."""
WITHOUT_DATES = (
    "auto_type_candidates = ['BOOLEAN', 'BIGINT', 'HUGEINT', 'DOUBLE', 'TIME', 'VARCHAR']"
)
BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
WINDOWS = "cp1252"
"""Latin-1 with the euro, quotation marks and dashes; DuckDB reads no file in it."""
CSV_ERRORS = (duckdb.InvalidInputException, duckdb.ConversionException)


def csv(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> str:
    """Make a table by DuckDB's detection; missing cells of a line are NULL. Return a note."""
    encoding = _find_encoding(path)
    options = PADDED_CSV_OPTIONS + ", skip = 1" * _names_separator(path, encoding)
    try:
        _read_csv(connection, name, path, encoding, options)
    except CSV_ERRORS:
        _read_csv(connection, name, path, encoding, f"{options}, all_varchar = true")
    formats, days = _find_dates(connection, name, path, encoding, options)
    if re.search("%y.%m", formats):  # a guess: more often 31.01.24 is a day of 2024 than of 2031
        _read_csv(connection, name, path, encoding, f"{options}, {WITHOUT_DATES}")
    elif re.search("%d[/-]%m", formats) and any(day <= 12 for day in days):
        return "dates such as 01/02/2024 are read as day/month"
    return ""


def _read_csv(
    connection: duckdb.DuckDBPyConnection, name: str, path: Path, encoding: str, options: str
) -> None:
    with _readable(path, encoding) as source:
        read = f"read_csv({source}, sample_size = -1, {options})"
        connection.execute(f"CREATE OR REPLACE TABLE {quote_identifier(name)} AS FROM {read}")


def _find_dates(
    connection: duckdb.DuckDBPyConnection, name: str, path: Path, encoding: str, options: str
) -> tuple[str, list[int]]:
    """Return the formats of dates, and the last day of a month in each column of dates."""
    table = quote_identifier(name)
    kinds = connection.execute(f"DESCRIBE {table}").fetchall()
    dates = [quote_identifier(c) for c, kind, *_ in kinds if kind in ("DATE", "TIMESTAMP")]
    if not dates:
        return "", []
    days = ", ".join(f"max(day({column}))" for column in dates)
    last = connection.execute(f"SELECT {days} FROM {table}").fetchone() or ()
    with _readable(path, encoding) as source:
        formats = connection.execute(
            f"SELECT concat(DateFormat, ' ', TimestampFormat) FROM sniff_csv({source}, {options})"
        ).fetchone()
    return str(formats and formats[0]), [day for day in last if day]


def _find_encoding(path: Path) -> str:
    """Return UTF-8 if the file is valid in it, else the western encoding of Windows."""
    with path.open("rb") as file:
        if file.read(2) in BOMS:
            return "utf-16"
    try:
        with path.open(encoding="utf-8") as text:
            while text.read(CHUNK):
                pass
    except UnicodeDecodeError:
        return WINDOWS
    return "utf-8"


def _names_separator(path: Path, encoding: str) -> bool:
    """Return whether the first line only tells Excel the separator."""
    with path.open(encoding=encoding, errors="replace") as text:
        return re.fullmatch(r"\ufeff?\"?sep=.\"?\n", text.readline(20)) is not None


@contextmanager
def _readable(path: Path, encoding: str) -> Iterator[str]:
    """Yield a source that DuckDB may read once, with its encoding."""
    if encoding != WINDOWS:
        yield f"{_literal(path)}, encoding = '{encoding}'"
        return
    reader, writer = os.pipe()
    Thread(target=_feed, args=(path, writer), daemon=True).start()
    try:
        yield f"'{DESCRIPTORS}/{reader}'"
    finally:
        os.close(reader)


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    """Return the text of bytes that are no UTF-8: a file may have lines in both."""
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode(WINDOWS, "replace"), error.end


codecs.register_error(WINDOWS, _as_windows)


def _feed(path: Path, pipe: int) -> None:
    with (
        suppress(BrokenPipeError),
        open(pipe, "w", encoding="utf-8", newline="") as out,
        path.open(encoding="utf-8", errors=WINDOWS, newline="") as source,
    ):
        shutil.copyfileobj(source, out, CHUNK)


TITLE_ROWS = 4
"""Rows of a title above an Excel table."""
WIDTH_SAMPLE_ROWS = 100
"""Rows from which the width of a sheet is taken."""


def _check_packed(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as packed:
            size = sum(entry.file_size for entry in packed.infolist())
    except zipfile.BadZipFile:
        raise TableUnreadable("it has a password, is an old .xls, or is damaged") from None
    if size > MAX_UNPACKED:
        raise TableUnreadable(f"it unpacks to more than {MAX_UNPACKED // 1_000_000} MB")


def insert_sheet(
    connection: duckdb.DuckDBPyConnection, name: str, begin: list[Row], rest: Iterator[Row]
) -> str:
    """Make a table of rows, whose first row below a title names the columns; return a note."""
    above = _title(begin)
    head, *below = begin[above:]
    width = max(map(_width, begin))
    wider = 0

    def rows() -> Iterator[Row]:
        nonlocal wider
        for row in chain(below, rest):
            wider += _width(row) > width
            yield [None if cell == "" else cell for cell in row[:width]]

    insert(connection, name, [*head, *[None] * width][:width], rows())
    notes = [f"rows left out above it: {above}"] * bool(above)
    notes += [f"rows with more cells than it has columns: {wider}"] * bool(wider)
    return "; ".join(notes)


def _title(begin: Sequence[Row]) -> int:
    """Return how many rows of one cell are above a table of several columns."""
    first = [sum(cell is not None for cell in row) for row in begin[: TITLE_ROWS + 2]]
    at = next((n for n, filled in enumerate(first) if filled > 1), 0)
    return at if all(filled > 1 for filled in first[at : at + 2]) else 0


def _width(row: Row) -> int:
    """Return the number of the last cell that is not empty."""
    return next((n for n in range(len(row), 0, -1) if row[n - 1] not in (None, "")), 0)
