"""The definition of a schedule, in `assistant.yaml` or set in chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice, pairwise, takewhile
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter
from pydantic import Field, StringConstraints, model_validator

from config.sections import USER_ID, Language, Name, Section, SlackUser, text_pattern

FIELDS = ("second", "minute", "hour", "day of the month", "month", "day of the week")
"""Fields of a crontab with six fields; one with five begins with the minutes."""
CRON_FIELD_RANGES = {
    **dict.fromkeys(("second", "minute"), "goes from 0 to 59"),
    "hour": "goes from 0 to 23",
    "day of the month": "goes from 1 to 31",
    "month": "goes from 1 to 12 or from jan to dec",
    "day of the week": "goes from mon to sun or from 0 (Sunday) to 6",
}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
MAX_YEARS_BETWEEN = 9
"""A time that does not occur within so many years never occurs: leap days can be 8 years apart."""
LOCAL_TIME = "%Y-%m-%dT%H:%M"
"""Format of a single time."""
COMPARED_TIMES = 25
"""Times whose pauses are compared: a crontab that is too frequent shows it on its first day."""


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
        timetable = cls(" ".join(cron.lower().split()), zone, at.strip())
        if bool(timetable.cron) == bool(timetable.at):
            raise TimetableError(
                "it needs either a crontab in `cron` to repeat, or one time in `at`"
            )
        if not timetable.cron.isascii() or len(timetable.cron) > 200:
            raise TimetableError(f"{cron[:60]!r} is not a crontab, such as '0 9 * * mon-fri'")
        timetable.info  # noqa: B018 - raises for an unknown zone
        if timetable.at:
            timetable.once  # noqa: B018 - raises for what is not a time
            return timetable
        timetable._check()
        if timetable.after(datetime.now(UTC)) is None:
            raise TimetableError(f"{cron!r} never runs: no such day exists")
        return timetable

    @cached_property
    def once(self) -> datetime:
        """Return the single time, in UTC. Raises TimetableError."""
        try:
            wall = datetime.strptime(self.at, LOCAL_TIME).replace(tzinfo=self.info)
            return wall.astimezone(UTC)
        except (ValueError, OverflowError):
            raise TimetableError(
                f"{self.at[:40]!r} is not a time of a day, such as 2026-11-30T15:00"
            ) from None

    def shortest(self, now: datetime) -> timedelta | None:
        """Return the shortest pause between its next times on the clock; None = it has none."""
        if self.at:
            return None
        times = list(islice(Timetable(self.cron, "UTC")._times(now), COMPARED_TIMES))
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
        return next(self._times(at), None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the times after `start` up to and including `end`, in UTC."""
        return takewhile(lambda at: at <= end, self._times(start))

    def next(self, count: int, after: datetime) -> list[datetime]:
        """Return this many times after `after`, in the schedule's own zone, for people."""
        return [at.astimezone(self.info) for at in islice(self._times(after), count)]

    def _times(self, start: datetime) -> Iterator[datetime]:
        """Yield the times after `start`; a time that clocks show twice counts only the first
        time, unless the hour or the minute begins with `*`.
        """
        if self.at:
            yield from [self.once] if self.once > start else []
            return
        *_, minute, hour, _, _, _ = self.cron.split()
        is_frequent = minute.startswith("*") or hour.startswith("*")
        times = croniter(
            self.cron,
            start.astimezone(self.info),
            second_at_beginning=True,
            max_years_between_matches=MAX_YEARS_BETWEEN,
        )
        with suppress(CroniterBadDateError):
            while True:
                found = times.get_next(datetime)
                if is_frequent or not found.fold:
                    yield found.astimezone(UTC)

    def _check(self) -> None:
        """Raise TimetableError with the place of a fault in the crontab."""
        parts = self.cron.split()
        if len(parts) not in (5, 6):
            count = f"{len(parts)} field" + "s" * (len(parts) != 1)
            raise TimetableError(
                f"{self.cron!r} has {count}, but a crontab has five: minute, hour, "
                "day of the month, month, day of the week, such as '0 9 * * mon-fri'"
            )
        for number, (name, text) in enumerate(zip(FIELDS[-len(parts) :], parts, strict=True)):
            alone = ["*"] * len(parts)
            alone[number] = text
            letters = re.findall("[a-z]+", text)  # croniter accepts single ones, too
            named = name in ("month", "day of the week") and all(len(each) == 3 for each in letters)
            valid = croniter.is_valid(" ".join(alone), second_at_beginning=True)
            endless = re.search(r"\b(\w+)-\1\b", text)  # for croniter 5-5 means all values
            if not valid or endless or (letters and not named):
                place = f"the {ORDINALS[number]} field of {self.cron!r} ({name})"
                raise TimetableError(f"{place} is {text!r}, but {CRON_FIELD_RANGES[name]}")
        if parts[-3] != "*" and parts[-1] != "*":
            raise TimetableError(
                f"{self.cron!r} names a day of the month and a day of the week: leave one of them "
                "'*', or write two schedules"
            )


