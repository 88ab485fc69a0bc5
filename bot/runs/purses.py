"""The purse of a durable run: rows, so that replicas share it and a crash forgets nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.serve_tables import purses, reservations
from bot.storage.together import Together
from subagents.errors import BudgetExceeded
from subagents.purse import Amount, Books, Caps, Purse, Reservation, State, Wish

WHAT = tuple(each.name for each in fields(Amount))
SETTLED = "settled"
"""State of a row of what was really spent; the others are `State`."""


NOTHING = Amount()
POLL_S = 0.25
"""How often it is looked whether another process has made room."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One change of the books that waits for the transaction before its own; empty: a look at what
    other processes have changed."""

    wish: Wish | None = None
    withdrawn: bool = False
    """The wish is taken back."""
    key: str = ""
    """What is settled, with `amount`."""
    amount: Amount = NOTHING

    @property
    def keys(self) -> set[str]:
        return self.wish.keys if self.wish else {self.key}


class StoredPurse(Purse):
    """The books of a run as rows. What many subagents ask at one time shares a transaction.

    Wishes that wait are in the memory of their process. The rows of what their contexts hold say so
    (`waits`), so that each process can tell whether anything is under way in another one. No call
    is made that is not on the books: give it a database that is patient.
    """

    def __init__(
        self, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> None:
        super().__init__(caps, clock)
        self._database, self._run, self._owner = database, run, owner
        self._entries: Together[_Entry, None] = Together(self._write)
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> StoredPurse:
        """The purse of this run; the caps that it was first opened with hold."""
        insert = database.insert(purses).values(run=run, **_row("cap", caps), **_ZERO)
        await database.write(insert.on_conflict_do_nothing())
        return cls(database, run, caps, clock, owner)

    async def settle(self, key: str, actual: Amount) -> None:
        await self._entries.ask(_Entry(key=key, amount=actual))

    async def aclose(self) -> None:
        """Wait for what is still being written."""
        if self._looking:
            self._looking.cancel()
        await self._entries.aclose()

    async def _enter(self, wish: Wish) -> None:
        await self._entries.ask(_Entry(wish))

    def _withdraw(self, wish: Wish) -> None:
        self._entries.ask(_Entry(wish, withdrawn=True))

    async def _look(self) -> None:
        """Have the wishes judged again and again while there are any."""
        while self._queue:
            await asyncio.sleep(POLL_S)
            try:
                await self._entries.ask(_Entry())
            except Exception as error:  # those who wait are told of it
                self._answer(dict.fromkeys(self._queue, error))
                self._queue = []

    async def _write(self, entries: Sequence[_Entry]) -> Sequence[None]:
        work = partial(self._apply, entries, tuple(self._queue))
        self._queue, answers = await self._database.change(work)
        self._answer(answers)
        others = self._queue and self._database.shared
        if others and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())
        return [None] * len(entries)

    def _apply(
        self, entries: Sequence[_Entry], waiting: Sequence[Wish], connection: sa.Connection
    ) -> tuple[list[Wish], dict[Wish, BudgetExceeded | None]]:
        """Change the books by these entries, in order; who still waits, and who was answered."""
        row = connection.execute(_TOTALS, {"of": self._run}).mappings().one()
        caps = Caps(**_amount(row, "cap_"), seconds=self.caps.seconds)
        spent, reserved = (Amount(**_amount(row, f"{k}_")) for k in ("spent", "reserved"))
        books = Books(caps, spent, reserved)
        rows = _Rows(connection, self._database, self._run, self._owner, books)
        wishes = [*waiting, *(e.wish for e in entries if e.wish)]
        rows.load({*chain(*(e.keys for e in entries), *(w.keys for w in wishes))})
        if waiting or (wishes and self._database.shared):
            rows.load_outstanding()
        queue, answers = list(waiting), dict[Wish, BudgetExceeded | None]()
        for entry in entries:
            if entry.wish is None:
                if entry.key in books.held or entry.amount != NOTHING:
                    books.settle(entry.key, entry.amount)
            elif entry.withdrawn:
                books.withdraw(queue, entry.wish)
            else:
                rows.begin_again(entry.wish.wanted)
                queue.append(entry.wish)
            if queue and not books.fits(queue[-1]):
                rows.load_outstanding()
            answers |= books.serve(queue)
        rows.save()
        self._books = Books(caps, books.spent, books.reserved)
        totals = _row("spent", books.spent) | _row("reserved", books.reserved)
        connection.execute(_NEW_TOTALS, {"of": self._run, **totals})
        return queue, answers


@dataclass
class _Rows:
    """The reservations of a run as rows: read into the books, and what changed there written."""

    connection: sa.Connection
    database: Database
    run: str
    owner: str
    books: Books
    stored: dict[str, Reservation | Amount] = field(default_factory=dict)
    """What the rows that were read say: a reservation, or what was settled."""
    _all: bool = False

    def load(self, keys: Collection[str]) -> None:
        self._read(_RESERVED, keys=list(keys))

    def load_outstanding(self) -> None:
        """What is held and under way, here and in other processes."""
        if not self._all:
            self._all = True
            self._read(_OUTSTANDING)

    def _read(self, query: sa.Select[Any], **values: object) -> None:
        for row in self.connection.execute(query, {"of": self.run, **values}).mappings():
            key, amount = row["key"], Amount(**_amount(row))
            if key in self.stored:
                continue
            if row["state"] == SETTLED:
                self.stored[key] = self.books.settled[key] = amount
            else:
                held = Reservation(amount, State(row["state"]))
                self.stored[key] = self.books.held[key] = held

    def begin_again(self, keys: Iterable[str]) -> None:
        """Calls that were paid, or given back, in an earlier life, are made once more."""
        for key in keys:
            if self.books.settled.get(key, NOTHING) != NOTHING:
                self.save()
                _rename(self.connection, self.run, key)
                del self.stored[key]
            self.books.settled.pop(key, None)

    def save(self) -> None:
        """Write what the books say otherwise than the rows."""
        now: dict[str, Reservation | Amount] = {**self.books.settled, **self.books.held}
        gone = (k for k, each in self.stored.items() if isinstance(each, Reservation))
        now |= {key: NOTHING for key in gone if key not in now}
        changed = {key: each for key, each in now.items() if self.stored.get(key) != each}
        if changed:
            save = self.database.upsert(reservations, ("run", "key"), (*WHAT, "state", "owner"))
            self.connection.execute(save, [self._as_row(k, v) for k, v in changed.items()])
            self.stored |= changed

    def _as_row(self, key: str, each: Reservation | Amount) -> dict[str, Any]:
        if isinstance(each, Amount):
            each, state = Reservation(each, State.SENT), SETTLED
        else:
            state = each.state.value
        row = {"run": self.run, "key": key, "state": state, "owner": self.owner}
        return row | {name: getattr(each.amount, name) for name in WHAT}


def forget_calls_under_way(connection: sa.Connection, owner: str) -> None:
    """The process `owner` has died: its calls under way count as paid at their worst, and what it
    held for calls that it had not begun is free again."""
    mine = sa.and_(reservations.c.owner == owner, reservations.c.state != "settled")
    found = connection.execute(sa.select(reservations.c.run).where(mine)).scalars()
    for run in sorted(set(found)):  # no other process changes their books meanwhile
        connection.execute(sa.select(purses.c.run).where(purses.c.run == run).with_for_update())
    rows = connection.execute(sa.select(reservations).where(mine)).mappings().all()
    for run in sorted({row["run"] for row in rows}):
        own = [row for row in rows if row["run"] == run]
        change = {}
        for name in WHAT:
            all_of_it = sum(row[name] for row in own)
            paid = sum(row[name] for row in own if row["state"] == "sent")
            change[f"reserved_{name}"] = purses.c[f"reserved_{name}"] - all_of_it
            change[f"spent_{name}"] = purses.c[f"spent_{name}"] + paid
        connection.execute(sa.update(purses).where(purses.c.run == run).values(**change))
        for row in own:
            if row["state"] == "sent":
                _rename(connection, run, row["key"])
    connection.execute(sa.delete(reservations).where(mine))


def _rename(connection: sa.Connection, run: str, key: str) -> None:
    """Keep the row as spent under a key of its own: its key will be used again."""
    mine = sa.and_(reservations.c.run == run, reservations.c.key == key)
    lost = f"{key}/lost-{uuid.uuid4().hex[:8]}"
    connection.execute(sa.update(reservations).where(mine).values(key=lost, state="settled"))


def _amount(row: Any, prefix: str = "") -> dict[str, int]:
    return {name: row[f"{prefix}{name}"] for name in WHAT}


def _row(prefix: str, amount: Amount | Caps) -> dict[str, int]:
    return {f"{prefix}_{name}": getattr(amount, name) for name in WHAT}


# Made once: a run changes its books four times a call.
_OF = purses.c.run == sa.bindparam("of")
_TOTALS = sa.select(purses).where(_OF).with_for_update()
_NEW_TOTALS = sa.update(purses).where(_OF)
_RESERVED = sa.select(reservations).where(
    reservations.c.run == sa.bindparam("of"),
    reservations.c.key.in_(sa.bindparam("keys", expanding=True)),
)
_OUTSTANDING = sa.select(reservations).where(
    reservations.c.run == sa.bindparam("of"), reservations.c.state != SETTLED
)
_ZERO = _row("spent", Amount()) | _row("reserved", Amount())
