"""The rate governor: every model call goes through it, so that siblings slow down together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2

from subagents.prices import Usage

PREFIX = "anthropic-ratelimit-"
KINDS = ("requests", "input-tokens", "output-tokens", "tokens")
LOW = 0.15
"""Below this share of a limit the calls are spread over the time until it is refilled."""

MAX_GAP = 60.0
"""Most seconds between two starts: every limit is one of a minute."""


@dataclass
class Lane:
    """The pace of one model: how many calls at once, and not before when."""

    width: float
    in_flight: int = 0
    not_before: float = 0.0
    gap: float = 0.0
    """Seconds between two starts; 0 while there is plenty left."""
    next_start: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Pulsed when a call has ended; never left set."""


class RateGovernor:
    """Admits calls: at most `max_concurrency`, fewer after a 429, spread out when little is left.

    Additive increase, multiplicative decrease: a success widens a lane by 1/width, a 429 halves it.
    """

    def __init__(self, max_concurrency: int) -> None:
        self.max_concurrency = max_concurrency
        self._slots = asyncio.Semaphore(max_concurrency)
        self._lanes: dict[str, Lane] = {}

    def lane(self, model: str) -> Lane:
        return self._lanes.setdefault(model, Lane(float(self.max_concurrency)))

    @asynccontextmanager
    async def slot(self, model: str) -> AsyncIterator[None]:
        """Hold a place while one call runs. A lane that must wait takes no place of the others."""
        lane = self.lane(model)
        await self._turn(lane)
        try:
            async with self._slots:
                yield
        finally:
            lane.in_flight -= 1
            lane.changed.set()
            lane.changed.clear()

    async def _turn(self, lane: Lane) -> None:
        while True:
            if lane.in_flight >= int(lane.width):
                await lane.changed.wait()
                continue
            wait = max(lane.not_before, lane.next_start) - time.monotonic()
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        lane.next_start = time.monotonic() + lane.gap
        lane.in_flight += 1

    def refused(self, model: str, retry_after: float) -> None:
        """A 429: no sibling of this model starts before it is over, and fewer run at once."""
        lane = self.lane(model)
        lane.not_before = max(lane.not_before, time.monotonic() + retry_after)
        lane.width = max(1.0, lane.width / 2)

    def answered(self, model: str, headers: Mapping[str, str], usage: Usage) -> None:
        """A reply: widen a little, and read what is left of the limits."""
        lane = self.lane(model)
        if lane.width < self.max_concurrency:
            lane.width = min(float(self.max_concurrency), lane.width + 1 / lane.width)
        if f"{PREFIX}requests-limit" not in headers and f"{PREFIX}tokens-limit" not in headers:
            return
        fresh = usage.input + usage.cache_write  # what is read from the cache does not count
        used = (1, fresh, usage.output, fresh + usage.output)
        lane.gap = max(_gap(headers, kind, n) for kind, n in zip(KINDS, used, strict=True))


def limits_in(headers: httpx2.Headers) -> dict[str, str]:
    """The rate-limit headers alone: looking each up in all headers takes 5 % of a call's CPU."""
    return {
        name.decode("ascii", "replace").lower(): value.decode("ascii", "replace")
        for name, value in headers.raw
        if name[: len(PREFIX)].lower() == PREFIX.encode()
    }


def _gap(headers: Mapping[str, str], kind: str, used: int) -> float:
    """Seconds between starts at which a limit refills as fast as calls like the last one use it up.

    The buckets refill all the time; `reset` is when one is full again (platform.claude.com, Rate
    limits).
    """
    try:
        limit = int(headers[f"{PREFIX}{kind}-limit"])
        left = int(headers[f"{PREFIX}{kind}-remaining"])
        if limit <= 0 or left / limit >= LOW:
            return 0.0
        reset = datetime.fromisoformat(headers[f"{PREFIX}{kind}-reset"].replace("Z", "+00:00"))
        seconds = (reset - datetime.now(UTC)).total_seconds()
    except (KeyError, TypeError, ValueError):  # missing, without a time zone, or nonsense
        return 0.0
    if seconds <= 0:
        return 0.0
    return min(seconds, MAX_GAP, seconds * used / (limit - left))
