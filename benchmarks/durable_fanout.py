"""The cost of durability in a fan-out: subagents as child workflows, compared with tasks."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pg_kit import database as own_database
from slack_sdk.web.async_client import AsyncWebClient

from benchmarks.fanout import END, MemorySlack
from benchmarks.standin import standin
from benchmarks.table import Row
from benchmarks.workload import channel_id, settings_for
from bot.metrics import Metrics
from bot.runs.checkpoint import RunLog
from bot.runs.durable import CHILD, Durable, Workflows
from bot.runs.run import Runs, Subagents, WorkflowSpawner
from bot.runs.store import Store
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL
from scopes.slack_reader import SlackReader
from scopes.tool import Window
from subagents.brief import Brief, BriefDraft, SpawnedBrief
from subagents.budget import Budget, Caps
from subagents.directory import Operator
from subagents.fanout import Fanout, TaskSpawner
from subagents.gate import Gate
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.result import SubagentResult
from subagents.run import Checkpoint, Run

NUMBER = 50
LATENCY_S, CALLS = 1.0, 3
REPEATS = 3
BARS = {"SQLite": 1.2, "Postgres": 1.5}


def briefs(number: int) -> list[Brief]:
    """Return the briefs of so many readers of a channel."""
    window = Window(END - timedelta(days=7), END)
    return [
        Brief(
            BriefDraft(task=f"Say what is open in {id}.", description=id, scope="slack"),
            Handles({id: f"#{id.lower()}"}),
            window,
            TRUSTED_LABEL,
        )
        for id in map(channel_id, range(number))
    ]


@dataclass(frozen=True, slots=True)
class Spent:
    wall_s: float
    cpu_s: float


@asynccontextmanager
async def served(
    url: str, folder: Path, number: int, database: str | None = None
) -> AsyncIterator[tuple[Durable, Runs]]:
    """Make the runner of subagents in `serve`, so many at once; the caller opens the workspace."""
    store = await Store.open(folder, database)
    model = ModelClient(settings_for(number).models, "bench", url)
    reader = SlackReader(MemorySlack(AsyncWebClient(), 200), timedelta(days=30))
    metrics = Metrics()
    runs = Runs(store, model, RateLimiter(number), reader, "bench", metrics, Operator())
    subagents = Subagents(runs, store, asyncio.Semaphore(number), metrics)
    file, names = folder / "workflows.sqlite", (CHILD, "bench")
    workflows = Workflows("bench", file, database, number, 5, names=names)
    await workflows.open()
    durable = Durable(workflows)
    durable.bodies |= {CHILD: subagents.work}
    try:
        yield durable, runs
    finally:
        await durable.aclose()
        await workflows.aclose()
        await model.aclose()
        await store.aclose()


@dataclass
class DurableSide:
    """Fan-outs as `serve` does them; each is a workflow with child workflows."""

    durable: Durable
    runs: Runs
    ended: dict[str, asyncio.Future[int]] = field(default_factory=dict)

    async def parent(self, run: str, _: bool) -> dict[str, Any]:
        """Run the body of the parent's workflow."""
        async with self.runs.at_work(run) as live:
            spawner = WorkflowSpawner(self.durable, self.runs.store, live, f"bench/{run}")
            results = await Fanout(live.run, spawner).run_all(briefs(NUMBER))
        whole = sum(r.status == "complete" and len(r.findings) == 1 for r in results)
        self.ended[run].set_result(whole)
        return {"whole": whole}

    async def sample(self) -> Spent:
        run = uuid.uuid4().hex[:12]
        self.ended[run] = asyncio.get_running_loop().create_future()
        args = {"limits": settings_for(NUMBER).limits.model_dump(mode="json")}
        wall, cpu = time.perf_counter(), time.process_time()
        await self.runs.store.start_run(run, "ask", "bench", "claude", args)
        await self.durable.begin("bench", f"bench/{run}", run)
        whole = await asyncio.wait_for(self.ended[run], 120)
        assert whole == NUMBER, f"{whole} of {NUMBER} subagents answered"
        return Spent(time.perf_counter() - wall, time.process_time() - cpu)


@dataclass
class ResultLog(Checkpoint):
    """Stores the results of subagents, and no steps."""

    store: Store
    run: str

    async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
        await self.store.save_subagent(self.run, frozen, result)


@dataclass
class PlainSide:
    """The same fan-outs as tasks, with their trajectory and results in the store."""

    runs: Runs

    async def sample(self) -> Spent:
        run_id, store = uuid.uuid4().hex[:12], self.runs.store
        await store.start_run(run_id, "sweep", "bench", "claude", {})
        sink, limits = RunLog(store, run_id), settings_for(NUMBER).limits
        run = Run(
            id=run_id,
            requester=None,
            model=self.runs.model,
            rate_limiter=RateLimiter(limits.max_concurrency),
            budget=Budget(Caps.of(limits), asyncio.get_running_loop().time),
            gate=Gate(sink.log_decision),
            sink=sink,
            limits=limits,
            clients={SlackReader: self.runs.reader},
        )
        run.checkpoint = ResultLog(store, run_id)
        fanout, wanted = Fanout(run, TaskSpawner(run)), briefs(NUMBER)
        wall, cpu = time.perf_counter(), time.process_time()
        results = await fanout.run_all(wanted)
        await sink.flush()
        spent = Spent(time.perf_counter() - wall, time.process_time() - cpu)
        assert all(r.status == "complete" and len(r.findings) == 1 for r in results), results[0]
        return spent


async def measure(url: str, database: str | None) -> list[tuple[Spent, Spent]]:
    """Return pairs of a durable and a plain fan-out in turn, without the first pair."""
    pairs = []
    with TemporaryDirectory() as folder:
        async with served(url, Path(folder), NUMBER, database) as (durable, runs):
            side, plain = DurableSide(durable, runs), PlainSide(runs)
            durable.bodies["bench"] = side.parent
            await durable.open()
            for _ in range(REPEATS + 1):
                gc.collect()
                sample = await side.sample()
                gc.collect()
                pairs.append((sample, await plain.sample()))
    return pairs[1:]


def row(name: str, pairs: Sequence[tuple[Spent, Spent]]) -> Row:
    ratio = statistics.median(durable.wall_s / plain.wall_s for durable, plain in pairs)
    durable, plain = (statistics.median(p[k].wall_s for p in pairs) for k in (0, 1))
    cpu = [statistics.median(p[k].cpu_s for p in pairs) for k in (0, 1)]
    note = f"{durable:.2f} s and {plain:.2f} s, ideal {CALLS * LATENCY_S:g} s; "
    note += f"CPU {cpu[0]:.2f} s and {cpu[1]:.2f} s"
    return Row(f"{NUMBER} subagents, durable over plain, {name}", ratio, "x", BARS[name], note)


def rows() -> list[Row]:
    """Return the rows; that of Postgres is left out without a server."""
    with standin(LATENCY_S) as url:
        found = [row("SQLite", asyncio.run(measure(url, None)))]
        try:
            with own_database() as database:
                # another loop: dbos leaves the first one without threads when it closes
                found.append(row("Postgres", asyncio.run(measure(url, database))))
        except pytest.skip.Exception as why:
            found.append(Row("durable over plain, Postgres", 0, "", None, f"not run: {why}"))
    return found
