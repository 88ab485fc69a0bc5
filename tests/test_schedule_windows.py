"""Windows of reports: each channel goes on where it was last covered whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from document_kit import sweep_report
from hypothesis import given
from hypothesis import strategies as st

from bot.schedules.run import LONGEST, changes, covered_after, windows
from scopes.tool import iso

NOW = datetime(2025, 4, 8, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def report(**sections: tuple[str, datetime, datetime]) -> dict[str, Any]:
    """A document with these sections: channel -> status, oldest, latest."""
    return {
        "sections": [
            {"channel": id, "status": status, "window": {"oldest": iso(a), "latest": iso(b)}}
            for id, (status, a, b) in sections.items()
        ]
    }


def test_the_first_report_looks_back_as_far_as_it_is_told_to() -> None:
    made = windows({"C1": "one"}, {}, NOW, 7 * DAY)
    assert made.since == {"C1": NOW - 7 * DAY}
    assert made.oldest == NOW - 7 * DAY
    assert made.notes == ()


def test_what_was_not_covered_for_a_month_is_left_out_and_that_is_said() -> None:
    made = windows({"C1": "one"}, {"C1": iso(NOW - 40 * DAY)}, NOW, 7 * DAY)
    assert made.since == {"C1": NOW - LONGEST}
    assert made.notes == (
        "#one was not read whole for more than 31 days: what is older is not in it.",
    )


def test_channels_that_came_and_went_are_named_from_the_second_report_on() -> None:
    assert changes({"C1": "one"}, None) == ((), ())
    came, went = changes({"C1": "one", "C3": "three"}, {"C1": "one", "C2": "two"})
    assert list(came) == ["three"]
    assert list(went) == ["two"]


@given(st.lists(st.tuples(st.integers(1, 72), st.booleans(), st.booleans()), max_size=12))
def test_whatever_fails_each_report_begins_where_the_channel_was_covered(
    story: list[tuple[int, bool, bool]],
) -> None:
    """Hours between occurrences, whether the channel was read whole, whether it was delivered."""
    covered: dict[str, str] = {}
    reached: datetime | None = None
    at = NOW
    for hours, whole, delivered in story:
        at += timedelta(hours=hours)
        begin = windows({"C1": "one"}, covered, at, DAY).since["C1"]
        if reached:
            assert begin == max(reached, at - LONGEST)
        if delivered:
            status = "complete" if whole else "partial"
            covered = covered_after(sweep_report(report(C1=(status, begin, at))), covered)
            reached = at if whole else reached or begin
