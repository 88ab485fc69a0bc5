"""All that belongs to schedules, put together for a serving process."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.durable import Body, Durable
from bot.policy.policy import Admission
from bot.replies.outbox import Outbox
from bot.requests.finishing import Asker
from bot.requests.inbox import Inbox
from bot.runs.runs import Runs
from bot.schedule.book import ScheduleBook
from bot.schedule.checking import Checking
from bot.schedule.clock import Clock
from bot.schedule.delivering import Delivering
from bot.schedule.destinations import Destinations
from bot.schedule.issues import IssueBook
from bot.schedule.lanes import Lanes
from bot.schedule.mailing import Mailing
from bot.schedule.making import Making
from bot.schedule.refusing import Refusing
from bot.schedule.running import Running
from bot.schedule.ticks import Ticks
from bot.schedule.trouble import Trouble
from bot.storage.store import Store
from config.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Schedules:
    """The schedules of one process."""

    settings: Settings
    book: ScheduleBook
    ticks: Ticks
    lanes: Lanes
    clock: Clock
    checking: Checking
    running: Running
    trouble: Trouble
    refusing: Refusing
    delivering: Delivering

    @classmethod
    def made(
        cls,
        settings: Settings,
        model_name: str,
        store: Store,
        runs: Runs,
        durable: Durable,
        outbox: Outbox,
        admission: Admission,
        checking: Checking,
        approvals: Asker,
    ) -> Schedules:
        """The parts put together. `store` is one that workflows wait for (bot/runs/patient.py)."""
        database = store.database
        book, ticks = ScheduleBook(database), Ticks(database)
        lanes = Lanes(book, ticks, durable, Inbox(database), durable.executor)
        told = (outbox, admission.people, admission.file, checking.directory.team)
        trouble = Trouble(database, *told, durable.executor)
        making = Making(settings, model_name, store, durable, IssueBook(database))
        kept = (settings, model_name, store, runs, making, book, ticks)
        running = Running(*kept, checking, trouble)
        lanes.on_failed = running.lost
        clock = Clock(book, ticks, lanes.wake)
        refusing = Refusing(book, checking, trouble, lanes.wake)
        parts = (book, ticks, lanes, clock, checking, running, trouble, refusing)
        delivering = Delivering(
            *(settings, store, runs, book, ticks, IssueBook(database), outbox),
            Destinations(admission.people, admission.file, checking.directory.team),
            *(Mailing(admission.people), trouble, approvals),
        )
        return cls(settings, *parts, delivering)

    def bodies(self) -> dict[str, Body]:
        """Its workflows, by name."""
        return self.lanes.bodies(self.running.work, self.delivering.work)

    async def adopt(self, dead: str) -> None:
        """Take over what a dead replica worked on; `recover` begins it."""
        await self.lanes.adopt(dead)

    async def owners(self) -> set[str]:
        return await self.lanes.owners()

    async def recover(self) -> None:
        await self.lanes.recover()

    async def begin(self) -> None:
        """Take the settings into the book, and go on with what an earlier process left."""
        await self.book.sync(self.settings.schedules, datetime.now(UTC))
        await self.lanes.recover()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What is to be done from now on."""
        return [self.clock.run(), self.lanes.run(), self.refusing.run(), self.trouble.run()]