ScheduleName = Annotated[
    str,
    text_pattern(
        r"^[a-z0-9][a-z0-9-]{0,39}$",
        "small letters, digits and hyphens, 40 at most, such as markets or daily-mail",
    ),
]
Destination = Annotated[
    str,
    text_pattern(
        r"^(dm|#[^\s#@]{1,80}|[CGUW][A-Z0-9]{2,}|[^\s@<>,;]+@[^\s@<>,;]+\.[^\s@<>,;]+)$",
        "dm (to its owner), #channel or the id of one (C...), or a mail address",
    ),
]
"""`dm` (a direct message to the owner), a channel as `#name` or id, or a mail address; of a
reminder also the id of a person."""
ListId = Annotated[str, text_pattern(r"^F[A-Z0-9]{2,}$", "the id of a Slack list (F...)")]
PERSON = re.compile(USER_ID)
ScheduleKind = Literal["sweep", "triage", "ask", "reminder"]
MAX_WORDS = 2_000
"""Characters of a request or of the text of a reminder."""
RequestText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_WORDS)]
MaxDollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]

OWN_DESTINATION = "dm"


class Schedule(Section):
    """One schedule: what it does and when, with whose permissions, and where it goes."""

    kind: ScheduleKind
    cron: str = ""
    """When it comes again and again; empty = once, at `at`."""
    at: str = ""
    """The one time at which it comes, on the clock of `zone`, such as `2026-11-30T15:00`."""
    zone: str = "UTC"
    channels: tuple[Name, ...] = Field(default=(), strict=False)
    """Channels of a sweep: names, patterns or ids."""
    tracker: ListId | None = None
    request: RequestText = ""
    """The question of `ask`, complete in itself."""
    text: RequestText = ""
    """The words of a reminder."""
    to: Destination
    owner: SlackUser
    """The user whose permissions and mailbox it uses, and who is told when it fails."""
    quiet: bool = False
    """Send nothing if nothing is new; the run is recorded."""
    missed_hours: Annotated[float, Field(gt=0, le=24 * 31)] = 48
    """Of the runs missed while nothing served, the latest is caught up at most this much later."""
    budget_usd: MaxDollars = 1.0
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
        """Raise ValueError for fields that only a report has."""
        if self.channels or self.tracker or self.quiet or self.language:
            raise ValueError(
                f"{'a question' if self.kind == 'ask' else 'a reminder'} has no channels, tracker, "
                "quiet or language: leave them out"
            )
        if "@" in self.to:
            raise ValueError("only a report goes by mail: write dm or a channel")

    @property
    def timetable(self) -> Timetable:
        return Timetable(" ".join(self.cron.lower().split()), self.zone, self.at.strip())

    @property
    def is_private(self) -> bool:
        """Return whether it goes only to its owner, in Slack."""
        return self.to == OWN_DESTINATION
