"""The rate limiter: every model call goes through it, so that siblings slow down together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from subagents.prices import Usage

PREFIX = "anthropic-ratelimit-"
KINDS = ("requests", "input-tokens", "output-tokens", "tokens")
LOW_SHARE = 0.15
"""Below this share of a limit, calls are spread over the time until it is refilled."""

MAX_GAP = 60.0
"""Maximum seconds between two starts: every limit is per minute."""


@dataclass
class ModelLimit:
    """The pace of one model: how many calls at once, and the earliest next start."""

    width: float
    in_flight: int = 0
    not_before: float = 0.0
    gap: float = 0.0
    """Seconds between two starts; 0 while enough of the limit is left."""
    next_start: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Pulsed when a call has ended; never left set."""


class RateLimiter:
    """Admits calls: at most `max_concurrency`, fewer after a 429, spread out when little is left.

    Additive increase, multiplicative decrease: a success raises a model's concurrency by 1/width, a
    429 halves it.
    """

    def __init__(self, max_concurrency: int) -> None:
        self.max_concurrency = max_concurrency
        self._slots = asyncio.Semaphore(max_concurrency)
        self._limits: dict[str, ModelLimit] = {}

    def limit(self, model: str) -> ModelLimit:
        return self._limits.setdefault(model, ModelLimit(float(self.max_concurrency)))

    @asynccontextmanager
    async def slot(self, model: str) -> AsyncIterator[None]:
        """Hold a slot while one call runs. A model that must wait takes no slot of the others."""
        limit = self.limit(model)
        await self._turn(limit)
        try:
            async with self._slots:
                yield
        finally:
            limit.in_flight -= 1
            limit.changed.set()
            limit.changed.clear()

    async def _turn(self, limit: ModelLimit) -> None:
        while True:
            if limit.in_flight >= int(limit.width):
                await limit.changed.wait()
                continue
            wait = max(limit.not_before, limit.next_start) - time.monotonic()
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        limit.next_start = time.monotonic() + limit.gap
        limit.in_flight += 1

    def record_refusal(self, model: str, retry_after: float) -> None:
        """Handle a 429: delay calls of this model by `retry_after`, and halve its concurrency."""
        limit = self.limit(model)
        limit.not_before = max(limit.not_before, time.monotonic() + retry_after)
        limit.width = max(1.0, limit.width / 2)

    def record_reply(self, model: str, headers: Mapping[str, str], usage: Usage) -> None:
        """Handle a reply: raise the concurrency a little, and read the rest of the limits."""
        limit = self.limit(model)
        if limit.width < self.max_concurrency:
            limit.width = min(float(self.max_concurrency), limit.width + 1 / limit.width)
        if f"{PREFIX}requests-limit" not in headers and f"{PREFIX}tokens-limit" not in headers:
            return
        fresh = usage.input + usage.cache_write  # cache reads do not count
        used = (1, fresh, usage.output, fresh + usage.output)
        limit.gap = max(_gap(headers, kind, n) for kind, n in zip(KINDS, used, strict=True))


def _gap(headers: Mapping[str, str], kind: str, used: int) -> float:
    """Return the seconds between starts at which a limit refills as fast as such calls use it.

    The buckets refill all the time; `reset` is when one is full again (platform.claude.com, Rate
    limits).
    """
    try:
        limit = int(headers[f"{PREFIX}{kind}-limit"])
        remaining = int(headers[f"{PREFIX}{kind}-remaining"])
        if limit <= 0 or remaining / limit >= LOW_SHARE:
            return 0.0
        reset = datetime.fromisoformat(headers[f"{PREFIX}{kind}-reset"].replace("Z", "+00:00"))
        seconds = (reset - datetime.now(UTC)).total_seconds()
    except (KeyError, TypeError, ValueError):  # missing, without a time zone, or nonsense
        return 0.0
    if seconds <= 0:
        return 0.0
    return min(seconds, MAX_GAP, seconds * used / (limit - remaining))
