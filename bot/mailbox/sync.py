"""The state of a mailbox between two triages: how far it was read, what was handled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa
from pydantic import BaseModel

from bot.mailbox.actions import Corrections, MailActions
from bot.storage.database import Database, chunks
from bot.storage.tables import mail_cursors, mail_threads
from scopes.google.gmail import HistoryTooOld, within
from scopes.mail import Changes, MailMessage, MailThread, ThreadRef
from scopes.tool import Window

HANDLED, OWED = "handled", "owed"
KEY = ("account", "thread")
CHANGED = ("state", "messages", "history", "run", "at", "until")


class Cursor(BaseModel, frozen=True):
    """The position of a mailbox when a triage began to list it."""

    mailbox: str
    """Its address: the account may have another mailbox today."""
    history: str
    at: datetime
    """When that was, by our clock."""
    unlisted: tuple[str, ...] = ()
    """Threads that Gmail reported as changed and its search did not find. They are looked up
    once more: a search may lag behind the changes."""


@dataclass(frozen=True, slots=True)
class LastDigest:
    """The last triage of a mailbox whose digest was delivered."""

    run: str
    at: datetime
    """When it began to list the mailbox, UTC."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A handled thread, and how much of it was read."""

    messages: frozenset[str]
    """Ids of messages; none if no triage has read it yet."""
    history: str
    """All that the thread had at this history id is among them; empty = not known."""


def message_ids(thread: MailThread) -> list[str]:
    """Return what to record of a thread that was read: the ids of its messages."""
    return [m.id for m in thread.messages]


def is_incoming(message: MailMessage) -> bool:
    """Return whether a message came in, rather than being written here."""
    return "DRAFT" not in message.labels and (
        "SENT" not in message.labels or "INBOX" in message.labels
    )


class HandledMail(BaseModel):
    """The record of a mailbox once a triage's digest is delivered."""

    account: str
    run: str
    cursor: str
    """That of its Sync; empty = the next listing begins where this one did."""
    threads: Mapping[str, Sequence[str]]
    """All that are done (triaged, filtered, unchanged, gone), with `message_ids` each."""
    left: Sequence[str]
    """Those of the Sync that it did not get to: they are listed again. A thread of the Sync that is
    in neither is not."""


