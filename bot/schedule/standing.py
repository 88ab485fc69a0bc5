"""How each schedule stands: what comes next, what came of the last run, what it cost."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.durable import LOCKS
from bot.schedule import telling
from bot.schedule.book import ScheduleBook
from bot.schedule.budget import month_of, spent
from bot.schedule.records import Delivery, StoredSchedule, Tick
from bot.schedule.ticks import Ticks
from bot.serving.workspace import LOCK
from bot.storage.database import Database
from config.schedules import Schedule

LATEST = 20
"""Ticks that are looked at for one that is over."""
LAST_RUN = ("at", "state", "why", "run", "cost_usd", "tries", "not_before")
"""What is told of a tick."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One schedule."""

    stored: StoredSchedule
    taken_up: bool
    """False: it stands in the settings, and nothing has served since."""
    next_run: datetime | None
    waiting: int
    """Ticks that are due for the first time."""
    last: Tick | None
    """The latest one that is over, at work, or waits for another try."""
    delivery: Delivery | None
    """The latest one, whether it has come to its readers or not."""
    month_usd: float

    def to_json(self) -> dict[str, Any]:
        spec, last, way = self.stored.spec, self.last, self.delivery
        trouble = self.stored.trouble
        return {
            "name": self.stored.id,
            "origin": self.stored.origin,
            "state": self.stored.state if self.taken_up else "new",
            "why": self.stored.why or None,
            **spec.model_dump(mode="json"),
            "next_run": self.next_run,
            "due": self.waiting,
            "last_run": last and {n: getattr(last, n) for n in LAST_RUN},
            "last_delivery": way and {n: v for n, v in asdict(way).items() if n != "schedule"},
            "month_usd_spent": self.month_usd,
            "trouble": dict(trouble) if trouble else None,
        }


async def standings(
    database: Database, settings: Mapping[str, Schedule], now: datetime
) -> list[Standing]:
    """All schedules, by name, those too that serve has not taken up yet. Raises StoreError."""
    rows = {row.id: row for row in await ScheduleBook(database).all()}
    new = {
        name: StoredSchedule(name, "config", "active", "", spec, now, now)
        for name, spec in settings.items()
        if name not in rows or rows[name].origin != "config"
    }
    found = [await _standing(database, row, True, now) for id, row in rows.items() if id not in new]
    found += [await _standing(database, row, False, now) for row in new.values()]
    return sorted(found, key=lambda each: each.stored.id)


async def _standing(
    database: Database, row: StoredSchedule, taken_up: bool, now: datetime
) -> Standing:
    ticks, runs = Ticks(database), row.state == "active"
    of = await ticks.of(row.id, LATEST) if taken_up else []
    ways = await ticks.deliveries(row.id, 1) if taken_up else []
    return Standing(
        row,
        taken_up,
        row.spec.timetable.after(now) if runs else None,
        sum(tick.state == "due" and not tick.tries for tick in of),
        next((tick for tick in of if tick.state != "due" or tick.tries), None),
        ways[0] if ways else None,
        await spent(database, row.id, month_of(now, row)) if taken_up else 0.0,
    )


def lines(each: Standing, now: datetime) -> Iterator[str]:
    """A schedule for the terminal: a head, and a line for each thing to know of it."""
    stored, spec = each.stored, each.stored.spec
    what = f"{spec.kind} of {', '.join(spec.channels)}" if spec.channels else spec.kind
    state = stored.state if each.taken_up else "new"
    yield f"{stored.id}  {state}  {what}, '{spec.cron}' ({spec.zone}), to {spec.to}"
    yield from (f"  {name:14} {text}" for name, text in _facts(each, now))


def _facts(each: Standing, now: datetime) -> Iterator[tuple[str, str]]:
    stored, spec, zone = each.stored, each.stored.spec, each.stored.spec.timetable.info
    if not each.taken_up:
        yield "next run", "none until `assistant serve` takes it up"
    elif stored.state == "active":
        due = f"; {each.waiting} due now" if each.waiting else ""
        yield "next run", telling.next_runs(spec, now, 1) + due
    else:
        yield "next run", telling.state(stored, now)
    last, way = each.last, each.delivery
    if last:
        yield "last run", _ran(last, zone)
    else:
        yield "last run", "none"
    yield "last delivery", _way(way, zone) if way else "none"
    month = f" of ${spec.month_usd:.2f}" if spec.month_usd is not None else ""
    cost = "" if last is None or last.cost_usd is None else f"${last.cost_usd:.2f} the last run, "
    yield "cost", f"{cost}${each.month_usd:.2f}{month} this month"
    if stored.trouble and not stored.trouble.get("over"):
        trouble = stored.trouble
        yield "trouble", f"since {trouble.get('since', '?')}: {trouble.get('why', '')}"


def _ran(last: Tick, zone: Any) -> str:
    waits = last.state == "due"
    state, why = "failed" if waits else last.state, f": {last.why}" if last.why else ""
    tried = f" after {last.tries} {'try' if last.tries == 1 else 'tries'}" if last.tries else ""
    again = f" (next try {last.not_before.astimezone(UTC):%H:%M} UTC)" if last.not_before else ""
    at = telling.moment(last.at.astimezone(zone))
    return f"{at}, {state}{tried}{why}{again if waits else ''}"


def _way(way: Delivery, zone: Any) -> str:
    if way.delivered:
        said = f"{telling.moment(way.delivered.astimezone(zone))}, {way.state}"
        return f"{said}: nothing was new" if way.state == "quiet" else said
    again = f", next try {way.not_before.astimezone(UTC):%H:%M} UTC" if way.not_before else ""
    why = f": {way.why}" if way.why else ""
    of = telling.moment(way.at.astimezone(zone))
    tried = f" after {way.tries} {'try' if way.tries == 1 else 'tries'}" if way.tries else ""
    return f"{way.state}{tried}, that of {of}{why}{again if way.state == 'waiting' else ''}"


async def is_served(database: Database, data_dir: Path) -> bool:
    """Whether a process serves this database at this moment. Raises StoreError."""
    if database.shared:
        names = ("locktype", "classid", "granted", "database")
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
        locks = sa.table("pg_locks", *columns)
        held = sa.select(locks.c.classid).where(
            *(locks.c.locktype == "advisory", locks.c.classid == LOCKS, locks.c.granted),
            locks.c.database
            == sa.select(sa.column("oid"))
            .select_from(sa.table("pg_database"))
            .where(sa.column("datname") == sa.func.current_database())
            .scalar_subquery(),
        )
        return bool(await database.read(held))
    try:
        with (data_dir / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
