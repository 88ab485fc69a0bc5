"""The budget of a run: what may be spent is reserved before a call and settled after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from operator import add, le, sub
from types import MappingProxyType

from config.sections import LimitSettings
from subagents.errors import BudgetExceeded

NANOUSD_PER_USD = 1_000_000_000
"""Nanodollars per dollar: amounts are whole numbers, so that sums are exact."""


@dataclass(frozen=True, slots=True)
class Amount:
    """The cost of one call, expected or actual."""

    nanousd: int = 0
    tokens: int = 0
    """Input (cached or not) plus output."""
    steps: int = 0
    """Model calls."""

    @property
    def parts(self) -> tuple[int, int, int]:
        return self.nanousd, self.tokens, self.steps

    def __add__(self, other: Amount) -> Amount:
        return Amount(*map(add, self.parts, other.parts))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(*map(sub, self.parts, other.parts))

    def within(self, other: Amount) -> bool:
        """Return whether every part of this amount is at most that of the other."""
        return all(map(le, self.parts, other.parts))

    @property
    def usd(self) -> float:
        return self.nanousd / NANOUSD_PER_USD


AMOUNTS = tuple(each.name for each in fields(Amount))
"""Names of the parts of an amount."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits of a run; each holds at any parallelism."""

    nanousd: int
    tokens: int
    steps: int
    seconds: float

    @classmethod
    def of(cls, limits: LimitSettings) -> Caps:
        return cls(
            round(limits.cost_usd * NANOUSD_PER_USD), limits.tokens, limits.steps, limits.seconds
        )


class State(StrEnum):
    """The purpose of a reservation."""

    SENT = "sent"
    """A call in progress."""
    HELD = "held"
    """A call that its context may make later."""
    WAITS = "waits"
    """The same while its context waits for room, and so cannot release it."""
    KEPT = "kept"
    """The call that reads the results of the others; they cannot wait for it to end."""


UNDER_WAY = (State.SENT, State.HELD)
"""Reservations that shrink or end without anything else being granted."""


@dataclass(frozen=True, slots=True)
class Reservation:
    amount: Amount
    state: State


@dataclass(frozen=True, eq=False, slots=True)
class ReservationRequest:
    """A request for reservations; all of them are made, or none."""

    amounts: Mapping[str, Amount]
    """Amount to reserve under each key."""
    state: State
    own_keys: Collection[str] = ()
    """Keys that this context already holds and does not release while it waits."""
    sent: str = ""
    """Key of a call that follows at once; the state is that of the others."""

    @property
    def keys(self) -> set[str]:
        return {*self.amounts, *self.own_keys}

    @property
    def calls(self) -> list[str]:
        """Return the keys that are useless once nobody waits for the answer."""
        return [key for key in self.amounts if key not in self.own_keys]


