"""Start workflows for stored work: poll, claim, recover, give up, drain."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from bot.background import repeat
from bot.errors import StoreError
from bot.runs.durable import Durable
from bot.storage.budget import settle_dead_calls
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from bot.storage.tables import actions, inbox, schedules

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Seconds between polls: for work of other replicas, and for the ends of pauses and outages."""
DRAIN_LOOK_S = 0.05
CLAIMS = (
    (inbox.c.owner, inbox.c.state == "running"),
    (actions.c.owner, actions.c.state == "approved"),
    (schedules.c.worker, schedules.c.at_work.is_not(None)),
)
"""Columns that name the process of stored work, and the condition for such work."""


async def owners(database: Database) -> set[str]:
    """Return the processes with claimed work that has not ended. Raises StoreError."""
    found = (sa.select(owner).where(claimed, owner.is_not(None)) for owner, claimed in CLAIMS)
    query = sa.select(sa.union(*found).subquery())
    return {row[0] for row in await database.read(query)}


async def adopt(database: Database, owner: str, dead: str) -> None:
    """Claim the work of a process that died, and settle its calls. Raises StoreError."""
    log.warning("replica %s is dead; its work goes on here", dead)

    def change(connection: sa.Connection) -> None:
        for column, claimed in CLAIMS:
            update = sa.update(column.table).where(column == dead, claimed)
            connection.execute(update.values({column: owner}))
        settle_dead_calls(connection, dead)

    await database.change(change)


W = TypeVar("W")


@dataclass
class Worker(ABC, Generic[W]):
    """Starts stored work. `run` it as a task; `wake` it after storing work."""

    inbox: RequestQueue
    durable: Durable
    most: int
    """Maximum concurrent work of this process; more waits."""
    draining: bool = field(default=False, init=False)
    """Whether nothing new is started."""
    at_work: set[str] = field(default_factory=set, init=False)
    """Keys of the work that was started in this process and has not ended."""
    _recovered: dict[str, W] = field(default_factory=dict, init=False)
    """Workflow id -> work that an earlier process had started."""
    _unsure: bool = field(default=False, init=False)
    """Whether work may have been claimed whose workflow did not start or failed."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _claim_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @abstractmethod
    async def load_claimed(self) -> Sequence[W]:
        """Return the work that this process has claimed and that has not ended."""

    @abstractmethod
    async def take(self, free: int) -> Sequence[W]:
        """Claim at most so much of the work that is due now."""

    @abstractmethod
    async def give_up(self, work: W, id: str) -> None:
        """End work whose workflow will not be resumed."""

    @abstractmethod
    def key(self, work: W) -> str: ...

    @abstractmethod
    def workflow(self, work: W) -> tuple[str, str, *tuple[Any, ...]]:
        """Return the name, the id and the arguments of its workflow."""

    @property
    def is_busy(self) -> bool:
        return bool(self.at_work)

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Start work until cancelled."""
        await repeat(self._pass, LOOK_EVERY_S, "nothing is started", woken=self._woken)

    async def _pass(self) -> None:
        try:
            await self.look()
        except Exception:
            self._unsure = True
            raise

    async def look(self) -> None:
        """Start work that is due, and end lost work. Raises StoreError."""
        if self._unsure:
            await self.recover()
            self._unsure = False
        await self._give_up()
        async with self._claim_lock:
            free = self.most - len(self.at_work)
            if self.draining or free <= 0:
                return
            for work in await self.take(free):
                await self._begin(work)

    async def recover(self) -> None:
        """Resume work that an earlier process of this id, or a dead replica, had claimed."""
        for work in await self.load_claimed():
            if self.key(work) not in self.at_work:
                self._recovered[self.workflow(work)[1]] = work
                await self._begin(work)

    async def drain(self, seconds: float) -> bool:
        """Start nothing more, and wait for current work; return whether all of it has ended."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                async with self._claim_lock:  # work that is being claimed at this moment counts
                    pass
                while self.is_busy:  # noqa: ASYNC110 - a subagent's end sets no event
                    await asyncio.sleep(DRAIN_LOOK_S)
        except TimeoutError:
            return False
        return True

    @contextmanager
    def count_work(self, key: str) -> Iterator[None]:
        """Count the body as work of this process; if it raises, its workflow failed."""
        self.at_work.add(key)
        try:
            yield
        except BaseException:
            self.mark_ended(key, lost=True)
            raise
        self.mark_ended(key)

    def mark_ended(self, key: str, *, lost: bool = False) -> None:
        """Record that work ended here. `lost`: its workflow failed."""
        self._unsure = self._unsure or lost
        self.at_work.discard(key)
        self._recovered = {id: w for id, w in self._recovered.items() if self.key(w) != key}
        self.wake()

    async def _begin(self, work: W) -> None:
        self.at_work.add(self.key(work))
        try:
            await self.durable.begin(*self.workflow(work))
        except StoreError:
            self.at_work.discard(self.key(work))
            self._unsure = True
            raise

    async def _give_up(self) -> None:
        """Check recovered work: another replica may have claimed it, or no workflow resumes it."""
        if not self._recovered:
            return
        claimed = {self.key(work) for work in await self.load_claimed()}
        for key in {self.key(work) for work in self._recovered.values()} - claimed:
            self.mark_ended(key)
        for id in await self.durable.find_lost(self._recovered):
            work = self._recovered.get(id)
            if work is None:  # it has ended in the meantime
                continue
            log.error("%s is given up: each try ended with the process", id)
            await self.durable.cancel_children(id)
            await self.give_up(work, id)
            self._recovered.pop(id, None)
