"""The clock: notes the times of all schedules as they come, and those that nobody was there for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from bot.errors import StoreError
from bot.schedule.book import ScheduleBook
from bot.schedule.ticks import Ticks
from config.timetable import Timetable

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
"""How often it looks for what other replicas and the command line changed, and for what a clock
that was set forward, or a machine that slept, has passed over."""


class AsTimetabled(BaseTrigger):  # type: ignore[misc]  # APScheduler 3 has no types
    """Fires at the times of a timetable. Those that passed meanwhile are noted with the next."""

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return self.timetable.after(max(previous, now) if previous else now)


@dataclass
class Clock:
    """`run` it as a task. What it misses while nobody runs it, it notes when it is run again."""

    book: ScheduleBook
    ticks: Ticks
    on_due: Callable[[], None]
    """Called when ticks have become due."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _known: dict[str, datetime] = field(default_factory=dict)
    """Schedule -> its last change that is known here."""
    _active: dict[str, tuple[Timetable, datetime | None]] = field(default_factory=dict)
    """Schedule -> when it runs, and the first time that is no row yet."""
    _come: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until cancelled."""
        scheduler = AsyncIOScheduler(timezone=UTC)
        scheduler.start()
        try:
            while True:
                self._come.clear()
                try:
                    await self.look(scheduler)
                except StoreError as error:
                    log.error("%s", error)
                try:
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._come.wait()
                except TimeoutError:
                    pass
        finally:
            scheduler.shutdown(wait=False)

    async def look(self, scheduler: AsyncIOScheduler | None = None) -> None:
        """Make rows of all times up to now. Raises StoreError."""
        await self._learn(scheduler)
        now, due = self.now(), False
        for id, (timetable, coming) in list(self._active.items()):
            if coming and coming <= now:
                await self.ticks.note_due(id, now)
                self._active[id] = (timetable, timetable.after(now))
                due = True
        if due:
            self.on_due()

    def wake(self) -> None:
        """A schedule was set or changed."""
        self._come.set()

    async def _learn(self, scheduler: AsyncIOScheduler | None) -> None:
        """See which schedules there are, and when they run."""
        versions = await self.book.versions()
        for id in [each for each in self._known if each not in versions]:
            self._forget(id, scheduler)
        for id, changed in versions.items():
            if self._known.get(id) == changed:
                continue
            schedule = await self.book.get(id)
            self._forget(id, scheduler)
            self._known[id] = changed
            if schedule and schedule.state == "active":
                timetable = schedule.spec.timetable
                self._active[id] = (timetable, timetable.after(schedule.watermark))
                if scheduler:
                    self._have_it_ring(scheduler, id, timetable)

    def _have_it_ring(self, scheduler: AsyncIOScheduler, id: str, timetable: Timetable) -> None:
        async def ring() -> None:
            self._come.set()

        trigger = AsTimetabled(timetable)
        scheduler.add_job(ring, trigger, id=id, misfire_grace_time=None, coalesce=True)

    def _forget(self, id: str, scheduler: AsyncIOScheduler | None) -> None:
        self._known.pop(id, None)
        if self._active.pop(id, None) and scheduler and scheduler.get_job(id):
            scheduler.remove_job(id)
