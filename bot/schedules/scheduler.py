"""The clock: let the store create due work at each scheduled time, and start its workflows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from bot.errors import StoreError
from bot.requests.delivery import Asker
from bot.runs.durable import Durable, WorkflowBody
from bot.runs.run import Runs
from bot.runs.worker import Worker
from bot.schedules.alerts import FailureAlerts
from bot.schedules.delivery import ReportDelivery
from bot.schedules.run import OccurrenceRunner
from bot.schedules.store import ScheduleStore
from bot.schedules.validation import ScheduleFault, ScheduleValidator
from bot.slack.writer import MessageWriter
from bot.storage.requests import EPOCH, RequestQueue
from bot.storage.schedules import Work
from config.schedules import Timetable
from config.settings import Settings
from config.words import in_language

MAX_RUNNING_SCHEDULES = 8
"""Maximum schedules running at once in one process."""
WorkHandler = Callable[[Work], Awaitable[Any]]


@dataclass
class ScheduleWorker(Worker[Work]):
    """Starts due work. Its database retries."""

    store: ScheduleStore
    end: WorkHandler
    """Ends work that is lost, or for which there is nothing to do any more."""

    async def load_claimed(self) -> Sequence[Work]:
        return await self.store.at_work()

    async def take(self, free: int) -> Sequence[Work]:
        return await self.store.take(datetime.now(UTC), free)

    def key(self, work: Work) -> str:
        return work.id

    def workflow(self, work: Work) -> tuple[str, str, str]:
        return (work.kind, work.id, work.id)

    def body(self, work_on: WorkHandler) -> WorkflowBody:
        """Return a workflow to register: it does the remaining work, and releases the schedule."""

        async def body(id: str, is_lost: bool) -> dict[str, Any]:
            work = Work.parse(id)
            with self.count_work(id):
                for handle in (self.end,) if is_lost else (work_on, self.end):
                    if work in await self.store.at_work():  # it has not ended
                        await handle(work)
            return {"state": "done"}

        return body


log = logging.getLogger(__name__)

RECONCILE_EVERY_S = 5.0
"""How often jobs are reconciled with changes by chat, the command line and other replicas."""
VALIDATE_EVERY_S = 600.0
LATE_JOBS = {"misfire_grace_time": None, "coalesce": True}
"""A job runs even if it is late; after the machine has slept, it runs once."""


class TimetableTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler 3 has no types
    """Fires at the times of a timetable.

    APScheduler's own CronTrigger is wrong at clock changes, as in Europe/Madrid.
    """

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return self.timetable.after(max(previous, now) if previous else now)


async def run_job(work: Callable[..., Awaitable[None]], *args: str) -> None:
    """Run a job. APScheduler cancels it at shutdown, which it would log as an error of the job."""
    try:
        await work(*args)
    except asyncio.CancelledError:
        pass
    except StoreError as error:
        log.error("%s", error)


@dataclass
class Scheduler:
    """Keeps one job for each active schedule. `run` it as a task.

    When it restarts, it catches up missed times, starting at the schedule's watermark.
    """

    store: ScheduleStore
    on_due: Callable[[], None]
    """Called when occurrences may have become due."""
    jobs: AsyncIOScheduler = field(default_factory=lambda: AsyncIOScheduler(timezone=UTC))
    _changed_at: dict[str, datetime] = field(default_factory=dict)
    """Schedule -> time of the change that its job is based on."""

    async def run(self) -> None:
        """Run until cancelled."""
        self.repeat(self.reconcile, RECONCILE_EVERY_S)
        self.jobs.start()
        try:
            await asyncio.Event().wait()
        finally:
            self.jobs.shutdown(wait=False)

    def repeat(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Run work now and every so many seconds, until the scheduler ends."""
        now = datetime.now(UTC)
        self.jobs.add_job(
            run_job, "interval", [work], seconds=seconds, next_run_time=now, **LATE_JOBS
        )

    async def reconcile(self) -> None:
        """Match the jobs to the table, and catch up missed times of changed schedules."""
        active = {each.id: each for each in await self.store.all() if each.state == "active"}
        for id in self._changed_at.keys() - active.keys():
            del self._changed_at[id]
            if self.jobs.get_job(id):
                self.jobs.remove_job(id)
        for id, schedule in active.items():
            if self._changed_at.get(id) == schedule.changed:
                continue
            self._changed_at[id], work = schedule.changed, [self.create_due, id]
            trigger = TimetableTrigger(schedule.spec.timetable)
            self.jobs.add_job(run_job, trigger, work, id=id, replace_existing=True, **LATE_JOBS)
            await self.create_due(id)

    async def create_due(self, id: str) -> None:
        """Create rows for the times of a schedule up to now."""
        try:
            await self.store.create_due(id)
        except StoreError:
            self._changed_at[id] = EPOCH  # the next reconciliation catches it up
            raise
        self.on_due()


class Schedules:
    """The schedules of one process."""

    def __init__(
        self,
        settings: Settings,
        model_name: str,
        runs: Runs,
        durable: Durable,
        writer: MessageWriter,
        validator: ScheduleValidator,
        approvals: Asker,
    ) -> None:
        """Assemble the parts; workflows wait for the store of `runs` (bot/storage/database.py)."""
        self.settings, self.validator, database = settings, validator, runs.store.database
        people, team = validator.directory.people, validator.directory.team
        self.alerts = FailureAlerts(database, writer, people, validator.policy, team)
        self.store = store = ScheduleStore(database)
        self.runner = OccurrenceRunner(
            settings, model_name, runs, durable, store, validator, self.alerts
        )
        self.delivery = ReportDelivery(
            settings, runs, store, writer, validator, self.alerts, approvals
        )
        self.worker = ScheduleWorker(
            RequestQueue(database), durable, MAX_RUNNING_SCHEDULES, store, self.runner.end_lost
        )
        self.scheduler = Scheduler(store, self.worker.wake)

    def bodies(self) -> dict[str, WorkflowBody]:
        """Return its workflows, by name."""
        return {
            "occurrence": self.worker.body(self.runner.work),
            "delivery": self.worker.body(self.delivery.work),
        }

    async def begin(self) -> None:
        """Load the settings into the table, and check them from now on."""
        await self.store.sync(self.settings.schedules, datetime.now(UTC))
        self.scheduler.repeat(self.validate, VALIDATE_EVERY_S)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks."""
        return [self.scheduler.run(), self.worker.run(), self.alerts.run()]

    async def validate(self) -> None:
        """Refuse schedules of the settings that cannot run; accept those that were fixed."""
        for stored in await self.store.all():
            if stored.origin != "config" or stored.state not in ("active", "refused"):
                continue
            try:
                with in_language(await self.validator.language(stored.spec)):
                    why = await self.validator.objection(stored.spec, stored.origin)
            except ScheduleFault as unknown:
                log.warning("the schedule %s is not checked: %s", stored.id, unknown)
                continue
            if why:
                if await self.store.refuse(stored.id, why):
                    log.error("the schedule %s is refused: %s", stored.id, why)
                # Sent once, even if this process dies.
                await self.alerts.fails(stored.id, why, stored.watermark)
            elif await self.store.accept(stored.id):
                log.info("the schedule %s can run again", stored.id)
                self.worker.wake()
