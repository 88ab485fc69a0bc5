"""What is known of a mailbox from one triage to the next: how far it was read, what was handled."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.mail.acts import MailActs
from bot.mail.corrections import Corrections
from bot.storage.database import Database
from bot.storage.mail_tables import mail_cursors, mail_threads
from scopes.mail import MailMessage, MailThread

Row = dict[str, Any]

HANDLED, OWED = "handled", "owed"
CHUNK = 500
"""Thread ids of one query."""
KEY = ("account", "thread")
CHANGED = ("state", "messages", "history", "run", "at", "until")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a mailbox stood when a triage began to list it."""

    mailbox: str
    """Its address: the account may have another one today."""
    history: str
    at: datetime
    """When that was, by our clock."""
    line: str
    """The same for all cursors that continue one another: what was handled under another one was
    in another mailbox, or before its history began anew."""
    unlisted: tuple[str, ...] = ()
    """Threads that Gmail told as changed and its search did not find. They are looked for once
    more: a search may lag behind the changes."""

    def to_text(self) -> str:
        return json.dumps({**asdict(self), "at": self.at.isoformat()})

    @classmethod
    def of_text(cls, text: str) -> Cursor:
        fields = json.loads(text)
        at, unlisted = datetime.fromisoformat(fields["at"]), tuple(fields["unlisted"])
        return cls(**{**fields, "at": at, "unlisted": unlisted})


@dataclass(frozen=True, slots=True)
class Handled:
    """What was read of a thread."""

    messages: frozenset[str]
    """Ids; none where no triage came to it yet."""
    history: str
    """All that the thread had at this history id is among them; empty = that is not known."""


def seen_of(thread: MailThread) -> list[str]:
    """What to note of a thread that was read: the ids of its messages."""
    return [m.id for m in thread.messages]


def is_incoming(message: MailMessage) -> bool:
    """Whether it came in, rather than being written here."""
    return "DRAFT" not in message.labels and (
        "SENT" not in message.labels or "INBOX" in message.labels
    )


class MailState:
    """The mailboxes of one database, by account."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.corrections = Corrections(database)
        self.acts = MailActs(database)

    async def cursor(self, account: str) -> Cursor | None:
        """Where the next listing begins; None = nothing was delivered yet. Raises StoreError."""
        query = sa.select(mail_cursors.c.cursor).where(mail_cursors.c.account == account)
        rows = await self.database.read(query)
        return Cursor.of_text(rows[0]["cursor"]) if rows else None

    async def handled(self, account: str, threads: Collection[str]) -> dict[str, Handled]:
        """What was read of those of these threads that are known. Raises StoreError."""
        found: dict[str, Handled] = {}
        ids = sorted(threads)
        c = mail_threads.c
        for start in range(0, len(ids), CHUNK):
            some = sa.and_(c.account == account, c.thread.in_(ids[start : start + CHUNK]))
            for row in await self.database.read(sa.select(mail_threads).where(some)):
                found[row["thread"]] = Handled(frozenset(row["messages"]), row["history"])
        return found

    async def owed(self, account: str) -> list[str]:
        """Threads that a delivered triage listed and left for the next one. Raises StoreError."""
        return await self._threads(account, mail_threads.c.state == OWED)

    async def awake(self, account: str, now: datetime) -> list[str]:
        """Threads that were snoozed until now or earlier. Raises StoreError."""
        return await self._threads(account, mail_threads.c.until <= now)

    async def _threads(self, account: str, which: sa.ColumnElement[bool]) -> list[str]:
        c = mail_threads.c
        query = sa.select(c.thread).where(c.account == account, which).order_by(c.at, c.thread)
        return [row["thread"] for row in await self.database.read(query)]

    async def snooze(self, account: str, thread: str, until: datetime) -> None:
        """Have the thread listed again then (UTC), whether it got mail or not. Raises StoreError.

        What was handled of it stays so.
        """
        row = {**_empty(account, thread), "state": HANDLED, "until": until}
        insert = self.database.upsert(mail_threads, KEY, ("until",))
        await self.database.write(insert.values(row))

    async def snoozed(self, account: str) -> list[tuple[str, datetime]]:
        """The snoozed threads and until when, the next first. Raises StoreError."""
        c = mail_threads.c
        mine = sa.and_(c.account == account, c.until.is_not(None))
        rows = await self.database.read(sa.select(c.thread, c.until).where(mine).order_by(c.until))
        return [(row["thread"], row["until"]) for row in rows]

    async def delivered(
        self,
        account: str,
        run: str,
        cursor: str,
        threads: Mapping[str, list[str]],
        left: Iterable[str],
    ) -> None:
        """Note, in one transaction, that a triage's digest stands where it belongs.

        `cursor`: of its Sync; empty = the next listing begins where this one did. `threads`: all
        that are done with (triaged, filtered, unchanged, gone) and `seen_of` each. `left`: those of
        the Sync that it did not come to; they are listed again. A thread of the Sync that is in
        neither is not. Raises StoreError.
        """
        made = (account, run, cursor, threads, left)
        await self.database.change(lambda connection: self.noted(connection, *made))

    def noted(
        self,
        connection: sa.Connection,
        account: str,
        run: str,
        cursor: str,
        threads: Mapping[str, list[str]],
        left: Iterable[str],
    ) -> None:
        """The same in a transaction of the caller's."""
        reached = Cursor.of_text(cursor) if cursor else None
        later = sorted(set(left) - threads.keys())
        if reached:
            self._advance(connection, account, run, reached)
        ids = [*threads, *later]
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            known = _rows(connection, account, some)
            rows = [
                _handled(row, run, reached, threads[row["thread"]])
                if row["thread"] in threads
                else {**row, "state": OWED}
                for row in (known.get(id) or _empty(account, id) for id in some)
            ]
            connection.execute(self.database.upsert(mail_threads, KEY, CHANGED), rows)

    def _advance(self, connection: sa.Connection, account: str, run: str, reached: Cursor) -> None:
        """Store the cursor; what was handled before it in another mailbox goes."""
        mine = mail_cursors.c.account == account
        query = sa.select(mail_cursors.c.cursor).where(mine).with_for_update()
        stored = connection.execute(query).scalar()
        if stored and Cursor.of_text(stored).line != reached.line:
            connection.execute(sa.delete(mail_threads).where(mail_threads.c.account == account))
        row = {"account": account, "cursor": reached.to_text(), "run": run, "at": reached.at}
        insert = self.database.upsert(mail_cursors, ("account",), ("cursor", "run", "at"))
        connection.execute(insert, row)


def _empty(account: str, thread: str) -> Row:
    """The row of a thread of which nothing is known."""
    known: Row = {"state": OWED, "messages": [], "history": "", "run": None, "until": None}
    return {"account": account, "thread": thread, **known, "at": datetime.now(UTC)}


def _rows(connection: sa.Connection, account: str, threads: Sequence[str]) -> dict[str, Row]:
    some = sa.and_(mail_threads.c.account == account, mail_threads.c.thread.in_(threads))
    found = connection.execute(sa.select(mail_threads).where(some).with_for_update()).mappings()
    return {row["thread"]: dict(row) for row in found}


def _handled(row: Row, run: str, reached: Cursor | None, seen: Sequence[str]) -> Row:
    """The row of a thread after a triage; a triage that ended meanwhile may have seen more."""
    now = datetime.now(UTC)
    return {
        **row,
        "state": HANDLED,
        "messages": sorted({*row["messages"], *seen}),
        "history": reached.history if reached else row["history"],
        "run": run,
        "at": now,
        "until": row["until"] if row["until"] and row["until"] > now else None,
    }
