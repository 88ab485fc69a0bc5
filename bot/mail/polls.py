"""What was noticed of mailboxes between two triages, and until when Gmail tells of new mail."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.mail.state import Cursor, MailState
from bot.storage.database import Database
from bot.storage.mail_tables import mail_cursors, mail_polls
from scopes.mail import Changes

C = mail_polls.c
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
TAKEN_FOR = timedelta(minutes=5)
"""So long a mailbox belongs to the process that looks into it; one that dies holds it no longer."""
MOST_THREADS = 5_000
"""Threads kept of one mailbox; above it the next triage lists the window instead."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One mailbox."""

    account: str
    line: str
    """Of the triage's cursor that this goes on from; empty = nothing was noticed yet."""
    history: str
    """All changes up to here are among `threads`, from that cursor on."""
    lost: str
    """What changed before this history id is not known; empty = all is."""
    threads: Mapping[str, tuple[str, bool]]
    """Thread that got mail -> the history id of the last one, and whether any lies in the inbox."""
    at: datetime | None
    """When it was last looked into."""
    taken: datetime | None
    """Until when a process has it for itself."""
    not_before: datetime
    failures: int
    """In a row."""
    revoked: str | None
    """What to do about it that Google lets us in no longer; None = it does."""
    since: datetime | None
    """When that was found."""
    told: datetime | None
    """When its user was told."""
    watched_until: datetime | None
    """Gmail tells of new mail until then; None = it never did."""
    watch_again: datetime | None
    """When to ask for that anew; None = at once."""
    watch_failures: int
    watch_why: str | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """What is known of a mailbox beyond the cursor of its last triage."""

    history: str
    """From where to ask for changes."""
    threads: frozenset[str] = frozenset()
    """Those that got mail between the cursor and there."""
    incoming: frozenset[str] = frozenset()
    """Those of them with mail in the inbox."""
    lost: bool = False
    """Some of what came is not known."""


def at_most(history: str, other: str) -> bool:
    """Whether a history id is not after another one: they grow, with gaps."""
    return history.isdecimal() and other.isdecimal() and int(history) <= int(other)


def noticed(poll: Poll | None, cursor: Cursor) -> Noticed:
    """What of it a triage that goes on from this cursor has not had yet."""
    if poll is None or poll.line != cursor.line or at_most(poll.history, cursor.history):
        return Noticed(cursor.history)
    later = {t: came for t, (at, came) in poll.threads.items() if not at_most(at, cursor.history)}
    lost = bool(poll.lost) and not at_most(poll.lost, cursor.history)
    incoming = frozenset(thread for thread, came in later.items() if came)
    return Noticed(poll.history, frozenset(later), incoming, lost)


@dataclass(frozen=True, slots=True)
class News:
    """What an owner wants to know of their mailbox between two digests."""

    threads: int | None
    """With new mail since the last one; None = not known."""
    shut: str = ""
    """What to do, where Google lets us in no longer."""


async def news_of(state: MailState, account: str) -> News:
    """Raises StoreError."""
    poll, cursor = await MailPolls(state.database).get(account), await state.cursor(account)
    if poll is None or cursor is None:
        return News(None)
    found = noticed(poll, cursor)
    known = poll.at is not None and not found.lost
    return News(len(found.incoming) if known else None, poll.revoked or "")


