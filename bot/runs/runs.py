"""The runs at work in this process: each opened once, by whichever workflow needs it first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa

from bot.durable import Durable, WorkflowLost
from bot.errors import StoreError
from bot.mail.mailboxes import Mailboxes, OpenedMail
from bot.runs.purses import StoredPurse
from bot.runs.sink import StoreSink
from bot.runs.steplog import StepLog
from bot.serving.metrics import Metrics
from bot.storage import serve_tables, tables
from bot.storage.store import Store
from bot.tooling.kit import Toolkit
from bot.tooling.model_search import bind
from config.settings import Limits
from scopes.google.gmail import Gmail
from scopes.label import TRUSTED, Label
from scopes.slack_reader import SlackReader
from subagents.brief import Frozen
from subagents.child import run_child
from subagents.directory import Directory
from subagents.events import Emit, Event, SubagentFinished
from subagents.fanout import Handle
from subagents.frozen import frozen_json, frozen_of
from subagents.gate import Gate, called, counted
from subagents.governor import RateGovernor
from subagents.model import ModelClient
from subagents.purse import NANO, Caps
from subagents.result import crashed
from subagents.rules import RULES, Rule
from subagents.run import Run

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 1.0
STORED_AT_ONCE = 50
"""Briefs: to make the rows of a thousand keeps the event loop from all else for too long."""


@dataclass
class Live:
    """A run that is open in this process."""

    run: Run
    sink: StoreSink
    purse: StoredPurse
    steps: StepLog
    args: Mapping[str, Any]
    frozen: dict[str, Frozen] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What its subagents returned in this process, by id."""
    listeners: list[Emit] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    """Subagents whose end the listeners were told of."""
    users: int = 0
    mail: OpenedMail | None = None
    """The requester's mailbox; None where none is connected."""

    def emit(self, event: Event) -> None:
        if isinstance(event, SubagentFinished):
            self.ended.add(event.child)
        for listener in self.listeners:
            listener(event)


@dataclass
class Runs:
    """Opens runs from their stored rows; the store's database is to be a patient one."""

    store: Store
    model: ModelClient
    governor: RateGovernor
    reader: SlackReader
    executor: str
    metrics: Metrics
    directory: Directory
    clients: Mapping[type, object] = field(default_factory=dict)
    """What tools use besides the reader: the writer."""
    rules: Sequence[Rule] = RULES
    """Only tests pass fewer."""
    mailboxes: Mailboxes | None = None
    """None where no mail is read."""
    toolkit: Toolkit = field(default_factory=Toolkit)
    """What is opened for each run."""
    _live: dict[str, Live] = field(default_factory=dict)
    _opening: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    @property
    def ids(self) -> list[str]:
        return list(self._live)

    async def follow(self) -> None:
        """Tell the listeners of subagents that ended in other processes. Until cancelled."""
        while True:
            await asyncio.sleep(FOLLOW_EVERY_S)
            try:
                await self._follow()
            except StoreError as error:
                log.error("%s", error)

    async def _follow(self) -> None:
        table = tables.subagents
        shown = [run for run, live in self._live.items() if live.listeners]
        over = sa.and_(table.c.run.in_(shown), table.c.status != tables.WAITING["status"])
        query = sa.select(table.c.run, table.c.id, table.c.result).where(over)
        for row in await self.store.database.read(query) if shown else ():
            live = self._live.get(row["run"])
            if live and row["id"] not in live.ended:
                live.emit(ended(row["result"]))

    def stop(self, run: str) -> None:
        """Let everything of this run end with what it has."""
        if live := self._live.get(run):
            live.run.stop.set()

    @asynccontextmanager
    async def at_work(self, run: str) -> AsyncIterator[Live]:
        """The run, opened where it is not, and closed by the last who leaves."""
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

    async def open_purse(self, run: str, limits: Limits) -> StoredPurse:
        """The purse of a run; what it may spend counts from now on."""
        caps = Caps(round(limits.cost_usd * NANO), limits.tokens, limits.steps, limits.seconds)
        clock, database = asyncio.get_running_loop().time, self.store.database
        return await StoredPurse.open(database, run, caps, clock, self.executor)

    async def _open(self, run: str) -> Live:
        row = await self.store.run(run)
        limits = Limits.model_validate(row.args["limits"])
        sink = StoreSink(self.store, self.metrics.model_called)
        purse = await self.open_purse(run, limits)
        steps = StepLog(self.store, sink, run)
        await steps.load()
        reader = self.reader.fresh()
        mail = await self.mailboxes.open(row.requester) if self.mailboxes else None
        tools = await self.toolkit.open(run, row.requester)
        decisions = await self.store.decisions(run)  # those of an earlier life
        made = Run(
            id=run,
            requester=row.requester,
            model=self.model,
            governor=self.governor,
            purse=purse,
            gate=Gate(
                sink.log_decision,
                self.directory,
                sink.propose,
                self.rules,
                counted(decisions),
                limits.tool_calls,
                called(decisions),
            ),
            sink=sink,
            limits=limits,
            clients={
                SlackReader: reader,
                **tools.clients,
                **self.clients,
                **({Gmail: mail.gmail} if mail else {}),
            },
            handles=tools.handles,
            checkpoint=steps,
        )
        bind(made)
        live = Live(made, sink, purse, steps, row.args, mail=mail)
        made.emit = live.emit
        await self.heed(live)
        return live

    async def heed(self, live: Live) -> None:
        """Stop a run that was asked to end, where this process may not have heard of it yet."""
        stops = serve_tables.stops
        asked = sa.select(stops.c.run).where(stops.c.run == live.run.id)
        if await self.store.database.read(asked):
            live.run.stop.set()

    async def _close(self, live: Live) -> None:
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        await reader.aclose()
        if live.mail:
            await live.mail.aclose()
        await live.purse.aclose()
        try:
            await live.sink.aclose()
        except Exception:  # the seam: the run itself is over
            log.exception("what was recorded last of %s is lost", live.run.id)


