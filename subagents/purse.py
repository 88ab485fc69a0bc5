"""The purse of a run: what may be spent is reserved before a call and settled after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from subagents.errors import BudgetExceeded

NANO = 1_000_000_000
"""Nanodollars in a dollar: amounts are whole numbers, so that sums are exact."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What one call may cost, or did."""

    nanousd: int = 0
    tokens: int = 0
    """Input (cached or not) and output together."""
    steps: int = 0
    """Model calls."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.nanousd + other.nanousd, self.tokens + other.tokens, self.steps + other.steps
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.nanousd - other.nanousd, self.tokens - other.tokens, self.steps - other.steps
        )

    @property
    def usd(self) -> float:
        return self.nanousd / NANO


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of a run; each is held at any parallelism."""

    nanousd: int
    tokens: int
    steps: int
    seconds: float


class Purse:
    """Keeps `spent + reserved` within the caps.

    A key (`run/child/step/attempt`) is reserved once and settled once: both are idempotent, so that
    a replay pays nothing twice. A reservation that nobody settles counts as spent.
    """

    def __init__(self, caps: Caps, clock: Callable[[], float]) -> None:
        self.caps = caps
        self._clock = clock
        self._end = clock() + caps.seconds
        self._held: dict[str, Amount] = {}
        self._settled: dict[str, Amount] = {}
        self._spent = Amount()
        self._reserved = Amount()

    @property
    def spent(self) -> Amount:
        return self._spent

    @property
    def reserved(self) -> Amount:
        return self._reserved

    def seconds_left(self) -> float:
        return self._end - self._clock()

    async def reserve(self, key: str, worst: Amount) -> None:
        """Hold `worst` under `key`; the same key again changes what it holds.

        Raises BudgetExceeded, changing nothing, where it would pass a cap. Never waits.
        """
        if key in self._settled:
            return
        before = self._held.get(key, Amount())
        after = self._spent + self._reserved - before + worst
        for each in fields(Amount):
            total, limit = getattr(after, each.name), getattr(self.caps, each.name)
            if total > limit and getattr(worst, each.name) > getattr(before, each.name):
                used = total - getattr(worst, each.name)
                raise BudgetExceeded(each.name, used, getattr(worst, each.name), limit)
        self._held[key] = worst
        self._reserved = self._reserved - before + worst

    async def settle(self, key: str, actual: Amount) -> None:
        """Turn the reservation into what was really spent (nothing, when it was not used)."""
        if key in self._settled:
            return
        self._reserved -= self._held.pop(key, Amount())
        self._settled[key] = actual
        self._spent += actual
