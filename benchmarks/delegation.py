"""The `delegation` table: how long a large `run_subagents` blocks the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.durable_fanout import served
from benchmarks.standin import standin
from benchmarks.table import Row
from benchmarks.workload import settings_for
from bot.__main__ import FEW_FULL_COLLECTIONS
from bot.runs.durable import Durable
from bot.runs.run import WorkflowSpawner
from bot.runs.store import Store
from scopes.effects import Handles
from scopes.tool import ToolContext, Window
from subagents.brief import TimeFrame
from subagents.delegation import MANY, Delegation, SpawnGuard
from subagents.events import Event, SubagentStarted
from subagents.fanout import Fanout
from subagents.toolbox import ToolCall

SIZES = (200, 1_000)
CONCURRENCY = 64
LATENCY_S = 1.0
LAG_BAR_MS = 50.0
FIRST_BAR_S = 2.0
TICK_S = 0.002
NOTES = """\
One run_subagents over so many items, as `serve` runs it: child workflows, SQLite, 64 at once. The
model stand-in is a process of its own and answers after 1 s; each subagent makes one call. From the
parent's call to its answer: lag is how late a timer of 2 ms fired at most, which other load of the
machine adds to. First: from the call until the first subagent is at work."""


@dataclass
class Ticker:
    """Records how late a short timer fires."""

    lag: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    async def run(self) -> None:
        while True:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.lag = max(self.lag, time.perf_counter() - due)


@dataclass
class Measured:
    """One call of run_subagents."""

    size: int
    first_s: float = 0.0
    lag_ms: float = 0.0
    wall_s: float = 0.0


def _call(size: int) -> ToolCall:
    """Return the call; a reader whose items are no channels of the model hands in at once."""
    template = {"task": "Say what is open in {item}.", "description": "Bench {item}"}
    items = [f"C{n:08d}" for n in range(size)]
    return ToolCall("c1", MANY, {"items": items, "template": {**template, "scope": "slack"}})


async def _measure(url: str, size: int, folder: Path) -> Measured:
    result, ended = Measured(size), asyncio.get_running_loop().create_future()
    async with served(url, folder, CONCURRENCY) as (durable, runs):

        async def parent(run: str, _: bool) -> dict[str, Any]:
            async with runs.at_work(run) as live:
                await _delegate(durable, runs.store, live, result)
            ended.set_result(None)
            return {}

        durable.bodies["bench"] = parent
        await durable.open()
        run = uuid.uuid4().hex[:12]
        args = {"limits": settings_for(CONCURRENCY).limits.model_dump(mode="json")}
        await runs.store.start_run(run, "ask", "bench", "claude", args)
        await durable.begin("bench", f"bench/{run}", run)
        await asyncio.wait_for(ended, 600)
    return result


WEEK = Window(datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC))


async def _delegate(durable: Durable, store: Store, live: Any, result: Measured) -> None:
    spawner = WorkflowSpawner(durable, store, live, f"bench/{live.run.id}")
    guard = SpawnGuard(live.run.limits)
    guard.note_own("Which markets have a support channel?")
    guard.note_view("s0 complete (slack, fast): " + "an earlier answer of some words " * 200)
    delegation = Delegation(Fanout(live.run, spawner), guard, TimeFrame(WEEK, WEEK.oldest))
    call = _call(result.size)
    ctx = ToolContext(
        run=live.run.id,
        requester=None,
        handles=Handles({c: f"#c{n}" for n, c in enumerate(call.input["items"])}),
        window=WEEK,
        clients=live.run.clients,
        max_output_tokens=8_000,
    )
    ticker = Ticker()

    def heard(event: Event) -> None:
        if isinstance(event, SubagentStarted) and not result.first_s:
            result.first_s = time.perf_counter() - ticker.began

    live.listeners.append(heard)
    ticking = asyncio.create_task(ticker.run())
    (outcome,) = await delegation([call], ctx)
    ticking.cancel()
    result.wall_s = time.perf_counter() - ticker.began
    result.lag_ms = ticker.lag * 1000
    done = sum(r.status == "complete" for r in delegation.fanout.results.values())
    assert done == result.size, f"{done} of {result.size}: {outcome.text[:300]}"


def delegation() -> list[Row]:
    """Measure each size in its own loop and folder."""
    rows = []
    gc.freeze()  # as `serve` does
    gc.set_threshold(*FEW_FULL_COLLECTIONS)
    with standin(LATENCY_S) as url:
        for size in SIZES:
            with TemporaryDirectory() as folder:
                one = asyncio.run(_measure(url, size, Path(folder)))
            note = f"whole: {one.wall_s:.1f} s"
            rows.append(Row(f"lag, {size} items", one.lag_ms, " ms", LAG_BAR_MS, note))
            rows.append(Row(f"first subagent, {size} items", one.first_s, " s", FIRST_BAR_S))
    return rows
