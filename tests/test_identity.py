"""An issue is the same issue while a thread of it is, whatever it is called."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from document_kit import sweep_finding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from issue_kit import ES, FR, START, found, week

from bot.reports.issues import Issue, Trace, change_of, match_issues, new_id
from subagents.contracts import NEEDS_ACTION


def trace(threads: str, said: str = "", channel: str = ES) -> Trace:
    return Trace.of(channel, sweep_finding(found(threads, said=said, channel=channel)))


def issue(id: str, threads: str, state: Any = "unsolved", day: int = 0, **more: str) -> Issue:
    """A known issue; `day`: of its opening."""
    where = trace(threads, more.get("said", ""), more.get("channel", ES))
    opened = START + timedelta(days=day)
    owner = more.get("owner", "")
    return Issue(id, where, state, "medium", owner, opened, week(1))


def ids(traces: list[Trace], known: list[Issue]) -> list[str | None]:
    return [m.issue.id if m.issue else None for m in match_issues(traces, known)]


# ---- which is which


def test_a_shared_thread_makes_it_the_same_issue_and_nothing_else_does() -> None:
    known = [issue("i-1", "a b"), issue("i-2", "c")]
    assert ids([trace("b d"), trace("e")], known) == ["i-1", None]


def test_the_same_thread_id_in_another_channel_is_another_issue() -> None:
    assert ids([trace("a", channel=FR)], [issue("i-1", "a")]) == [None]


def test_most_shared_threads_win_and_then_the_older_issue() -> None:
    known = [issue("i-new", "a b", day=5), issue("i-old", "a c", day=1)]
    assert ids([trace("a b")], known) == ["i-new"]
    assert ids([trace("a")], known) == ["i-old"]


def test_an_issue_that_two_findings_match_goes_to_the_better_one() -> None:
    first, second = match_issues([trace("b x"), trace("a b")], [issue("i-1", "a b")])
    assert second.issue
    assert second.issue.id == "i-1"
    assert (first.issue, first.parent and first.parent.id) == (None, "i-1")


def test_two_problems_of_one_thread_stay_two_by_the_messages_that_tell_them() -> None:
    known = [issue("i-1", "a", said="a1 a2"), issue("i-2", "a", said="a3")]
    assert ids([trace("a", said="a3 a4"), trace("a", said="a1")], known) == ["i-2", "i-1"]


def test_between_two_of_one_thread_the_one_that_is_not_over_goes_on() -> None:
    known = [issue("i-over", "a", "solved", day=0), issue("i-open", "a", day=3)]
    assert ids([trace("a")], known) == ["i-open"]


def test_a_thread_whose_first_message_was_deleted_is_known_by_what_is_left() -> None:
    """Slack's reply that is left first opens the thread then, so its id is another one."""
    known = [issue("i-1", "a", said="a1 a2")]
    assert ids([trace("a1", said="a2")], known) == ["i-1"]


def test_issues_that_became_one_are_told_in_the_one_that_shares_most() -> None:
    known = [issue("i-1", "a b"), issue("i-2", "c")]
    (match,) = match_issues([trace("a b c")], known)
    assert match.issue is known[0]
    assert match.absorbed == [known[1]]


def test_evidence_in_another_channel_does_not_make_it_that_channels_issue() -> None:
    both = sweep_finding({"threads": [f"{ES}/a", f"{FR}/b"], "evidence": [f"{ES}/a", f"{FR}/b"]})
    known = [issue("i-fr", "b", channel=FR), issue("i-es", "a")]
    assert ids([Trace.of(ES, both)], known) == ["i-es"]
    assert ids([Trace.of(FR, both)], known) == ["i-fr"]


def test_rows_of_a_tracker_make_no_identity_beside_a_thread() -> None:
    row = sweep_finding({"threads": [f"{ES}/a"], "evidence": [f"{ES}/a", "F0BUGS/r1"]})
    other = sweep_finding({"threads": [f"{ES}/b"], "evidence": [f"{ES}/b", "F0BUGS/r1"]})
    known = Issue("i-1", Trace.of(ES, row), "unsolved", "low", "", START, week(1))
    assert ids([Trace.of(ES, other)], [known]) == [None]


