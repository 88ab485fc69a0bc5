"""The purse of a run: what may be spent is reserved before a call and settled after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

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

    def within(self, other: Amount) -> bool:
        """Whether no part of it is more than that of the other."""
        return all(getattr(self, f.name) <= getattr(other, f.name) for f in fields(Amount))

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


class State(StrEnum):
    """What a reservation is for."""

    SENT = "sent"
    """A call under way."""
    HELD = "held"
    """A call that its context may make later."""
    WAITS = "waits"
    """The same, while the context waits for room: it gives nothing back before it has gone on."""
    KEPT = "kept"
    """The call of whoever reads the results of the others: they cannot wait for it to end."""


UNDER_WAY = (State.SENT, State.HELD)
"""Reservations that become smaller, or end, without anybody being given more."""


@dataclass(frozen=True, slots=True)
class Reservation:
    amount: Amount
    state: State


@dataclass(frozen=True, eq=False, slots=True)
class Wish:
    """Reservations that somebody asks for; all of them are made, or none."""

    wanted: Mapping[str, Amount]
    """What each key is to hold from then on."""
    state: State
    behind: Collection[str] = ()
    """Keys of what this context holds already and does not give back while it waits."""

    @property
    def keys(self) -> set[str]:
        return {*self.wanted, *self.behind}

    @property
    def calls(self) -> list[str]:
        """Keys that are of no use where nobody waits for the answer any more."""
        return [key for key in self.wanted if key not in self.behind]


@dataclass
class Books:
    """What of a run is spent and reserved, and the rule that keeps the sum within the caps.

    A key (`run/child/step/attempt`) is reserved once and settled once: both are idempotent, so that
    a replay pays nothing twice. A reservation that nobody settles counts as spent.
    """

    caps: Caps
    spent: Amount = Amount()
    reserved: Amount = Amount()
    held: dict[str, Reservation] = field(default_factory=dict)
    settled: dict[str, Amount] = field(default_factory=dict)

    def serve(self, queue: list[Wish]) -> dict[Wish, BudgetExceeded | None]:
        """Take the wishes that can be answered now out of the queue; None = granted.

        Worst cases are several times what calls cost, so a wish that does not fit waits while
        something is under way. Contexts at work come before those that have not begun, and each
        in the order in which they asked: none is overtaken until nothing is under way any more.
        Then one wish is refused, the newest, so that its context ends and makes room.
        """
        answers: dict[Wish, BudgetExceeded | None] = {}
        while queue and (chosen := self._next(queue)):
            wish, refusal = chosen
            queue.remove(wish)
            answers[wish] = refusal
            self.mark(wish, State.WAITS, State.HELD)
            if refusal is None:
                self._grant(wish)
        return answers

    def settle(self, key: str, actual: Amount) -> None:
        """Turn the reservation into what was really spent (nothing, when it was not used)."""
        if key in self.settled:
            return
        if key in self.held:
            self.reserved -= self.held.pop(key).amount
        if actual != Amount():
            self.settled[key] = actual
            self.spent += actual

    def withdraw(self, queue: list[Wish], wish: Wish) -> None:
        """Take back a wish, whether it waits or was granted; nothing new stays reserved."""
        if wish in queue:
            queue.remove(wish)
        self.mark(wish, State.WAITS, State.HELD)
        for key in wish.calls:
            self.settle(key, Amount())

    def mark(self, wish: Wish, old: State, new: State) -> None:
        """Change the state of what the context of this wish holds."""
        for key in wish.keys & self.held.keys():
            if self.held[key].state is old:
                self.held[key] = replace(self.held[key], state=new)

    def _next(self, queue: Sequence[Wish]) -> tuple[Wish, BudgetExceeded | None] | None:
        """The wish to be answered next, and why it is refused; None where all have to wait."""
        states = {key: each.state for key, each in self.held.items()}
        kept = [key for key, state in states.items() if state is State.KEPT]
        for wish in queue:
            if self._wants(wish).within(self._has(wish.wanted)):
                return wish, None
            lasting = {*kept, *wish.behind} - wish.wanted.keys()
            # Would it fit if all that others hold came back unspent?
            if refusal := self._excess(wish, self.spent + self._has(lasting)):
                return wish, refusal
        at_work = [wish for wish in queue if not states.keys().isdisjoint(wish.keys)]
        if not at_work and State.WAITS in states.values():  # in another process
            return None
        for head in (*at_work, *queue)[:1]:
            if self.fits(head):
                return head, None
        for wish in at_work:
            self.mark(wish, State.HELD, State.WAITS)
        waiting = set[str]().union(*(wish.keys for wish in queue))
        others = (each for key, each in self.held.items() if key not in waiting)
        if not at_work or any(each.state in UNDER_WAY for each in others):
            return None
        fitting = next(filter(self.fits, at_work), None)
        if fitting:
            return fitting, None
        return at_work[-1], self._excess(at_work[-1], self._others(at_work[-1]))

    def _grant(self, wish: Wish) -> None:
        for key, amount in wish.wanted.items():
            if key not in self.settled:  # else it was paid for
                self.reserved += amount - self._has([key])
                self.held[key] = Reservation(amount, wish.state)

    def _wants(self, wish: Wish) -> Amount:
        """What it asks for in all; what is settled was paid for."""
        new = (amount for key, amount in wish.wanted.items() if key not in self.settled)
        return sum(new, Amount())

    def _has(self, keys: Iterable[str]) -> Amount:
        return sum((self.held[key].amount for key in keys if key in self.held), Amount())

    def _others(self, wish: Wish) -> Amount:
        return self.spent + self.reserved - self._has(wish.wanted)

    def fits(self, wish: Wish) -> bool:
        return self._excess(wish, self._others(wish)) is None

    def _excess(self, wish: Wish, others: Amount) -> BudgetExceeded | None:
        """The cap that a wish would pass beside what others have; one that asks for no more of a
        kind than it has passes none."""
        worst, has = self._wants(wish), self._has(wish.wanted)
        for each in fields(Amount):
            mine, used = getattr(worst, each.name), getattr(others, each.name)
            limit = getattr(self.caps, each.name)
            if used + mine > limit and mine > getattr(has, each.name):
                return BudgetExceeded(each.name, used, mine, limit)
        return None


class Purse:
    """The books of a run, in memory, and the time that it has left."""

    def __init__(self, caps: Caps, clock: Callable[[], float]) -> None:
        self.caps = caps
        self._clock = clock
        self._end = clock() + caps.seconds
        self._books = Books(caps)
        self._queue: list[Wish] = []
        """Wishes that are not answered yet, the oldest first."""
        self._answers: dict[Wish, asyncio.Future[None]] = {}

    @property
    def spent(self) -> Amount:
        return self._books.spent

    @property
    def reserved(self) -> Amount:
        return self._books.reserved

    def seconds_left(self) -> float:
        return self._end - self._clock()

    async def reserve(self, key: str, worst: Amount, *, behind: Collection[str] = ()) -> None:
        """Reserve `worst` for a call that follows at once; the same key again changes it.

        Waits as `hold` does; what was held for the call under this key is there at once.
        """
        await self._ask(Wish({key: worst}, State.SENT, behind))

    async def hold(self, wanted: Mapping[str, Amount], *, behind: Collection[str] = ()) -> None:
        """Hold an amount under each key for a call that may come later, all of them or none.

        Where they do not fit beside what is reserved, it waits until they do: there is no limit of
        time. Raises BudgetExceeded, changing nothing, where nothing outstanding could make room.
        After a crash what was held counts as never spent.
        """
        await self._ask(Wish(wanted, State.HELD, behind))

    async def keep(self, key: str, worst: Amount) -> None:
        """Hold an amount for a call that is made only when the others have ended."""
        await self._ask(Wish({key: worst}, State.KEPT, behind=(key,)))

    async def settle(self, key: str, actual: Amount) -> None:
        """Turn the reservation into what was really spent (nothing, when it was not used)."""
        self._books.settle(key, actual)
        self._answer(self._books.serve(self._queue))

    async def _ask(self, wish: Wish) -> None:
        """Wait for the answer to a wish. Raises what refuses it."""
        answer = self._answers[wish] = asyncio.get_running_loop().create_future()
        try:
            await self._enter(wish)
            await answer
        except asyncio.CancelledError:  # the call will not be made
            if answer.done() and not answer.cancelled():
                answer.exception()  # nobody else will look at it
            self._withdraw(wish)
            raise
        finally:
            del self._answers[wish]

    async def _enter(self, wish: Wish) -> None:
        self._queue.append(wish)
        self._answer(self._books.serve(self._queue))

    def _withdraw(self, wish: Wish) -> None:
        self._books.withdraw(self._queue, wish)
        self._answer(self._books.serve(self._queue))

    def _answer(self, answers: Mapping[Wish, Exception | None]) -> None:
        """Tell those who still wait."""
        for wish, refusal in answers.items():
            answer = self._answers.get(wish)
            if answer is None or answer.done():
                continue
            if refusal:
                answer.set_exception(refusal)
            else:
                answer.set_result(None)
