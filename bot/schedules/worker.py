"""Start workflows for due work: one thing for each schedule at a time, deliveries first."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.runs.durable import Body
from bot.runs.worker import Worker
from bot.schedules.store import Occurrences
from bot.storage.schedules import Work
from config.words import Text

log = logging.getLogger(__name__)

MOST = 8
"""Schedules running at once in one process."""
AGAIN_AFTER = timedelta(minutes=5)
"""Time until a delivery of unknown outcome is retried."""

LOST = Text("schedule.lost")

WorkOn = Callable[[Work], Awaitable[Any]]
Failed = Callable[[Work, Text, datetime], Awaitable[None]]
"""Called with a failed occurrence or delivery, the reason, and when a delivery is retried."""


@dataclass
class ScheduleWorker(Worker[Work]):
    """Starts due work. Its database retries."""

    occurrences: Occurrences
    on_failed: Failed | None = None
    """Called if the workflow itself cannot report its failure."""

    async def load_claimed(self) -> Sequence[Work]:
        return await self.occurrences.at_work(self.durable.executor)

    async def take(self, free: int) -> Sequence[Work]:
        return await self.occurrences.take(self.durable.executor, datetime.now(UTC), free)

    async def give_up(self, work: Work, id: str) -> None:
        self.at_work.discard(id)
        await self._failed(work, LOST)

    def key(self, work: Work) -> str:
        return work.id

    def workflow(self, work: Work) -> tuple[str, str, str]:
        return (work.kind, work.id, work.id)

    def body(self, work_on: WorkOn) -> Body:
        """Return a workflow to register.

        It does what is still to be done, and releases the schedule for its next work however that
        ends.
        """

        async def body(id: str) -> dict[str, Any]:
            self.at_work.add(id)
            try:
                if await self.occurrences.claim(id, self.durable.executor):
                    await self._carry_out(Work.parse(id), work_on)
            except BaseException:
                self.mark_ended(id, lost=True)
                raise
            self.mark_ended(id)
            return {"state": "done"}

        return body

    async def _carry_out(self, work: Work, work_on: WorkOn) -> None:
        try:
            await work_on(work)
        except Exception:  # top-level boundary: work must not stop the worker
            log.exception("%s crashed", work.id)
            if self.draining:
                raise  # what it uses may be closed already; the next process handles it
        if await self.occurrences.claim(work.id, self.durable.executor):
            await self._failed(work, Text("schedule.crashed"))

    async def _failed(self, work: Work, why: Text) -> None:
        """End failed work, so that its schedule continues with the next."""
        again = datetime.now(UTC) + AGAIN_AFTER
        is_news = work.kind == "occurrence" or await self.occurrences.record_undelivered(
            work, str(why), again
        )
        if is_news and self.on_failed:
            await self.on_failed(work, why, again)
        if work.kind == "occurrence":
            await self.occurrences.record_failure(work, str(why))
