"""A few processes that run SQL in DuckDB: started ahead, used again while healthy, killed when not.

Untrusted SQL can take any memory and time, and DuckDB's own limits do not hold for all of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scopes.programs import started

MAX_RUNNING = 3
"""Processes at work at a time; further queries wait."""
MAX_IDLE = 2
LINE = 64_000_000
"""Bytes of one line of a reply; no honest one comes near."""


class ChildGone(Exception):
    """The process ended in the middle, or says what it never should."""


@dataclass(frozen=True, slots=True)
class DuckPlace:
    """What a process works on: one, for all its life."""

    path: Path
    files: bool
    """A folder of tables, or a file that is none of DuckDB's."""
    schema: str | None = None


@dataclass
class Child:
    """One process."""

    process: asyncio.subprocess.Process
    place: DuckPlace | None = None
    used: bool = False
    spent: bool = False
    """It ran out of memory, and what is left of its heap is not worth keeping; or it is still at
    work on a file that it has given up."""

    async def bind(self, place: DuckPlace) -> None:
        """Tell a new one what it works on. Raises ChildGone."""
        if self.place is None:
            self.place = place
            told = {"place": str(place.path), "files": place.files, "schema": place.schema}
            await self.send(told)

    async def send(self, request: Mapping[str, Any]) -> None:
        """Raises ChildGone."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise ChildGone from None

    async def line(self) -> bytes:
        """Return the next line of a reply. Raises ChildGone."""
        assert self.process.stdout
        try:
            line = await self.process.stdout.readline()
        except ValueError:  # longer than LINE
            line = b""
        if not line.endswith(b"\n"):
            raise ChildGone
        return line

    async def end(self) -> None:
        """Kill it and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@dataclass
class DuckPool:
    """The processes of one bot."""

    memory_mb: int
    """Address space of each."""
    _idle: list[Child] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING))
    _warming: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """Start one ahead, if none is there; returns at once."""
        self._idle = [child for child in self._idle if child.process.returncode is None]
        if not self._idle and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._start_ahead())

    async def _start_ahead(self) -> None:
        with suppress(OSError):  # who needs one starts it, and fails
            self._idle.append(await self._started())

    @asynccontextmanager
    async def child(self, place: DuckPlace) -> AsyncIterator[Child]:
        """A process for this place, for one request; kept only where all went well."""
        async with self._turns:
            child = await self._taken(place)
            try:
                await child.bind(place)
                yield child
            except BaseException:
                await asyncio.shield(child.end())
                raise
            if child.spent:
                await child.end()
                return
            child.used = True
            self._idle.append(child)
            while len(self._idle) > MAX_IDLE:
                await self._idle.pop(0).end()

    async def _taken(self, place: DuckPlace) -> Child:
        if self._warming is not None:
            await asyncio.shield(self._warming)
            self._warming = None
        for wanted in (place, None):
            for child in [c for c in self._idle if c.place == wanted]:
                self._idle.remove(child)
                if child.process.returncode is None:
                    return child
                await child.end()
        return await self._started()

    async def _started(self) -> Child:
        env = {"MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8"}
        program = "scopes.databases.duck_program"
        return Child(await started(program, self.memory_mb, env=env, line=LINE))

    async def aclose(self) -> None:
        """End all of them."""
        if self._warming is not None:
            await self._warming
        while self._idle:
            await self._idle.pop().end()
