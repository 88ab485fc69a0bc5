"""When a schedule runs: each local day once, each hour once, whatever the clocks do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.schedules import Timetable, TimetableError

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
YEAR = (datetime(2025, 12, 30, tzinfo=UTC), datetime(2027, 1, 3, tzinfo=UTC))
"""A year and a little on both sides, as days begin at other times elsewhere."""


def walls(
    cron: str, zone: str, start: datetime = YEAR[0], end: datetime = YEAR[1]
) -> list[datetime]:
    """The times as the clocks on the wall show them."""
    info = ZoneInfo(zone)
    return [at.astimezone(info) for at in Timetable.of(cron, zone).between(start, end)]


@pytest.mark.parametrize(
    ("zone", "cron", "day", "shown"),
    [
        ("Europe/Madrid", "30 2 * * *", "2026-03-29", ["03:00:00+02:00"]),
        ("Europe/Madrid", "30 2 * * *", "2026-10-25", ["02:30:00+02:00"]),
        ("Europe/Madrid", "30 * 25 10 *", "2026-10-25", ["02:30:00+02:00", "02:30:00+01:00"]),
        ("America/New_York", "15 1 * * *", "2026-11-01", ["01:15:00-04:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ["02:30:00+11:00"]),
        ("Pacific/Apia", "0 9 * * *", "2011-12-31", ["09:00:00+14:00"]),
        ("Asia/Kathmandu", "0 9 * * *", "2026-05-05", ["09:00:00+05:45"]),
    ],
)
def test_times_that_do_not_exist_or_come_twice(
    zone: str, cron: str, day: str, shown: list[str]
) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    found = walls(cron, zone, start.astimezone(UTC) - MINUTE, start.astimezone(UTC) + DAY + HOUR)
    there = [at.isoformat()[11:] for at in found if at.date().isoformat() == day]
    assert [each for each in there if each in shown] == shown
    hours = {each[:2] for each in shown}
    assert len([each for each in there if each[:2] in hours]) == len(shown)


# ---- any crontab, against every minute there is


def spread(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    several = st.lists(number, min_size=1, max_size=3).map(lambda n: ",".join(map(str, n)))
    ends = st.lists(number, min_size=2, max_size=2, unique=True)
    span = ends.map(lambda n: f"{min(n)}-{max(n)}")
    return st.one_of(several, span, st.sampled_from(["*", "*/2", "*/7"]))


CHANGES = [
    ("Europe/Madrid", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/Madrid", datetime(2026, 10, 25, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 15, tzinfo=UTC)),
    ("Europe/Dublin", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, tzinfo=UTC)),
]


@cache
def moments(zone: str, middle: datetime) -> dict[datetime, list[datetime]]:
    """Each minute on the wall in the days around -> the moments at which clocks show it."""
    info, shown = ZoneInfo(zone), defaultdict(list)
    at = middle - 3 * DAY
    for _ in range(6 * 24 * 60):
        shown[at.astimezone(info).replace(tzinfo=None)].append(at)
        at += MINUTE
    return shown


def by_hand(cron: str, zone: str, middle: datetime) -> Iterator[datetime]:
    """What cron promises, minute by minute."""
    minute, hour, *_ = fields = cron.split()
    shown, often = moments(zone, middle), minute.startswith("*") or hour.startswith("*")
    wall = before = min(shown)
    last = max(shown)
    while wall <= last:
        if wall in shown:
            before = wall
        if _names(fields, wall):
            if wall not in shown:  # right after the jump, but for what comes each hour
                yield from [shown[before][-1] + MINUTE] * (hour != "*")
            else:
                yield from shown[wall] if often else shown[wall][:1]
        wall += MINUTE


def _names(fields: list[str], wall: datetime) -> bool:
    values = (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
    lows = (0, 0, 1, 1, 0)
    return all(map(_has, fields, values, lows))


def _has(field: str, value: int, low: int) -> bool:
    if field.startswith("*"):
        return (value - low) % int(field[2:] or 1) == 0
    spans = [part.split("-") for part in field.split(",")]
    return any(int(span[0]) <= value <= int(span[-1]) for span in spans)


@given(
    spread(0, 59),
    spread(0, 4) | spread(0, 23),
    st.one_of(st.just("* * *"), spread(0, 6).map(lambda d: f"* * {d}"), st.just("*/2 * *")),
    st.sampled_from(CHANGES),
    st.integers(0, 3600),
)
@example("30", "2", "* * *", CHANGES[0], 0)
@example("0,30", "1-2", "* * *", CHANGES[1], 1)
@settings(max_examples=60, deadline=None)
def test_any_crontab_comes_up_as_cron_promises_around_a_change_of_clocks(
    minute: str, hour: str, days: str, change: tuple[str, datetime], beyond: int
) -> None:
    zone, middle = change
    cron = f"{minute} {hour} {days}"
    start = middle - 36 * HOUR + timedelta(seconds=beyond)
    end = middle + 36 * HOUR
    found = list(Timetable.of(cron, zone).between(start, end))
    assert all(sooner < later for sooner, later in pairwise(found))
    assert found == sorted({at for at in by_hand(cron, zone, middle) if start < at <= end})


# ---- what cannot be


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("61 * * * *", "UTC", "the first field of '61 * * * *' (minute) is '61', but goes from 0"),
        ("0 24 * * *", "UTC", "the second field of '0 24 * * *' (hour) is '24', but goes from 0"),
        ("0 9 * foo *", "UTC", "(month) is 'foo', but goes from 1 to 12 or from jan to dec"),
        ("0 9 * * funday", "UTC", "(day of the week) is 'funday', but goes from mon to sun or"),
        ("0 0 9 * * 8", "UTC", "the sixth field of '0 0 9 * * 8' (day of the week) is '8'"),
        ("5-5 * * * *", "UTC", "(minute) is '5-5', but goes from 0 to 59"),
        ("r * * * *", "UTC", "(minute) is 'r', but goes from 0 to 59"),
        ("*/0 * * * *", "UTC", "(minute) is '*/0', but goes from 0 to 59"),
        ("0 9 * *", "UTC", "has 4 fields, but a crontab has five: minute, hour, day of the month"),
        ("@daily", "UTC", "has 1 field, but a crontab has five"),
        ("", "UTC", "either a crontab in `cron`, to come again and again, or one time in `at`"),
        ("0 9 30 2 *", "UTC", "'0 9 30 2 *' never comes up: no such day exists"),
        ("0 9 1 * mon", "UTC", "leave one of them '*', or write two schedules"),
        ("0 9 * * *", "Mars/Phobos", "there is no time zone 'Mars/Phobos': write one like"),
        ("0 9 * * *", "a\0b", "there is no time zone"),
        ("0 ९ * * *", "UTC", "is not a crontab, such as '0 9 * * mon-fri'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(cron: str, zone: str, words: str) -> None:
    with pytest.raises(TimetableError) as refused:
        Timetable.of(cron, zone)
    assert words in str(refused.value)


@given(st.text(max_size=40) | st.text("0123456789*/-, ", max_size=30))
@settings(max_examples=60, deadline=None)
def test_whatever_is_written_is_a_timetable_or_refused(cron: str) -> None:
    try:
        found = Timetable.of(cron, "Europe/Madrid").after(datetime(2026, 1, 1, tzinfo=UTC))
    except TimetableError:
        return
    assert found
