"""Gives stored requests to workflows: the oldest first, one at a time in each thread."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.durable import Durable
from bot.errors import StoreError
from bot.requests.inbox import Inbox, StoredRequest
from bot.requests.requests import workflow_id
from bot.runs.runs import Runs

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How often it looks without being woken: for other replicas, ends of pauses and of outages."""
STOPS_EVERY_S = 0.5
DRAIN_LOOK_S = 0.05


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
    _unsure: bool = False
    """A request may have been taken whose workflow was not begun, or fell over."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wake(self) -> None:
        self._woken.set()

    async def recover(self) -> None:
        """Go on with what an earlier process of this id, or a dead replica, had taken up."""
        for request in await self.inbox.at_work(self.durable.executor):
            if request.key not in self.at_work:
                self._recovered[workflow_id(request)] = request.key
                await self._begin(request)

    async def _review(self) -> None:
        """See to what was begun before: another replica may have taken it up meanwhile, or nobody
        will, as it took the process down too often."""
        if not self._recovered:
            return
        mine = {each.key for each in await self.inbox.at_work(self.durable.executor)}
        for key in set(self._recovered.values()) - mine:
            self.ended(key)
        for id in await self.durable.lost(self._recovered):
            key = self._recovered[id]
            log.error("request %s is given up: each try ended with the process", key)
            await self.durable.cancel_children(id)
            await self.durable.begin("apology", f"apology/{id}", key)
            del self._recovered[id]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._woken.clear()
            try:
                if self._unsure:
                    await self.recover()
                    self._unsure = False
                await self._take()
                await self._review()
            except StoreError as error:
                log.error("%s", error)
                self._unsure = True
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _take(self) -> None:
        async with self._taking:
            free = self.max_requests - len(self.at_work)
            if self.draining or free <= 0 or await self.inbox.paused():
                return
            for request in await self.inbox.take(self.durable.executor, free, datetime.now(UTC)):
                await self._begin(request)

    async def _begin(self, request: StoredRequest) -> None:
        self.at_work.add(request.key)
        try:
            await self.durable.begin("request", workflow_id(request), request.key, request.attempt)
        except StoreError:
            self.at_work.discard(request.key)
            raise

    async def begun(self, key: str) -> None:
        """Work on a request begins here, perhaps on one that a dead replica had begun."""
        if key not in self.at_work:
            self.at_work.add(key)
            try:
                await self.inbox.claim(key, self.durable.executor)
            except StoreError as error:
                log.error("%s", error)

    def ended(self, key: str, *, lost: bool = False) -> None:
        """A request is no longer at work here. `lost`: its workflow fell over."""
        self._unsure = self._unsure or lost
        self.at_work.discard(key)
        self._recovered = {id: k for id, k in self._recovered.items() if k != key}
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
        """Take nothing more up, and wait for what is at work, subagents of other replicas' requests
        too; whether all of it has ended."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                async with self._taking:  # what is being taken at this moment counts
                    pass
                while self.at_work or self.runs.ids:  # noqa: ASYNC110 - a subagent's end sets no event
                    await asyncio.sleep(DRAIN_LOOK_S)
        except TimeoutError:
            return False
        return True
