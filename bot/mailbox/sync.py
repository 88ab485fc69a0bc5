"""The state of a mailbox between two triages: its read position and handled threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from bot.mailbox.corrections import Corrections
from bot.storage.database import Database, chunks
from bot.storage.tables import mail_cursors, mail_threads
from scopes.google.gmail import Gmail, HistoryTooOld, within
from scopes.mail import MailMessage, MailThread, ThreadRef
from scopes.tool import Window

HANDLED, OWED = "handled", "owed"
KEY = ("account", "thread")
UPSERT_COLUMNS = ("state", "messages", "history", "run", "at", "until")


class Cursor(BaseModel, frozen=True):
    """The position of a mailbox at the time a triage started to list it."""

    mailbox: str
    """Its address: the account may have another mailbox today."""
    history: str
    at: datetime
    """That time, by our clock."""
    unlisted: tuple[str, ...] = ()
    """Threads that Gmail reported as changed but its search did not find. They are looked up once
    more, because a search may lag behind the changes."""


@dataclass(frozen=True, slots=True)
class LastDigest:
    """The last triage of a mailbox whose digest was delivered."""

    run: str
    at: datetime
    """Time when it started to list the mailbox, UTC."""


@dataclass(frozen=True, slots=True)
class HandledThread:
    """A handled thread, and its messages that were read."""

    messages: frozenset[str]
    """Ids of messages; none if no triage has read it yet."""
    history: str
    """They include all messages that the thread had at this history id; empty = not known."""


def message_ids(thread: MailThread) -> list[str]:
    """Return the data to record for a thread that was read: the ids of its messages."""
    return [m.id for m in thread.messages]


def is_incoming(message: MailMessage) -> bool:
    """Return whether a message was received, not written here."""
    return "DRAFT" not in message.labels and (
        "SENT" not in message.labels or "INBOX" in message.labels
    )


class HandledMail(BaseModel):
    """The record of a mailbox once a triage's digest is delivered."""

    account: str
    run: str
    cursor: str
    """Cursor of its Sync; empty = the next listing begins where this one began."""
    threads: Mapping[str, Sequence[str]]
    """All finished threads (triaged, filtered, unchanged, gone), each with its `message_ids`."""
    left: Sequence[str]
    """Threads of the Sync that it did not reach: they are listed again. A thread of the Sync in
    neither field is not listed again."""


class MailState:
    """The mailboxes of one database, by account. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.corrections = Corrections(database)

    async def cursor(self, account: str) -> Cursor | None:
        """Return the start of the next listing; None = nothing was delivered yet."""
        query = sa.select(mail_cursors.c.cursor).where(mail_cursors.c.account == account)
        rows = await self.database.read(query)
        return Cursor.model_validate_json(rows[0].cursor) if rows else None

    async def last_digest(self, account: str) -> LastDigest | None:
        """Return the last delivered triage; None = none yet."""
        c = mail_cursors.c
        rows = await self.database.read(sa.select(c.run, c.at).where(c.account == account))
        return LastDigest(**rows[0]._asdict()) if rows else None

    async def find_handled(
        self, account: str, threads: Collection[str]
    ) -> dict[str, HandledThread]:
        """Return the records of those of these threads that were handled."""
        found: dict[str, HandledThread] = {}
        for some in chunks(threads):
            for row in await self.database.read(_select(account, some)):
                found[row.thread] = HandledThread(frozenset(row.messages), row.history)
        return found

    async def unfinished_threads(self, account: str) -> list[str]:
        """Return threads that a delivered triage has listed and left to the next one."""
        return await self._threads(account, mail_threads.c.state == OWED)

    async def awake(self, account: str, now: datetime) -> list[str]:
        """Return threads that were snoozed until now or earlier."""
        return await self._threads(account, mail_threads.c.until <= now)

    async def _threads(self, account: str, condition: sa.ColumnElement[bool]) -> list[str]:
        c = mail_threads.c
        query = sa.select(c.thread).where(c.account == account, condition).order_by(c.at, c.thread)
        return [row.thread for row in await self.database.read(query)]

    async def snooze(self, account: str, thread: str, until: datetime) -> None:
        """Have a handled thread listed again at a time (UTC), even without new mail."""
        row = _row(account, thread, until=until)
        insert = self.database.upsert(mail_threads, KEY, ("until",))
        await self.database.write(insert.values(row))

    async def record_delivery(self, done: HandledMail) -> None:
        """Record, in one transaction, that a triage's digest was delivered."""
        await self.database.change(lambda connection: self.note_delivery(connection, done))

    def note_delivery(self, connection: sa.Connection, done: HandledMail) -> None:
        """Record a delivery in the caller's transaction."""
        account, threads = done.account, done.threads
        cursor = Cursor.model_validate_json(done.cursor) if done.cursor else None
        if cursor:
            self._advance(connection, account, done.run, cursor)
        for some in chunks(threads):
            query = _select(account, some).with_for_update()
            existing = {row.thread: row for row in connection.execute(query)}
            rows = [_handled_row(done, id, existing.get(id), cursor) for id in some]
            connection.execute(self.database.upsert(mail_threads, KEY, UPSERT_COLUMNS), rows)
        for some in chunks(sorted(set(done.left) - threads.keys())):
            rows = [_row(account, id, state=OWED) for id in some]
            connection.execute(self.database.upsert(mail_threads, KEY, ("state",)), rows)

    def _advance(self, connection: sa.Connection, account: str, run: str, cursor: Cursor) -> None:
        """Store the cursor; delete records of another mailbox."""
        is_account = mail_cursors.c.account == account
        query = sa.select(mail_cursors.c.cursor).where(is_account).with_for_update()
        stored = connection.execute(query).scalar()
        if stored and Cursor.model_validate_json(stored).mailbox != cursor.mailbox:
            connection.execute(sa.delete(mail_threads).where(mail_threads.c.account == account))
        row = {
            "account": account,
            "cursor": cursor.model_dump_json(),
            "run": run,
            "at": cursor.at,
        }
        insert = self.database.upsert(mail_cursors, ("account",), ("cursor", "run", "at"))
        connection.execute(insert, row)


