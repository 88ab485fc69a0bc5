"""The purse of a run: what may be spent is reserved before a call and settled after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

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


@dataclass
class Books:
    """What of a run is spent and reserved, and the rule that keeps the sum within the caps.

    A key (`run/child/step/attempt`) is reserved once and settled once: both are idempotent, so that
    a replay pays nothing twice. A reservation that nobody settles counts as spent.
    """

    caps: Caps
    spent: Amount = Amount()
    reserved: Amount = Amount()
    held: dict[str, Amount] = field(default_factory=dict)
    settled: dict[str, Amount] = field(default_factory=dict)

    def reserve(self, key: str, worst: Amount) -> BudgetExceeded | None:
        """Hold `worst` under `key`, or say which cap it would pass, changing nothing."""
        if key in self.settled:
            return None
        before = self.held.get(key, Amount())
        after = self.spent + self.reserved - before + worst
        for each in fields(Amount):
            total, limit = getattr(after, each.name), getattr(self.caps, each.name)
            if total > limit and getattr(worst, each.name) > getattr(before, each.name):
                used = total - getattr(worst, each.name)
                return BudgetExceeded(each.name, used, getattr(worst, each.name), limit)
        self.held[key] = worst
        self.reserved = self.reserved - before + worst
        return None

    def settle(self, key: str, actual: Amount) -> None:
        """Turn the reservation into what was really spent (nothing, when it was not used)."""
        if key in self.settled:
            return
        self.reserved -= self.held.pop(key, Amount())
        self.settled[key] = actual
        self.spent += actual


class Purse:
    """The books of a run, in memory, and the time that it has left."""

    def __init__(self, caps: Caps, clock: Callable[[], float]) -> None:
        self.caps = caps
        self._clock = clock
        self._end = clock() + caps.seconds
        self._books = Books(caps)

    @property
    def spent(self) -> Amount:
        return self._books.spent

    @property
    def reserved(self) -> Amount:
        return self._books.reserved

    def seconds_left(self) -> float:
        return self._end - self._clock()

    async def reserve(self, key: str, worst: Amount) -> None:
        """Hold `worst` for a call that follows at once; the same key again changes what it holds.

        Raises BudgetExceeded, changing nothing, where it would pass a cap. Never waits for money.
        """
        if refusal := self._books.reserve(key, worst):
            raise refusal

    async def hold(self, key: str, worst: Amount) -> None:
        """The same for a call that may come later: after a crash it counts as never made."""
        await self.reserve(key, worst)

    async def settle(self, key: str, actual: Amount) -> None:
        """Turn the reservation into what was really spent (nothing, when it was not used)."""
        self._books.settle(key, actual)
