"""The runs in progress in this process: each opened once, by the workflow that needs it first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import sqlalchemy as sa

from bot.background import repeat
from bot.mailbox.accounts import Mailboxes, OpenedMail
from bot.metrics import Metrics
from bot.runs.checkpoint import StepLog, StoreSink
from bot.runs.durable import Durable, WorkflowLost
from bot.runs.store import WAITING, Store
from bot.storage import tables
from bot.storage.budget import StoredBudget
from bot.storage.requests import RequestQueue
from bot.tooling.provider import Toolkit
from bot.tooling.web import bind
from config.sections import LimitSettings
from scopes.clients import with_clients
from scopes.google.gmail import Gmail
from scopes.slack_reader import SlackReader
from subagents.brief import SpawnedBrief, brief_of, brief_to_json
from subagents.budget import NANO, Caps
from subagents.directory import Directory
from subagents.events import Emit, Event, SubagentFinished
from subagents.fanout import Handle
from subagents.gate import Gate, count_allowed, count_calls
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.result import SubagentResult, crash_result
from subagents.rules import RULES, Rule
from subagents.run import Run
from subagents.subagent import finished_event, run_subagent

if TYPE_CHECKING:
    from bot.runs.traces import Traces

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 1.0
STORED_AT_ONCE = 50
"""Briefs stored at once: building the rows of a thousand would block the event loop too long."""


@dataclass
class ActiveRun:
    """A run that is open in this process."""

    run: Run
    sink: StoreSink
    budget: StoredBudget
    steps: StepLog
    args: Mapping[str, Any]
    frozen: dict[str, SpawnedBrief] = field(default_factory=dict)
    results: dict[str, SubagentResult] = field(default_factory=dict)
    """Results of its subagents in this process, by id."""
    listeners: list[Emit] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Subagents whose end was reported to the listeners."""
    users: int = 0
    mail: OpenedMail | None = None
    """The requester's mailbox; None if none is connected."""

    def emit(self, event: Event) -> None:
        if isinstance(event, SubagentFinished):
            self.ended.add(event.child)
        for listener in self.listeners:
            listener(event)


@dataclass
class Runs:
    """Opens runs from their stored rows; the store needs a RetryingDatabase."""

    store: Store
    model: ModelClient
    rate_limiter: RateLimiter
    reader: SlackReader
    executor: str
    metrics: Metrics
    directory: Directory
    clients: Mapping[type, object] = field(default_factory=dict)
    """Clients of tools besides the reader: the writer."""
    rules: Sequence[Rule] = RULES
    """Only tests pass fewer."""
    mailboxes: Mailboxes | None = None
    """None if no mail is read."""
    toolkit: Toolkit = field(default_factory=Toolkit)
    """Providers that are opened for each run."""
    traces: Traces | None = None
    _live: dict[str, ActiveRun] = field(default_factory=dict)
    _opening: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @property
    def ids(self) -> list[str]:
        return list(self._live)

    async def follow(self) -> None:
        """Report subagents that ended in other processes to the listeners, until cancelled."""
        await repeat(self._follow, FOLLOW_EVERY_S, "what ended elsewhere is not shown")

    async def _follow(self) -> None:
        table = tables.subagents
        shown = [run for run, live in self._live.items() if live.listeners]
        over = sa.and_(table.c.run.in_(shown), table.c.status != WAITING)
        query = sa.select(table.c.run, table.c.id, table.c.result).where(over)
        for row in await self.store.database.read(query) if shown else ():
            live = self._live.get(row.run)
            if live and row.id not in live.ended:
                live.emit(finished_event(SubagentResult.model_validate(row.result)))

    def stop(self, run: str) -> None:
        """Stop this run: everything in it ends with what it has."""
        if live := self._live.get(run):
            live.run.stop.set()

    @asynccontextmanager
    async def at_work(self, run: str) -> AsyncIterator[ActiveRun]:
        """Open the run if it is not open yet; the last user closes it."""
        opening = self._opening.setdefault(run, asyncio.Lock())
        async with opening:
            live = self._live.get(run)
            if live is None:
                live = self._live[run] = await self._open(run)
            live.users += 1
        try:
            yield live
        finally:
            live.users -= 1
            if not live.users:
                del self._live[run]
                await self._close(live)

    async def open_budget(self, run: str, limits: LimitSettings) -> StoredBudget:
        """Open the budget of a run; its time limit counts from now on."""
        caps = Caps(round(limits.cost_usd * NANO), limits.tokens, limits.steps, limits.seconds)
        clock, database = asyncio.get_running_loop().time, self.store.database
        return await StoredBudget.open(database, run, caps, clock, self.executor)

    async def _open(self, run: str) -> ActiveRun:
        row = await self.store.run(run)
        limits = LimitSettings.model_validate(row.args["limits"])
        sink = StoreSink(self.store, self.metrics.count_model_call)
        budget = await self.open_budget(run, limits)
        steps = StepLog(self.store, sink, run)
        await steps.load()
        reader = self.reader.fresh()
        mail = await self.mailboxes.open(row.requester) if self.mailboxes else None
        tools = await self.toolkit.open(run, row.requester)
        decisions = await self.store.decisions(run)  # those from before a restart
        made = Run(
            id=run,
            requester=row.requester,
            model=self.model,
            rate_limiter=self.rate_limiter,
            budget=budget,
            gate=Gate(
                sink.log_decision,
                self.directory,
                sink.propose,
                self.rules,
                count_allowed(decisions),
                limits.tool_calls,
                count_calls(decisions),
            ),
            sink=sink,
            limits=limits,
            clients=with_clients(
                tools.clients,
                {SlackReader: reader, **self.clients, **({Gmail: mail.gmail} if mail else {})},
            ),
            handles=tools.handles,
            checkpoint=steps,
        )
        bind(made)
        live = ActiveRun(made, sink, budget, steps, row.args, mail=mail)
        made.emit = live.emit
        await self.check_stop(live)
        return live

    async def check_stop(self, live: ActiveRun) -> None:
        """Stop a run that was asked to stop, in case this process does not know of it yet."""
        if await RequestQueue(self.store.database).find_stopped([live.run.id]):
            live.run.stop.set()

    async def _close(self, live: ActiveRun) -> None:
        await live.run.client(SlackReader).aclose()
        if live.mail:
            await live.mail.aclose()
        await live.budget.aclose()
        try:
            await live.sink.flush()
        except Exception:  # top-level boundary: the run itself is over
            log.exception("what was recorded last of %s is lost", live.run.id)
        if self.traces:
            await self.traces.export(live.run.id)


