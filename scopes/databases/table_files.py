"""A folder of CSV, Parquet, SQLite and Excel files as tables of DuckDB; runs in the child alone.

Whatever a file holds, it costs no more than the limits of that process, and one that cannot be read
is listed with the reason.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread

import duckdb

from scopes.clean import unified
from scopes.databases.table_kinds import CSV, EXCEL, PARQUET, SQLITE, TABLES, is_duckdb
from scopes.databases.table_rows import (
    OPEN,
    RowsPart,
    TableUnreadable,
    csv,
    insert,
    quoted,
    sheets,
    sqlite,
)

STARVED = 3
LOOK_S = 0.05
GRACE_S = 0.2
"""How long a library that was told to stop may take to do so."""


class Late(Exception):
    """The time was up. `stuck`: the work goes on all the same, until the process ends."""

    def __init__(self, *, stuck: bool) -> None:
        super().__init__("the time was up")
        self.stuck = stuck


_stuck: list[Thread] = []
"""Threads whose work goes on after its time."""


def _computed() -> float:
    """Return the CPU seconds of this process, without those of work that was given up."""
    clocks = [time.pthread_getcpuclockid(t.ident) for t in _stuck if t.ident and t.is_alive()]
    return time.process_time() - sum(map(time.clock_gettime, clocks))


def within(seconds: float, work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Do `work` in a thread of its own; call `stop` if it takes longer than this.

    If this process hardly gets a processor, the work may take up to `STARVED` times as long. Raises
    Late, or what the work raises.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the seam: it is raised where it is waited for
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    began, computed = time.monotonic(), _computed()
    thread.start()
    thread.join(max(seconds, 0.0))
    while thread.is_alive() and _computed() - computed < seconds / 2:
        if time.monotonic() - began > STARVED * seconds:
            break
        thread.join(LOOK_S)
    if thread.is_alive():
        stop()
        thread.join(GRACE_S)
        if thread.is_alive():
            _stuck.append(thread)
        raise Late(stuck=thread.is_alive())
    if failed:
        raise failed[0]


OTHER = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx",
    ".gz": "unpack it",
    ".zip": "unpack it",
    ".duckdb": "name it as a database of its own",
}
"""What people take for tables, and what to do about it."""
LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_FILES = 100
MAX_FILE, MAX_ALL = 100_000_000, 300_000_000
"""Bytes."""
FOLDER_S = 20.0
"""Seconds that all files of a folder may take."""
SMALL_S = 1.0
"""What a file has of them at least, while they last: the first of its kind loads a library."""
LEAST_S = 2.0
PACE = {CSV: 10_000_000, PARQUET: 10_000_000, SQLITE: 1_000_000, EXCEL: 100_000}
"""For so many bytes a file may take a second more than `LEAST_S`: ten times what most take."""
LATE = "not all of it could be read in time; make a DuckDB file of it"
MAX_BROKEN = 20
"""Views of a file that are listed with the reason why they are no tables."""
MORE = f"only the first {MAX_BROKEN} of them are listed"
MEMORY = "it needs more memory than data.memory_mb allows; give it as a DuckDB file"


@dataclass
class Loaded:
    """The result of loading a folder."""

    tables: dict[str, str] = field(default_factory=dict)
    """Name -> the file that it came from."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """File, or view of one -> why it is no table."""
    stuck: bool = False
    """Whether something is still read, in vain; the process is not to be used again."""


def candidates(place: Path) -> list[Path]:
    """Return what in a folder may be tables by its name, in order; a file is a folder of one."""
    if not place.is_dir():
        return [place] if _is_known(place.name) else []
    with os.scandir(place) as listing:
        found = [
            e.name for e in listing if _is_known(e.name) and not e.is_dir(follow_symlinks=False)
        ]
    return [place / name for name in sorted(found)]


def _is_known(name: str) -> bool:
    known = (*TABLES, *OTHER)
    return name[0] not in ".~" and name.lower().endswith(known)


def load(connection: duckdb.DuckDBPyConnection, place: Path) -> Loaded:
    """Make a table of each file, sheet and table of SQLite, named after it.

    Those that should take least come first, and each may take its part of the time that is left:
    one that takes too long takes no other along.
    """
    loaded, room, files = Loaded(), MAX_ALL, candidates(place)
    waiting = sorted(files[:MAX_FILES], key=_patience)
    readings = {file: FileReading(file, n) for n, file in enumerate(waiting)}
    until = time.monotonic() + FOLDER_S
    for n, (file, reading) in enumerate(readings.items()):
        left = until - time.monotonic()
        share = max(left / (len(waiting) - n), min(SMALL_S, left))
        cursor = connection.cursor()
        work = partial(reading.read, cursor, room)
        try:
            within(min(share, _patience(file)), work, cursor.interrupt)
            room -= reading.size
        except Late as late:
            loaded.unreadable[file.name] = LATE
            loaded.stuck = loaded.stuck or late.stuck
        except TableUnreadable as error:
            loaded.unreadable[file.name] = str(error)
        except (MemoryError, duckdb.OutOfMemoryException, duckdb.TransactionException):
            # in memory nothing else keeps a table from being committed
            loaded.unreadable[file.name] = MEMORY
        except Exception as error:  # the seam: one file that breaks a parser hides no other
            loaded.unreadable[file.name] = _reason(error, file)
        loaded.unreadable |= {
            f"{file.name}: {view}": why for view, why in [*reading.broken.items()]
        }
    for own in (True, False):
        for file in files[:MAX_FILES]:
            readings[file].name_tables(connection, loaded, own=own)
    if (more := len(files) - MAX_FILES) > 0:
        why = f"only the first {MAX_FILES} files of a folder are read"
        loaded.unreadable[f"{more} more files"] = why
    return loaded


def _patience(file: Path) -> float:
    """Return the most seconds that a file may take."""
    pace = next((p for endings, p in PACE.items() if file.suffix.lower() in endings), math.inf)
    try:
        return LEAST_S + file.lstat().st_size / pace
    except OSError:
        return LEAST_S


@dataclass
class FileReading:
    """One file on its way: its tables have numbers until all files are read."""

    file: Path
    number: int
    titles: list[str] = field(default_factory=list)
    """What its tables are to be called after."""
    made: dict[int, str] = field(default_factory=dict)
    """Those of them that are there -> what is to be known of each."""
    broken: dict[str, str] = field(default_factory=dict)
    """View -> why it is no table."""
    size: int = 0
    """Bytes; 0 until it was opened."""

    def read(self, connection: duckdb.DuckDBPyConnection, room: int) -> None:
        """Make its tables, and close the connection. Raises Unreadable and what readers raise."""
        suffix = self.file.suffix.lower()
        with closing(connection), _opened(self.file) as (path, self.size):
            _check(self.file, path, self.size, room)
            if suffix in CSV:
                name = self._next(self.file.stem)
                self.made[0] = csv(connection, name, path)
            elif suffix in PARQUET:
                name = self._next(self.file.stem)
                source = "'" + str(path).replace("'", "''") + "'"
                connection.execute(f"CREATE TABLE {quoted(name)} AS FROM read_parquet({source})")
                self.made[0] = ""
            else:
                for part in sheets(path, self.file.stem) if suffix in EXCEL else sqlite(path):
                    self._insert(connection, part)
        if not self.titles:
            raise TableUnreadable("it holds no table")

    def _insert(self, connection: duckdb.DuckDBPyConnection, part: RowsPart) -> None:
        """A view that fails takes no other table along."""
        name = self._next(part.title)
        try:
            insert(connection, name, part.rows)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise
            view = " ".join(part.title.split())[:60]
            more = len(self.broken) >= MAX_BROKEN
            self.broken["more" if more else view] = MORE if more else _reason(error, self.file)
        else:
            self.made[len(self.titles) - 1] = "; ".join(part.notes)

    def _next(self, title: str) -> str:
        self.titles.append(title)
        return self._table(len(self.titles) - 1)

    def _table(self, n: int) -> str:
        return f"{self.number} {n}"

    def name_tables(
        self, connection: duckdb.DuckDBPyConnection, loaded: Loaded, *, own: bool
    ) -> None:
        """Give them names: those that they have of their `own`, or else ones that are left.

        One that could not be made keeps its name from the others, too.
        """
        made = dict(self.made)
        for n, title in enumerate([*self.titles]):
            wanted = _wanted(title)
            if (wanted == title) != own:
                continue
            numbered, name = quoted(self._table(n)), quoted(_named(wanted, self.file, loaded))
            if n not in made:
                connection.execute(f"DROP TABLE IF EXISTS {numbered}")
                continue
            connection.execute(f"ALTER TABLE {numbered} RENAME TO {name}")
            if made[n]:
                connection.execute(f"COMMENT ON TABLE {name} IS '{made[n]}'")


@contextmanager
def _opened(file: Path) -> Iterator[tuple[Path, int]]:
    """A path that leads to this very file, whatever takes its name meanwhile, and its bytes.

    Raises Unreadable for what is no file, or one of another folder.
    """
    _check_kind(file.lstat().st_mode)
    opened = os.open(file, LOOK)
    try:
        seen = os.fstat(opened)
        _check_kind(seen.st_mode)
        path = OPEN / str(opened)
        yield path if path.exists() else file, seen.st_size
    finally:
        os.close(opened)


def _check_kind(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise TableUnreadable("it is a link, and links are not followed")
    if not stat.S_ISREG(mode):
        raise TableUnreadable("it is no file")


def _reason(error: Exception, file: Path) -> str:
    """Return what an operator can do about it, or what a reader says, without where the
    file lies.
    """
    if isinstance(error, OSError):
        return "it may not be read" if isinstance(error, PermissionError) else "it cannot be read"
    code = getattr(error, "sqlite_errorcode", None)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return "another program writes to it, or has ended while it did"
    if code != sqlite3.SQLITE_ERROR and not file.name.lower().endswith(CSV):
        return "it is damaged, or of a kind that is not read"
    said = str(error).partition("LINE 1")[0]
    said = re.sub(rf"{re.escape(str(file))}|{OPEN}/\d+", "this file", said)
    return " ".join(said.split())[:200]


def _check(file: Path, path: Path, size: int, room: int) -> None:
    suffix = file.suffix.lower()
    if suffix in OTHER:
        is_other = suffix != ".duckdb" or is_duckdb(path)
        raise TableUnreadable(OTHER[suffix] if is_other else "it is no DuckDB file")
    if size > min(MAX_FILE, room):
        raise TableUnreadable(
            f"more than {MAX_FILE // 1_000_000} MB, or {MAX_ALL // 1_000_000} MB with those "
            "read before; make a DuckDB file of it"
        )
    if not size:
        raise TableUnreadable("it is empty")
    if set(file.name) & set("*?["):
        raise TableUnreadable("rename it without * ? [")


def _wanted(title: str) -> str:
    """Return a name that a query may use without quotes."""
    title = unified(title)
    base = re.sub(r"\W+", "_", title).strip("_")[:60] or "table"
    return f"t_{base}" if base[0].isdigit() else base


def _named(base: str, file: Path, loaded: Loaded) -> str:
    """Return a name unlike any other."""
    taken = {name.casefold() for name in loaded.tables}
    name, n = base, 1
    while name.casefold() in taken:
        n += 1
        name = f"{base}_{n}"
    loaded.tables[name] = file.name
    return name
