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
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._woken.set()

    async def recover(self) -> None:
        """Go on with what an earlier process of this id, or a dead replica, had taken up."""
        left = await self.inbox.at_work(self.durable.executor)
        crashed = await self.durable.crashed(map(workflow_id, left))
        for request in left:
            if request.key in self.at_work:
                continue
            if workflow_id(request) in crashed:
                await self.durable.begin("apology", f"{workflow_id(request)}/apology", request.key)
            else:
                await self._begin(request)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self._take()
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
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return False
        return True
