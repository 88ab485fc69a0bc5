"""Gives stored requests to workflows: the oldest first, one at a time in each thread."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.answering import workflow_id
from bot.durable import Durable
from bot.inbox import Inbox, StoredRequest
from bot.runs import Runs
from bot.schema import StoreError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How often it looks without being woken: for other replicas, ends of pauses and of outages."""
STOPS_EVERY_S = 0.5


@dataclass
class Dispatch:
    """Takes requests up. `run` it as a task; `wake` it when one was stored."""

    inbox: Inbox
    durable: Durable
    runs: Runs
    max_requests: int
    draining: bool = False
    at_work: set[str] = field(default_factory=set)
    """Keys of the requests that this process works on."""
    _recovered: dict[str, str] = field(default_factory=dict)
    """Workflow id -> key of a request that was begun in an earlier life."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._woken.set()

    async def recover(self) -> None:
        """Go on with what an earlier process of this id, or a dead replica, had taken up."""
        for request in await self.inbox.at_work(self.durable.executor):
            if request.key not in self.at_work:
                self._recovered[workflow_id(request)] = request.key
                await self._begin(request)

    async def _apologise(self) -> None:
        """End the requests that will not be begun again: they took the process down too often."""
        for id in await self.durable.crashed(self._recovered):
            key = self._recovered.pop(id)
            log.error("request %s is given up: each try ended with the process", key)
            await self.durable.begin("apology", f"{id}/apology", key)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self._take()
                await self._apologise()
            except StoreError as error:
                log.error("%s", error)
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _take(self) -> None:
        if self.draining or len(self.at_work) >= self.max_requests or await self.inbox.paused():
            return
        free, now = self.max_requests - len(self.at_work), datetime.now(UTC)
        for request in await self.inbox.take(self.durable.executor, free, now):
            await self._begin(request)

    async def _begin(self, request: StoredRequest) -> None:
        self.at_work.add(request.key)
        await self.durable.begin("request", workflow_id(request), request.key, request.attempt)

    def ended(self, key: str) -> None:
        """A request is no longer at work here."""
        self.at_work.discard(key)
        self._recovered = {id: k for id, k in self._recovered.items() if k != key}
        self._idle.set()
        self.wake()

    async def watch_stops(self) -> None:
        """Stop the runs whose users asked for it, wherever they clicked. Until cancelled."""
        while True:
            await asyncio.sleep(STOPS_EVERY_S)
            await self.look_for_stops()

    async def look_for_stops(self) -> None:
        try:
            for run in await self.inbox.stopped(self.runs.ids):
                self.runs.stop(run)
        except StoreError as error:
            log.error("%s", error)

    async def drained(self, seconds: float) -> bool:
        """Take nothing more up, and wait for what is at work; whether all of it has ended."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                while self.at_work:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True
