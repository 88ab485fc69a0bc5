"""State shared by all contexts of one run, and the interfaces of durable execution."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from config.sections import LimitSettings
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import ToolContext, compact_json
from subagents.brief import SpawnedBrief
from subagents.budget import Budget
from subagents.events import Emit, ignore
from subagents.gate import Gate
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.result import SubagentResult
from subagents.trajectory import Context, Recording

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def step_body(kind: type[T], value: T) -> str:
    """Return the JSON text to store for the value of a step."""
    adapter = _adapter(cast(Any, kind))
    try:
        text = adapter.dump_json(value).decode()  # without a dict for each of a hundred items
    except PydanticSerializationError:  # half of a surrogate pair
        text = compact_json(adapter.dump_python(value, mode="json"))
    return f'{{"value":{text}}}'


def step_value(kind: type[T], stored: Mapping[str, Any]) -> T:
    """Return the value that `step_body` wrote, from the parsed JSON."""
    return cast(T, _adapter(cast(Any, kind)).validate_python(stored["value"]))


class Checkpoint:
    """Keeps what steps returned: each is one model call, or one batch of ordinary tools.

    This one keeps nothing: a crash ends the run. A durable one stores it (as JSON) and returns it
    again in a replay. Between steps a loop is a pure function of what its steps returned.
    """

    def find_step(self, key: str) -> dict[str, Any] | None:
        """Return what this step returned before; None if it has to be done."""
        return None

    async def keep(self, key: str, body: str) -> None:
        """Store what a step returned, a JSON text."""

    def defer(self, key: str, body: str) -> None:
        """Store it with the next step or result of the run."""

    async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
        """Store a brief with the checked result of its subagent."""


class StopFlag:
    """The user's stop: ends waiting for outside calls within moments, and nothing else."""

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
    def watch(self, scope: asyncio.Timeout) -> Iterator[None]:
        """End `scope` when the flag is set."""
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
    """One request, sweep or digest while it is in progress."""

    id: str
    requester: str | None
    model: ModelClient
    rate_limiter: RateLimiter
    budget: Budget
    gate: Gate
    sink: Recording
    limits: LimitSettings
    clients: Mapping[type, object]
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handles that its parent may hand over from the start, if the requester may read them."""
    emit: Emit = ignore
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    stop: StopFlag = field(default_factory=StopFlag)

    def client(self, kind: type[T]) -> T:
        """Return the client of this kind; a KeyError means that the composition root forgot it."""
        return cast(T, self.clients[kind])

    def context(self, label: Label = TRUSTED_LABEL, **more: Any) -> ToolContext:
        """Return a context for the tools of this run; `more` are its other fields."""
        most = self.limits.max_tool_output_tokens
        return ToolContext(
            self.id, self.requester, self.clients, max_output_tokens=most, label=label, **more
        )

    def declare(
        self,
        context: str,
        *,
        scope: str,
        role: str,
        template: str,
        tools: Iterable[str] = (),
        kind: str = "parent",
        parent: str | None = None,
    ) -> None:
        """Record a context before its first request."""
        model = self.model.name(role)
        now = datetime.now(UTC)
        entry = Context(self.id, context, parent, kind, scope, model, template, tuple(tools), now)
        self.sink.context(entry)

    def find_recorded(self, key: str, kind: type[T]) -> T | None:
        """Return the value that the step of this key had before a restart; None if it had none."""
        stored = self.checkpoint.find_step(key)
        return None if stored is None else step_value(kind, stored)

    async def once(self, key: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Return the value of the step of this key, or the one stored before a restart."""
        recorded = self.find_recorded(key, kind)
        return await self.record(key, kind, await work()) if recorded is None else recorded

    async def record(self, key: str, kind: type[T], value: T, *, repeatable: bool = False) -> T:
        """Store the value that a step gave, and return it.

        A step is repeatable if doing it again costs nothing and changes nothing.
        """
        body = step_body(kind, value)
        if repeatable:
            self.checkpoint.defer(key, body)
        else:
            await self.checkpoint.keep(key, body)
        return value
