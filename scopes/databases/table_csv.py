"""CSV files, and how they become tables of DuckDB; runs in the child alone.

DuckDB guesses separator, header and types. What it takes for a title above the table is counted.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        above = _not_empty(path, encoding, min(skipped, MAX_TITLE))
        may_be_title = not skipped or (header and skipped <= MAX_TITLE)
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
