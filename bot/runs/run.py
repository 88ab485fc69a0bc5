"""The open runs of this process: each is opened once, by the workflow that needs it first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import sqlalchemy as sa

from bot.background import repeat
from bot.mailbox.accounts import Mailboxes
from bot.metrics import Metrics
from bot.runs.checkpoint import RunLog
from bot.runs.durable import CHILD, ChildWorkflow, Durable
from bot.runs.store import WAITING_STATUS, Store
from bot.storage import tables
from bot.storage.budget import StoredBudget
from bot.storage.requests import RequestQueue
from bot.tooling.provider import Toolkit
from bot.tooling.web import bind
from config.sections import LimitSettings
from scopes.google.gmail import Gmail
from scopes.slack_reader import SlackReader
from scopes.tool import with_clients
from subagents.brief import SpawnedBrief, brief_of
from subagents.budget import Caps
from subagents.directory import Directory
from subagents.events import Emit, Event, SubagentFinished
from subagents.fanout import ResultWaiter, finished_event, run_subagent
from subagents.gate import Gate, count_allowed, count_calls
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.result import SubagentResult, crash_result
from subagents.rules import RULES, Rule
from subagents.run import Run

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
    record: RunLog
    budget: StoredBudget
    args: Mapping[str, Any]
    frozen: dict[str, SpawnedBrief] = field(default_factory=dict)
    results: dict[str, SubagentResult] = field(default_factory=dict)
    """Results of its subagents in this process, by id."""
    listeners: list[Emit] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Subagents whose end was reported to the listeners."""
    users: int = 0
    mail: Gmail | None = None
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
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @property
    def ids(self) -> list[str]:
        return list(self._live)

    async def follow(self) -> None:
        """Report subagents that ended in other processes to the listeners, until cancelled."""
        await repeat(self._follow, FOLLOW_EVERY_S, "what ended elsewhere is not shown")

    async def _follow(self) -> None:
        table = tables.subagents
        shown = [run for run, live in self._live.items() if live.listeners]
        is_ended = sa.and_(table.c.run.in_(shown), table.c.status != WAITING_STATUS)
        query = sa.select(table.c.run, table.c.id, table.c.result).where(is_ended)
        for row in await self.store.database.read(query) if shown else ():
            live = self._live.get(row.run)
            if live and row.id not in live.ended:
                live.emit(finished_event(SubagentResult.model_validate(row.result)))

    def stop(self, run: str) -> None:
        """Stop this run: everything in it ends with its current results."""
        if live := self._live.get(run):
            live.run.stop.set()

    @asynccontextmanager
    async def at_work(self, run: str) -> AsyncIterator[ActiveRun]:
        """Open the run if it is not open yet; the last caller closes it."""
        opening = self._locks.setdefault(run, asyncio.Lock())
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
        clock, database = asyncio.get_running_loop().time, self.store.database
        return await StoredBudget.open(database, run, Caps.of(limits), clock, self.executor)

    async def _open(self, run: str) -> ActiveRun:
        row = await self.store.run(run)
        limits = LimitSettings.model_validate(row.args["limits"])
        record = RunLog(self.store, run, self.metrics.count_model_call)
        await record.load()
        budget = await self.open_budget(run, limits)
        reader = self.reader.fresh()
        mail = await self.mailboxes.open(row.requester) if self.mailboxes else None
        tools = await self.toolkit.open(run, row.requester)
        decisions = await self.store.decisions(run)  # those from before a restart
        opened_run = Run(
            id=run,
            requester=row.requester,
            model=self.model,
            rate_limiter=self.rate_limiter,
            budget=budget,
            gate=Gate(
                record.log_decision,
                self.directory,
                record.propose,
                self.rules,
                count_allowed(decisions),
                limits.tool_calls,
                count_calls(decisions),
            ),
            sink=record,
            limits=limits,
            clients=with_clients(
                tools.clients,
                {SlackReader: reader, **self.clients, **({Gmail: mail} if mail else {})},
            ),
            handles=tools.handles,
            checkpoint=record,
        )
        bind(opened_run)
        live = ActiveRun(opened_run, record, budget, row.args, mail=mail)
        opened_run.emit = live.emit
        await self.check_stop(live)
        return live

    async def check_stop(self, live: ActiveRun) -> None:
        """Stop a run if somebody has stopped it, in case this process does not know yet."""
        if await RequestQueue(self.store.database).find_stopped([live.run.id]):
            live.run.stop.set()

    async def _close(self, live: ActiveRun) -> None:
        await live.run.client(SlackReader).aclose()
        if live.mail:
            await live.mail.aclose()
        await live.budget.aclose()
        try:
            await live.record.flush()
        except Exception:  # top-level boundary: the run itself has ended
            log.exception("what was recorded last of %s is lost", live.run.id)
        if self.traces:
            await self.traces.export(live.run.id)


@dataclass
class WorkflowSpawner:
    """Starts the subagents of one run as child workflows."""

    durable: Durable
    store: Store
    live: ActiveRun
    workflow: str
    """Id of the workflow that they are children of."""

    async def ready(self, briefs: Sequence[SpawnedBrief]) -> None:
        """Store the briefs, so that any process can run a subagent."""
        run = self.live.run.id
        for first in range(0, len(briefs), STORED_AT_ONCE):
            await self.store.save_briefs(run, briefs[first : first + STORED_AT_ONCE])

    async def start(self, brief: SpawnedBrief) -> ResultWaiter:
        run, id = self.live.run.id, brief.id
        self.live.frozen[id] = brief
        child = await self.durable.spawn(CHILD, f"{self.workflow}/{id}", run, id)
        return partial(self.result, brief, child)

    async def result(self, brief: SpawnedBrief, child: ChildWorkflow) -> SubagentResult:
        """Return the result of a subagent that ran as a workflow, here or on another replica."""
        live, id = self.live, brief.id
        await self.durable.join(child)
        found = live.results.pop(id, None)
        if found is None:
            row = await self.store.subagent(live.run.id, id)
            found = SubagentResult.model_validate(row.result)
        if id not in live.ended:  # it ended in another process, before a restart, or is lost
            live.emit(finished_event(found))
        return found


@dataclass
class Subagents:
    """The workflow of one subagent."""

    runs: Runs
    store: Store
    slots: asyncio.Semaphore
    """Limits the subagents that run at once in this process."""
    metrics: Metrics

    async def work(self, run: str, child: str, is_lost: bool) -> dict[str, Any]:
        async with self.slots, self.runs.at_work(run) as live:
            brief = live.frozen.pop(child, None)
            if brief is None or self.store.database.shared:  # another process may have started it
                row = await self.store.subagent(run, child)
                if row.status != WAITING_STATUS:  # it ended just before a crash
                    return {"id": child, "status": row.status}
                if brief is None:
                    brief = brief_of(row.brief, await self.store.template(row.template))
                await live.record.load(f"{run}/{child}/")
            await self.runs.check_stop(live)  # it may have waited for its turn
            if is_lost:  # it crashed every process that ran it, or its code crashed
                result = crash_result(brief, "its workflow was lost")
            else:
                result = await run_subagent(live.run, brief)
            await live.record.keep_result(brief, result)
            live.results[child] = result
            self.metrics.count_subagent(result.status)
        return {"id": child, "status": result.status}