def ended(result: Mapping[str, Any]) -> SubagentFinished:
    """What the listeners are told of a stored result."""
    how = (result["status"], result["stopped_by"], len(result["findings"]))
    label = Label.of(result["label"]) if result.get("label") else TRUSTED
    return SubagentFinished(result["id"], *how, result["cost_usd"], label)


@dataclass(frozen=True)
class WorkflowHandle:
    """A subagent at work as a workflow, here or on another replica."""

    live: Live
    store: Store
    frozen: Frozen
    join: Callable[[], Awaitable[object]]

    async def result(self) -> dict[str, Any]:
        id, lost = self.frozen.id, ""
        try:
            await self.join()
        except WorkflowLost as error:
            lost = str(error)
        found = self.live.results.pop(id, None)
        if found is None:
            row = await self.store.subagent(self.live.run.id, id)
            if row.status == tables.WAITING["status"]:
                return await self._lost(lost)
            found = dict(row.result or {})
        if id not in self.live.ended:  # it ended in another process, or in an earlier life
            self.live.emit(ended(found))
        return found

    async def _lost(self, reason: str) -> dict[str, Any]:
        """It took down each process that worked on it, or fell over its own code."""
        frozen, draft = self.frozen, self.frozen.brief.draft
        made = crashed(frozen.id, draft.scope, frozen.model, draft.contract, reason)
        told = made.model_dump(mode="json")
        brief = frozen_json(frozen, datetime.now(UTC))
        await self.store.save_subagent(self.live.run.id, brief, told)
        self.live.emit(ended(told))
        return told


@dataclass
class WorkflowSpawner:
    """Starts the subagents of one run as child workflows."""

    durable: Durable
    store: Store
    live: Live
    workflow: str
    """Id of the workflow that they are children of."""

    async def ready(self, frozen: Sequence[Frozen]) -> None:
        """Store the briefs, so that any process can take a subagent up."""
        run, made = self.live.run.id, datetime.now(UTC)
        texts = {f.template: {"system": f.system, "tools": f.tools} for f in frozen}
        for first in range(0, len(frozen), STORED_AT_ONCE):
            some = frozen[first : first + STORED_AT_ONCE]
            await self.store.save_briefs(run, [frozen_json(f, made) for f in some], texts)

    async def start(self, child_id: str, frozen: Frozen, *, ahead: bool = False) -> Handle:
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
    """Subagents at work at once in this process."""
    metrics: Metrics

    async def work(self, run: str, child: str) -> dict[str, Any]:
        async with self.slots, self.runs.at_work(run) as live:
            frozen = live.frozen.pop(child, None)
            if frozen is None:
                row = await self.store.subagent(run, child)
                if row.status != tables.WAITING["status"]:  # it ended just before a crash
                    return {"id": child, "status": row.status}
                frozen = frozen_of(row.brief, await self.store.template(row.template))
                await live.steps.load(f"{run}/{child}/")
            await self.runs.heed(live)  # others end first where the stop was heard, and make room
            result = await run_child(live.run, frozen)
            brief, told = frozen_json(frozen, datetime.now(UTC)), result.model_dump(mode="json")
            await self.store.save_subagent(run, brief, told)
            live.results[child] = told
            self.metrics.subagent_ended(result.status)
        return {"id": child, "status": result.status}