def _select(account: str, threads: Sequence[str]) -> sa.Select[Any]:
    is_listed = sa.and_(mail_threads.c.account == account, mail_threads.c.thread.in_(threads))
    return sa.select(mail_threads).where(is_listed)


def _row(account: str, thread: str, **known: Any) -> dict[str, Any]:
    """Return the row of a thread that no triage has read yet, but for what is known of it."""
    row = {"account": account, "thread": thread, "state": HANDLED, "at": datetime.now(UTC)}
    return {**row, "messages": [], "history": "", "run": None, "until": None, **known}


def _handled_row(
    done: HandledMail, thread: str, existing: sa.Row[Any] | None, cursor: Cursor | None
) -> dict[str, Any]:
    """Return the row of a thread after a triage; a concurrent triage may have seen more."""
    now, earlier = datetime.now(UTC), existing.messages if existing else ()
    known = {
        "messages": sorted({*earlier, *done.threads[thread]}),
        "history": cursor.history if cursor else existing.history if existing else "",
        "run": done.run,
        "until": existing.until if existing and existing.until and existing.until > now else None,
    }
    return _row(done.account, thread, **known)


MAX_LIVE_AGE = timedelta(hours=1)
"""A window that ended more recently counts as ending now (a run may wait for its turn); an
older one reads the past and moves no cursor."""
LISTING_OVERLAP = timedelta(days=1)
"""Overlap of listings, since two clocks differ; handled threads are recognized."""


@dataclass(frozen=True, slots=True)
class Sync:
    """The threads that a triage has to read, and the start of the next one."""

    refs: tuple[ThreadRef, ...]
    """Each thread once: snoozed ones that are due, then the newest first, then those that the last
    triage did not reach. Only the id is known of the first and the last group."""
    cursor: str
    """Cursor for MailState.record_delivery; empty if it does not move."""
    handled: Mapping[str, HandledThread] = field(default_factory=dict)
    """Earlier records of these threads."""
    woken: frozenset[str] = frozenset()
    """The threads that were snoozed until now."""
    last: LastDigest | None = None
    """The triage that this one continues; None if the listing did not use an earlier triage."""

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(ref.id for ref in self.refs)

    def is_new(self, thread: MailThread) -> bool:
        """Return whether a thread that was just read has an unhandled message.

        A label, a draft or an own reply is not new; nor is a message that arrived during the last
        triage and was read by it.
        """
        handled = self.handled.get(thread.id)
        if handled is None or not handled.messages or thread.id in self.woken:
            return True
        return any(m.id not in handled.messages for m in thread.messages if is_incoming(m))


async def new_threads(
    gmail: Gmail, state: MailState, account: str, query: str, window: Window
) -> Sync:
    """Return the threads that match and got mail in the window or since the last delivery.

    A window that ended more than LIVE ago is listed completely, even handled threads, and moves
    no cursor. Raises StoreError, and the errors of Gmail.
    """
    now = datetime.now(UTC)
    if window.latest < now - MAX_LIVE_AGE:
        found = await gmail.find(within(query, window.oldest, window.latest))
        return Sync(_once(found), "")
    stored = await state.cursor(account)
    history = await gmail.history()
    address = await gmail.address()
    cursor = Cursor(mailbox=address, history=history, at=now)
    if stored is None or stored.mailbox != address:
        found = await gmail.find(within(query, window.oldest))
        return Sync(_once(found), cursor.model_dump_json())
    oldest = min(window.oldest, stored.at - LISTING_OVERLAP)
    return await _since(gmail, state, account, stored, cursor, within(query, oldest))


async def _since(
    gmail: Gmail, state: MailState, account: str, stored: Cursor, cursor: Cursor, query: str
) -> Sync:
    """Return the new threads after a cursor, by Gmail's changes, or else by a listing."""
    woken, owed = await state.awake(account, cursor.at), await state.unfinished_threads(account)
    try:
        changes = await gmail.changes(stored.history)
    except HistoryTooOld:
        found = await gmail.find(query)
        records = await state.find_handled(account, {*woken, *owed, *(ref.id for ref in found)})
        listed = [ref for ref in found if not _is_handled(ref, records.get(ref.id))]
    else:
        changed = {*changes.threads, *stored.unlisted}
        found = await gmail.find(query) if changed else []
        listed = [ref for ref in found if ref.id in changed]
        unlisted = tuple(sorted({*changes.threads} - {ref.id for ref in listed}))
        moved = {"history": changes.history, "unlisted": unlisted}
        cursor = cursor.model_copy(update=moved)
        records = await state.find_handled(account, {*woken, *owed, *(ref.id for ref in listed)})
    refs = _once([*map(_bare_thread, woken), *listed, *map(_bare_thread, owed)])
    handled = {ref.id: records[ref.id] for ref in refs if ref.id in records}
    last = await state.last_digest(account)
    return Sync(refs, cursor.model_dump_json(), handled, frozenset(woken), last)


def _is_handled(ref: ThreadRef, handled: HandledThread | None) -> bool:
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