@dataclass
class BudgetQueue:
    """The amounts spent and reserved in a run, and the rule that keeps their sum within the caps.

    A key (`run/child/step/attempt`) is reserved once and settled once: both are idempotent, so that
    a replay pays nothing twice. A reservation that is never settled counts as spent.
    """

    caps: Caps
    spent: Amount = Amount()
    reserved: Amount = Amount()
    held: dict[str, Reservation] = field(default_factory=dict)
    settled: dict[str, Amount] = field(default_factory=dict)

    def serve(
        self, queue: list[ReservationRequest]
    ) -> dict[ReservationRequest, BudgetExceeded | None]:
        """Remove the requests that can be answered now from the queue; None = granted.

        Worst cases are several times the actual cost, so a request that does not fit waits while
        any call is in progress. Running contexts come before those that have not begun, each in the
        order in which they asked; none is overtaken while a call is in progress. Room for one more
        call stays free: contexts that wait for a slow tool hold only their final call, and more and
        more of them would leave no room for the next call of any. When all wait, the oldest that
        fits may use it, or else the newest is refused, so that its context ends and makes room.
        """
        answers: dict[ReservationRequest, BudgetExceeded | None] = {}
        while queue and (chosen := self._next(queue)):
            request, refusal = chosen
            queue.remove(request)
            answers[request] = refusal
            self.mark(request, State.WAITS, State.HELD)
            if refusal is None:
                self._grant(request)
        return answers

    def settle(self, key: str, actual: Amount) -> None:
        """Replace a reservation by the actual cost (zero if it was not used)."""
        if key in self.settled:
            return
        if key in self.held:
            self.reserved -= self.held.pop(key).amount
        if actual != Amount():
            self.settled[key] = actual
            self.spent += actual

    def withdraw(self, queue: list[ReservationRequest], request: ReservationRequest) -> None:
        """Withdraw a request, waiting or granted; nothing new stays reserved."""
        if request in queue:
            queue.remove(request)
        self.mark(request, State.WAITS, State.HELD)
        for key in request.calls:
            self.settle(key, Amount())

    def mark(self, request: ReservationRequest, old: State, new: State) -> None:
        """Change the state of the reservations of this request's context."""
        for key in request.keys & self.held.keys():
            if self.held[key].state is old:
                self.held[key] = replace(self.held[key], state=new)

    def _next(
        self, queue: Sequence[ReservationRequest]
    ) -> tuple[ReservationRequest, BudgetExceeded | None] | None:
        """Return the next request to answer and why it is refused; None if all have to wait."""
        if found := self._answer_at_once(queue):
            return found
        running = [request for request in queue if not self.held.keys().isdisjoint(request.keys)]
        if not running and any(each.state is State.WAITS for each in self.held.values()):
            return None  # in another process
        head = (running or queue)[0]
        if self.has_room(head) or (self.fits(head) and not self._others_at_work(head)):
            return head, None
        for request in running:
            self.mark(request, State.HELD, State.WAITS)
        waiting = set[str]().union(*(request.keys for request in queue))
        others = (each for key, each in self.held.items() if key not in waiting)
        if any(each.state in UNDER_WAY for each in others):
            return None
        return self._when_all_wait(sorted(running, key=_age), queue)

    def _answer_at_once(
        self, queue: Iterable[ReservationRequest]
    ) -> tuple[ReservationRequest, BudgetExceeded | None] | None:
        """Return the first request that asks for nothing new, or that cannot fit even later."""
        kept: list[str] | None = None
        for request in queue:
            if self._wants(request).within(self._has(request.amounts)):
                return request, None
            if self.has_room(request):
                continue  # it fits with all that is held, so also with what lasts of it
            if kept is None:
                kept = [key for key, each in self.held.items() if each.state is State.KEPT]
            lasting = {*kept, *request.own_keys} - request.amounts.keys()
            # Would it fit if everything that others hold were released unspent?
            if refusal := self._excess(request, self.spent + self._has(lasting)):
                return request, refusal
        return None

    def _when_all_wait(
        self, running: Sequence[ReservationRequest], queue: Sequence[ReservationRequest]
    ) -> tuple[ReservationRequest, BudgetExceeded | None] | None:
        """Return the same as `_next`, from running contexts, oldest first, else from new ones."""
        fitting = next(filter(self.fits, running or queue), None)
        if fitting:
            return fitting, None
        if not running:
            return None
        newest = running[-1]
        return newest, self._excess(newest, self._others(newest))

    def _grant(self, request: ReservationRequest) -> None:
        for key, amount in request.amounts.items():
            if key not in self.settled:  # else it was already paid for
                self.reserved += amount - self._has([key])
                state = State.SENT if key == request.sent else request.state
                self.held[key] = Reservation(amount, state)

    def _wants(self, request: ReservationRequest) -> Amount:
        """Return the total that a request asks for, without what is already settled."""
        new = (amount for key, amount in request.amounts.items() if key not in self.settled)
        return sum(new, Amount())

    def _has(self, keys: Iterable[str]) -> Amount:
        return sum((self.held[key].amount for key in keys if key in self.held), Amount())

    def _others(self, request: ReservationRequest) -> Amount:
        return self.spent + self.reserved - self._has(request.amounts)

    def fits(self, request: ReservationRequest) -> bool:
        return self._excess(request, self._others(request)) is None

    def has_room(self, request: ReservationRequest) -> bool:
        """Return whether a request fits, and another call as large as its largest."""
        call = Amount(
            *map(max, zip(*(each.parts for each in request.amounts.values()), strict=True))
        )
        return self._excess(request, self._others(request) + call) is None

    def _others_at_work(self, request: ReservationRequest) -> bool:
        others = (each.state for key, each in self.held.items() if key not in request.keys)
        return any(state in (State.HELD, State.WAITS) for state in others)

    def _excess(self, request: ReservationRequest, others: Amount) -> BudgetExceeded | None:
        """Return the cap that a request would exceed on top of `others`; it exceeds none for a
        kind of which it asks for no more than it holds."""
        worst, has = self._wants(request), self._has(request.amounts)
        for name in AMOUNTS:
            mine, used, limit = (getattr(each, name) for each in (worst, others, self.caps))
            if used + mine > limit and mine > getattr(has, name):
                return BudgetExceeded(name, used, mine, limit)
        return None


