"""DuckDB files, and folders of CSV, Parquet, SQLite and Excel files, as databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from scopes.databases.allow_list import ONE_SELECT_ERROR, SYSTEM_ACCESS_ERROR
from scopes.databases.tables import MAX_TABLES, Column, Rows, StatementFailed, TableInfo, Value
from scopes.programs import WorkerDied, WorkerProcess, WorkerTimedOut
from scopes.tool import SourceFailed, ToolError

MAX_RUNNING = 3
"""Processes that work at once; further queries wait."""
MAX_IDLE = 2
IDLE_S = 120.0
"""Seconds after which an idle process ends, with the tables that it holds."""
REQUEST_S = 30.0
"""Default seconds of a request."""


Source = tuple[Path, str | None]
"""The one database that a process works on, and its schema."""


@dataclass
class DuckPool:
    """The processes of one bot."""

    memory_mb: int
    """Megabytes of address space of each."""
    _idle: list[tuple[Source, WorkerProcess]] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING))

    @asynccontextmanager
    async def worker(self, source: Source) -> AsyncIterator[WorkerProcess]:
        """Return a process for this database, for the requests of one query."""
        async with self._turns:
            worker = self._take(source)
            try:
                yield worker
            finally:
                self._idle.append((source, worker))
                while len(self._idle) > MAX_IDLE:
                    await self._idle.pop(0)[1].aclose()

    def _take(self, source: Source) -> WorkerProcess:
        for entry in reversed(self._idle):
            if entry[0] == source:
                self._idle.remove(entry)
                return entry[1]
        return self._new()

    def _new(self) -> WorkerProcess:
        return WorkerProcess(
            "scopes.databases.duck_program",
            REQUEST_S,
            self.memory_mb,
            env={"MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8"},
            idle_s=IDLE_S,
        )

    async def aclose(self) -> None:
        """End all of them."""
        while self._idle:
            await self._idle.pop()[1].aclose()


OPEN_S = 25.0
"""Maximum seconds to make tables of files; one DuckDB file opens in milliseconds."""
SLOW_FILES = "The files took too long to read: give fewer or smaller ones, or a DuckDB file."
PROCESS_DIED_ERROR = "The query brought its process down: write it another way, with less."
STATEMENT_ERRORS = {
    "statement": ONE_SELECT_ERROR,
    "machine": f"{SYSTEM_ACCESS_ERROR} Tables come from names, and from range, unnest and "
    "generate_series.",
    "deep": "The statement is nested too deeply: write it flatter.",
    "memory": "The query needs more memory than it may have: filter or aggregate earlier, "
    "sort less, and cut long texts.",
    "busy": "Another program is writing to this database. Try again once; if it still is, say so "
    "in your result.",
}
SOURCE_ERRORS = {
    "absent": "The file of the database is not there.",
    "broken": "The file of the database cannot be opened, or another version of DuckDB made it.",
    "schema": "The database has no schema of the name that the settings give.",
}


@dataclass(frozen=True)
class Duck:
    """One such database, read only: `scopes.databases.tables.SourceDatabase`."""

    dialect: ClassVar = "DuckDB"
    path: Path
    schema: str | None
    pool: DuckPool
    query_s: float
    max_bytes: int
    """Maximum bytes of a result."""

    async def tables(self) -> Sequence[TableInfo]:
        found, _ = await self._request("tables", "", MAX_TABLES)
        return [_table(*each) for each in found]

    async def describe(self, table: str) -> TableInfo | None:
        found, _ = await self._request("tables", table, 1)
        return _table(*found[0]) if found else None

    async def query(self, sql: str, max_rows: int) -> Rows:
        (head, *rows), total = await self._request("query", sql, max_rows, self.max_bytes)
        columns = tuple(Column(*each) for each in head)
        return Rows(columns, tuple(tuple(map(_value, row)) for row in rows), total)

    async def aclose(self) -> None:
        """Close nothing: the processes belong to the pool."""

    async def _request(self, does: str, *arguments: Any) -> tuple[list[Any], Any]:
        """Return the lines of a reply and its last value. Raises ToolError, SourceFailed."""
        slow = f"The query was ended after {self.query_s:g} s: filter or aggregate earlier."
        async with self.pool.worker((self.path, self.schema)) as worker:
            await self._ask(worker, OPEN_S, SLOW_FILES, "open")
            return await self._ask(worker, self.query_s, slow, does, *arguments)

    async def _ask(
        self, worker: WorkerProcess, seconds: float, late: str, *arguments: Any
    ) -> tuple[list[Any], Any]:
        request = json.dumps([str(self.path.absolute()), self.schema, *arguments]).encode()
        try:
            reply = await worker.ask(request, seconds)
        except WorkerTimedOut:
            raise ToolError(late) from None
        except WorkerDied:
            raise ToolError(PROCESS_DIED_ERROR) from None
        *lines, (failed, value) = map(json.loads, reply.splitlines())
        if failed == "memory":
            await worker.end()
        if failed in SOURCE_ERRORS:
            raise SourceFailed(SOURCE_ERRORS[failed])
        if failed:
            raise (
                ToolError(STATEMENT_ERRORS[failed])
                if failed in STATEMENT_ERRORS
                else StatementFailed(value)
            )
        return lines, value


def _table(name: str, rows: int | None, note: str, columns: Sequence[Sequence[str]]) -> TableInfo:
    return TableInfo(name, rows, tuple(Column(*each) for each in columns), note)


def _value(cell: Any) -> Value:
    return Decimal(cell[0]) if isinstance(cell, list) else cell