def test_what_rests_on_no_thread_is_known_by_its_evidence() -> None:
    row = sweep_finding({"threads": [], "evidence": ["F0BUGS/r1"]})
    known = Issue("i-1", Trace.of(ES, row), "unsolved", "low", "", START, week(1))
    assert ids([Trace.of(ES, row)], [known]) == ["i-1"]


def test_an_id_is_made_of_channel_and_first_thread_and_is_never_given_twice() -> None:
    one = new_id(trace("b a"), ())
    assert one == new_id(trace("a c"), ())
    assert one != new_id(trace("a", channel=FR), ())
    assert len({one, new_id(trace("a"), {one}), new_id(trace("b"), {one})}) == 3


# ---- what is said of it


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, "unanswered", "new"),
        (None, "waiting", "new"),
        (None, "solved", "solved"),
        (None, "none", None),
        ("unsolved", "unsolved", "open"),
        ("waiting", "waiting", "open"),
        ("unanswered", "waiting", "changed"),
        ("waiting", "solved", "solved"),
        ("unsolved", "none", "changed"),
        ("solved", "unsolved", "reopened"),
        ("solved", "unanswered", "reopened"),
        ("solved", "waiting", "changed"),
        ("solved", "solved", None),
        ("solved", "none", None),
        ("none", "unsolved", "changed"),
    ],
)
def test_what_became_of_an_issue(before: str | None, now: str, said: str | None) -> None:
    was = issue("i-1", "a", before) if before else None
    assert change_of(now, "medium", "", was) == said


def test_another_severity_or_owner_is_a_change_and_a_fuller_name_is_none() -> None:
    was = issue("i-1", "a", owner="Ana")
    assert change_of("unsolved", "high", "Ana", was) == "changed"
    assert change_of("unsolved", "medium", "Luis", was) == "changed"
    assert change_of("unsolved", "medium", "", was) == "changed"
    assert change_of("unsolved", "medium", "ANA  Ruiz", was) == "open"
    nobody = issue("i-1", "a")
    assert change_of("unsolved", "medium", "nobody", nobody) == "open"


# ---- whatever the threads are

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""However loaded the machine is."""
THREADS = st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4)
TRACES = st.lists(THREADS.map(lambda names: trace(" ".join(sorted(names)))), max_size=7)
STATES = st.sampled_from(["unanswered", "unsolved", "waiting", "solved", "none"])


@st.composite
def books(draw: st.DrawFn) -> list[Issue]:
    made = draw(st.lists(st.tuples(THREADS, STATES, st.integers(0, 9)), max_size=7))
    return [
        issue(f"i-{k}", " ".join(sorted(names)), state, day)
        for k, (names, state, day) in enumerate(made)
    ]


@calm
@given(TRACES, books())
def test_nothing_that_is_known_is_told_twice_or_lost(
    traces: list[Trace], known: list[Issue]
) -> None:
    matches = match_issues(traces, known)
    told = [m.issue.id for m in matches if m.issue] + [i.id for m in matches for i in m.absorbed]
    assert len(told) == len(set(told))
    seen = {i.id for i in known if any(any(t.count_shared(i.trace)) for t in traces)}
    assert set(told) == seen
    for at, match in zip(traces, matches, strict=True):
        related = [match.issue, match.parent, *match.absorbed]
        assert all(any(at.count_shared(i.trace)) for i in related if i)
        overlaps = any(any(at.count_shared(i.trace)) for i in known)
        assert overlaps == bool(match.issue or match.parent)


@calm
@given(TRACES, books())
def test_the_order_of_findings_and_issues_decides_nothing(
    traces: list[Trace], known: list[Issue]
) -> None:
    traces = list(dict.fromkeys(traces))
    before = dict(zip(traces, ids(traces, known), strict=True))
    turned, back = traces[::-1], known[::-1]
    assert dict(zip(turned, ids(turned, back), strict=True)) == before


@calm
@given(books())
def test_a_report_that_finds_the_same_threads_finds_the_same_issues(known: list[Issue]) -> None:
    apart = list({i.trace: i for i in known}.values())
    assert ids([i.trace for i in apart], apart) == [i.id for i in apart]


@calm
@given(STATES, STATES)
def test_only_what_was_solved_is_reopened(before: str, now: str) -> None:
    said = change_of(now, "medium", "", issue("i-1", "a", before))
    assert (said == "reopened") == (before == "solved" and now in NEEDS_ACTION)