class MailState:
    """The mailboxes of one database, by account. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.corrections = Corrections(database)
        self.acts = MailActions(database)

    async def cursor(self, account: str) -> Cursor | None:
        """Return where the next listing begins; None = nothing was delivered yet."""
        query = sa.select(mail_cursors.c.cursor).where(mail_cursors.c.account == account)
        rows = await self.database.read(query)
        return Cursor.model_validate_json(rows[0].cursor) if rows else None

    async def last_digest(self, account: str) -> LastDigest | None:
        """Return the last triage that was delivered; None = none yet."""
        c = mail_cursors.c
        rows = await self.database.read(sa.select(c.run, c.at).where(c.account == account))
        return LastDigest(**rows[0]._asdict()) if rows else None

    async def find_handled(self, account: str, threads: Collection[str]) -> dict[str, Handled]:
        """Return what was read of those of these threads that are known."""
        found: dict[str, Handled] = {}
        for some in chunks(threads):
            for row in await self.database.read(_select(account, some)):
                found[row.thread] = Handled(frozenset(row.messages), row.history)
        return found

    async def unfinished_threads(self, account: str) -> list[str]:
        """Return threads that a delivered triage listed and left for the next one."""
        return await self._threads(account, mail_threads.c.state == OWED)

    async def awake(self, account: str, now: datetime) -> list[str]:
        """Return threads that were snoozed until now or earlier."""
        return await self._threads(account, mail_threads.c.until <= now)

    async def _threads(self, account: str, which: sa.ColumnElement[bool]) -> list[str]:
        c = mail_threads.c
        query = sa.select(c.thread).where(c.account == account, which).order_by(c.at, c.thread)
        return [row.thread for row in await self.database.read(query)]

    async def snooze(self, account: str, thread: str, until: datetime) -> None:
        """Have a handled thread listed again at a time (UTC), whether it gets mail or not."""
        row = _row(account, thread, None, until=until)
        insert = self.database.upsert(mail_threads, KEY, ("until",))
        await self.database.write(insert.values(row))

    async def record_delivery(self, done: HandledMail) -> None:
        """Record, in one transaction, that a triage's digest was delivered."""
        await self.database.change(lambda connection: self.note_delivery(connection, done))

    def note_delivery(self, connection: sa.Connection, done: HandledMail) -> None:
        """Record a delivery in the caller's transaction."""
        account, run, threads = done.account, done.run, done.threads
        reached = Cursor.model_validate_json(done.cursor) if done.cursor else None
        later = sorted(set(done.left) - threads.keys())
        if reached:
            self._advance(connection, account, run, reached)
        for some in chunks([*threads, *later]):
            query = _select(account, some).with_for_update()
            known = {row.thread: row for row in connection.execute(query)}
            rows = [
                _row_after_triage(done, id, known.get(id), reached)
                if id in threads
                else _row(account, id, known.get(id), state=OWED)
                for id in some
            ]
            connection.execute(self.database.upsert(mail_threads, KEY, CHANGED), rows)

    def _advance(self, connection: sa.Connection, account: str, run: str, reached: Cursor) -> None:
        """Store the cursor; delete records of another mailbox."""
        mine = mail_cursors.c.account == account
        query = sa.select(mail_cursors.c.cursor).where(mine).with_for_update()
        stored = connection.execute(query).scalar()
        if stored and Cursor.model_validate_json(stored).mailbox != reached.mailbox:
            connection.execute(sa.delete(mail_threads).where(mail_threads.c.account == account))
        row = {
            "account": account,
            "cursor": reached.model_dump_json(),
            "run": run,
            "at": reached.at,
        }
        insert = self.database.upsert(mail_cursors, ("account",), ("cursor", "run", "at"))
        connection.execute(insert, row)


def _select(account: str, threads: Sequence[str]) -> sa.Select[Any]:
    mine = sa.and_(mail_threads.c.account == account, mail_threads.c.thread.in_(threads))
    return sa.select(mail_threads).where(mine)


def _row(account: str, thread: str, known: sa.Row[Any] | None, **changes: Any) -> dict[str, Any]:
    """Return the row of a thread: the known one, or one of a thread that was not read."""
    new: dict[str, Any] = {
        "state": HANDLED,
        "messages": [],
        "history": "",
        "run": None,
        "until": None,
    }
    row = known._asdict() if known else {**new, "at": datetime.now(UTC)}
    return {**row, "account": account, "thread": thread, **changes}


def _row_after_triage(
    done: HandledMail, thread: str, known: sa.Row[Any] | None, reached: Cursor | None
) -> dict[str, Any]:
    """Return the row of a thread after a triage; a concurrent triage may have seen more."""
    now, seen = datetime.now(UTC), done.threads[thread]
    return _row(
        done.account,
        thread,
        known,
        state=HANDLED,
        run=done.run,
        at=now,
        messages=sorted({*(known.messages if known else ()), *seen}),
        until=known.until if known and known.until and known.until > now else None,
        history=reached.history if reached else known.history if known else "",
    )


LIVE = timedelta(hours=1)
"""A window that ended more recently counts as ending now (a run may wait for its turn); an older
one looks back and moves no cursor."""
MARGIN = timedelta(days=1)
"""Overlap of listings: two clocks differ, and handled threads are known."""


class History(Protocol):
    """The mailbox as used here: see scopes.google.gmail.Gmail."""

    async def address(self) -> str: ...
    async def history(self) -> str: ...
    async def find(self, query: str = "", limit: int | None = None) -> Sequence[ThreadRef]: ...
    async def changes(self, since: str) -> Changes: ...


