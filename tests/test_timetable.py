"""When a schedule runs: once each local day or hour, also when the clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.schedules import Timetable, TimetableError

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
YEAR = (datetime(2025, 12, 30, tzinfo=UTC), datetime(2027, 1, 3, tzinfo=UTC))
"""A year and some days on both sides, because of the time zones."""


def local_times(
    cron: str, zone: str, start: datetime = YEAR[0], end: datetime = YEAR[1]
) -> list[datetime]:
    """Return the times in the local time of the zone."""
    info = ZoneInfo(zone)
    return [at.astimezone(info) for at in Timetable.of(cron, zone).between(start, end)]


@pytest.mark.parametrize(
    ("zone", "cron", "day", "expected"),
    [
        ("Europe/Madrid", "30 2 * * *", "2026-03-29", ["03:00:00+02:00"]),
        ("Europe/Madrid", "30 2 * * *", "2026-10-25", ["02:30:00+02:00"]),
        ("Europe/Madrid", "30 * 25 10 *", "2026-10-25", ["02:30:00+02:00", "02:30:00+01:00"]),
        ("America/New_York", "15 1 * * *", "2026-11-01", ["01:15:00-04:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ["02:30:00+11:00"]),
        ("Pacific/Apia", "0 9 * * *", "2011-12-31", ["09:00:00+14:00"]),
    ],
)
def test_nonexistent_and_ambiguous_local_times_are_resolved(
    zone: str, cron: str, day: str, expected: list[str]
) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    found = local_times(
        cron, zone, start.astimezone(UTC) - MINUTE, start.astimezone(UTC) + DAY + HOUR
    )
    times = [at.isoformat()[11:] for at in found if at.date().isoformat() == day]
    assert [each for each in times if each in expected] == expected
    hours = {each[:2] for each in expected}
    assert len([each for each in times if each[:2] in hours]) == len(expected)


ZONES = ("Europe/Madrid", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


@pytest.mark.parametrize("zone", ZONES)
def test_daily_schedule_runs_once_each_local_day_of_a_year(zone: str) -> None:
    first, last = date(2026, 1, 1), date(2026, 12, 31)
    days = [first + n * DAY for n in range((last - first).days + 1)]
    for time in ("0 0", "30 1", "45 1", "0 2", "15 2", "30 2", "59 2", "0 3", "0 9", "59 23"):
        found = [at.date() for at in local_times(f"{time} * * *", zone)]
        assert [day for day in found if first <= day <= last] == days


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("minute", ["0", "17", "45"])
def test_hourly_schedule_runs_once_each_hour_of_a_year(zone: str, minute: str) -> None:
    """Also in an hour that comes twice; a change by half an hour makes one gap of 0.5 or 1.5 h."""
    times = list(Timetable.of(f"{minute} * * * *", zone).between(*YEAR))
    pauses = {later - sooner for sooner, later in pairwise(times)}
    odd = {HOUR / 2, HOUR * 1.5} if zone == "Australia/Lord_Howe" else set()
    assert pauses <= {HOUR} | odd


# ---- errors


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("61 * * * *", "UTC", "the first field of '61 * * * *' (minute) is '61', but goes from 0"),
        ("0 9 * * funday", "UTC", "(day of the week) is 'funday', but goes from mon to sun or"),
        ("0 0 9 * * 8", "UTC", "the sixth field of '0 0 9 * * 8' (day of the week) is '8'"),
        ("5-5 * * * *", "UTC", "(minute) is '5-5', but goes from 0 to 59"),
        ("0 9 * *", "UTC", "has 4 fields, but a crontab has five: minute, hour, day of the month"),
        ("", "UTC", "either a crontab in `cron` to repeat, or one time in `at`"),
        ("0 9 30 2 *", "UTC", "'0 9 30 2 *' never runs: no such day exists"),
        ("0 9 1 * mon", "UTC", "leave one of them '*', or write two schedules"),
        ("0 9 * * *", "Mars/Phobos", "there is no time zone 'Mars/Phobos': write one like"),
        ("0 9 * * *", "a\0b", "there is no time zone"),
        ("0 ९ * * *", "UTC", "is not a crontab, such as '0 9 * * mon-fri'"),
    ],
)
def test_invalid_crontab_or_time_zone_is_rejected_with_a_specific_error(
    cron: str, zone: str, words: str
) -> None:
    with pytest.raises(TimetableError) as error:
        Timetable.of(cron, zone)
    assert words in str(error.value)


@given(st.text(max_size=40) | st.text("0123456789*/-, ", max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_valid_timetable_or_rejected(cron: str) -> None:
    try:
        found = Timetable.of(cron, "Europe/Madrid").after(datetime(2026, 1, 1, tzinfo=UTC))
    except TimetableError:
        return
    assert found
