"""Describe schedules in words: their times, what they read or say, where it goes, their status."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from cron_descriptor import Options, get_description

from bot.schedules.store import ScheduleStore
from bot.slack.blocks import with_spelling
from bot.storage.database import Database
from bot.storage.schedules import Occurrence, StoredSchedule
from config.schedules import PERSON, Kind, Schedule
from config.words import ENGLISH, current, phrase
from scopes.tool import iso, one_line

SHOWN = 3
"""Next runs that a dry run shows."""
NAMED = 20
"""Channels that are named; the rest is counted."""
QUOTED = 80
"""Characters of a request or a reminder in a list."""
_CLOCK = r"\d\d:\d\d(?::\d\d)?"
_FIXED = re.compile(rf"At ({_CLOCK}(?:(?:, and|,| and) {_CLOCK})*)(?:, (.+))?")
"""What cron-descriptor says of fixed times of a day, and of the days, in English."""
CRON_LOCALES = {"en": "en_US", "de": "de_DE", "fr": "fr_FR", "es": "es_ES", "it": "it_IT"}
"""Language -> the locale of cron-descriptor; it names days and months as the machine does."""


def name(kind: Kind) -> str:
    """Return what people call a schedule of this kind."""
    return phrase(f"schedule.{kind}")


def moment(at: datetime) -> str:
    """Format a time as `Mon, 23 Nov 2026 09:00`, in its own zone."""
    return f"{day(at)} {at:%H:%M}" + (f":{at:%S}" if at.second else "")


def day(at: datetime) -> str:
    """Format a day as `Mon, 23 Nov 2026`."""
    return current().date(at, "yMMMEd")


def when(spec: Schedule) -> str:
    """Return its times as people say them: `Every Monday at 09:00 (Europe/Berlin)`."""
    timetable = spec.timetable
    if timetable.at:
        at = timetable.once.astimezone(timetable.info)
        return phrase("schedule.once", day=day(at), time=f"{at:%H:%M}", zone=spec.zone)
    words, options = current(), Options()
    options.use_24hour_time_format = True
    options.locale_code = CRON_LOCALES.get(words.language, CRON_LOCALES[ENGLISH])
    said = get_description(timetable.cron, options)
    if words.language != ENGLISH:
        names = words.calendar()
        said = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), said)
    elif fixed := _FIXED.fullmatch(said):
        days = _days(fixed[2] or "")
        said = f"{days}{',' * (',' in days)} at {fixed[1]}"
    return f"{said.replace('At 0 minutes past the hour', 'Every hour')} ({spec.zone})"


def _days(said: str) -> str:
    """Reword what cron-descriptor says of the days of a fixed time."""
    if said in ("", "Monday through Friday"):
        return "Every weekday" if said else "Every day"
    said = re.sub(r"^only on (?=[A-Z])", "every ", said)
    said = re.sub(r"of the month, only in (.+)", r"of \1", said)
    said = re.sub(r"of the month$", "of every month", said)
    said = re.sub(r"^only in ", "every day in ", said)
    return f"{said[:1].upper()}{said[1:]}"


def timing(spec: Schedule, now: datetime) -> str:
    """Return its times as people say them, and the next one."""
    said, times = when(spec), spec.timetable.next(1, now)
    if spec.at or not times:
        return said
    shown = day(times[0]) if f"{times[0]:%H:%M}" in said else moment(times[0])
    return phrase("schedule.next", times=said, next=shown)


def next_run(spec: Schedule, now: datetime) -> str:
    """Return the next time, in the schedule's own zone, which is named."""
    times = [moment(at) for at in spec.timetable.next(1, now)]
    return f"{times[0] if times else phrase('schedule.never')} ({spec.zone})"


def contents(spec: Schedule) -> str:
    """Return in short what it reads, asks or says; for its owner."""
    if said := one_line(spec.request or spec.text):
        return said if len(said) <= QUOTED else f"{said[: QUOTED - 1].rstrip()}…"
    return ", ".join(spec.channels) or phrase("why.your_mailbox")


def reads(spec: Schedule, named: Sequence[str], unnamed: int) -> str:
    """Describe what a report is made of, or give the words of a question or a reminder whole.

    `named` are the channels that may be named here, `unnamed` counts the private ones that may not.
    """
    if spec.kind == "triage":
        return phrase("schedule.mailbox")
    if said := spec.request or spec.text:
        return f"\n{said}"
    shown = [f"#{with_spelling(name)}" for name in named[:NAMED]]
    more = len(named) - len(shown)
    shown += [phrase("schedule.more", n=more)] if more > 0 else []
    shown += [phrase("schedule.private", n=unnamed)] if unnamed else []
    count = phrase("schedule.channels_now", n=len(named) + unnamed)
    later = ", ".join(f"'{with_spelling(p)}'" for p in spec.channels if set(p) & set("*?["))
    grows = f"; {phrase('schedule.grows', patterns=later)}" if later else ""
    tracker = phrase("schedule.tracker", id=with_spelling(spec.tracker or ""))
    tracker = f"; {tracker}" if spec.tracker else ""
    return f"{', '.join(shown)} ({count}{grows}){tracker}"


def destination(spec: Schedule, names: Mapping[str, str]) -> str:
    """Describe where it goes; `names` of channels and people by id."""
    if spec.is_private:
        return phrase("schedule.own_dm")
    if "@" in spec.to:
        return phrase("schedule.by_mail", address=with_spelling(spec.to))
    name = names.get(spec.to)
    mark = "@" if PERSON.fullmatch(spec.to) else "#"
    return f"{spec.to} ({mark}{with_spelling(name)})" if name else spec.to


