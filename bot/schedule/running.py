"""The run of a tick, from the checks to the stored report: a workflow's body.

It runs again from its start after a crash; what its steps returned then is handed out again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa

from bot.logs import about
from bot.policy.policy_file import PolicyFault
from bot.requests.inbox import SCHEDULED
from bot.runs.runs import Live, Runs
from bot.schedule.again import BACKOFF, next_try, why_nothing
from bot.schedule.book import DELETED, ScheduleBook
from bot.schedule.budget import Allowance, allowance
from bot.schedule.checking import Checking, NotChecked, Wrong
from bot.schedule.due import Work
from bot.schedule.making import Made, Making
from bot.schedule.planning import Plan, Planning, estimated_usd, too_little
from bot.schedule.records import StoredSchedule, Tick
from bot.schedule.tables import ticks
from bot.schedule.ticks import Ticks
from bot.storage.serve_tables import purses, reservations, steps
from bot.storage.store import Store
from bot.storage.tables import runs
from config.settings import Settings
from scopes.slack_reader import SlackReader
from scopes.tool import iso
from subagents.purse import NANO

log = logging.getLogger(__name__)

CRASHED = "Something went wrong inside; the log of the bot tells what."
SETTLING = timedelta(seconds=3)
"""From the time of a tick until its sources are read: so far our clock may be ahead of Slack's
without a message falling between two reports."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Between questions to Slack while it is down."""
PASSES = "passing"
"""`code` of the error of a run whose tick is tried again."""


class Alarm(Protocol):
    """What is needed of `bot.schedule.trouble.Trouble`."""

    async def began(
        self, schedule: str, why: str, at: datetime | None = None, again: datetime | None = None
    ) -> None:
        """Its owner is to be told, once until it works again: `at` of its tick, which is tried
        again at `again`. Raises StoreError."""