def _age(request: ReservationRequest) -> tuple[int, str]:
    """Return the order in which contexts began: their keys are numbered."""
    return min((len(key), key) for key in request.own_keys or request.amounts)


class Budget:
    """The budget of a run in memory, and the time that it has left."""

    def __init__(self, caps: Caps, clock: Callable[[], float], spent: Amount | None = None) -> None:
        """`spent` is what an earlier process of this run has paid."""
        self.caps = caps
        self._clock = clock
        self._end = clock() + caps.seconds
        self._books = BudgetQueue(caps, spent or Amount())
        self._queue: list[ReservationRequest] = []
        """Requests that are not answered yet, oldest first."""
        self._answers: dict[ReservationRequest, asyncio.Future[None]] = {}

    @property
    def spent(self) -> Amount:
        return self._books.spent

    @property
    def reserved(self) -> Amount:
        return self._books.reserved

    def seconds_left(self) -> float:
        return self._end - self._clock()

    async def extend(self, nanousd: int, seconds: float) -> None:
        """Raise the caps to these for work that takes more than an answer; may be called again."""
        nanousd = max(nanousd, self.caps.nanousd)
        self.caps = self._books.caps = replace(self.caps, nanousd=nanousd)
        self._end = max(self._end, self._clock() + seconds)

    async def reserve(
        self,
        key: str,
        worst: Amount,
        *,
        later: Mapping[str, Amount] = MappingProxyType({}),
        own_keys: Collection[str] = (),
    ) -> None:
        """Reserve `worst` for a call that follows at once, and `later` for others, or nothing:
        contexts that each held only their final call would wait for each other.

        Waits as `hold` does. Reserving a key again changes its amount; what the key already holds
        is available at once. After a crash the call counts as spent.
        """
        wanted = {**later, key: worst}
        await self._ask(ReservationRequest(wanted, State.HELD, own_keys, sent=key))

    async def hold(self, wanted: Mapping[str, Amount], *, own_keys: Collection[str] = ()) -> None:
        """Reserve an amount under each key for a call that may come later: all of them or none.

        If they do not fit, wait until they do, without a time limit. Raise BudgetExceeded, changing
        nothing, if no outstanding call could make room. After a crash, what was held counts as not
        spent.
        """
        await self._ask(ReservationRequest(wanted, State.HELD, own_keys))

    async def keep(self, key: str, worst: Amount) -> None:
        """Reserve an amount for a call that is made only when the others have ended."""
        await self._ask(ReservationRequest({key: worst}, State.KEPT, own_keys=(key,)))

    async def settle(self, key: str, actual: Amount) -> None:
        """Replace a reservation by the actual cost (zero if it was not used)."""
        self._books.settle(key, actual)
        self._answer(self._books.serve(self._queue))

    async def _ask(self, request: ReservationRequest) -> None:
        """Wait for the answer to a request; raise its refusal."""
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        try:
            await self._enter(request)
            await answer
        except asyncio.CancelledError:  # the call will not be made
            if answer.done() and not answer.cancelled():
                answer.exception()  # mark the exception as retrieved: nobody else will
            self._withdraw(request)
            raise
        finally:
            del self._answers[request]

    async def _enter(self, request: ReservationRequest) -> None:
        self._queue.append(request)
        self._answer(self._books.serve(self._queue))

    def _withdraw(self, request: ReservationRequest) -> None:
        self._books.withdraw(self._queue, request)
        self._answer(self._books.serve(self._queue))

    def _answer(self, answers: Mapping[ReservationRequest, Exception | None]) -> None:
        """Pass answers on to those who still wait."""
        for request, refusal in answers.items():
            answer = self._answers.get(request)
            if answer is None or answer.done():
                continue
            if refusal:
                answer.set_exception(refusal)
            else:
                answer.set_result(None)
