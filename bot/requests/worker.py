"""Start workflows for stored requests: the oldest first, one at a time in each thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.errors import StoreError
from bot.runs.run import Runs
from bot.runs.worker import Worker
from bot.storage.requests import StoredRequest, workflow_id

log = logging.getLogger(__name__)

STOPS_EVERY_S = 0.5


@dataclass
class RequestWorker(Worker[StoredRequest]):
    """Starts stored requests."""

    runs: Runs

    async def load_claimed(self) -> Sequence[StoredRequest]:
        return await self.inbox.at_work(self.durable.executor)

    async def take(self, free: int) -> Sequence[StoredRequest]:
        return await self.inbox.take(self.durable.executor, free, datetime.now(UTC))

    async def give_up(self, work: StoredRequest, id: str) -> None:
        await self.durable.begin("apology", f"apology/{id}", work.key)

    def key(self, work: StoredRequest) -> str:
        return work.key

    def workflow(self, work: StoredRequest) -> tuple[str, str, str, int]:
        return ("request", workflow_id(work), work.key, work.attempt)

    @property
    def is_busy(self) -> bool:
        """Return whether anything runs, including subagents of other replicas' requests."""
        return bool(self.at_work or self.runs.ids)

    async def mark_started(self, key: str) -> None:
        """Record that work on a request starts here, perhaps on one of a dead replica."""
        if key not in self.at_work:
            self.at_work.add(key)
            try:
                await self.inbox.claim(key, self.durable.executor)
            except StoreError as error:
                log.error("%s", error)

    async def watch_stops(self) -> None:
        """Stop the runs whose users asked for it on any replica. Runs until cancelled."""
        while True:
            await asyncio.sleep(STOPS_EVERY_S)
            await self.look_for_stops()

    async def look_for_stops(self) -> None:
        try:
            for run in await self.inbox.find_stopped(self.runs.ids):
                self.runs.stop(run)
        except StoreError as error:
            log.error("%s", error)
