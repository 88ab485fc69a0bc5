"""An issue is the same in each report while it keeps one of its threads, under any name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from document_kit import sweep_finding, sweep_report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pg_kit import StorePlace, in_file

from bot.reports.issues import (
    Issue,
    IssueStore,
    Trace,
    absorbed_in,
    change_of,
    compare_issues,
    match_issues,
    rows_after,
)
from scopes.tool import iso
from subagents.contracts import NEEDS_ACTION, IssueState

Json = dict[str, Any]

START = datetime(2026, 3, 2, tzinfo=UTC)
ES, FR = "C0ES", "C0FR"
NAMES = {ES: "csm-es", FR: "csm-fr"}


def week(number: int) -> datetime:
    """Return the end of the report of a week; the first one is week 1."""
    return START + timedelta(weeks=number)


def thread_finding(
    threads: str,
    state: str = "unsolved",
    *,
    severity: str = "medium",
    owner: str = "",
    since: datetime | None = START,
    channel: str = ES,
) -> Json:
    """Return a finding that rests on threads (`"a b"`)."""
    roots = [f"{channel}/{name}" for name in threads.split()]
    return {
        "claim": "The button does nothing",
        "state": state,
        "severity": severity,
        "owner": owner,
        "evidence": roots,
        "threads": roots,
        "links": [f"https://local.slack.com/archives/{root}" for root in roots],
        "since": iso(since) if since else None,
    }


def report(number: int, findings: Sequence[Json]) -> Json:
    """Return the report of a week on both channels from these findings."""
    sections = []
    for k, (channel, name) in enumerate(NAMES.items(), 1):
        own = [f for f in findings if f["evidence"][0].startswith(channel)]
        named = [{**finding, "id": f"F{k}.{n}"} for n, finding in enumerate(own, 1)]
        sections.append({"item": name, "channel": channel, "findings": named})
    window = {"oldest": iso(week(number - 1)), "latest": iso(week(number))}
    return {"window": window, "sections": sections}


def findings(document: Mapping[str, Any]) -> list[Json]:
    return [finding for section in document["sections"] for finding in section["findings"]]


__all__ = ["in_file"]

calm = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine fails no test."""


# ---- what a report says of each finding, compared with earlier reports


