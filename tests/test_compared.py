"""What a report says of each finding beside the reports before it, and what it says of the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from document_kit import sweep_finding, sweep_report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from issue_kit import ES, FR, Json, findings, found, report, week

from bot.reports.issues import absorbed_in, compare_issues, counts_of, issue_of, rows_after
from scopes.tool import iso
from subagents.contracts import NEEDS_ACTION


class Series:
    """Reports of one schedule, a week each, all of them delivered."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.number = 0

    def __call__(self, *told: Any) -> Json:
        """The next report: of findings, or of findings by channel."""
        last = week(self.number) if self.number else None
        known = [issue_of(row) for row in self.rows.values()]
        said = told[0] if told and not isinstance(told[0].get("id"), str) else told
        self.number += 1
        document = compare_issues(
            sweep_report(report(self.number, said)), known, last, self.number - 1
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


def test_the_first_report_compares_with_nothing_and_gives_its_issues_their_ids() -> None:
    document = Series()(found("a"), found("b", "solved"), found("c", "none"))
    assert document["compared"] is None
    assert changes(document) == ["new", "solved", None]
    first, second, third = (f["issue"] for f in findings(document))
    assert len({first, second}) == 2
    assert first.startswith("i-")
    assert third is None
    assert document["still_open"] == []


def test_an_issue_goes_through_its_life_under_one_id() -> None:
    series = Series()
    born = only(series(found("a", "unanswered")))
    lives = [
        series(found("a", "unanswered", claim="Der Knopf tut nichts")),
        series(found("a", "waiting", said="a1")),
        series(found("a", "solved", said="a2")),
        series(found("a", "solved", said="a3")),
        series(found("a", "unsolved", said="a4")),
    ]
    assert {only(d)["issue"] for d in lives} == {born["issue"]}
    assert [changes(d) for d in lives] == [["open"], ["changed"], ["solved"], [None], ["reopened"]]
    assert lives[0]["compared"] == {"with": iso(week(1)), "reports": 1}
    assert [only(d)["age_days"] for d in lives] == [14, 21, 28, 35, 42]
    assert {only(d)["first"] for d in lives} == {born["first"]}


def test_what_the_window_shows_nothing_of_is_still_open_until_it_is_told_again() -> None:
    series = Series()
    told = {ES: [found("a", severity="low"), found("b", severity="high", owner="Ana")], FR: []}
    series(told)
    for weeks in (2, 3):
        document = series({ES: [], FR: []})
        high, low = document["still_open"]
        assert (high["severity"], high["owner"], high["item"]) == ("high", "Ana", "csm-es")
        assert (low["severity"], low["age_days"]) == ("low", 7 * weeks)
        assert low["links"] == [f"https://local.slack.com/archives/{ES}/a"]
        assert (document["counts"]["open"], document["counts"]["high"]) == (2, 1)
    document = series({ES: [found("a", "solved"), found("c")], FR: []})
    assert changes(document) == ["solved", "new"]
    assert [each["severity"] for each in document["still_open"]] == ["high"]


def test_who_waits_for_the_customer_and_what_is_over_is_not_still_open() -> None:
    series = Series()
    series(found("a", "waiting"), found("b", "solved"), found("c", "unsolved"))
    series(found("c", "none"))
    assert series()["still_open"] == []


def test_issues_of_a_channel_that_is_swept_no_more_are_not_told() -> None:
    series = Series()
    series({ES: [found("a")], FR: [found("a", channel=FR)]})
    assert [each["item"] for each in series({FR: []})["still_open"]] == ["csm-fr"]


def test_one_thread_id_in_two_channels_is_two_issues() -> None:
    series = Series()
    document = series({ES: [found("a")], FR: [found("a", channel=FR)]})
    es, fr = (f["issue"] for f in findings(document))
    assert es != fr
    later = series({FR: [found("a", channel=FR)], ES: []})
    assert only(later)["issue"] == fr
    assert [each["issue"] for each in later["still_open"]] == [es]


def test_issues_that_became_one_are_told_once_with_the_age_of_the_older() -> None:
    series = Series()
    one, other = findings(series(found("a b", since=week(1)), found("c", since=week(0))))
    merged = only(series(found("a b c", since=week(1))))
    assert merged["issue"] == one["issue"]
    assert merged["absorbed"] == [other["issue"]]
    assert merged["first"] == other["first"]
    document = series(found("c", since=week(0)))
    assert only(document)["issue"] == one["issue"]
    assert document["still_open"] == []


def test_a_part_that_is_told_apart_is_no_news_and_gets_an_id_of_its_own() -> None:
    series = Series()
    whole = only(series(found("a b c")))
    most, part = findings(series(found("a b"), found("c")))
    assert most["issue"] == whole["issue"] != part["issue"]
    assert (most["change"], part["change"]) == ("open", "open")
    again = findings(series(found("c", "solved"), found("a b")))
    assert [f["issue"] for f in again] == [part["issue"], most["issue"]]
    assert [f["change"] for f in again] == ["solved", "open"]


def test_a_part_that_would_get_the_id_of_the_whole_gets_another_one() -> None:
    series = Series()
    whole = only(series(found("a b c")))
    part, most = findings(series(found("a"), found("b c")))
    assert most["issue"] == whole["issue"]
    assert part["issue"] not in (None, whole["issue"])


def test_the_subagents_own_results_say_the_same_as_the_sections() -> None:
    document = Series()({ES: [found("a")], FR: [found("b", channel=FR)]})
    told = {f["id"]: f for child in document["subagents"] for f in child["findings"]}
    assert told == {f["id"]: f for f in findings(document)}


def test_what_a_report_rests_on_is_left_as_it_was() -> None:
    document = sweep_report(report(1, [found("a")]))
    compare_issues(document, [], None, 0)
    assert document == sweep_report(report(1, [found("a")]))


def test_without_a_comparison_only_states_are_counted() -> None:
    found_now = [found("a", severity="high"), found("b", "waiting"), found("c", "solved")]
    plain = [sweep_finding(each) for each in found_now]
    assert counts_of(plain, []).to_json() == {
        **{"open": 1, "new": 0, "changed": 0, "solved": 0, "reopened": 0, "high": 1}
    }


# ---- any series of reports

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""However loaded the machine is."""
FINDINGS = st.lists(
    st.builds(
        found,
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
def test_in_any_series_the_counts_add_up_and_no_issue_is_told_twice(weeks: list[Any]) -> None:
    series = Series()
    solved: set[str] = set()
    open_before: set[str] = set()
    for told in weeks:
        document = series(*told)
        found_now, still = findings(document), document["still_open"]
        ids = [f["issue"] for f in found_now if f["issue"]] + [each["issue"] for each in still]
        assert len(ids) == len(set(ids))
        counts = document["counts"]
        said = [f["change"] for f in found_now if f["change"]]
        listed = sum(counts[c] for c in ("new", "changed", "solved", "reopened")) + said.count(
            "open"
        )
        assert listed == len(said) == sum(f["change"] is not None for f in found_now)
        assert all(f["issue"] for f in found_now if f["change"])
        ours = [f for f in [*found_now, *still] if f["state"] in NEEDS_ACTION]
        assert counts["open"] == len(ours)
        for finding in found_now:
            if finding["change"] == "reopened":
                assert solved
        gone = {id for f in found_now for id in f["absorbed"]}
        told_now = {f["issue"] for f in found_now}
        assert {each["issue"] for each in still} == open_before - told_now - gone
        solved |= {f["issue"] for f in found_now if f["state"] == "solved" and f["issue"]}
        open_before = {f["issue"] for f in ours if "change" in f} | {e["issue"] for e in still}


@calm
@given(FINDINGS, FINDINGS)
def test_while_one_finding_alone_shares_a_thread_the_id_stays(one: Any, other: Any) -> None:
    series = Series()
    before = [f for f in findings(series(*one)) if f["issue"]]
    after = findings(series(*other))
    for finding in after:
        kin = [f for f in before if set(f["threads"]) & set(finding["threads"])]
        rivals = [f for f in after if kin and set(f["threads"]) & set(kin[0]["threads"])]
        if len(kin) == 1 and rivals == [finding]:
            assert finding["issue"] == kin[0]["issue"]
