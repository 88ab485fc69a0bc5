"""Of one channel each issue stands once, however many subagents and threads tell of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tasks.tracker import join_duplicates
from subagents.result import Finding
from subagents.summary import rank


def found(id: str, state: str = "known", claim: str = "It fails", **more: Any) -> Finding:
    root = f"C1/{id}"
    made = {"evidence": [root], "threads": [root], "messages": 2, "people": 1, **more}
    return Finding.model_validate({"id": id, "claim": claim, "state": state, **made})


def ids(*findings: Finding) -> list[list[str]]:
    return [[f.id, *others] for f, others in join_duplicates(findings, {})]


def test_a_known_bug_stands_once_with_all_who_wait_for_it() -> None:
    one = found("F1.1", claim="Printing fails, BUG-7", waits=["Ana"], waits_since="2025-03-04T09Z")
    two = found("F2.1", claim="No receipts", next_step="Tell Eva (BUG-7)", waits=["Eva"], since="2")
    three = found("F3.1", claim="Paper stays white", waits=["Tom"], severity="high")
    other = found("F3.2", claim="Login fails, BUG-8", waits=["Luis"])
    read = {"C1/F3.1": ["BUG-7"]}
    joined = {f.id: (f, others) for f, others in join_duplicates([one, two, three, other], read)}
    assert {id: sorted(others) for id, (_, others) in joined.items()} == {
        "F3.1": ["F1.1", "F2.1"],
        "F3.2": [],
    }
    whole = joined["F3.1"][0]
    assert sorted(whole.waits) == ["Ana", "Eva", "Tom"]
    assert (whole.people, whole.messages, whole.severity) == (3, 6, "high")
    assert whole.waits_since == "2025-03-04T09Z"
    assert sorted(whole.threads) == ["C1/F1.1", "C1/F2.1", "C1/F3.1"]


@pytest.mark.parametrize(
    ("more", "together"),
    [
        ({}, True),
        ({"claim": "Card payments of Olmo fail at the till again"}, True),
        ({"claim": "The export of reports takes hours"}, False),
        ({"customers": ["Sol"]}, False),
        ({"customers": []}, False),
        ({"state": "waiting"}, False),
    ],
)
def test_an_issue_of_one_customer_stands_once(more: dict[str, Any], together: bool) -> None:
    base: dict[str, Any] = {
        "state": "unsolved",
        "customers": ["Olmo"],
        "claim": "Card payments fail at the till",
    }
    told = ids(found("F1.1", **base), found("F2.1", **{**base, **more}))
    assert sorted(told) == ([["F1.1", "F2.1"]] if together else [["F1.1"], ["F2.1"]])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("unanswered", "unsolved", "known", "solved", "none")),
            st.sampled_from(("BUG-1 fails", "BUG-2 fails", "bug 123456 fails", "it fails")),
            st.sampled_from(([], ["Olmo"], ["Sol", "Olmo"])),
        ),
        max_size=9,
    )
)
def test_each_finding_stands_once_and_they_stay_ranked(
    told: list[tuple[str, str, list[str]]],
) -> None:
    given_ = [
        found(f"F{n}.1", state, claim, customers=names)
        for n, (state, claim, names) in enumerate(told)
    ]
    joined = join_duplicates(given_, {})
    stands = [id for f, others in joined for id in (f.id, *others)]
    assert sorted(stands) == sorted(f.id for f in given_)
    assert [rank(f) for f, _ in joined] == sorted(rank(f) for f, _ in joined)
    assert sum(f.messages for f, _ in joined) == 2 * len(given_)
