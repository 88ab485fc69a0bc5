"""Forgets what is kept of mailboxes: of a user all of it, of a sender or a thread what names it."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from bot.erasure.targets import Condition, Target
from bot.mail.addresses import address_of
from bot.mail.corrections import sender_in
from bot.storage.database import Database
from bot.storage.mail_tables import (
    mail_acts,
    mail_corrections,
    mail_cursors,
    mail_polls,
    mail_threads,
)

Part = tuple[sa.Table, Condition]


async def forget_mail(database: Database, target: Target, dry_run: bool) -> int:
    """Delete what belongs to the target; how many rows did, or would, go. Raises StoreError.

    That a thread was handled stays when the thread is forgotten, ids only: or else the next triage
    would read it again.
    """
    parts = [*_of(target), *await _by_sender(database, target)]
    total = 0
    for table, mine in parts:
        count = sa.select(sa.func.count().label("n")).select_from(table).where(mine)
        total += (await database.read(count))[0]["n"]
        if not dry_run:
            await database.write(_removal(target, table, mine))
    return total


def _removal(target: Target, table: sa.Table, mine: Condition) -> sa.Update | sa.Delete:
    if table is mail_threads and target.kind != "user":
        return sa.update(table).where(mine).values(until=None)
    return sa.delete(table).where(mine)


def _of(target: Target) -> Sequence[Part]:
    if target.kind == "user":
        tables = (mail_cursors, mail_threads, mail_polls, mail_corrections, mail_acts)
        return [(table, table.c.account == target.id) for table in tables]
    if target.kind == "source":
        snoozed = sa.and_(mail_threads.c.thread == target.id, mail_threads.c.until.is_not(None))
        named = [(table, table.c.thread == target.id) for table in (mail_corrections, mail_acts)]
        return [(mail_threads, snoozed), *named]
    return []


async def _by_sender(database: Database, target: Target) -> Sequence[Part]:
    """The corrections for mails of an address: it is sealed, so all of them are looked at."""
    if not target.is_person or "@" not in target.id:
        return []
    c = mail_corrections.c
    rows = await database.read(sa.select(c.account, c.thread, c.field, c.body))
    wanted = address_of(target.id)
    return [
        (
            mail_corrections,
            sa.and_(
                c.account == row["account"], c.thread == row["thread"], c.field == row["field"]
            ),
        )
        for row in rows
        if sender_in(row["body"]) == wanted and row["account"] != target.id
    ]
