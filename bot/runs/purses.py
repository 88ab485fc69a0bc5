"""The purse of a durable run: rows, so that replicas share it and a crash forgets nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.serve_tables import purses, reservations
from bot.storage.together import Together
from subagents.errors import BudgetExceeded
from subagents.purse import Amount, Books, Caps, Purse

WHAT = tuple(each.name for each in fields(Amount))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One change of the books that waits for the transaction before its own."""

    what: Literal["held", "sent", "settled"]
    key: str
    amount: Amount


class StoredPurse(Purse):
    """The books of a run as rows. What many subagents ask at one time shares a transaction.

    No call is made that is not on the books: give it a database that is patient.
    """

    def __init__(
        self, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> None:
        super().__init__(caps, clock)
        self._database, self._run, self._owner = database, run, owner
        self._entries: Together[_Entry, None] = Together(self._write)

    @classmethod
    async def open(
        cls, database: Database, run: str, caps: Caps, clock: Callable[[], float], owner: str
    ) -> StoredPurse:
        """The purse of this run; the caps that it was first opened with hold."""
        insert = database.insert(purses).values(run=run, **_row("cap", caps), **_ZERO)
        await database.write(insert.on_conflict_do_nothing())
        return cls(database, run, caps, clock, owner)

    async def reserve(self, key: str, worst: Amount) -> None:
        try:
            await self._entries.ask(_Entry("sent", key, worst))
        except asyncio.CancelledError:  # the call will not be made
            self._entries.ask(_Entry("settled", key, Amount()))
            raise

    async def hold(self, key: str, worst: Amount) -> None:
        await self._entries.ask(_Entry("held", key, worst))

    async def settle(self, key: str, actual: Amount) -> None:
        await self._entries.ask(_Entry("settled", key, actual))

    async def aclose(self) -> None:
        """Wait for what is still being written."""
        await self._entries.aclose()

    async def _write(self, entries: Sequence[_Entry]) -> Sequence[BudgetExceeded | None]:
        return await self._database.change(partial(self._apply, entries))

    def _apply(
        self, entries: Sequence[_Entry], connection: sa.Connection
    ) -> list[BudgetExceeded | None]:
        """Change the books by these entries; one outcome each, in order."""
        row = connection.execute(_TOTALS, {"of": self._run}).mappings().one()
        found = _reservations(connection, self._run, [e.key for e in entries])
        caps = Caps(**_amount(row, "cap_"), seconds=self.caps.seconds)
        spent, reserved = (Amount(**_amount(row, f"{k}_")) for k in ("spent", "reserved"))
        held = {k: Amount(**_amount(r)) for k, r in found.items() if r["state"] != "settled"}
        settled = {k: Amount(**_amount(r)) for k, r in found.items() if r["state"] == "settled"}
        books = Books(caps, spent, reserved, held, settled)
        changed: dict[str, dict[str, Any]] = {}
        outcomes = []
        for entry in entries:
            if entry.what != "settled" and entry.key in books.settled:
                # The call was paid, or what was held given back, in an earlier life: once more.
                self._save_reservations(connection, changed)
                _rename(connection, self._run, entry.key)
                del books.settled[entry.key]
            outcomes.append(self._one(books, entry, changed))
        self._books = Books(caps, books.spent, books.reserved)
        self._save_reservations(connection, changed)
        totals = _row("spent", books.spent) | _row("reserved", books.reserved)
        connection.execute(_NEW_TOTALS, {"of": self._run, **totals})
        return outcomes

    def _one(
        self, books: Books, entry: _Entry, changed: dict[str, dict[str, Any]]
    ) -> BudgetExceeded | None:
        if entry.what == "settled":
            if entry.key in books.held or entry.amount != Amount():
                books.settle(entry.key, entry.amount)
        elif refusal := books.reserve(entry.key, entry.amount):
            return refusal
        amount = books.held.get(entry.key) or books.settled.get(entry.key)
        if amount is not None:
            state = "settled" if entry.key in books.settled else entry.what
            row = {"run": self._run, "key": entry.key, "state": state, "owner": self._owner}
            changed[entry.key] = row | {name: getattr(amount, name) for name in WHAT}
        return None

    def _save_reservations(
        self, connection: sa.Connection, changed: dict[str, dict[str, Any]]
    ) -> None:
        if changed:
            save = self._database.upsert(reservations, ("run", "key"), (*WHAT, "state", "owner"))
            connection.execute(save, list(changed.values()))
            changed.clear()


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


def _reservations(
    connection: sa.Connection, run: str, keys: Sequence[str]
) -> dict[str, sa.RowMapping]:
    found = connection.execute(_RESERVED, {"of": run, "keys": list(keys)})
    return {row["key"]: row for row in found.mappings()}


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
_ZERO = _row("spent", Amount()) | _row("reserved", Amount())
