"""Gives what is due to workflows: of each schedule one thing at a time, deliveries first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.durable import Body, Durable
from bot.errors import StoreError
from bot.requests.inbox import Inbox
from bot.schedule.book import ScheduleBook
from bot.schedule.due import Work, work_of
from bot.schedule.ticks import Ticks

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How often it looks without being woken: for other replicas, ends of pauses, deliveries due."""
DRAIN_LOOK_S = 0.05
AGAIN_AFTER = timedelta(minutes=5)
"""Until a delivery is tried again that nobody could tell the end of."""

CRASHED = "Each try ended with the process that made it."
FELL_OVER = "Something went wrong inside; the log of the bot tells what."

WorkOn = Callable[[str, str], Awaitable[Any]]
"""Does it, for a schedule and the time of one of its ticks as ISO text."""
Failed = Callable[[Work, str, datetime | None], Awaitable[None]]
"""Told of a tick or delivery that came to nothing, why, and when it is tried again."""


@dataclass
class Lanes:
    """Takes up what is due. `run` it as a task; `wake` it when something may be."""

    book: ScheduleBook
    ticks: Ticks
    """Of a patient database: what workflows did is noted through it."""
    durable: Durable
    inbox: Inbox
    executor: str
    most: int = 8
    """Schedules at work at once in one process; more wait their turn."""
    on_failed: Failed | None = None
    """Called where the workflow itself cannot tell it."""
    draining: bool = False
    """Nothing new is begun."""
    at_work: set[str] = field(default_factory=set)
    """Ids of the workflows that run in this process."""
    _begun: set[str] = field(default_factory=set)
    """Ids of those that were begun here and did not come to run yet."""
    _unsure: bool = False
    """Something may have been taken up whose workflow was not begun."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self) -> None:
        self._woken.set()

    def bodies(self, tick: WorkOn, delivery: WorkOn) -> dict[str, Body]:
        """The workflows to register, by name. They do what is still to be done, and free the
        schedule for what comes next however that ends."""
        return {"tick": self._body(tick), "delivery": self._body(delivery)}

    async def recover(self) -> None:
        """Go on with what an earlier process of this id, or a dead replica, had taken up."""
        for work in await self.ticks.at_work(self.executor):
            if work.id not in self.at_work:
                await self._begin(work)

    async def adopt(self, dead: str) -> None:
        """Take over what a dead replica worked on; `recover` begins it."""
        await self.ticks.adopt(dead, self.executor)

    async def owners(self) -> set[str]:
        """The processes that have something at work."""
        return await self.ticks.owners()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.look()
            except StoreError as error:
                log.error("%s", error)
                self._unsure = True
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Take up what is due now, and see to what was lost. Raises StoreError."""
        if self._unsure:
            await self.recover()
            self._unsure = False
        await self.give_up()
        await self._take()

    async def give_up(self) -> None:
        """End what took its process down too often. Raises StoreError."""
        mine = {work.id: work for work in await self.ticks.at_work(self.executor)}
        for id in await self.durable.lost(mine.keys() - self.at_work):
            log.error("%s is given up: each try ended with the process", id)
            await self.durable.cancel_children(id)
            self._begun.discard(id)
            await self._failed(mine[id], CRASHED)

    async def drained(self, seconds: float) -> bool:
        """Begin nothing more, and wait for what is at work; whether all of it has ended."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                async with self._taking:  # what is being taken up at this moment counts
                    pass
                while self.at_work | self._begun:  # noqa: ASYNC110 - what ends is in no hurry to tell it
                    await asyncio.sleep(DRAIN_LOOK_S)
        except TimeoutError:
            return False
        return True

    async def _take(self) -> None:
        async with self._taking:
            if self.draining or await self.inbox.paused():
                return
            free = self.most - len(await self.ticks.at_work(self.executor))
            taken: Sequence[Work] = await self.ticks.take(self.executor, datetime.now(UTC), free)
            self._unsure = self._unsure or bool(taken)
            for work in taken:
                await self._begin(work)
            self._unsure = False

    async def _begin(self, work: Work) -> None:
        self._begun.add(work.id)
        try:
            await self.durable.begin(work.kind, work.id, work.id)
        except StoreError:
            self._begun.discard(work.id)
            raise

    def _body(self, work_on: WorkOn) -> Body:
        async def body(id: str) -> dict[str, Any]:
            self.at_work.add(id)
            self._begun.discard(id)
            try:
                if not await self.ticks.claim(id, self.executor):
                    return {"state": "over"}  # an earlier life of this workflow had ended it
                await self._carry_out(work_of(id), work_on)
            finally:
                self.at_work.discard(id)
                self.wake()
            return {"state": "done"}

        return body

    async def _carry_out(self, work: Work, work_on: WorkOn) -> None:
        try:
            await work_on(work.schedule, work.at.isoformat(timespec="microseconds"))
        except Exception:  # the seam: one tick, or one try to deliver
            log.exception("%s fell over", work.id)
            if self.draining:
                raise  # what it uses may be closed already; the next process sees to it
        if await self.ticks.claim(work.id, self.executor):
            await self._failed(work, FELL_OVER)

    async def _failed(self, work: Work, why: str) -> None:
        """Its schedule goes on with what comes next."""
        later = None
        if work.kind == "tick":
            news = await self.ticks.failed(work.schedule, work.at, why, attempt=work.attempt)
        else:
            later = datetime.now(UTC) + AGAIN_AFTER
            news = await self.ticks.not_delivered(work.schedule, work.at, why, later)
        await self.ticks.free(work)
        if news and self.on_failed:
            await self.on_failed(work, why, later)