def line(
    stored: StoredSchedule,
    now: datetime,
    *,
    reading: str = "",
    whose: str = "",
    names: Mapping[str, str] | None = None,
) -> str:
    """Format as one line: `markets: sweep of ..., every Monday at 09:00 (UTC), to ...; next ...`.

    `reading` is what may be told of its contents here.
    """
    spec = stored.spec
    key = "schedule.quoted" if spec.request or spec.text else "schedule.of"
    what = name(spec.kind)
    what = phrase(key, kind=what, words=reading) if reading else what
    goes = phrase("schedule.dm") if spec.is_private else destination(spec, names or {})
    whose = f", {whose}" if whose else ""
    times = when(spec)
    times = f"{times[:1].lower()}{times[1:]}"
    to = phrase("schedule.to", place=goes)
    return f"{stored.id}: {what}, {times}, {to}{whose}; {state(stored, now)}"


def state(stored: StoredSchedule, now: datetime) -> str:
    """Return `next run ...`, or why there is none."""
    if stored.state == "active":
        failing = f"; {phrase('schedule.failing')}" if stored.trouble else ""
        return phrase("schedule.next_run", at=next_run(stored.spec, now)) + failing
    why = f": {stored.why.rstrip('.')}" if stored.why else ""
    return phrase(f"schedule.{stored.state}") + why


LATEST = 20
"""Occurrences that are searched for a finished one."""
LAST_RUN = ("at", "state", "why", "run", "cost_usd", "tries", "not_before")
"""Fields of an occurrence that are shown."""
LAST_DELIVERY = {
    **{"at": "at", "state": "delivery", "why": "why", "tries": "delivery_tries"},
    **{name: name for name in ("not_before", "delivered", "place", "figures")},
}
"""Names of what is shown of a delivery -> the fields of its occurrence."""


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
    delivery: Occurrence | None
    """The latest one that ran, delivered or not."""

    def to_json(self) -> dict[str, Any]:
        spec, last, way = self.stored.spec, self.last, self.delivery
        trouble, of_run = self.stored.trouble, {"why": "", "not_before": None}
        run = {**asdict(last), **(of_run if last.delivery else {})} if last else {}
        return {
            "name": self.stored.id,
            "origin": self.stored.origin,
            "state": self.stored.state if self.taken_up else "new",
            "why": self.stored.why or None,
            **spec.model_dump(mode="json"),
            "next_run": self.next_run,
            "due": self.waiting,
            "last_run": {n: run[n] for n in LAST_RUN} if last else None,
            "last_delivery": way and {n: getattr(way, f) for n, f in LAST_DELIVERY.items()},
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
    store, runs = ScheduleStore(database), row.state == "active"
    of = await store.occurrences(row.id, LATEST) if taken_up else []
    return ScheduleStatus(
        row,
        taken_up,
        row.spec.timetable.after(now) if runs else None,
        sum(occurrence.state == "due" and not occurrence.tries for occurrence in of),
        next(
            (occurrence for occurrence in of if occurrence.state != "due" or occurrence.tries), None
        ),
        next((occurrence for occurrence in of if occurrence.delivery), None),
    )


def status_lines(each: ScheduleStatus, now: datetime) -> Iterator[str]:
    """Format a schedule for the terminal: a heading, and a line for each fact."""
    stored, spec = each.stored, each.stored.spec
    said = f' "{contents(spec)}"' if spec.request or spec.text else ""
    what = f" of {', '.join(spec.channels)}" if spec.channels else said
    state = stored.state if each.taken_up else "new"
    times = when(spec)
    times = f"{times[:1].lower()}{times[1:]}"
    yield f"{stored.id}  {state}  {name(spec.kind)}{what}, {times}, to {spec.to}"
    yield from (f"  {name:14} {text}" for name, text in status_facts(each, now))


def status_facts(each: ScheduleStatus, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield name and value of each fact."""
    stored, spec, zone = each.stored, each.stored.spec, each.stored.spec.timetable.info
    if not each.taken_up:
        yield "next run", "none until `assistant serve` takes it up"
    elif stored.state == "active":
        due = f"; {each.waiting} due now" if each.waiting else ""
        yield "next run", next_run(spec, now) + due
    else:
        yield "next run", state(stored, now)
    last, way = each.last, each.delivery
    if last:
        yield "last run", _ran(last, zone)
    else:
        yield "last run", "none"
    yield "last delivery", _way(way, zone) if way else "none"
    if last and last.cost_usd is not None:
        yield "cost", f"${last.cost_usd:.2f} the last run"
    if stored.trouble and not stored.trouble.over:
        yield "trouble", f"since {iso(stored.trouble.since)}: {stored.trouble.why}"


def _ran(last: Occurrence, zone: Any) -> str:
    waits = last.state == "due"
    state, why = "failed" if waits else last.state, f": {last.why}" if last.why else ""
    why = "" if last.delivery else why
    tried = f" after {last.tries} {'try' if last.tries == 1 else 'tries'}" if last.tries else ""
    again = f" (next try {last.not_before.astimezone(UTC):%H:%M} UTC)" if last.not_before else ""
    at = moment(last.at.astimezone(zone))
    return f"{at}, {state}{tried}{why}{again if waits else ''}"


def _way(way: Occurrence, zone: Any) -> str:
    if way.delivered:
        said = f"{moment(way.delivered.astimezone(zone))}, {way.delivery}"
        return f"{said}: nothing was new" if way.delivery == "quiet" else said
    again = f", next try {way.not_before.astimezone(UTC):%H:%M} UTC" if way.not_before else ""
    why = f": {way.why}" if way.why else ""
    of = moment(way.at.astimezone(zone))
    tries = way.delivery_tries
    tried = f" after {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
    return f"{way.delivery}{tried}, that of {of}{why}{again if way.delivery == 'waiting' else ''}"
