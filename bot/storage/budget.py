"""The budget of a durable run, stored as rows: replicas share it and it survives a crash."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa

from bot.storage.database import BatchWriter, Database
from bot.storage.tables import budgets, reservations
from subagents.budget import (
    AMOUNTS,
    Amount,
    Budget,
    BudgetQueue,
    Caps,
    Reservation,
    ReservationRequest,
    State,
)
from subagents.errors import BudgetExceeded

SETTLED_STATE = "settled"
"""State of a row of an actual cost; the other states are `State`."""


ZERO_AMOUNT = Amount()
POLL_S = 0.25
"""Seconds between checks whether another process has released budget."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One pending change of the budget, to be written with the next transaction.

    An empty one only loads the changes of other processes.
    """

    request: ReservationRequest | None = None
    withdrawn: bool = False
    """True if the request is withdrawn."""
    key: str = ""
    """Key that is settled, with `amount`."""
    amount: Amount = ZERO_AMOUNT

    @property
    def keys(self) -> set[str]:
        return self.request.keys if self.request else {self.key}


class StoredBudget(Budget):
    """The budget of a run as rows. Concurrent requests of many subagents share a transaction.

    Waiting requests are in the memory of their process. The rows of their contexts are marked
    `waits`, so that each process can tell whether any call is in progress in another one. Every
    call must be recorded here: pass a RetryingDatabase.
    """

    def __init__(
        self, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> None:
        super().__init__(caps, clock)
        self._database, self._run, self._owner = database, run, owner
        self._entries: BatchWriter[_Entry, None] = BatchWriter(self._write)
        self._poll_task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> StoredBudget:
        """Open the budget of this run, with the caps of the first time it was opened."""
        insert = database.upsert(budgets)
        await database.write(insert.values(run=run, **_row("cap", caps), **_ZERO))
        return cls(database, run, caps, clock, owner)

    async def extend(self, nanousd: int, seconds: float) -> None:
        lower = sa.and_(budgets.c.run == self._run, budgets.c.cap_nanousd < nanousd)
        await self._database.write(sa.update(budgets).where(lower).values(cap_nanousd=nanousd))
        await super().extend(nanousd, seconds)

    async def settle(self, key: str, actual: Amount) -> None:
        await self._entries.ask(_Entry(key=key, amount=actual))

    async def aclose(self) -> None:
        """Wait for pending writes."""
        if self._poll_task:
            self._poll_task.cancel()
        await self._entries.aclose()

    async def _enter(self, request: ReservationRequest) -> None:
        await self._entries.ask(_Entry(request))

    def _withdraw(self, request: ReservationRequest) -> None:
        self._entries.ask(_Entry(request, withdrawn=True))

    async def _look(self) -> None:
        """Check the waiting requests periodically while there are any."""
        while self._queue:
            await asyncio.sleep(POLL_S)
            try:
                await self._entries.ask(_Entry())
            except Exception as error:  # passed to the waiting callers
                self._answer(dict.fromkeys(self._queue, error))
                self._queue = []

    async def _write(self, entries: Sequence[_Entry]) -> Sequence[None]:
        work = partial(self._apply, entries, tuple(self._queue))
        self._queue, answers = await self._database.change(work)
        self._answer(answers)
        others = self._queue and self._database.shared
        if others and (self._poll_task is None or self._poll_task.done()):
            self._poll_task = asyncio.create_task(self._look())
        return [None] * len(entries)

    def _apply(
        self,
        entries: Sequence[_Entry],
        waiting: Sequence[ReservationRequest],
        connection: sa.Connection,
    ) -> tuple[list[ReservationRequest], dict[ReservationRequest, BudgetExceeded | None]]:
        """Apply these entries in order; return the waiting and the answered requests."""
        row = connection.execute(_TOTALS, {"of": self._run}).one()
        caps = Caps(**_amount(row, "cap_"), seconds=self.caps.seconds)
        spent, reserved = (Amount(**_amount(row, f"{k}_")) for k in ("spent", "reserved"))
        totals = BudgetQueue(caps, spent, reserved)
        rows = _Rows(connection, self._database, self._run, self._owner, totals)
        wishes = [*waiting, *(e.request for e in entries if e.request)]
        rows.load({*chain(*(e.keys for e in entries), *(w.keys for w in wishes))})
        if waiting or (wishes and self._database.shared):
            rows.load_outstanding()
        queue, answers = list(waiting), dict[ReservationRequest, BudgetExceeded | None]()
        for entry in entries:
            if entry.request is None:
                if entry.key in totals.held or entry.amount != ZERO_AMOUNT:
                    totals.settle(entry.key, entry.amount)
            elif entry.withdrawn:
                totals.withdraw(queue, entry.request)
            else:
                rows.reopen(entry.request.amounts)
                queue.append(entry.request)
            if queue and not totals.has_room(queue[-1]):
                rows.load_outstanding()
            answers |= totals.serve(queue)
        rows.save()
        self._books = BudgetQueue(caps, totals.spent, totals.reserved)
        changed = _row("spent", totals.spent) | _row("reserved", totals.reserved)
        connection.execute(_NEW_TOTALS, {"of": self._run, **changed})
        return queue, answers


@dataclass
class _Rows:
    """The reservations of a run as rows: loads them into the budget, and saves changed ones."""

    connection: sa.Connection
    database: Database
    run: str
    owner: str
    totals: BudgetQueue
    stored: dict[str, Reservation | Amount] = field(default_factory=dict)
    """State of the loaded rows: a reservation, or a settled amount."""
    lost: set[str] = field(default_factory=set)
    """Keys of calls in progress in another process."""
    _all: bool = False

    def load(self, keys: Collection[str]) -> None:
        self._read(_RESERVED_QUERY, keys=list(keys))

    def load_outstanding(self) -> None:
        """Load the reservations that are not settled, here and in other processes."""
        if not self._all:
            self._all = True
            self._read(_OUTSTANDING_QUERY)

    def _read(self, query: sa.Select[Any], **values: object) -> None:
        for row in self.connection.execute(query, {"of": self.run, **values}):
            key, amount = row.key, Amount(**_amount(row))
            if key in self.stored:
                continue
            if row.state == SETTLED_STATE:
                self.stored[key] = self.totals.settled[key] = amount
            else:
                reservation = Reservation(amount, State(row.state))
                self.stored[key] = self.totals.held[key] = reservation
                if reservation.state is State.SENT and row.owner != self.owner:
                    self.lost.add(key)

    def reopen(self, keys: Iterable[str]) -> None:
        """Reopen calls that were settled before a crash and are repeated.

        A call in progress in another process died with that process, even if nobody has settled
        its calls yet: it counts as paid at its maximum.
        """
        for key in keys:
            if key in self.lost and key in self.totals.held:
                self.totals.settle(key, self.totals.held[key].amount)
            if self.totals.settled.get(key, ZERO_AMOUNT) != ZERO_AMOUNT:
                self.save()
                _rename(self.connection, self.run, key)
                del self.stored[key]
            self.totals.settled.pop(key, None)

    def save(self) -> None:
        """Write the rows that differ from the budget."""
        now: dict[str, Reservation | Amount] = {**self.totals.settled, **self.totals.held}
        reserved_keys = (k for k, each in self.stored.items() if isinstance(each, Reservation))
        now |= {key: ZERO_AMOUNT for key in reserved_keys if key not in now}
        changed = {key: each for key, each in now.items() if self.stored.get(key) != each}
        if changed:
            save = self.database.upsert(reservations, ("run", "key"), (*AMOUNTS, "state", "owner"))
            self.connection.execute(save, [self._as_row(k, v) for k, v in changed.items()])
            self.stored |= changed

    def _as_row(self, key: str, each: Reservation | Amount) -> dict[str, Any]:
        if isinstance(each, Amount):
            each, state = Reservation(each, State.SENT), SETTLED_STATE
        else:
            state = each.state.value
        row = {"run": self.run, "key": key, "state": state, "owner": self.owner}
        return row | {name: getattr(each.amount, name) for name in AMOUNTS}


def settle_dead_calls(connection: sa.Connection, owner: str) -> None:
    """Settle the calls of the dead process `owner`: calls in progress count as paid at their
    maximum, and reservations of calls that it had not started are released."""
    is_pending = sa.and_(reservations.c.owner == owner, reservations.c.state != "settled")
    found = connection.execute(sa.select(reservations.c.run).where(is_pending)).scalars()
    for run in sorted(set(found)):  # no other process changes these budgets now
        connection.execute(sa.select(budgets.c.run).where(budgets.c.run == run).with_for_update())
    rows = connection.execute(sa.select(reservations).where(is_pending)).all()
    for run in sorted({row.run for row in rows}):
        own = [row for row in rows if row.run == run]
        change = {}
        for name in AMOUNTS:
            all_of_it = sum(getattr(row, name) for row in own)
            paid = sum(getattr(row, name) for row in own if row.state == "sent")
            change[f"reserved_{name}"] = budgets.c[f"reserved_{name}"] - all_of_it
            change[f"spent_{name}"] = budgets.c[f"spent_{name}"] + paid
        connection.execute(sa.update(budgets).where(budgets.c.run == run).values(**change))
        for row in own:
            if row.state == "sent":
                _rename(connection, run, row.key)
    connection.execute(sa.delete(reservations).where(is_pending))


def _rename(connection: sa.Connection, run: str, key: str) -> None:
    """Keep the row as spent under another key, since its key will be used again."""
    is_row = sa.and_(reservations.c.run == run, reservations.c.key == key)
    new_key = f"{key}/lost-{uuid.uuid4().hex[:8]}"
    connection.execute(sa.update(reservations).where(is_row).values(key=new_key, state="settled"))


def _amount(row: sa.Row[Any], prefix: str = "") -> dict[str, int]:
    return {name: getattr(row, f"{prefix}{name}") for name in AMOUNTS}


def _row(prefix: str, amount: Amount | Caps) -> dict[str, int]:
    return {f"{prefix}_{name}": getattr(amount, name) for name in AMOUNTS}


# Built once: a run changes its budget three times per call.
_OF = budgets.c.run == sa.bindparam("of")
_TOTALS = sa.select(budgets).where(_OF).with_for_update()
_NEW_TOTALS = sa.update(budgets).where(_OF)
_RESERVED_QUERY = sa.select(reservations).where(
    reservations.c.run == sa.bindparam("of"),
    reservations.c.key.in_(sa.bindparam("keys", expanding=True)),
)
_OUTSTANDING_QUERY = sa.select(reservations).where(
    reservations.c.run == sa.bindparam("of"), reservations.c.state != SETTLED_STATE
)
_ZERO = _row("spent", Amount()) | _row("reserved", Amount())
