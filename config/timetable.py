"""When a schedule runs: a crontab read in a time zone by name, through each change of its clocks.

A crontab names times on the wall. Where the clocks jump forward, a time that does not exist is the
same span after the jump; where they go back, a time that comes twice counts the first time, unless
the hour or the minute is `*`: such a schedule runs at both, as time goes by (crontab(5) of cron).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

FIELDS = ("minute", "hour", "day", "month", "day_of_week")
"""Of a crontab with five fields; one with six begins with the seconds."""
PLACES = {"day": "day of the month", "day_of_week": "day of the week"}
RANGES = {
    **{"second": (0, 59), "minute": (0, 59), "hour": (0, 23)},
    **{"day": (1, 31), "month": (1, 12), "day_of_week": (0, 7)},
}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""By their numbers in a crontab; APScheduler counts from Monday."""
SOMETIME = timedelta(days=366 * 9)
"""What does not come up in so long never does: eight years may lie between two leap days."""
YEARS = "1970-2199"
"""Where it looks; unbounded it takes a second to see that something never comes up."""
SOON = timedelta(hours=24)
FAR = timedelta(hours=26)
"""No clock is further from UTC, or is ever set by more."""
_PART = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")


class TimetableError(ValueError):
    """A crontab or a zone that cannot be used; the text says which part, and what to write."""


@dataclass(frozen=True)
class Timetable:
    """The times of one schedule. Make it with `of`."""

    cron: str
    zone: str

    @classmethod
    def of(cls, cron: str, zone: str) -> Timetable:
        """Raises TimetableError."""
        made = cls(" ".join(cron.split()), zone)
        if not made.cron.isascii() or len(made.cron) > 200:
            raise TimetableError(f"{cron[:60]!r} is not a crontab, such as '0 9 * * mon-fri'")
        made.info  # noqa: B018 - an unknown zone is told here
        if made.after(datetime.now(UTC)) is None:
            raise TimetableError(f"{cron!r} never comes up: no such day exists")
        return made

    @cached_property
    def info(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except (ValueError, OSError, LookupError):
            raise TimetableError(
                f"there is no time zone {self.zone[:40]!r}: write one like Europe/Madrid"
            ) from None

    def after(self, at: datetime) -> datetime | None:
        """The first time after `at`, in UTC; None = there is none in the next nine years."""
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
        """The times after `start` up to and with `end`, in UTC."""
        at = self.after(start)
        while at and at <= end:
            yield at
            at = self.after(at)

    def next(self, count: int, after: datetime) -> list[datetime]:
        """So many times after `after`, in the schedule's own zone, for people."""
        found: list[datetime] = []
        at = self.after(after)
        while at and len(found) < count:
            found.append(at.astimezone(self.info))
            at = self.after(at)
        return found

    # ---- from times on the wall to moments

    def _soon(self, at: datetime) -> datetime | None:
        """The first time after `at` that is no more than `SOON` after it."""
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
        """Times on the wall from `start` on, as if they were UTC."""
        end, found = start + SOMETIME, self._trigger.get_next_fire_time(None, start)
        while found and found <= end:
            yield found
            found = self._trigger.get_next_fire_time(found, found + timedelta(microseconds=1))

    def _moments(self, wall: datetime) -> list[datetime]:
        """What a time on the wall stands for."""
        first = wall.replace(tzinfo=self.info, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=self.info, fold=1).astimezone(UTC)
        twice = second > first  # where it does not exist it is the other way round
        return [first, second] if twice and self._is_frequent else [first]

    @cached_property
    def _named(self) -> dict[str, str]:
        """Name of each field -> what stands there."""
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
        """Raises TimetableError with the place of what is wrong."""
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
    """Days of the week by name: numbers differ between crontab (0 and 7 = Sunday) and the clock."""
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
    """Its number in a crontab; -1 = none."""
    return DAYS.index(text) if text in DAYS else int(text) if text.isdigit() else -1


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()
