"""What is due: times become rows, policies say which of them run, one thing is taken up at a time.

All of it happens inside a transaction of the caller, which holds the row of the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

import sqlalchemy as sa

from bot.schedule.records import TIME, StoredSchedule, delivery_of, opened, tick_of
from bot.schedule.tables import deliveries, schedules, ticks
from bot.storage.database import Database

AT_ONCE = 500
"""Times that one transaction makes rows of: a schedule every second may have missed days."""

CAUGHT_UP = "caught up by the run of {at:%Y-%m-%d %H:%M:%S} UTC"
TOO_LATE = "nothing served for so long that it was not caught up (missed_hours)"
STILL_AT_WORK = "the run before was still at work; its messages are in the next report"
ASKED = {"asked": True}
"""`extra` of a tick that a person asked for: it is never too late, and waits for the run before."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done for a schedule now."""

    kind: Literal["tick", "delivery"]
    """Name of its workflow."""
    id: str
    """Of its workflow."""
    schedule: str
    at: datetime
    """Of the tick."""
    attempt: int = 1
    """Of the tick: its first try or a later one."""


def work_of(id: str) -> Work:
    """What the id of a workflow stands for."""
    kind, *key = id.split("/")
    schedule, time = key[-2:] if kind == "tick" else key[-3:-1]
    at, _, attempt = time.partition("-")
    when = datetime.strptime(at, TIME).replace(tzinfo=UTC)
    return Work("tick" if kind == "tick" else "delivery", id, schedule, when, int(attempt or 1))


def note(connection: sa.Connection, database: Database, id: str, now: datetime) -> bool:
    """Make a row of each time up to now that has none, `AT_ONCE` at most; whether there are more.

    Whoever notices a time first makes its row; the watermark never goes back.
    """
    row = held(connection, schedules.c.id == id)
    schedule = opened(row) if row and row["state"] == "active" else None
    if schedule is None:
        return False
    coming = schedule.spec.timetable.between(schedule.watermark, now)
    times = list(islice(coming, AT_ONCE))
    if times:
        rows = [{"schedule": id, "at": at, "state": "due"} for at in times]
        connection.execute(database.insert(ticks).on_conflict_do_nothing(), rows)
        further = sa.update(schedules).where(schedules.c.id == id)
        connection.execute(further.values(watermark=times[-1]))
    return len(times) == AT_ONCE


def held(connection: sa.Connection, wanted: sa.ColumnElement[bool]) -> sa.RowMapping | None:
    """The row of a schedule, which nobody else changes until the transaction ends."""
    query = sa.select(schedules).where(wanted).with_for_update()
    return connection.execute(query).mappings().one_or_none()


def idle(connection: sa.Connection, now: datetime, most: int) -> list[StoredSchedule]:
    """Schedules with something due and nothing at work, the longest due first; held, too.

    A row that cannot be read stands in no other's way.
    """
    found, seen = list[StoredSchedule](), list[str]()
    while left := most - len(found):
        asked = {"now": now, "most": left, "seen": seen}
        rows = connection.execute(_IDLE, asked).mappings().all()
        seen = [*seen, *(row["id"] for row in rows)]
        found += [schedule for row in rows if (schedule := opened(row))]
        if len(rows) < left:
            break
    return found


def next_work(
    connection: sa.Connection, database: Database, schedule: StoredSchedule, now: datetime
) -> Work | None:
    """What comes first for it: a delivery that is due, else the tick that its policies leave."""
    query = sa.select(deliveries).where(_deliverable(schedule.id, now)).order_by(deliveries.c.at)
    row = connection.execute(query.limit(1)).mappings().one_or_none()
    if row:
        delivery = delivery_of(row)
        return Work("delivery", delivery.key, schedule.id, delivery.at)
    if note(connection, database, schedule.id, now):
        return None  # not all that was missed is a row yet
    _apply_policies(connection, schedule, now)
    mine = _due(schedule.id)
    first = sa.select(ticks).where(mine, _ready(ticks, now)).order_by(ticks.c.at).limit(1)
    row = connection.execute(first).mappings().one_or_none()
    if row is None:
        return None
    tick = tick_of(row)
    begun = {"state": "running", "begun": now, "ended": None, "run": tick.run_id}
    connection.execute(sa.update(ticks).where(mine, ticks.c.at == tick.at).values(begun))
    return Work("tick", tick.key, schedule.id, tick.at, tick.attempt)