class MailPolls:
    """The rows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, account: str) -> Poll | None:
        """Raises StoreError."""
        rows = await self._database.read(sa.select(mail_polls).where(C.account == account))
        return _poll(rows[0]) if rows else None

    async def all(self) -> list[Poll]:
        """Raises StoreError."""
        query = sa.select(mail_polls).order_by(C.not_before, C.account)
        return [_poll(row) for row in await self._database.read(query)]

    async def begin(self, but: Collection[str] = ()) -> None:
        """Have each mailbox looked into that was triaged once, `but` those. Raises StoreError."""
        new = sa.select(mail_cursors.c.account).where(
            mail_cursors.c.account.not_in(sa.select(C.account)), mail_cursors.c.account.not_in(but)
        )
        rows = [_new(row["account"]) for row in await self._database.read(new)]
        if rows:
            insert = self._database.upsert(mail_polls)
            await self._database.change(lambda connection: connection.execute(insert, rows))

    async def take(self, account: str, now: datetime, *, early: bool = False) -> Poll | None:
        """The row, if its mailbox is due and nobody looks into it; then it is this process's.

        `early`: also before its time, but not while it has to wait after a failure. Raises
        StoreError.
        """

        def change(connection: sa.Connection) -> Poll | None:
            mine = C.account == account
            query = sa.select(mail_polls).where(mine).with_for_update()
            row = connection.execute(query).mappings().first()
            poll = _poll(row) if row else None
            if poll is None or (poll.taken and poll.taken > now):
                return None
            if poll.not_before > now and (poll.failures or not early):
                return None
            update = sa.update(mail_polls).where(mine)
            connection.execute(update.values(taken=now + TAKEN_FOR))
            return poll

        return await self._database.change(change)

    async def noted(
        self,
        poll: Poll,
        cursor: Cursor,
        changes: Changes,
        lost: bool,
        now: datetime,
        next: datetime,
    ) -> bool:
        """Store what came since `poll` was taken, and where it ends; False = another one has.

        `lost`: what came before is not known. Raises StoreError.
        """
        threads = {t: list(poll.threads[t]) for t in noticed(poll, cursor).threads}
        before = poll.lost if poll.line == cursor.line else ""
        for thread in changes.threads:
            came = thread in changes.incoming or bool(threads.get(thread, (0, False))[1])
            threads[thread] = [changes.latest.get(thread, changes.history), came]
        if lost or len(threads) > MOST_THREADS:
            threads, before = {}, changes.history
        kept = {"line": cursor.line, "history": changes.history, "lost": before, "threads": threads}
        well = {"failures": 0, "revoked": None, "since": None, "told": None}
        same = (C.account == poll.account, C.line == poll.line, C.history == poll.history)
        update = sa.update(mail_polls).where(*same)
        row = {**kept, **well, "at": now, "taken": None, "not_before": next}
        return bool(await self._database.write(update.values(row)))

    async def put_off(self, account: str, next: datetime, failures: int = 0) -> None:
        """Nothing could be noticed; look again then. Raises StoreError.

        Without a failure the mailbox is not shut, either: it is another one, or none.
        """
        well = {} if failures else {"revoked": None, "since": None, "told": None}
        await self._set(account, taken=None, not_before=next, failures=failures, **well)

    async def revoke(self, poll: Poll, why: str, now: datetime, next: datetime) -> None:
        """Google lets us in no longer; who was told of it already stays told. Raises StoreError."""
        since = poll.since or now
        row = {"revoked": why, "since": since, "taken": None, "not_before": next}
        await self._set(poll.account, **row, failures=poll.failures + 1)

    async def told(self, account: str, now: datetime) -> None:
        """Its user was told that Google lets us in no longer. Raises StoreError."""
        await self._set(account, told=now)

    async def take_watch(self, poll: Poll, until: datetime) -> bool:
        """Whether the watch of this mailbox is ours to renew, until then. Raises StoreError."""
        same = (
            C.watch_again.is_(None)
            if poll.watch_again is None
            else C.watch_again == poll.watch_again
        )
        update = sa.update(mail_polls).where(C.account == poll.account, same)
        return bool(await self._database.write(update.values(watch_again=until)))

    async def watched(self, account: str, until: datetime | None, again: datetime) -> None:
        """Gmail tells of new mail until then; None = no longer. Raises StoreError."""
        row = {"watched_until": until, "watch_again": again}
        await self._set(account, **row, watch_failures=0, watch_why=None)

    async def not_watched(self, poll: Poll, why: str, again: datetime) -> None:
        """Gmail would not promise to tell of new mail; ask again then. Raises StoreError."""
        failures = poll.watch_failures + 1
        await self._set(poll.account, watch_again=again, watch_failures=failures, watch_why=why)

    async def _set(self, account: str, **values: Any) -> None:
        await self._database.write(
            sa.update(mail_polls).where(C.account == account).values(**values)
        )


def _new(account: str) -> dict[str, Any]:
    unknown = {"line": "", "history": "", "lost": "", "threads": {}}
    return {
        **{"account": account, **unknown, "not_before": LONG_AGO},
        **{"failures": 0, "watch_failures": 0},
    }


def _poll(row: Mapping[Any, Any]) -> Poll:
    threads = {thread: (str(at), bool(came)) for thread, (at, came) in row["threads"].items()}
    return Poll(**{**row, "threads": threads})
