"""A few processes that run SQL in DuckDB: started ahead, used again, killed when not healthy.

Untrusted SQL can take any memory and time, and DuckDB's own limits do not hold for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scopes.programs import WorkerProcess

MAX_RUNNING = 3
"""Processes at work at a time; further queries wait."""
MAX_IDLE = 2
IDLE_S = 120.0
"""Seconds after which a process without work ends, and with it the tables that it holds."""
REQUEST_S = 30.0
"""Seconds of a request for which nothing else is said."""


@dataclass(frozen=True, slots=True)
class DuckPlace:
    """The one database that a process works on for all its life."""

    path: Path
    files: bool
    """A folder of tables, or a file that is none of DuckDB's."""
    schema: str | None = None


@dataclass
class DuckPool:
    """The processes of one bot."""

    memory_mb: int
    """Address space of each."""
    _idle: list[tuple[DuckPlace | None, WorkerProcess]] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING))

    def warm(self) -> None:
        """Start one ahead, if none is there; returns at once."""
        if not self._idle:
            self._idle.append((None, self._new()))
            self._idle[0][1].start()

    @asynccontextmanager
    async def worker(self, place: DuckPlace) -> AsyncIterator[WorkerProcess]:
        """A process for this place, for the requests of one query."""
        async with self._turns:
            worker = self._taken(place)
            try:
                yield worker
            finally:
                self._idle.append((place, worker))
                while len(self._idle) > MAX_IDLE:
                    await self._idle.pop(0)[1].aclose()

    def _taken(self, place: DuckPlace) -> WorkerProcess:
        for mine in reversed(self._idle):
            if mine[0] in (place, None):
                self._idle.remove(mine)
                return mine[1]
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
