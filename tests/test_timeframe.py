"""The window of a brief: from the days that a request names, in the time zone of who asks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from scopes.tool import Window, iso
from subagents.brief import TimeFrame
from subagents.errors import BriefRefused

NOW = datetime(2026, 11, 27, 11, 20, tzinfo=UTC)
USUAL = Window(datetime(2026, 10, 28, 11, 20, tzinfo=UTC), NOW)
MADRID = ZoneInfo("Europe/Madrid")
FRAME = TimeFrame(USUAL, datetime(2024, 1, 1, tzinfo=UTC), MADRID)


@pytest.mark.parametrize(
    ("since", "until", "oldest", "latest"),
    [
        ("", "", "2026-10-28T11:20:00Z", "2026-11-27T11:20:00Z"),
        ("2026-03-01", "2026-03-31", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
        ("2026-11-27", "", "2026-11-26T23:00:00Z", "2026-11-27T11:20:00Z"),
        ("2026-11-27T10:30", "2026-11-27T11:00", "2026-11-27T09:30:00Z", "2026-11-27T10:00:00Z"),
        ("2026-11-20", "2026-11-29", "2026-11-19T23:00:00Z", "2026-11-27T11:20:00Z"),
        ("", "2026-03-31", "2026-03-01T22:00:00Z", "2026-03-31T22:00:00Z"),
        ("", "2024-01-02", "2024-01-01T00:00:00Z", "2024-01-02T23:00:00Z"),
    ],
)
def test_a_window_is_the_days_of_who_asks_and_ends_now(
    since: str, until: str, oldest: str, latest: str
) -> None:
    found = FRAME.window(since, until)
    assert (iso(found.oldest), iso(found.latest)) == (oldest, latest)


@pytest.mark.parametrize(
    ("since", "until", "field", "why"),
    [
        (
            "2026-12-01",
            "",
            "since",
            "it is now 2026-11-27T12:20, and nothing was said from 2026-12-01 on",
        ),
        ("2026-03-31", "2026-03-01", "until", "2026-03-01 ends before 2026-03-31"),
        ("2023-12-31", "", "since", "may look back to 2024-01-01T01:00"),
        ("last week", "", "since", "'last week' is no time: write YYYY-MM-DD"),
        ("", "9999-12-31", "until", "is no time"),
        ("0001-01-01", "", "since", "may look back to"),
    ],
)
def test_a_window_that_cannot_be_is_refused_in_a_sentence(
    since: str, until: str, field: str, why: str
) -> None:
    with pytest.raises(BriefRefused, match=why) as refused:
        FRAME.window(since, until)
    assert refused.value.field == field
