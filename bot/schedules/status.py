"""The status of each schedule: its next run, its last one and that one's delivery, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from bot.schedules import description
from bot.schedules.store import Occurrences, ScheduleStore
from bot.storage.database import Database
from bot.storage.schedules import Occurrence, StoredDelivery, StoredSchedule
from config.schedules import Schedule
from scopes.tool import iso

LATEST = 20
"""Occurrences that are searched for a finished one."""
LAST_RUN = ("at", "state", "why", "run", "cost_usd", "tries", "not_before")
"""Fields of an occurrence that are shown."""


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The status of one schedule."""

    stored: StoredSchedule
    taken_up: bool
    """False: it is in the settings, but `serve` has not run since."""
    next_run: datetime | None
    waiting: int
    """Occurrences that are due for the first time."""
    last: Occurrence | None
    """The latest one that has finished, is running, or waits for another try."""
    delivery: StoredDelivery | None
    """The latest one, delivered or not."""
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
            "trouble": trouble.model_dump(mode="json") if trouble else None,
        }


async def schedule_statuses(
    database: Database, settings: Mapping[str, Schedule], now: datetime
) -> list[ScheduleStatus]:
    """Return all schedules by name, including new ones of the settings; those that are done last.

    Raises StoreError.
    """
    rows = {row.id: row for row in await ScheduleStore(database).all(done=True)}
    new = {
        name: StoredSchedule.new(name, "config", spec, now)
        for name, spec in settings.items()
        if name not in rows or rows[name].origin != "config"
    }
    found = [await _status(database, row, True, now) for id, row in rows.items() if id not in new]
    found += [await _status(database, row, False, now) for row in new.values()]
    return sorted(found, key=lambda each: (each.stored.state == "done", each.stored.id))


async def _status(
    database: Database, row: StoredSchedule, taken_up: bool, now: datetime
) -> ScheduleStatus:
    occurrences, runs = Occurrences(database), row.state == "active"
    of = await occurrences.of(row.id, LATEST) if taken_up else []
    ways = await occurrences.deliveries(row.id, 1) if taken_up else []
    return ScheduleStatus(
        row,
        taken_up,
        row.spec.timetable.after(now) if runs else None,
        sum(occurrence.state == "due" and not occurrence.tries for occurrence in of),
        next(
            (occurrence for occurrence in of if occurrence.state != "due" or occurrence.tries), None
        ),
        ways[0] if ways else None,
        await occurrences.cost(row.id, _month_of(now, row)) if taken_up else 0.0,
    )


def _month_of(at: datetime, schedule: StoredSchedule) -> datetime:
    """Return the beginning of the calendar month of `at`, in the schedule's own zone."""
    local = at.astimezone(schedule.spec.timetable.info)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)


def lines(each: ScheduleStatus, now: datetime) -> Iterator[str]:
    """Format a schedule for the terminal: a heading, and a line for each fact."""
    stored, spec = each.stored, each.stored.spec
    said = f' "{description.contents(spec)}"' if spec.request or spec.text else ""
    what = f" of {', '.join(spec.channels)}" if spec.channels else said
    state = stored.state if each.taken_up else "new"
    times = description.when(spec)
    times = f"{times[:1].lower()}{times[1:]}"
    yield f"{stored.id}  {state}  {description.name(spec.kind)}{what}, {times}, to {spec.to}"
    yield from (f"  {name:14} {text}" for name, text in status_facts(each, now))


def status_facts(each: ScheduleStatus, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield name and value of each fact."""
    stored, spec, zone = each.stored, each.stored.spec, each.stored.spec.timetable.info
    if not each.taken_up:
        yield "next run", "none until `assistant serve` takes it up"
    elif stored.state == "active":
        due = f"; {each.waiting} due now" if each.waiting else ""
        yield "next run", description.next_run(spec, now) + due
    else:
        yield "next run", description.state(stored, now)
    last, way = each.last, each.delivery
    if last:
        yield "last run", _ran(last, zone)
    else:
        yield "last run", "none"
    yield "last delivery", _way(way, zone) if way else "none"
    cost = "" if last is None or last.cost_usd is None else f"${last.cost_usd:.2f} the last run, "
    yield "cost", f"{cost}${each.month_usd:.2f} this month"
    if stored.trouble and not stored.trouble.over:
        yield "trouble", f"since {iso(stored.trouble.since)}: {stored.trouble.why}"


def _ran(last: Occurrence, zone: Any) -> str:
    waits = last.state == "due"
    state, why = "failed" if waits else last.state, f": {last.why}" if last.why else ""
    tried = f" after {last.tries} {'try' if last.tries == 1 else 'tries'}" if last.tries else ""
    again = f" (next try {last.not_before.astimezone(UTC):%H:%M} UTC)" if last.not_before else ""
    at = description.moment(last.at.astimezone(zone))
    return f"{at}, {state}{tried}{why}{again if waits else ''}"


def _way(way: StoredDelivery, zone: Any) -> str:
    if way.delivered:
        said = f"{description.moment(way.delivered.astimezone(zone))}, {way.state}"
        return f"{said}: nothing was new" if way.state == "quiet" else said
    again = f", next try {way.not_before.astimezone(UTC):%H:%M} UTC" if way.not_before else ""
    why = f": {way.why}" if way.why else ""
    of = description.moment(way.at.astimezone(zone))
    tried = f" after {way.tries} {'try' if way.tries == 1 else 'tries'}" if way.tries else ""
    return f"{way.state}{tried}, that of {of}{why}{again if way.state == 'waiting' else ''}"
