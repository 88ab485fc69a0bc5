"""CSV files, and how they become tables of DuckDB without a loss; runs in the child alone.

DuckDB guesses separator, header and types. It takes lines with fewer cells than the last ones for
a preamble, and lines of unlike length for a single column: both are looked for.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import duckdb

from scopes.databases.table_rows import quoted

DESCRIPTORS = Path("/dev/fd")
"""Where a process has by its number what it has open, a pipe too."""
CHUNK = 1 << 18
WAIT_S = 1.0
"""Until the thread has ended that wrote the last of a pipe."""
MAX_TITLE = 10
"""Lines above a table that may be its title."""
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
    """Make a table of a file, and say what is to be known of it. Raises what DuckDB does."""
    file = CsvFile(connection, name, path, _encoding(path), _lines(path))
    made: WrittenCsv | None = None
    for options in TRIES:
        try:
            made = file.made(options)
        except FAILURES:
            if made is None and options == TRIES[-1]:
                raise
        if made and made.fits:
            break
    return made.note if made else ""


@dataclass(frozen=True)
class WrittenCsv:
    """A table as it came out."""

    left_out: int = 0
    """Lines above it."""
    padded: bool = False
    fits: bool = True

    @property
    def note(self) -> str:
        above = f"lines left out above it: {self.left_out}" if self.left_out else ""
        return "; ".join(filter(None, (above, UNLIKE if self.padded else "")))


@dataclass(frozen=True)
class CsvFile:
    connection: duckdb.DuckDBPyConnection
    name: str
    """Of the table."""
    path: Path
    encoding: str
    lines: int
    """Rows and header are no more."""

    def made(self, options: str) -> WrittenCsv:
        """Return its table, instead of one that was made before. Raises what DuckDB does."""
        self._read(f"CREATE OR REPLACE TABLE {quoted(self.name)} AS FROM read_csv", options)
        padded = bool(options)
        if not padded and self._is_unsplit():
            return WrittenCsv(fits=False)
        header = not all(re.fullmatch(r"column\d+", name) for name, _ in self._columns())
        ((rows,),) = self._asked("SELECT count(*)")
        if rows + header >= self.lines:
            return WrittenCsv(padded=padded)
        asked = "SELECT SkipRows, HasHeader, Delimiter FROM sniff_csv"
        ((skipped, header, separator),) = self._read(asked, options)
        if skipped > MAX_TITLE:
            return WrittenCsv(skipped, padded, padded)
        above = self._first(skipped)
        is_title = header and len(above) <= rows + 1 and self._is_title(above, separator)
        return WrittenCsv(len(above), padded, padded or not above or is_title)

    def _is_unsplit(self) -> bool:
        """Return whether a single column has separators in its name and in most rows."""
        (name, kind), *more = self._columns()
        held = [each for each in SEPARATORS if each in name]
        if more or not held or kind != "VARCHAR":
            return False
        parts = " OR ".join(f"contains({quoted(name)}, '{each}')" for each in held)
        ((most,),) = self._asked(f"SELECT count(*) FILTER ({parts}) * 2 > count(*)")
        return bool(most)

    def _is_title(self, above: list[str], separator: str) -> bool:
        """Return whether lines are no rows: they have one cell, or the header below is one for
        certain.
        """
        typed = any(kind != "VARCHAR" for _, kind in self._columns())
        return typed or not any(separator in line for line in above)

    def _columns(self) -> list[tuple[str, str]]:
        found = self.connection.execute(f"FROM {quoted(self.name)} LIMIT 0").description
        return [(str(c[0]), str(c[1])) for c in found or ()]

    def _first(self, count: int) -> list[str]:
        """Return those of so many lines that are not empty."""
        with self.path.open(encoding=self.encoding, errors="replace") as opened:
            return [line for line in islice(opened, count) if line.strip()]

    def _read(self, head: str, options: str) -> list[Any]:
        with _readable(self.path, self.encoding) as (path, encoding):
            source = "'" + str(path).replace("'", "''") + "'"
            asked = f"{head}({source}, sample_size = -1, comment = ''{encoding}{options})"
            return self.connection.execute(asked).fetchall()

    def _asked(self, head: str) -> list[Any]:
        return self.connection.execute(f"{head} FROM {quoted(self.name)}").fetchall()


def _chunks(opened: BinaryIO) -> Iterator[bytes]:
    opened.seek(0)
    while chunk := opened.read(CHUNK):
        yield chunk


def _lines(path: Path) -> int:
    count, last = 0, b""
    with path.open("rb", buffering=0) as opened:
        for chunk in _chunks(opened):
            count += chunk.count(b"\n" if b"\n" in chunk else b"\r")
            last = chunk[-1:]
    return count + (last not in b"\r\n")


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
