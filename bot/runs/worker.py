"""Start workflows for stored work: poll, claim, start again what may not have started, drain."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from bot.background import repeat
from bot.errors import StoreError
from bot.runs.durable import Durable
from bot.storage.requests import RequestQueue

LOOK_EVERY_S = 1.0
"""Seconds between polls: for work of other replicas, and for the ends of pauses and outages."""
RECOVER_EVERY_S = 30.0
"""Seconds until work is started that a replica had claimed when it died."""
DRAIN_LOOK_S = 0.05

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
    _recover_at: float = field(default=0.0, init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _claim_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @abstractmethod
    async def load_claimed(self) -> Sequence[W]:
        """Return the work that any process has claimed and that has not ended."""

    @abstractmethod
    async def take(self, free: int) -> Sequence[W]:
        """Claim at most so much of the work that is due now."""

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
        await repeat(self.look, LOOK_EVERY_S, "nothing is started", woken=self._woken)

    async def look(self) -> None:
        """Start work that is due. Raises StoreError."""
        async with self._claim_lock:
            now = asyncio.get_running_loop().time()
            next_at, self._recover_at = self._recover_at, 0.0  # at once if this look fails
            if now >= next_at:
                await self.recover()
                next_at = now + RECOVER_EVERY_S
            free = self.most - len(self.at_work)
            if not self.draining and free > 0:
                for work in await self.take(free):
                    await self._begin(work)
            self._recover_at = next_at

    async def recover(self) -> None:
        """Start claimed work whose process may have died before it started the workflow.

        A workflow runs once, even if several processes start it.
        """
        before = set(self.at_work)
        claimed = {self.key(work): work for work in await self.load_claimed()}
        self.at_work -= before - claimed.keys()  # another replica has done it
        for key, work in claimed.items():
            if key not in self.at_work:
                await self._begin(work, here=not self.durable.shared)

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
        """Count the body as work of this process."""
        self.at_work.add(key)
        try:
            yield
        finally:
            self.at_work.discard(key)
            self.wake()

    async def _begin(self, work: W, *, here: bool = True) -> None:
        """Start its workflow; `here`: it is sure to run in this process."""
        if here:
            self.at_work.add(self.key(work))
        try:
            await self.durable.begin(*self.workflow(work))
        except StoreError:
            self.at_work.discard(self.key(work))
            raise