@dataclass
class Running:
    """Works on ticks; one for the process. Its database is a patient one."""

    settings: Settings
    model_name: str
    store: Store
    runs: Runs
    making: Making
    book: ScheduleBook
    ticks: Ticks
    checking: Checking
    alarm: Alarm
    backoff: Sequence[timedelta] = BACKOFF
    settling: timedelta = SETTLING
    admitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of several at one time each counts what the others may spend."""

    async def work(self, schedule: str, at: str) -> dict[str, Any]:
        """The workflow of one tick. It ends with the tick's state stored, come what may."""
        when = datetime.fromisoformat(at)
        stored, tick = await self.book.get(schedule), await self.ticks.get(schedule, when)
        if tick is None or tick.state not in ("due", "running"):
            return {"state": tick.state if tick else "gone"}
        if stored is None:
            await self.ticks.skip(schedule, when, DELETED, attempt=tick.attempt)
            return {"state": "gone"}
        with about(run=tick.run_id):
            try:
                state = await self._tick(stored, tick)
            except Exception:  # the seam: one run of a schedule
                log.exception("the run of %s failed", tick.key)
                state = await self._failed(stored, tick, CRASHED, passing=True)
            log.info("the schedule %s: %s", schedule, state)
        await self._close(tick.run_id)
        return {"state": state}

    async def lost(self, work: Work, why: str, again: datetime | None) -> None:
        """No workflow of it could tell how it ended: end its runs, and tell its owner."""
        mine = sa.and_(ticks.c.schedule == work.schedule, ticks.c.state == "failed")
        query = sa.select(runs.c.id).join(ticks, ticks.c.run == runs.c.id)
        for row in await self.store.database.read(query.where(mine, runs.c.status == "running")):
            told, paid = {"code": "failed", "message": why}, await self._paid(row["id"])
            cost = sa.func.coalesce(ticks.c.cost_usd, 0.0) + paid  # beside its earlier tries
            of_it = sa.update(ticks).where(mine, ticks.c.run == row["id"])
            await self.store.database.write(of_it.values(cost_usd=cost))
            await self.store.finish_run(row["id"], "failed", error=told, cost_usd=paid)
            await self._close(row["id"])
        await self.alarm.began(work.schedule, why, work.at, again)

    async def _tick(self, stored: StoredSchedule, tick: Tick) -> str:
        run = tick.run_id
        begun = await self.store.begun(run)
        if begun is None:
            if why := await self._begun(stored, tick, run):
                return await self._not_allowed(tick, why)
        elif begun.error:
            told = begun.error
            return await self._failed(stored, tick, told["message"], told["code"] == PASSES)
        async with self.runs.at_work(run) as live:
            return await self._run(stored, tick, live)

    async def _begun(self, stored: StoredSchedule, tick: Tick, run: str) -> str:
        """Open its run with what it may spend, once those at work leave anything of that; else why
        there is nothing."""
        pause, waited = FIRST_PAUSE_S, 0.0
        while True:
            async with self.admitting:
                allowed = await self._allowed(stored, tick)
                if allowed.usd:
                    await self.ticks.begin(tick, run)
                    await self._open(stored, tick, run, allowed)
                    return ""
            if not allowed.waits or waited >= self.settings.sweep.time_s:
                return allowed.why
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE_S)

    async def _allowed(self, stored: StoredSchedule, tick: Tick) -> Allowance:
        try:
            policy = await self.checking.policy.read()
        except PolicyFault as fault:
            return Allowance(0.0, fault.reason)
        return await allowance(self.store.database, policy, stored, tick, datetime.now(UTC))

    async def _not_allowed(self, tick: Tick, why: str) -> str:
        """There is nothing left to run it with; its owner is told."""
        await self.alarm.began(tick.schedule, why, tick.at)
        if tick.tries:
            await self.ticks.failed(tick.schedule, tick.at, why, attempt=tick.attempt)
            return "failed"
        await self.ticks.skip(tick.schedule, tick.at, why)
        return "skipped"

    async def _open(self, stored: StoredSchedule, tick: Tick, run: str, may: Allowance) -> None:
        """Store the run, once, with the purse that it gets; nobody waits for it."""
        limits, spec = self.settings.limits, stored.spec
        sweep, triage = self.settings.sweep.time_s, self.settings.triage.time_s
        seconds = sweep if spec.kind == "sweep" else triage
        limits = limits.model_copy(update={"cost_usd": may.usd, "seconds": seconds})
        args = {
            "schedule": stored.id,
            "as_of": iso(tick.at),
            "note": may.note,
            "limits": limits.model_dump(mode="json"),
        }
        asked = f"{spec.kind} {stored.id}"
        await self.store.start_run(
            run, SCHEDULED, asked, self.model_name, args, requester=spec.owner
        )
        await self.runs.open_purse(run, limits)

    async def _run(self, stored: StoredSchedule, tick: Tick, live: Live) -> str:
        try:
            plan = await self._plan(stored, tick, live)
        except (Wrong, NotChecked) as wrong:
            return await self._failed(stored, tick, str(wrong), isinstance(wrong, NotChecked))
        return await self._made(stored, tick, live, await self.making.made(plan, live))

    async def _made(self, stored: StoredSchedule, tick: Tick, live: Live, made: Made) -> str:
        """Store the report, which is to be delivered, or why there is none."""
        document, window = made.document, made.window
        status, cost = document["status"], document["cost_usd"]
        failed = status in ("failed", "cancelled")
        why, passing = why_nothing(document), made.passing and status == "failed"
        told = _error(why, passing) if failed else None
        await self.store.finish_run(live.run.id, status, result=document, cost_usd=cost, error=told)
        if failed:
            return await self._failed(stored, tick, why, passing)
        await self.ticks.ran(
            stored.id,
            tick.at,
            cost=cost,
            oldest=window.oldest,
            latest=window.latest,
            extra=made.extra,
            figures=made.figures,
            attempt=tick.attempt,
        )
        return "ran"

    async def _plan(self, stored: StoredSchedule, tick: Tick, live: Live) -> Plan:
        """What it reads, as it was first found; what later changes is for the next run."""
        planning = Planning(self.settings, self.checking, self.ticks)
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)

        async def find() -> dict[str, Any]:
            early = tick.at + self.settling - datetime.now(UTC)
            await asyncio.sleep(max(0.0, early.total_seconds()))
            plan = await self._patiently(lambda: planning.plan(stored, tick, reader))
            notes = [live.args["note"]] if live.args["note"] else []
            if plan.spec.kind == "sweep":
                planned = await estimated_usd(live.run, reader, plan)
                notes += too_little(planned, live.run.limits.cost_usd)
            for said in notes:
                log.warning("%s: %s", plan.name, said)
            return replace(plan, notes=(*plan.notes, *notes)).to_json()

        return Plan.of(await live.steps.step(f"{live.run.id}/plan", find))

    async def _patiently(self, plan: Callable[[], Awaitable[Plan]]) -> Plan:
        """The plan, once Slack says what it rests on. Raises Wrong and NotChecked."""
        pause, waited = FIRST_PAUSE_S, 0.0
        while True:
            try:
                return await plan()
            except NotChecked:
                if waited >= self.settings.serve.outage_give_up_s:
                    raise
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE_S)

    async def _failed(
        self, stored: StoredSchedule, tick: Tick, why: str, passing: bool = False
    ) -> str:
        """It gave no report: its owner is told. It is tried again where the reason may pass, else
        what it was to read is for the next one."""
        begun, paid = await self.store.begun(tick.run_id), await self._paid(tick.run_id)
        if begun and begun.status == "running":
            told = _error(why, passing)
            await self.store.finish_run(tick.run_id, "failed", error=told, cost_usd=paid)
        now = datetime.now(UTC)
        later = next_try(stored.spec, tick, now, self.backoff) if passing else None
        await self.alarm.began(stored.id, why, tick.at, later)
        end: dict[str, Any] = {"cost": paid, "attempt": tick.attempt}
        if later is None:
            await self.ticks.failed(stored.id, tick.at, why, **end)
            return "failed"
        await self.ticks.again(stored.id, tick.at, why, later, **end)
        return "to be tried again"

    async def _paid(self, run: str) -> float:
        """What a run has spent that gave no document."""
        paid = (purses.c.spent_nanousd + purses.c.reserved_nanousd).label("paid")
        rows = await self.store.database.read(sa.select(paid).where(purses.c.run == run))
        return float(rows[0]["paid"] if rows else 0) / NANO

    async def _close(self, run: str) -> None:
        """What its steps returned goes with it: nobody will ask for it again."""

        def change(connection: sa.Connection) -> None:
            for table in (steps, reservations):
                connection.execute(sa.delete(table).where(table.c.run == run))

        await self.store.database.change(change)


def _error(why: str, passing: bool) -> dict[str, str]:
    """Of the row of a run that gave no report."""
    return {"code": PASSES if passing else "failed", "message": why}
