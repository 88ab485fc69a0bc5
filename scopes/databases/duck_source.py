"""Where the tables of one process are: opened, locked down, opened again when a file changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from scopes.databases.table_files import MAX_FILES, Loaded, candidates, load
from scopes.databases.table_rows import quoted

OVERHEAD_MB = 256
"""Of the address space: Python, DuckDB's code, stacks."""
LOCK = """
SET TimeZone = 'UTC'; SET python_enable_replacements = false;
SET autoinstall_known_extensions = false; SET autoload_known_extensions = false;
SET allow_community_extensions = false; SET enable_external_access = false;
SET disabled_filesystems = 'LocalFileSystem'"""

OURS = "system.main"
"""Where DuckDB's own functions are: a macro of the file takes the place of a bare name."""


class Failed(Exception):
    """A request that gets no answer: `kind` for the bot, a message for the model."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class DuckSource:
    """Where the tables are, and what is open of it."""

    place: Path
    files: bool
    """A folder of tables, or a file that is none of DuckDB's."""
    schema: str | None
    memory_mb: int
    connection: duckdb.DuckDBPyConnection | None = None
    mark: object = None
    """What the files looked like when they were opened."""
    loaded: Loaded = field(default_factory=Loaded)

    def opened(self) -> duckdb.DuckDBPyConnection:
        """Return the connection, made again where a file has changed. Raises Failed."""
        mark = self._mark()
        if self.connection is None or mark != self.mark:
            self.close()
            self.connection = self._open()
            self.mark = mark
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _mark(self) -> object:
        try:
            files = candidates(self.place) if self.files else [self.place]
            stats = [(str(f), f.lstat()) for f in files[:MAX_FILES]]
        except OSError:
            raise Failed("absent") from None
        return len(files), [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats]

    def _open(self) -> duckdb.DuckDBPyConnection:
        limit = f"{max(64, self.memory_mb - OVERHEAD_MB)}MB"
        where = ":memory:" if self.files else str(self.place)
        made: dict[str, str | bool | int | float | list[str]] = {
            "threads": "1",
            "memory_limit": limit,
            "temp_directory": "",
            "max_temp_directory_size": "0B",
            "enable_external_file_cache": False,  # by path: one path leads to several files here
        }
        try:
            connection = duckdb.connect(where, read_only=not self.files, config=made)
        except duckdb.IOException as error:
            raise Failed("busy" if "lock" in str(error) else "broken") from None
        except duckdb.Error:
            raise Failed("broken") from None
        if self.files:
            self.loaded = load(connection, self.place)
        for statement in LOCK.split(";"):
            connection.execute(statement)
        if self.schema:
            full = self.schema if "." in self.schema else f"{catalog_of(connection)}.{self.schema}"
            try:
                connection.execute("USE " + ".".join(map(quoted, full.split("."))))
            except duckdb.Error:
                raise Failed("schema") from None
        connection.execute("SET lock_configuration = true")
        return connection


def catalog_of(connection: duckdb.DuckDBPyConnection) -> str:
    """Return what DuckDB calls the open file: its name without the ending."""
    found = connection.execute(f"SELECT {OURS}.current_database()").fetchone()
    return str(found[0]) if found else ""