class Series:
    """Reports of one schedule, a week each, all of them delivered."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.number = 0

    def __call__(self, *content: Json) -> Json:
        """Return the next report from findings."""
        last = week(self.number) if self.number else None
        known = [Issue.of(row) for row in self.rows.values()]
        self.number += 1
        document = compare_issues(
            sweep_report(report(self.number, content)), known, last, self.number - 1
        )
        rows = rows_after("markets", document, week(self.number), self.rows)
        self.rows |= {row["id"]: SimpleNamespace(**row) for row in rows}
        for id in absorbed_in(document):
            del self.rows[id]
        return document.to_json()


def changes(document: Json) -> list[str | None]:
    return [finding["change"] for finding in findings(document)]


def only(document: Json) -> Json:
    (finding,) = findings(document)
    return finding


def test_still_open_issues_are_listed_severe_ones_first_with_owner_and_age() -> None:
    series = Series()
    series(thread_finding("a", severity="low"), thread_finding("b", severity="high", owner="Ana"))
    document = series()
    high, low = document["still_open"]
    assert (high["severity"], high["owner"], high["item"]) == ("high", "Ana", "csm-es")
    assert (low["severity"], low["age_days"]) == ("low", 14)
    assert low["links"] == [f"https://local.slack.com/archives/{ES}/a"]
    assert (document["counts"]["open"], document["counts"]["high"]) == (2, 1)


def test_one_thread_id_in_two_channels_is_two_issues() -> None:
    series = Series()
    es, fr = findings(series(thread_finding("a"), thread_finding("a", channel=FR)))
    assert es["issue"] != fr["issue"]
    later = series(thread_finding("a", channel=FR))
    assert only(later)["issue"] == fr["issue"]
    assert [each["issue"] for each in later["still_open"]] == [es["issue"]]


def test_merged_issues_are_reported_once_with_the_age_of_the_older() -> None:
    series = Series()
    one, other = findings(
        series(thread_finding("a b", since=week(1)), thread_finding("c", since=week(0)))
    )
    merged = only(series(thread_finding("a b c", since=week(1))))
    assert merged["issue"] == one["issue"]
    assert merged["absorbed"] == [other["issue"]]
    assert merged["first"] == other["first"]
    document = series(thread_finding("c", since=week(0)))
    assert only(document)["issue"] == one["issue"]
    assert document["still_open"] == []


FINDINGS = st.lists(
    st.builds(
        thread_finding,
        st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3).map(
            lambda names: " ".join(sorted(names))
        ),
        st.sampled_from(["unanswered", "unsolved", "waiting", "solved", "none"]),
        severity=st.sampled_from(["high", "low"]),
    ),
    max_size=5,
)


@calm
@given(st.lists(FINDINGS, min_size=2, max_size=6))
def test_counts_add_up_and_no_issue_is_reported_twice_in_any_series(weeks: list[Any]) -> None:
    series = Series()
    solved: set[str] = set()
    open_before: set[str] = set()
    for batch in weeks:
        document = series(*batch)
        found_now, still = findings(document), document["still_open"]
        ids = [f["issue"] for f in found_now if f["issue"]] + [each["issue"] for each in still]
        assert len(ids) == len(set(ids))
        counts = document["counts"]
        change_names = [f["change"] for f in found_now if f["change"]]
        listed = sum(counts[c] for c in ("new", "changed", "solved", "reopened"))
        assert listed + change_names.count("open") == len(change_names)
        assert all(f["issue"] for f in found_now if f["change"])
        ours = [f for f in [*found_now, *still] if f["state"] in NEEDS_ACTION]
        assert counts["open"] == len(ours)
        assert solved or "reopened" not in change_names
        absorbed = {id for f in found_now for id in f["absorbed"]}
        reported = {f["issue"] for f in found_now}
        assert {each["issue"] for each in still} == open_before - reported - absorbed
        solved |= {f["issue"] for f in found_now if f["state"] == "solved" and f["issue"]}
        open_before = {f["issue"] for f in ours if "change" in f} | {e["issue"] for e in still}


# ---- matching


def trace(threads: str) -> Trace:
    return Trace.of(ES, sweep_finding(thread_finding(threads)))


def issue(id: str, threads: str, state: Any, day: int = 0) -> Issue:
    """Return a known issue that was opened on `day`."""
    return issue_from_trace(id, trace(threads), state, START + timedelta(days=day))


def issue_from_trace(id: str, where: Trace, state: Any, opened: datetime) -> Issue:
    return Issue(
        id=id,
        state=state,
        severity="medium",
        owner="",
        first=opened,
        last=week(1),
        channel=where.channel,
        threads=sorted(where.threads),
        messages=sorted(where.messages),
    )


def ids(traces: list[Trace], known: list[Issue]) -> list[str | None]:
    return [match[0].id if match else None for match in match_issues(traces, known)]


def test_tracker_row_identifies_an_issue_only_without_threads() -> None:
    def row(*threads: str) -> Trace:
        fields = {"threads": [*threads], "evidence": [*threads, "F0BUGS/r1"]}
        return Trace.of(ES, sweep_finding(fields))

    def tracked_issue(*threads: str) -> Issue:
        return issue_from_trace("i-1", row(*threads), "unsolved", START)

    assert ids([row(f"{ES}/b")], [tracked_issue(f"{ES}/a")]) == [None]
    assert ids([row()], [tracked_issue()]) == ["i-1"]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (None, "solved", "solved"),
        (None, "known", "new"),
        ("unanswered", "unanswered", "open"),
        ("solved", "solved", None),
        (None, "declined", None),
        ("unsolved", "known", "changed"),
        ("declined", "unanswered", "reopened"),
        ("none", "unsolved", "changed"),
    ],
)
def test_change_of_an_issue_follows_from_its_states(
    before: str | None, now: str, change: str | None
) -> None:
    previous = issue("i-1", "a", before) if before else None
    assert change_of(now, "medium", "", previous) == change


THREADS = st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4)
TRACES = st.lists(THREADS.map(lambda names: trace(" ".join(sorted(names)))), max_size=7)
STATES = st.sampled_from(get_args(IssueState))


@st.composite
def issue_lists(draw: st.DrawFn) -> list[Issue]:
    rows = draw(st.lists(st.tuples(THREADS, STATES, st.integers(0, 9)), max_size=7))
    return [
        issue(f"i-{k}", " ".join(sorted(names)), state, day)
        for k, (names, state, day) in enumerate(rows)
    ]


@calm
@given(TRACES, issue_lists())
def test_matching_uses_each_known_issue_once_and_ignores_order(
    traces: list[Trace], known: list[Issue]
) -> None:
    matches = match_issues(traces, known)
    used = [issue.id for match in matches for issue in match]
    assert len(used) == len(set(used))
    assert set(used) == {i.id for i in known if any(any(t.count_shared(i.trace)) for t in traces)}
    for at, match in zip(traces, matches, strict=True):
        assert all(any(at.count_shared(issue.trace)) for issue in match)
    traces = list(dict.fromkeys(traces))
    before = dict(zip(traces, ids(traces, known), strict=True))
    backwards = traces[::-1]
    assert dict(zip(backwards, ids(backwards, known[::-1]), strict=True)) == before


# ---- storage: issues are saved with the delivery of their report


async def deliver(issues: IssueStore, number: int, *items: Json, schedule: str = "markets") -> Json:
    """Compare, deliver and return the report of a week."""
    last = week(number - 1) if number > 1 else None
    known = await issues.list_issues(schedule)
    document = compare_issues(sweep_report(report(number, items)), known, last, number - 1)
    await issues.database.change(lambda c: issues.save(c, schedule, document, week(number)))
    return document.to_json()


async def test_stored_issue_is_compared_only_with_reports_of_its_schedule(
    in_file: StorePlace,
) -> None:
    async with in_file.stores() as (store, *_):
        issues = IssueStore(store.database)
        await deliver(issues, 1, thread_finding("a b"))
        other = await deliver(issues, 2, thread_finding("a"), schedule="other")
        assert changes(other) == ["new"]
        same = await deliver(issues, 2, thread_finding("b c", "solved"))
        assert changes(same) == ["solved"]
        (known,) = await issues.list_issues("markets")
        assert (known.state, known.first, known.last) == ("solved", week(0), week(2))
        assert known.trace.threads == {f"{ES}/{name}" for name in "abc"}
