"""Calls of tools through the gate, like those of a subagent, and their time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import scopes
from bot.tooling.provider import OpenedTools
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.tool import ToolContext, ToolResult
from subagents.directory import Operator
from subagents.gate import Gate


@dataclass
class Caller:
    """One subagent, whose requester is at the command line."""

    opened: OpenedTools
    request: str = "Do all of it."
    """The request: addresses in it may be fetched."""
    calls: int = 0
    _gate: Gate = field(default_factory=lambda: Gate(lambda _: None, Operator(), lambda _: None))

    async def call(self, scope: str, name: str, /, **arguments: object) -> ToolResult:
        """Call a tool. Raises AssertionError if the gate refuses it."""
        self.calls += 1
        ctx = ToolContext(
            *("bench", None, self.opened.clients, 8_000, Handles(dict(self.opened.handles))),
            intent=Intent(self.request),
            key=f"bench/s1/{self.calls}",
            scope=scope,
            context="s1",
        )
        tool = next(t for t in scopes.scope(scope).tools if t.name == name)
        # A new context for each call, since each stores a little.
        result = await self._gate.call(f"s{self.calls}", ctx, tool, arguments)
        if not isinstance(result, ToolResult):
            raise AssertionError(f"{name}: {result}")
        return result


async def took(call: Callable[[], Awaitable[object]]) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def in_turns(
    times: int, *calls: Callable[[], Awaitable[object]], warm: int = 3
) -> list[list[float]]:
    """Return the milliseconds of several calls, made in turns, so that other load on the machine
    affects all of them equally."""
    for _ in range(warm):
        for call in calls:
            await call()
    turns = [[await took(call) for call in calls] for _ in range(times)]
    return [list(column) for column in zip(*turns, strict=True)]


def over(mine: Sequence[float], bare: Sequence[float]) -> tuple[float, str]:
    """Return the median of the difference, and both medians in words."""
    text = f"ours {statistics.median(mine):.3g} ms (best {min(mine):.3g}), bare "
    text += f"{statistics.median(bare):.3g} (best {min(bare):.3g})"
    return statistics.median(m - b for m, b in zip(mine, bare, strict=True)), text
