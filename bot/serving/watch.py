"""What a serving process tells of itself: its health, and its numbers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bot.errors import SetupError, StoreError
from bot.hearing.backfill import Backfill
from bot.hearing.intake import Intake
from bot.hearing.sockets import Sockets
from bot.policy.policy import Admission
from bot.replies.outbox import Outbox
from bot.requests.dispatch import Dispatch
from bot.serving.health import DatabaseProbe, Health, LoopLag, TokenProbe
from bot.serving.metrics import Metrics

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

COUNT_EVERY_S = 1.0


def timed(
    call: Callable[[T], Awaitable[R]], tell: Callable[[float], None]
) -> Callable[[T], Awaitable[R]]:
    """The same call; `tell` learns how many seconds each took."""

    async def measured(argument: T) -> R:
        began = time.perf_counter()
        try:
            return await call(argument)
        finally:
            tell(time.perf_counter() - began)

    return measured


@dataclass
class Watch:
    """Looks at the parts of one process."""

    health: Health
    metrics: Metrics
    dispatch: Dispatch
    outbox: Outbox
    intake: Intake
    backfill: Backfill
    sockets: Sockets | None
    _calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    _again: int = 0
    _passes: set[object] = field(default_factory=set)

    def register(self, lag: LoopLag, probe: DatabaseProbe, admission: Admission) -> None:
        """Let each part answer for its own health."""

        async def policy() -> str | None:
            try:
                await admission.file.read()
            except SetupError as fault:
                return str(fault)
            return None

        self.health.add("loop", lag.check, "live")
        self.health.add("store", probe.thread, "live")
        self.health.add("database", probe.reachable)
        self.health.add("policy", policy)
        self.health.add("token", TokenProbe(admission.people.client).check)
        self.health.add("draining", self._draining)
        self.health.add("model", self._model, "noted")
        if self.sockets:
            self.health.add("slack", self._connected)

    async def count(self) -> None:
        """Keep the numbers true, until cancelled."""
        while True:
            try:
                await self._count()
            except StoreError as error:
                log.error("%s", error)
            await asyncio.sleep(COUNT_EVERY_S)

    async def _count(self) -> None:
        metrics = self.metrics
        metrics.at_work(len(self.dispatch.at_work))
        metrics.queued(await self.dispatch.inbox.waiting())
        metrics.connected(self.sockets.alive if self.sockets else 0)
        calls = Counter(self.outbox.calls)
        for (method, outcome), number in (calls - self._calls).items():
            for _ in range(number):
                metrics.slack_called(method, outcome)
        self._calls = calls
        for _ in range(self.intake.heard["again"] - self._again):
            metrics.duplicate()
        self._again = self.intake.heard["again"]
        if (last := self.backfill.last) and last.found and last.finished not in self._passes:
            self._passes = {last.finished}
            metrics.backfilled(last.found)

    def _model(self) -> str | None:
        failed = self.metrics.last_model_outcome not in ("", "ok")
        return "The last call of the model failed." if failed else None

    def _draining(self) -> str | None:
        return "It is ending." if self.dispatch.draining else None

    def _connected(self) -> str | None:
        return None if self.sockets and self.sockets.healthy() else "No socket is connected."
