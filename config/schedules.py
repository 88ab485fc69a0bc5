"""The definition of a schedule, in `assistant.yaml` or set in chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice, pairwise, takewhile
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from pydantic import Field, StringConstraints, model_validator

from config.sections import USER_ID, Language, Name, Section, SlackUser, written

FIELDS = ("minute", "hour", "day", "month", "day_of_week")
"""Fields of a crontab with five fields; one with six begins with the seconds."""
PLACES = {"day": "day of the month", "day_of_week": "day of the week"}
RANGES = {
    **{"second": (0, 59), "minute": (0, 59), "hour": (0, 23)},
    **{"day": (1, 31), "month": (1, 12), "day_of_week": (0, 7)},
}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Days by their crontab numbers; APScheduler counts from Monday."""
SOMETIME = timedelta(days=366 * 9)
"""A time that does not occur within this period never does: leap days can be eight years apart."""
YEARS = "1970-2199"
"""Search horizon; an unbounded search takes a second to find that a time never occurs."""
SOON = timedelta(hours=24)
FAR = timedelta(hours=26)
"""Maximum offset of a clock from UTC, and maximum change of an offset."""
LOCAL_TIME = "%Y-%m-%dT%H:%M"
"""How a single time is written."""
COMPARED = 25
"""Times whose pauses are compared: a crontab that is too frequent shows it on its first day."""
_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")


class TimetableError(ValueError):
    """Times that cannot be used; the text says which part, and what to write."""


