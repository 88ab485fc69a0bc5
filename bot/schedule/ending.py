"""How a tick or a delivery ends: its row changes once, and the schedule is free for what is next.

All of it happens inside a transaction of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bot.schedule.records import delivery_of, tick_key
from bot.schedule.tables import deliveries, schedules, ticks

OPEN = ("due", "running")


def row_of(table: sa.Table, schedule: str, at: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.schedule == schedule, table.c.at == at)


def try_of(schedule: str, at: datetime, attempt: int) -> sa.ColumnElement[bool]:
    """A tick that is not over, at this try: who was given up cannot end the one after it."""
    current = sa.and_(ticks.c.state.in_(OPEN), ticks.c.tries == attempt - 1)
    return sa.and_(row_of(ticks, schedule, at), current)


def end_try(
    connection: sa.Connection, schedule: str, at: datetime, attempt: int, told: Mapping[str, Any]
) -> bool:
    """One try of a tick ends so; whether it was this call. What it cost is added up."""
    values = dict(told)
    if (cost := values.pop("cost_usd", None)) is not None:
        values["cost_usd"] = sa.func.coalesce(ticks.c.cost_usd, 0.0) + cost
    update = sa.update(ticks).where(try_of(schedule, at, attempt))
    found = connection.execute(update.values(values)).rowcount
    free(connection, schedule, tick_key(schedule, at, attempt))
    return bool(found)


def end_delivery(
    connection: sa.Connection, schedule: str, at: datetime, told: Mapping[str, Any]
) -> bool:
    """One try to deliver ends so; whether it was this call."""
    query = sa.select(deliveries).where(row_of(deliveries, schedule, at)).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return False
    free(connection, schedule, delivery_of(row).key)
    if row["state"] != "waiting":
        return False
    mine = sa.update(deliveries).where(row_of(deliveries, schedule, at))
    connection.execute(mine.values({**told, "tries": row["tries"] + 1}))
    return True


def free(connection: sa.Connection, schedule: str, id: str) -> None:
    """This workflow works for the schedule no more."""
    mine = sa.and_(schedules.c.id == schedule, schedules.c.at_work == id)
    connection.execute(sa.update(schedules).where(mine).values(at_work=None, worker=None))