@dataclass(frozen=True)
class WorkflowHandle:
    """A subagent that runs as a workflow, here or on another replica."""

    live: ActiveRun
    store: Store
    frozen: SpawnedBrief
    join: Callable[[], Awaitable[object]]

    async def result(self) -> SubagentResult:
        id, lost = self.frozen.id, ""
        try:
            await self.join()
        except WorkflowLost as error:
            lost = str(error)
        found = self.live.results.pop(id, None)
        if found is None:
            row = await self.store.subagent(self.live.run.id, id)
            if row.status == WAITING:
                return await self._lost(lost)
            found = SubagentResult.model_validate(row.result)
        if id not in self.live.ended:  # it ended in another process, or before a restart
            self.live.emit(finished_event(found))
        return found

    async def _lost(self, reason: str) -> SubagentResult:
        """Store a result for a subagent that crashed every process that ran it, or its own code."""
        made = crash_result(self.frozen, reason)
        await self.live.steps.keep_result(self.frozen, made)
        self.live.emit(finished_event(made))
        return made


@dataclass
class WorkflowSpawner:
    """Starts the subagents of one run as child workflows."""

    durable: Durable
    store: Store
    live: ActiveRun
    workflow: str
    """Id of the workflow that they are children of."""

    async def ready(self, frozen: Sequence[SpawnedBrief]) -> None:
        """Store the briefs, so that any process can run a subagent."""
        run = self.live.run.id
        texts = {f.template: {"system": f.system, "tools": f.tools} for f in frozen}
        for first in range(0, len(frozen), STORED_AT_ONCE):
            some = frozen[first : first + STORED_AT_ONCE]
            await self.store.save_briefs(run, [brief_to_json(f) for f in some], texts)

    async def start(self, child_id: str, frozen: SpawnedBrief, *, ahead: bool = False) -> Handle:
        run, durable = self.live.run.id, self.durable
        self.live.frozen[child_id] = frozen
        handle = await durable.spawn("subagent", f"{self.workflow}/{child_id}", run, child_id)
        if ahead:
            await durable.join(handle)
        return WorkflowHandle(self.live, self.store, frozen, lambda: durable.join(handle))


@dataclass
class Subagents:
    """The workflow of one subagent."""

    runs: Runs
    store: Store
    slots: asyncio.Semaphore
    """Limits the subagents that run at once in this process."""
    metrics: Metrics

    async def work(self, run: str, child: str) -> dict[str, Any]:
        async with self.slots, self.runs.at_work(run) as live:
            frozen = live.frozen.pop(child, None)
            if frozen is None or self.store.database.shared:  # another process may have begun it
                row = await self.store.subagent(run, child)
                if row.status != WAITING:  # it ended just before a crash
                    return {"id": child, "status": row.status}
                if frozen is None:
                    frozen = brief_of(row.brief, await self.store.template(row.template))
                await live.steps.load(f"{run}/{child}/")
            await self.runs.check_stop(live)  # it may have waited for its turn
            result = await run_subagent(live.run, frozen)
            await live.steps.keep_result(frozen, result)
            live.results[child] = result
            self.metrics.count_subagent(result.status)
        return {"id": child, "status": result.status}