@dataclass(frozen=True)
class Timetable:
    """The times of one schedule: those of a crontab, or a single one. Create it with `of`."""

    cron: str
    zone: str
    at: str = ""
    """The single time, on the clock of `zone`; empty = those of the crontab."""

    @classmethod
    def of(cls, cron: str, zone: str, at: str = "") -> Timetable:
        """Parse a crontab or a single time, and a time zone; raise TimetableError."""
        made = cls(" ".join(cron.split()), zone, at.strip())
        if bool(made.cron) == bool(made.at):
            raise TimetableError(
                "it has either a crontab in `cron`, to come again and again, or one time in `at`"
            )
        if not made.cron.isascii() or len(made.cron) > 200:
            raise TimetableError(f"{cron[:60]!r} is not a crontab, such as '0 9 * * mon-fri'")
        made.info  # noqa: B018 - raises for an unknown zone
        if made.at:
            made.once  # noqa: B018 - raises for what is not a time
        elif made.after(datetime.now(UTC)) is None:
            raise TimetableError(f"{cron!r} never comes up: no such day exists")
        return made

    @cached_property
    def once(self) -> datetime:
        """Return the single time, in UTC. Raises TimetableError."""
        try:
            wall = datetime.strptime(self.at, LOCAL_TIME).replace(tzinfo=self.info)
        except ValueError:
            raise TimetableError(
                f"{self.at[:40]!r} is not a time of a day, such as 2026-11-30T15:00"
            ) from None
        return wall.astimezone(UTC)

    def shortest(self, now: datetime) -> timedelta | None:
        """Return the shortest pause between its next times on the clock; None = it has none."""
        if self.at:
            return None
        times = list(islice(Timetable(self.cron, "UTC")._times(now), COMPARED))
        return min((later - at for at, later in pairwise(times)), default=None)

    @cached_property
    def info(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except (ValueError, OSError, LookupError):
            raise TimetableError(
                f"there is no time zone {self.zone[:40]!r}: write one like Europe/Madrid"
            ) from None

    def after(self, at: datetime) -> datetime | None:
        """Return the first time after `at`, in UTC; None = there is none in the next nine years."""
        if self.at:
            return self.once if self.once > at else None
        at, end = at.astimezone(UTC), at + SOMETIME
        while at < end:
            found = self._soon(at)
            if found:
                return found
            at += SOON
            wall = next(self._walls(at - FAR), None)
            if wall is None:
                return None
            at = max(at, wall - FAR)
        return None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the times after `start` up to and including `end`, in UTC."""
        return takewhile(lambda at: at <= end, self._times(start))

    def next(self, count: int, after: datetime) -> list[datetime]:
        """Return this many times after `after`, in the schedule's own zone, for people."""
        return [at.astimezone(self.info) for at in islice(self._times(after), count)]

    def _times(self, start: datetime) -> Iterator[datetime]:
        at = self.after(start)
        while at:
            yield at
            at = self.after(at)

    def _soon(self, at: datetime) -> datetime | None:
        """Return the first time after `at` that is no more than `SOON` after it."""
        shifts = dict.fromkeys(_offset(self.info, each) for each in (at, at - FAR, at + FAR))
        best, found = at + SOON, None
        for shift in shifts:
            for wall in self._walls(at + shift):
                moment = wall - shift
                if moment > best:
                    break
                if moment > at and moment in self._moments(wall):
                    best = found = moment
                    break
        return found

    def _walls(self, start: datetime) -> Iterator[datetime]:
        """Yield wall-clock times from `start` on, as if they were UTC."""
        end, found = start + SOMETIME, self._trigger.get_next_fire_time(None, start)
        while found and found <= end:
            yield found
            found = self._trigger.get_next_fire_time(found, found + timedelta(microseconds=1))

    def _moments(self, wall: datetime) -> list[datetime]:
        """Return the moments that a wall-clock time refers to."""
        first = wall.replace(tzinfo=self.info, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=self.info, fold=1).astimezone(UTC)
        twice = second > first  # if the time does not exist, the order is reversed
        return [first, second] if twice and self._is_frequent else [first]

    @cached_property
    def _named(self) -> dict[str, str]:
        """Return each field by name with its text."""
        parts = self.cron.lower().split()
        if len(parts) not in (5, 6):
            count = f"{len(parts)} field" + "s" * (len(parts) != 1)
            raise TimetableError(
                f"{self.cron!r} has {count}, but a crontab has five: minute, hour, "
                "day of the month, month, day of the week, such as '0 9 * * mon-fri'"
            )
        names = FIELDS if len(parts) == 5 else ("second", *FIELDS)
        return dict(zip(names, parts, strict=True))

    @cached_property
    def _is_frequent(self) -> bool:
        return self._named["hour"].startswith("*") or self._named["minute"].startswith("*")

    @cached_property
    def _trigger(self) -> CronTrigger:
        named = self._named
        for number, (name, text) in enumerate(named.items()):
            self._check(number, name, text)
        if named["day"] != "*" and named["day_of_week"] != "*":
            raise TimetableError(
                f"{self.cron!r} names a day of the month and a day of the week: leave one of them "
                "'*', or write two schedules"
            )
        days = _by_name(named["day_of_week"])
        return CronTrigger(**{**named, "day_of_week": days, "year": YEARS, "timezone": UTC})

    def _check(self, number: int, name: str, text: str) -> None:
        """Raise TimetableError with the position of the fault."""
        place = f"the {ORDINALS[number]} field of {self.cron!r} ({PLACES.get(name, name)})"
        low, high = RANGES[name]
        for part in text.split(","):
            found = _PART.fullmatch(part)
            numbers = [int(g) for g in found.groups()[:2] if g and g.isdigit()] if found else []
            if not found or any(not low <= each <= high for each in numbers):
                raise TimetableError(f"{place} is {text!r}, but {_goes(name)}")
            if len(numbers) == 2 and numbers[0] > numbers[1]:
                raise TimetableError(f"{place} is {text!r}: the range is the wrong way round")
            if found[3] and not 1 <= int(found[3]) <= high:
                raise TimetableError(f"{place} is {text!r}: a step goes from 1 to {high}")
        try:
            named = _by_name(text) if name == "day_of_week" else text
            CronTrigger(**{name: named, "timezone": UTC})
        except ValueError:
            raise TimetableError(f"{place} is {text!r}, but {_goes(name)}") from None


def _goes(name: str) -> str:
    low, high = RANGES[name]
    if name == "day_of_week":
        return "goes from mon to sun or from 0 (Sunday) to 6"
    return f"goes from {low} to {high}" + " or from jan to dec" * (name == "month")


def _by_name(days: str) -> str:
    """Replace numbers of weekdays by names: crontab (0 and 7 = Sunday) and APScheduler differ."""
    parts = []
    for part in days.split(","):
        span, _, step = part.partition("/")
        ends = [0, 6] if span == "*" else [_day(each) for each in span.split("-")]
        if -1 in ends:
            return days
        first, last = ends[0], ends[-1]
        if last == 0 and first > 0:  # fri-sun
            last = 7
        if step and len(ends) == 1:  # mon/2: from there on, as in the other fields
            last = 6
        if last < first:
            raise ValueError(days)
        parts += [DAYS[d] for d in range(first, last + 1, int(step or 1))]
    return ",".join(dict.fromkeys(parts)) if days != "*" else days


def _day(text: str) -> int:
    """Return the crontab number of a day; -1 = none."""
    return DAYS.index(text) if text in DAYS else int(text) if text.isdigit() else -1


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


ScheduleName = Annotated[
    str,
    written(
        r"^[a-z0-9][a-z0-9-]{0,39}$",
        "small letters, digits and hyphens, 40 at most, such as markets or daily-mail",
    ),
]
Destination = Annotated[
    str,
    written(
        r"^(dm|#[^\s#@]{1,80}|[CGUW][A-Z0-9]{2,}|[^\s@<>,;]+@[^\s@<>,;]+\.[^\s@<>,;]+)$",
        "dm (to its owner), #channel or the id of one (C...), or a mail address",
    ),
]
"""`dm` (a direct message to the owner), a channel as `#name` or id, or a mail address; of a
reminder also the id of a person."""
ListId = Annotated[str, written(r"^F[A-Z0-9]{2,}$", "the id of a Slack list (F...)")]
PERSON = re.compile(USER_ID)
Kind = Literal["sweep", "triage", "ask", "reminder"]
MAX_WORDS = 2_000
"""Characters of a request or of the text of a reminder."""
Words = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_WORDS)]
MostDollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]

