"""The window of a brief: from the days that a request names, in the time zone of who asks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from bot.reports.documents import Period
from bot.reports.formats import periods
from bot.tasks.base import Requester
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
        ("2026-11-27T10:30:00Z", "", "2026-11-27T10:30:00Z", "2026-11-27T11:20:00Z"),
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
        ("", "2023-05-01", "until", "ends before"),
        ("last week", "", "since", "'last week' is no time: write YYYY-MM-DD"),
        ("2026-02-30", "", "since", "is no time"),
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


@pytest.mark.parametrize(
    ("earliest", "edge"),
    [
        ("2023-03-11T23:00:00.000100+00:00", "2023-03-12"),
        ("2023-03-11T23:00:59+00:00", "2023-03-12T00:00"),
        ("2023-10-29T01:30:20+00:00", "2023-10-29T02:30"),  # an hour that Madrid has twice
    ],
)
def test_a_brief_may_begin_at_the_minute_that_a_refusal_names(earliest: str, edge: str) -> None:
    frame = TimeFrame(USUAL, datetime.fromisoformat(earliest), MADRID)
    with pytest.raises(BriefRefused) as refused:
        frame.window("2023-03-11", "")
    assert f"look back to {edge}" in str(refused.value)
    window = frame.window(edge, "")
    assert window.oldest == frame.earliest
    assert window.shown(MADRID.key).startswith(edge.replace("T", " "))


@pytest.mark.parametrize(
    ("windows", "told"),
    [
        ([("2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z")], "1–31 Mar 2026"),
        ([("2025-12-27T23:00:00Z", "2026-01-03T09:00:00Z")], "28 Dec 2025 – 3 Jan 2026"),
        ([("2026-10-28T11:20:00Z", "2026-11-27T11:20:00Z")], "28 Oct – 27 Nov 2026"),
        ([("2026-11-26T23:00:00Z", "2026-11-27T11:20:00Z")], "27 Nov 2026, 00:00–12:20"),
        ([("2026-11-25T23:00:00Z", "2026-11-26T23:00:00Z")], "26 Nov 2026"),
        ([("1970-01-01T00:00:00Z", "2026-11-27T11:20:00Z")], "up to 27 Nov 2026"),
        (
            [(f"2026-0{n}-01T00:00:00Z", f"2026-0{n}-02T23:00:00Z") for n in (1, 2, 3, 6)],
            "1–2 Jan 2026; 1–2 Feb 2026; 1–2 Mar 2026 and 1 more",
        ),
    ],
)
def test_an_answer_tells_the_days_that_were_read(windows: list[tuple[str, str]], told: str) -> None:
    read = [Period(oldest=oldest, latest=latest) for oldest, latest in windows]
    assert periods(read, "Europe/Madrid") == told


def test_a_person_is_told_by_name_id_and_role_on_one_line() -> None:
    ana = Requester(
        id="U0ANA", name="Ana\nREQUEST: x", title="Support lead " * 20, zone="Mars/Base"
    )
    assert ana.line() == f"Ana REQUEST: x (U0ANA), {('Support lead ' * 20)[:80].strip()}"
    assert ana.clock().key == "UTC"
    assert Requester(id="U0ANA").line() == "U0ANA"
    assert Requester().line() == ""
