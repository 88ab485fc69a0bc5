"""The `economy` table: a sweep by isolated subagents, and the same reading in one context."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.one_context import Reading, in_one_turn, one_after_another, replay
from benchmarks.standin import standin
from benchmarks.start import SWEEP
from benchmarks.workload import settings_for
from bot.runs.store import Store
from subagents.budget import NANOUSD_PER_USD
from subagents.prices import Usage, cost_nanousd
from subagents.trajectory import Trajectory

CALL_S = 5.0
LATENCY_S = 0.2
"""Of the model in the sweep: long enough that all five start before the first answer."""
RESPONDER = "bot.local.offline.model:answer"
HEAD = ["variant", "calls", "input tokens", "largest request"]
HEAD += ["$ read on fast", "$ read on main", "seconds"]
NOTES = f"""\
The sample workspace, five channels without the tracker (a subagent of its own reads that), read by
the offline model through the Messages API stand-in; tokens as it counts them (bytes / 3), prices of
genai-prices for models.fast and models.main, each call priced alone. Isolated: five readers on fast
(or main), one parent call on main for the top lines, in both columns. One context: tools that read
a channel, whose results are the messages that the readers are handed; its last call writes all that
the five readers and the parent wrote, on the one model of the column. "Cached" marks the prompt as
the product does. Seconds: calls that wait for one another, at {CALL_S:g} s each of any size, which
favours the one context: its last answer is five times as long."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call as the stand-in counted it."""

    usage: Usage
    parent: bool = False

    def usd(self, model: str) -> float:
        return (cost_nanousd(model, self.usage) or 0) / NANOUSD_PER_USD


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    calls: Sequence[Call]
    rounds: int
    """Calls one after another."""

    def uncached(self, name: str) -> Variant:
        """Return the same calls with every token paid as fresh input."""
        calls = [Call(Usage(c.usage.prompt, c.usage.output), c.parent) for c in self.calls]
        return Variant(name, calls, self.rounds)

    def usd(self, reader: str, parent: str) -> float:
        """Return the cost; each call is priced separately, because prices have tiers."""
        return sum(c.usd(parent if c.parent else reader) for c in self.calls)

    def cells(self) -> list[str]:
        models = settings_for(1).models
        used = [c.usage for c in self.calls]
        return [
            self.name,
            str(len(used)),
            f"{sum(u.prompt for u in used):,}",
            f"{max(u.prompt for u in used):,}",
            f"{self.usd(models.fast, models.main):.4f}",
            f"{self.usd(models.main, models.main):.4f}",
            f"{self.rounds * CALL_S:.0f}",
        ]


def economy() -> list[list[str]]:
    """Return the lines of the table, without its head."""
    with TemporaryDirectory() as folder:
        run = _sweep(Path(folder))
        trajectory = asyncio.run(_recorded(Path(folder), run))
    isolated = _isolated(trajectory)
    children = sorted({c.id for c in trajectory.contexts if c.kind == "subagent"})
    parent_output = sum(c.usage.output for c in isolated.calls if c.parent)
    readings = [Reading.of(trajectory, child) for child in children]
    sequence, turn = one_after_another(readings), in_one_turn(readings)
    slow, fast = (list(map(Call, replay(readings, t, parent_output))) for t in (sequence, turn))
    cached = Variant("one context, channel after channel, cached", slow, len(slow))
    variants = [
        isolated,
        cached.uncached("one context, channel after channel"),
        cached,
        Variant("", fast, len(fast)).uncached("one context, all channels in one turn"),
    ]
    return [variant.cells() for variant in variants]


def _sweep(folder: Path) -> str:
    """Sweep the sample workspace; return the id of the run."""
    with standin(LATENCY_S, RESPONDER) as url:
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "bench"}
        environment = {**os.environ, **env, "ASSISTANT_DATA_DIR": str(folder)}
        done = subprocess.run(
            [*SWEEP, "--json"], env=environment, capture_output=True, text=True, timeout=60
        )
    document = json.loads(done.stdout)
    assert document["status"] == "complete", done.stderr
    return str(document["run_id"])


async def _recorded(folder: Path, run: str) -> Trajectory:
    store = await Store.open(folder)
    try:
        return await store.trajectory(run)
    finally:
        await store.aclose()


def _isolated(trajectory: Trajectory) -> Variant:
    parents = {c.id for c in trajectory.contexts if c.kind == "parent"}
    calls, steps = [], dict.fromkeys((c.id for c in trajectory.contexts), 0)
    for reply in trajectory.replies:
        reported = {k: v for k, v in reply.outcome["usage"].items() if k != "total"}
        calls.append(Call(Usage(**reported), reply.context in parents))
        steps[reply.context] += 1
    longest = max(n for context, n in steps.items() if context not in parents)
    rounds = longest + sum(steps[p] for p in parents)
    return Variant("isolated, side by side (as shipped)", calls, rounds)
