"""Forgets what schedules keep: of a user what they had set, of a message what issues told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import sqlalchemy as sa

from bot.erasure.scrub import item_at
from bot.erasure.targets import Target
from bot.erasure.traces import REMOVED
from bot.schedule.records import opened
from bot.schedule.tables import deliveries, issues, schedules, ticks
from bot.storage.database import Database

Json = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


async def forget_schedules(
    database: Database, target: Target, items: Set[str], dry_run: bool
) -> int:
    """How many issues and schedules lost something, or would. Raises StoreError.

    `items`: the messages that are meant, as far as runs hold them. That an issue was known stays
    while it rests on other messages: by ids, without a word of it.
    """
    gone, changed = _issues(await database.read(sa.select(issues)), target, items)
    mine = await _owned(database, target)

    def change(connection: sa.Connection) -> None:
        for row, body in changed:
            same = sa.and_(issues.c.schedule == row["schedule"], issues.c.id == row["id"])
            connection.execute(sa.update(issues).where(same).values(body=body))
        for row in gone:
            same = sa.and_(issues.c.schedule == row["schedule"], issues.c.id == row["id"])
            connection.execute(sa.delete(issues).where(same))
        for id, origin in mine.items():
            _empty(connection, id, origin)

    if not dry_run and (gone or changed or mine):
        await database.change(change)
    return len(gone) + len(changed) + len(mine)


def _issues(
    rows: Rows, target: Target, items: Set[str]
) -> tuple[Rows, list[tuple[Mapping[str, Any], Json]]]:
    """The issues that go, and those that stay with less."""
    gone, changed = [], []
    for row in rows:
        body = row["body"]
        lost = {id for id in body["messages"] if id in items or _is_of(id, target)}
        lost |= {id for id in body["threads"] if _is_of(id, target)}
        if not lost or (target.kind == "item" and _is_told(body, lost)):
            continue
        rest = [id for id in body["messages"] if id not in lost]
        if not rest or body["channel"] == target.id:
            gone.append(row)
            continue
        links = [at for at in body["links"] if item_at(at) not in lost]
        told = {"claim": REMOVED, "owner": "nobody", "links": links, "messages": rest}
        changed.append((row, {**body, **told}))
    return gone, changed


def _is_told(body: Mapping[str, Any], lost: Set[str]) -> bool:
    """Whether nothing is left to take out."""
    return body["claim"] == REMOVED and not lost & set(body["messages"])


def _is_of(id: str, target: Target) -> bool:
    """Whether an id is that of the target, or of something in it."""
    return not target.is_person and (id == target.id or id.startswith(f"{target.id}/"))


async def _owned(database: Database, target: Target) -> dict[str, str]:
    """The schedules of a user: id -> origin; nothing stays of a deleted one, whoever had set it."""
    if target.kind != "user":
        return {}
    rows = await database.read(sa.select(schedules))
    mine = [each for row in rows if (each := opened(row)) and each.spec.owner == target.id]
    return {each.id: "chat" if each.state == "deleted" else each.origin for each in mine}


def _empty(connection: sa.Connection, id: str, origin: str) -> None:
    """Delete a schedule that was set in chat; of one in the settings, what it had found."""
    connection.execute(sa.delete(issues).where(issues.c.schedule == id))
    if origin == "config":
        connection.execute(sa.update(schedules).where(schedules.c.id == id).values(trouble=None))
        for table in (ticks, deliveries):
            mine = sa.and_(table.c.schedule == id, table.c.why.is_not(None))
            connection.execute(sa.update(table).where(mine).values(why=""))
        return
    for table in (ticks, deliveries):
        connection.execute(sa.delete(table).where(table.c.schedule == id))
    connection.execute(sa.delete(schedules).where(schedules.c.id == id))