OWN = "dm"


class Schedule(Section):
    """One schedule: what it does and when, with whose permissions, and where it goes."""

    kind: Kind
    cron: str = ""
    """When it comes again and again; empty = once, at `at`."""
    at: str = ""
    """The one time at which it comes, on the clock of `zone`, such as `2026-11-30T15:00`."""
    zone: str = "UTC"
    channels: tuple[Name, ...] = Field(default=(), strict=False)
    """Channels of a sweep: names, patterns or ids."""
    tracker: ListId | None = None
    request: Words = ""
    """The question of `ask`, complete in itself."""
    text: Words = ""
    """The words of a reminder."""
    to: Destination
    owner: SlackUser
    """The user whose permissions and mailbox it uses, and who is told when it fails."""
    quiet: bool = False
    """Send nothing if nothing is new; the run is recorded."""
    missed_hours: Annotated[float, Field(gt=0, le=24 * 31)] = 48
    """Of the runs missed while nothing served, the latest is caught up at most this much later."""
    budget_usd: MostDollars = 1.0
    """Budget of one run."""
    language: Language | None = None
    """Language of the report; None = `report.language`, else that of the owner in Slack."""
    since_days: Annotated[int, Field(ge=1, le=36_500)] | None = None
    """How far back the first report looks; None = the setting of `sweep`, `triage` or `reply`. Each
    further report begins where the last delivered one ended; a question always looks so far."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        Timetable.of(self.cron, self.zone, self.at)
        if self.kind == "sweep" and not self.channels:
            raise ValueError('a sweep needs channels, such as ["csm-*"]')
        if self.kind == "triage" and (self.channels or self.tracker):
            raise ValueError("a triage reads its owner's mailbox: leave channels and tracker out")
        if self.kind == "ask" and not self.request:
            raise ValueError("a question needs a `request`: what is asked each time")
        if self.kind == "reminder" and not self.text:
            raise ValueError("a reminder needs a `text`: what it says")
        if (self.request and self.kind != "ask") or (self.text and self.kind != "reminder"):
            raise ValueError("only kind `ask` has a `request`, and only kind `reminder` a `text`")
        if self.kind in ("ask", "reminder"):
            self._check_words()
        if PERSON.fullmatch(self.to) and self.kind != "reminder":
            raise ValueError("only a reminder goes to another person: write dm or a channel")
        return self

    def _check_words(self) -> None:
        """Raise ValueError for what only a report has."""
        if self.channels or self.tracker or self.quiet or self.language:
            raise ValueError(
                f"{'a question' if self.kind == 'ask' else 'a reminder'} has no channels, tracker, "
                "quiet or language: leave them out"
            )
        if "@" in self.to:
            raise ValueError("only a report goes by mail: write dm or a channel")

    @property
    def timetable(self) -> Timetable:
        return Timetable(" ".join(self.cron.split()), self.zone, self.at.strip())

    @property
    def is_private(self) -> bool:
        """Return whether it goes only to its owner, in Slack."""
        return self.to == OWN