def _apply_policies(connection: sa.Connection, schedule: StoredSchedule, now: datetime) -> None:
    """Skip what is not to run."""
    spec, mine = schedule.spec, _due(schedule.id)
    unasked = sa.and_(mine, ticks.c.extra.is_(None))
    oldest = now - timedelta(hours=spec.missed_hours)
    _give_up(connection, schedule.id, oldest)
    _skip(connection, sa.and_(unasked, ticks.c.at < oldest), TOO_LATE, now)
    if spec.overlap == "skip":
        before = ticks.alias()
        came = sa.and_(before.c.begun <= ticks.c.at, before.c.ended > ticks.c.at)
        ran = sa.and_(before.c.schedule == schedule.id, before.c.state == "ran")
        busy = sa.exists().where(ran, came)
        _skip(connection, sa.and_(unasked, busy), STILL_AT_WORK, now)
    if spec.missed == "latest":
        last = connection.execute(sa.select(sa.func.max(ticks.c.at)).where(mine)).scalar()
        if last:
            why = CAUGHT_UP.format(at=last)
            _skip(connection, sa.and_(mine, ticks.c.at < last), why, now)


def _give_up(connection: sa.Connection, schedule: str, oldest: datetime) -> None:
    """Try no more what failed, where a later tick covers its time or it is too old."""
    later = ticks.alias()
    covers = sa.and_(later.c.schedule == schedule, later.c.at > ticks.c.at)
    over = sa.or_(sa.exists().where(covers), ticks.c.at < oldest)
    failed = sa.and_(_due(schedule), ticks.c.tries > 0, over)
    connection.execute(sa.update(ticks).where(failed).values(state="failed"))


def _skip(
    connection: sa.Connection, wanted: sa.ColumnElement[bool], why: str, now: datetime
) -> None:
    told = {"state": "skipped", "why": why, "ended": now}
    connection.execute(sa.update(ticks).where(wanted).values(told))


def _due(schedule: str) -> sa.ColumnElement[bool]:
    return sa.and_(ticks.c.schedule == schedule, ticks.c.state == "due")


def _deliverable(schedule: str | sa.Column[str], now: object) -> sa.ColumnElement[bool]:
    waiting = sa.and_(deliveries.c.schedule == schedule, deliveries.c.state == "waiting")
    return sa.and_(waiting, _ready(deliveries, now))


def _ready(table: sa.Table, now: object) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.not_before.is_(None), table.c.not_before <= now)


def _idle() -> sa.Select[tuple[object, ...]]:
    now = sa.bindparam("now", type_=deliveries.c.not_before.type)
    due = sa.and_(ticks.c.schedule == schedules.c.id, ticks.c.state == "due", _ready(ticks, now))
    first = sa.select(sa.func.min(ticks.c.at)).where(due).scalar_subquery()
    deliverable = sa.exists().where(_deliverable(schedules.c.id, now))
    query = sa.select(schedules).where(
        schedules.c.state == "active",
        schedules.c.at_work.is_(None),
        schedules.c.id.not_in(sa.bindparam("seen", expanding=True)),
        sa.or_(deliverable, sa.exists().where(due)),
    )
    query = query.order_by(sa.nulls_first(first), schedules.c.id)
    return query.limit(sa.bindparam("most", type_=sa.Integer)).with_for_update(skip_locked=True)


_IDLE = _idle()
"""Made once: an idle bot asks it every second."""
