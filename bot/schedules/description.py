"""Describe schedules in words: times, sources or text, destination, status."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from cron_descriptor import Options, get_description

from bot.schedules.store import ScheduleStore
from bot.slack.blocks import with_spelling
from bot.slack.people import People
from bot.storage.database import Database
from bot.storage.schedules import Occurrence, StoredSchedule
from config.schedules import PERSON, Schedule, ScheduleKind
from config.words import ENGLISH, current, phrase
from scopes.tool import one_line

NEXT_RUN_COUNT = 3
"""Next runs that a dry run shows."""
MAX_NAMED_CHANNELS = 20
"""Maximum channels named; the rest is counted."""
MAX_QUOTED_CHARS = 80
"""Maximum characters of a request or a reminder in a list."""
_CLOCK = r"\d\d:\d\d(?::\d\d)?"
_FIXED_TIMES = re.compile(rf"At ({_CLOCK}(?:(?:, and|,| and) {_CLOCK})*)(?:, (.+))?")
"""The English output of cron-descriptor for fixed times of a day, and the days."""
CRON_LOCALES = {"en": "en_US", "de": "de_DE", "fr": "fr_FR", "es": "es_ES", "it": "it_IT"}
"""Language -> the locale of cron-descriptor; names of days and months depend on the machine."""


async def language_of(people: People, spec: Schedule, place: str) -> str:
    """Return the language of what is written about a schedule, or by it in this place."""
    said = spec.request or spec.text
    return spec.language or await people.language(spec.owner, place, said)


def name(kind: ScheduleKind) -> str:
    """Return what people call a schedule of this kind."""
    return phrase(f"schedule.{kind}")


def moment(at: datetime) -> str:
    """Format a time as `Mon, 23 Nov 2026 09:00`, in its own zone."""
    return f"{day(at)} {at:%H:%M}" + (f":{at:%S}" if at.second else "")


def day(at: datetime) -> str:
    """Format a day as `Mon, 23 Nov 2026`."""
    return current().date(at, "yMMMEd")


def when(spec: Schedule) -> str:
    """Return its times in words: `Every Monday at 09:00 (Europe/Berlin)`."""
    timetable = spec.timetable
    if timetable.at:
        at = timetable.once.astimezone(timetable.info)
        return phrase("schedule.once", day=day(at), time=f"{at:%H:%M}", zone=spec.zone)
    words, options = current(), Options()
    options.use_24hour_time_format = True
    options.locale_code = CRON_LOCALES.get(words.language, CRON_LOCALES[ENGLISH])
    text = get_description(timetable.cron, options)
    if words.language != ENGLISH:
        names = words.calendar()
        text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
    elif fixed := _FIXED_TIMES.fullmatch(text):
        days = _days(fixed[2] or "")
        text = f"{days}{',' * (',' in days)} at {fixed[1]}"
    return f"{text.replace('At 0 minutes past the hour', 'Every hour')} ({spec.zone})"


def _days(text: str) -> str:
    """Reword the days of a fixed time from cron-descriptor."""
    if text in ("", "Monday through Friday"):
        return "Every weekday" if text else "Every day"
    text = re.sub(r"^only on (?=[A-Z])", "every ", text)
    text = re.sub(r"of the month, only in (.+)", r"of \1", text)
    text = re.sub(r"of the month$", "of every month", text)
    text = re.sub(r"^only in ", "every day in ", text)
    return f"{text[:1].upper()}{text[1:]}"


def timing(spec: Schedule, now: datetime) -> str:
    """Return its times in words, and the next one."""
    text, times = when(spec), spec.timetable.next(1, now)
    if spec.at or not times:
        return text
    shown = day(times[0]) if f"{times[0]:%H:%M}" in text else moment(times[0])
    return phrase("schedule.next", times=text, next=shown)


def next_run(spec: Schedule, now: datetime) -> str:
    """Return the next time, with the name of the schedule's own zone."""
    times = [moment(at) for at in spec.timetable.next(1, now)]
    return f"{times[0] if times else phrase('schedule.never')} ({spec.zone})"


def contents(spec: Schedule) -> str:
    """Return its sources, request or text in short, for its owner."""
    if text := one_line(spec.request or spec.text):
        return (
            text if len(text) <= MAX_QUOTED_CHARS else f"{text[: MAX_QUOTED_CHARS - 1].rstrip()}…"
        )
    return ", ".join(spec.channels) or phrase("why.your_mailbox")


def reads(spec: Schedule, names: Sequence[str], unnamed: int) -> str:
    """Describe the sources of a report, or return the full text of a question or a reminder.

    `names` are the channels that may be named here, `unnamed` counts the private ones that may not.
    """
    if spec.kind == "triage":
        return phrase("schedule.mailbox")
    if text := spec.request or spec.text:
        return f"\n{text}"
    shown = [f"#{with_spelling(name)}" for name in names[:MAX_NAMED_CHANNELS]]
    more = len(names) - len(shown)
    shown += [phrase("schedule.more", n=more)] if more > 0 else []
    shown += [phrase("schedule.private", n=unnamed)] if unnamed else []
    count = phrase("schedule.channels_now", n=len(names) + unnamed)
    later = ", ".join(f"'{with_spelling(p)}'" for p in spec.channels if set(p) & set("*?["))
    grows = f"; {phrase('schedule.grows', patterns=later)}" if later else ""
    tracker = phrase("schedule.tracker", id=with_spelling(spec.tracker or ""))
    tracker = f"; {tracker}" if spec.tracker else ""
    return f"{', '.join(shown)} ({count}{grows}){tracker}"