@dataclass(frozen=True, slots=True)
class Sync:
    """The threads that a triage has to read, and where the next one continues."""

    refs: tuple[ThreadRef, ...]
    """Each thread once: snoozed ones that are due, then the newest first, then those that the
    last triage did not get to. Of the first and the last only the id is known."""
    cursor: str
    """Cursor for MailState.delivered; empty if nothing moves on."""
    handled: Mapping[str, Handled] = field(default_factory=dict)
    """What was read of these threads before."""
    woken: frozenset[str] = frozenset()
    """The threads that were snoozed until now."""
    last: LastDigest | None = None
    """The triage that this one continues; None if the mailbox was listed as if there were none."""

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(ref.id for ref in self.refs)

    def is_new(self, thread: MailThread) -> bool:
        """Return whether a thread, read just now, has anything that was not handled.

        A label, a draft or an own reply is not new; nor is what came in during the last triage and
        was read by it.
        """
        known = self.handled.get(thread.id)
        if known is None or not known.messages or thread.id in self.woken:
            return True
        return any(m.id not in known.messages for m in thread.messages if is_incoming(m))


async def new_threads(
    gmail: History, state: MailState, account: str, query: str, window: Window
) -> Sync:
    """Return the threads that match and got mail in the window or since the last delivery.

    A window that ended more than LIVE ago is listed whole, whatever was handled, and moves no
    cursor. Raises StoreError, and what Gmail raises.
    """
    now = datetime.now(UTC)
    if window.latest < now - LIVE:
        found = await gmail.find(within(query, window.oldest, window.latest))
        return Sync(_once(found), "")
    stored = await state.cursor(account)
    history = await gmail.history()
    address = await gmail.address()
    reached = Cursor(mailbox=address, history=history, at=now)
    if stored is None or stored.mailbox != address:
        found = await gmail.find(within(query, window.oldest))
        return Sync(_once(found), reached.model_dump_json())
    oldest = min(window.oldest, stored.at - MARGIN)
    return await _since(gmail, state, account, stored, reached, within(query, oldest))


async def _since(
    gmail: History, state: MailState, account: str, stored: Cursor, reached: Cursor, query: str
) -> Sync:
    """Return what came after a cursor, by Gmail's changes, or else by a listing."""
    woken, owed = await state.awake(account, reached.at), await state.unfinished_threads(account)
    try:
        changes = await gmail.changes(stored.history)
    except HistoryTooOld:
        found = await gmail.find(query)
        known = await state.find_handled(account, {*woken, *owed, *(ref.id for ref in found)})
        listed = [ref for ref in found if not _is_handled(ref, known.get(ref.id))]
    else:
        changed = {*changes.threads, *stored.unlisted}
        found = await gmail.find(query) if changed else []
        listed = [ref for ref in found if ref.id in changed]
        unlisted = tuple(sorted({*changes.threads} - {ref.id for ref in listed}))
        moved = {"history": changes.history, "unlisted": unlisted}
        reached = reached.model_copy(update=moved)
        known = await state.find_handled(account, {*woken, *owed, *(ref.id for ref in listed)})
    refs = _once([*map(_bare_thread, woken), *listed, *map(_bare_thread, owed)])
    handled = {ref.id: known[ref.id] for ref in refs if ref.id in known}
    last = await state.last_digest(account)
    return Sync(refs, reached.model_dump_json(), handled, frozenset(woken), last)


def _is_handled(ref: ThreadRef, handled: Handled | None) -> bool:
    """Return whether a listed thread did not change since it was read: history ids grow."""
    if not (handled and handled.messages and (ref.history + handled.history).isdecimal()):
        return False
    return bool(ref.history and handled.history) and int(ref.history) <= int(handled.history)


def _bare_thread(thread: str) -> ThreadRef:
    return ThreadRef(thread, "", "")


def _once(refs: Iterable[ThreadRef]) -> tuple[ThreadRef, ...]:
    first: dict[str, ThreadRef] = {}
    for ref in refs:
        first.setdefault(ref.id, ref)
    return tuple(first.values())
