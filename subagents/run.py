"""What all contexts of one run share, and the seams where durable execution plugs in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from config.settings import Limits
from subagents.events import Emit, ignore
from subagents.gate import Gate
from subagents.governor import RateGovernor
from subagents.model import ModelClient
from subagents.purse import Purse
from subagents.trajectory import TrajectorySink

Step = Callable[[], Awaitable[dict[str, Any]]]


class Checkpoint(Protocol):
    """Runs a step once: one model call, or one batch of ordinary tools.

    A durable implementation keeps what the step returned (a plain dict) and hands it out again in
    a replay. Between steps a loop is a pure function of what its steps returned.
    """

    async def step(self, key: str, fn: Step) -> dict[str, Any]: ...


class PassThrough:
    """Runs every step and keeps nothing: for the command line, where a crash ends the run."""

    async def step(self, key: str, fn: Step) -> dict[str, Any]:
        return await fn()


class StopFlag:
    """The user's stop: ends what waits for the outside, and nothing else, within moments."""

    def __init__(self) -> None:
        self._set = False
        self._watched: set[asyncio.Timeout] = set()

    def __bool__(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for scope in tuple(self._watched):
            self._expire(scope)

    @contextmanager
    def watching(self, scope: asyncio.Timeout) -> Iterator[None]:
        """While inside, setting the flag lets `scope` run out."""
        if self._set:
            self._expire(scope)
        self._watched.add(scope)
        try:
            yield
        finally:
            self._watched.discard(scope)

    @staticmethod
    def _expire(scope: asyncio.Timeout) -> None:
        if not scope.expired():
            scope.reschedule(asyncio.get_running_loop().time())


@dataclass
class Run:
    """One request, sweep or digest while it is worked on."""

    id: str
    requester: str | None
    model: ModelClient
    governor: RateGovernor
    purse: Purse
    gate: Gate
    sink: TrajectorySink
    limits: Limits
    clients: Mapping[type, object]
    handles: Mapping[str, str] = field(default_factory=dict)
    """What its parent may hand over from the start, as far as the requester may read it."""
    emit: Emit = ignore
    checkpoint: Checkpoint = field(default_factory=PassThrough)
    stop: StopFlag = field(default_factory=StopFlag)
