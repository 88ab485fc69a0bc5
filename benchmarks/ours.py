"""N subagents through the parts of the product: Fanout, ModelClient, Gate, RunLog."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workload import FixedChannels, briefs, settings_for
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from scopes.slack_reader import SlackReader
from subagents.brief import SpawnedBrief
from subagents.budget import Budget, Caps
from subagents.fanout import Fanout, TaskSpawner
from subagents.gate import Gate
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.result import SubagentResult
from subagents.run import Checkpoint, Run


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured fan-out of N subagents."""

    wall_s: float
    cpu_s: float
    """Of all threads of this process."""
    input_tokens: int
    """As the server counted them, cached or not."""


@dataclass
class ResultLog(Checkpoint):
    """Stores the results of subagents, and no steps."""

    store: Store
    run: str

    async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
        await self.store.save_subagent(self.run, frozen, result)


@dataclass
class Ours:
    """The engine with its client and its store open; each `sample` is a run of its own."""

    model: ModelClient
    store: Store

    async def sample(self, number: int) -> Sample:
        run_id = uuid.uuid4().hex[:12]
        await self.store.start_run(run_id, "sweep", "bench", "claude", {})
        sink = RunLog(self.store, run_id)
        run = self._run(run_id, number, sink)
        run.checkpoint = ResultLog(self.store, run_id)
        fanout = Fanout(run, TaskSpawner(run))
        wanted = briefs(number)
        wall, cpu = time.perf_counter(), time.process_time()
        results = await fanout.run_all(wanted)
        await sink.flush()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert all(r.status == "complete" and len(r.findings) == 1 for r in results), results[0]
        return Sample(wall, cpu, sum(r.usage["total"] - r.usage["output"] for r in results))

    def _run(self, run_id: str, number: int, sink: RunLog) -> Run:
        limits = settings_for(number).limits
        return Run(
            id=run_id,
            requester=None,
            model=self.model,
            rate_limiter=RateLimiter(limits.max_concurrency),
            budget=Budget(Caps.of(limits), asyncio.get_running_loop().time),
            gate=Gate(sink.log_decision),
            sink=sink,
            limits=limits,
            clients={SlackReader: FixedChannels()},
        )


@asynccontextmanager
async def open_ours(url: str, folder: Path) -> AsyncIterator[Ours]:
    """`folder` is where the store is, or will be made."""
    store = await Store.open(folder)
    model = ModelClient(settings_for(1).models, "bench", url)
    try:
        yield Ours(model, store)
    finally:
        await model.aclose()
        await store.aclose()