def destination(spec: Schedule, names: Mapping[str, str]) -> str:
    """Describe its destination; `names` of channels and people by id."""
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

    `reading` is the part of its contents that may be shown here.
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
    """Return `next run ...`, or the reason why there is none."""
    if stored.state == "active":
        failing = f"; {phrase('schedule.failing')}" if stored.trouble else ""
        return phrase("schedule.next_run", at=next_run(stored.spec, now)) + failing
    why = f": {stored.why.rstrip('.')}" if stored.why else ""
    return phrase(f"schedule.{stored.state}") + why


MAX_SEARCHED_OCCURRENCES = 20
"""Maximum occurrences searched for a finished one."""
LAST_RUN = ("at", "state", "why", "run", "cost_usd", "tries", "not_before")
"""Fields of an occurrence that are shown."""
LAST_DELIVERY = {
    **{"at": "at", "state": "delivery", "why": "why", "tries": "delivery_tries"},
    **{name: name for name in ("not_before", "delivered", "place", "figures")},
}
"""Shown name of a fact about a delivery -> the field of its occurrence."""


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
    """The latest occurrence that has finished, is running, or waits for another attempt."""
    delivery: Occurrence | None
    """The latest occurrence that ran, delivered or not."""

    def to_json(self) -> dict[str, Any]:
        spec, last, delivery = self.stored.spec, self.last, self.delivery
        failure, of_run = self.stored.trouble, {"why": "", "not_before": None}
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
            "last_delivery": delivery
            and {n: getattr(delivery, f) for n, f in LAST_DELIVERY.items()},
            "trouble": failure.model_dump(mode="json") if failure else None,
        }


async def schedule_statuses(
    database: Database, settings: Mapping[str, Schedule], now: datetime
) -> list[ScheduleStatus]:
    """Return all schedules by name, including new ones of the settings; finished ones come last.

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
    of = await store.occurrences(row.id, MAX_SEARCHED_OCCURRENCES) if taken_up else []
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
    quoted = f' "{contents(spec)}"' if spec.request or spec.text else ""
    what = f" of {', '.join(spec.channels)}" if spec.channels else quoted
    state = stored.state if each.taken_up else "new"
    times = when(spec)
    times = f"{times[:1].lower()}{times[1:]}"
    yield f"{stored.id}  {state}  {name(spec.kind)}{what}, {times}, to {spec.to}"
    yield from (f"  {name:14} {text}" for name, text in status_facts(each, now))


def status_facts(each: ScheduleStatus, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield name and value of each fact."""
    stored, spec, zone = each.stored, each.stored.spec, each.stored.spec.timetable.info
    is_over = bool(spec.at) and spec.timetable.after(now) is None
    if is_over and not each.last and (not each.taken_up or stored.state == "done"):
        yield "next run", "none: its one time has passed"
    elif not each.taken_up:
        yield "next run", "none until `assistant serve` takes it up"
    elif stored.state == "active":
        due = f"; {each.waiting} due now" if each.waiting else ""
        yield "next run", next_run(spec, now) + due
    else:
        yield "next run", state(stored, now)
    last, delivery = each.last, each.delivery
    if last:
        yield "last run", _ran(last, zone)
    else:
        yield "last run", "none"
    yield "last delivery", _way(delivery, zone) if delivery else "none"
    if last and last.cost_usd is not None:
        yield "cost", f"${last.cost_usd:.2f} the last run"
    if stored.trouble and not stored.trouble.over:
        why = "" if stored.state == "refused" else f": {stored.trouble.why}"
        yield "trouble", f"since {moment(stored.trouble.since.astimezone(zone))}{why}"


def _ran(last: Occurrence, zone: Any) -> str:
    waits = last.state == "due"
    state, why = "failed" if waits else last.state, f": {last.why}" if last.why else ""
    why = "" if last.delivery else why
    tries_text = (
        f" after {last.tries} {'try' if last.tries == 1 else 'tries'}" if last.tries else ""
    )
    again = f" (next try {last.not_before.astimezone(UTC):%H:%M} UTC)" if last.not_before else ""
    at = moment(last.at.astimezone(zone))
    return f"{at}, {state}{tries_text}{why}{again if waits else ''}"


def _way(last: Occurrence, zone: Any) -> str:
    if last.delivered:
        text = f"{moment(last.delivered.astimezone(zone))}, {last.delivery}"
        return f"{text}: nothing was new" if last.delivery == "quiet" else text
    again = f", next try {last.not_before.astimezone(UTC):%H:%M} UTC" if last.not_before else ""
    why = f": {last.why}" if last.why else ""
    of = moment(last.at.astimezone(zone))
    tries = last.delivery_tries
    tries_text = f" after {tries} {'try' if tries == 1 else 'tries'}" if tries else ""
    again = again if last.delivery == "waiting" else ""
    return f"{last.delivery}{tries_text}, that of {of}{why}{again}"
