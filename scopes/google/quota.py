"""Gmail's quota of one account: a call waits for its turn, so that Google's refusal is rare."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

WINDOW_S = 61.0
"""Google counts units a minute. The second more is for calls that reach it later than others."""


class Quota:
    """At most so many units in any minute, given out first come first served.

    What is left may be used at once: fifty threads are a third of a minute's units.
    """

    def __init__(
        self,
        units_per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` and `sleep` are in seconds."""
        self.units_per_minute = units_per_minute
        self._clock, self._sleep = clock, sleep
        self._turn = asyncio.Lock()
        self._given: deque[tuple[float, int]] = deque()
        """When they are free again, and how many."""
        self._used = 0
        self._held_until = 0.0

    async def take(self, units: int) -> None:
        """Wait until a call of so many units may be made. One above the limit waits for all."""
        units = min(units, self.units_per_minute)
        async with self._turn:
            while (wait := self._wait(units)) > 0:
                await self._sleep(wait)
            self._given.append((self._clock() + WINDOW_S, units))
            self._used += units

    def hold(self, seconds: float) -> None:
        """Google said to wait: nobody starts before it is over."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _wait(self, units: int) -> float:
        """Return the seconds until the units are free, or until it is worth to look again.

        0 = now.
        """
        now = self._clock()
        while self._given and self._given[0][0] <= now:
            self._used -= self._given.popleft()[1]
        held = self._held_until - now
        if self._used + units <= self.units_per_minute:
            return max(held, 0.0)
        return max(held, self._given[0][0] - now)
