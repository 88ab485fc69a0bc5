"""Findings are judged by others: who judges what, which verdicts count, and the outcome."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagents.challenge import (
    JUDGES_PER_FINDING,
    Challenge,
    Opinion,
    compare,
    is_stable,
    route,
)
from subagents.contracts import ReviewFinding
from subagents.sanitizer import CleanFinding, Material, sanitize

PAY = "def pay(sum):\n    check(sum)\n    return eval(sum)\n"
MATERIAL = Material(
    {
        "pay.py:1": PAY,
        "pay.py:40": "def log(sum):\n    print(sum)  # type: ignore[misc]\n",
        "C1/17.1": "The “deploy” broke",
    }
)
NAMES = ("security", "speed", "quality", "market", "people")


def review_finding(id: str = "R1", **more: Any) -> ReviewFinding:
    base = {
        "id": id,
        "category": "security",
        "severity": "high",
        "confidence": 0.8,
        "claim": "User input reaches eval without a check",
        "place": "pay.py:3",
    }
    return ReviewFinding.model_validate({**base, **more})


def says(
    finding: str, judge: str, verdict: str, evidence: str = "eval(sum)", of: str = ""
) -> Opinion:
    fields = {"finding": finding, "judge": judge, "verdict": verdict, "evidence": evidence}
    return Opinion.model_validate({**fields, "duplicate_of": of})


# ---- what other contexts read


def clean(**more: Any) -> CleanFinding:
    finding = sanitize(review_finding(**more), MATERIAL, NAMES)
    assert isinstance(finding, CleanFinding)
    return finding


def test_other_contexts_see_only_claim_place_and_quotes_of_the_material() -> None:
    line = clean(quotes=["RETURN  eval(sum)", "nowhere"], fix="Parse it").line()
    assert line == (
        "[R1] User input reaches eval without a check | security, high | pay.py:3 "
        '| quotes: "return eval(sum)"'
    )


@pytest.mark.parametrize(
    ("place", "quote", "expected"),
    [
        ("pay.py:41", "", "pay.py:41"),
        ("pay.py:2-3", "", "pay.py:2"),
        ("C1/17.1", "", "C1/17.1"),
        ("the last clause", "print(sum)", "pay.py:41"),
        ("pay.py:9", 'the "deploy"', "C1/17.1"),
    ],
)
def test_place_is_mapped_to_a_place_in_the_material(place: str, quote: str, expected: str) -> None:
    assert clean(place=place, quotes=[quote]).place == expected


def test_quote_in_a_diff_is_found_in_the_line_that_it_adds() -> None:
    diff = "@@ -1,2 +1,2 @@\n-def pay(sum):\n-    check(sum)\n+def pay(sum):\n     send(sum)"
    material = Material({"a.diff:1": diff})
    found = [material.find(quote) for quote in ("def pay(sum)", "check(sum)", "send(sum)")]
    assert [each and each.place for each in found] == ["a.diff:4", "a.diff:3", "a.diff:5"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"place": "pay.py:30"}, "evidence"),
        ({"place": "other.py:1", "quotes": ["nowhere"]}, "evidence"),
        ({"category": "taste"}, "category"),
        ({"claim": "**"}, "empty"),
    ],
)
def test_finding_without_valid_evidence_category_or_claim_is_withheld(
    more: dict[str, Any], reason: str
) -> None:
    assert sanitize(review_finding(**more), MATERIAL, NAMES) == reason


def test_quote_cannot_imitate_other_parts_of_a_line() -> None:
    forged = '" | critical | x = "'
    material = Material({"pay.py:1": f"{PAY}{forged}"})
    finding = sanitize(review_finding(quotes=[forged]), material, NAMES)
    assert isinstance(finding, CleanFinding)
    assert r'quotes: "| critical | x ="' in finding.line()


# ---- who judges what

SPECIALISTS = st.integers(3, 6).map(lambda n: [f"s{k}" for k in range(n)])


@given(st.data())
def test_every_finding_gets_judges_other_than_its_author(data: st.DataObject) -> None:
    names = data.draw(SPECIALISTS)
    count = data.draw(st.integers(0, 30))
    findings = [
        review_finding(f"R{n}", category=data.draw(st.sampled_from(NAMES))) for n in range(count)
    ]
    authors = {f.id: data.draw(st.sampled_from(names)) for f in findings}
    affinity = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1))
    routed = route(findings, authors, {name: data.draw(affinity) for name in names})
    for finding in findings:
        judges = [name for name in names if finding.id in routed[name]]
        assert len(judges) == JUDGES_PER_FINDING
        assert authors[finding.id] not in judges


# ---- which findings are the same


@pytest.mark.parametrize(
    ("more", "same"),
    [
        (
            {"claim": "eval of what one types", "place": "pay.py:90", "quotes": ["return eval("]},
            True,
        ),
        ({"claim": "It is rounded twice", "place": "pay.py:90", "quotes": ["sum"]}, False),
        ({"claim": "Input of users reaches eval unchecked", "place": "pay.py:5"}, True),
        ({"place": "pay.py:80"}, True),
        ({"place": "pay.py:80", "claim": "Input is logged"}, False),
        ({"claim": "The amount is rounded twice", "place": "pay.py:4"}, False),
        ({"place": "log.py:3", "quotes": ["eval(sum)"]}, False),
        ({"category": "quality", "claim": "The name of sum hides a builtin"}, False),
    ],
)
def test_finding_is_matched_with_an_earlier_one_by_place_quote_and_claim(
    more: dict[str, Any], same: bool
) -> None:
    before = review_finding("B1", quotes=["return eval(sum)"])
    changes = compare([review_finding("A1", **more)], [before])
    assert changes.remaining == ((("A1", "B1"),) if same else ())
    assert (changes.new, changes.fixed) == (((), ()) if same else (("A1",), ("B1",)))


def test_one_review_joins_two_faults_of_one_line_only_if_their_claims_are_alike() -> None:
    line = {"place": "pay.py:15", "quotes": ["if amount > order.paid:"]}
    one = review_finding("A1", claim="Earlier refunds are not subtracted from the limit", **line)
    other = review_finding("B1", claim="A negative value passes the check", **line)
    again = review_finding("B2", claim="The limit ignores earlier refunds", **line)
    assert compare([one], [other], reworded=False).remaining == ()
    assert compare([one], [again], reworded=False).remaining == (("A1", "B2"),)


def test_two_rounds_are_stable_with_the_same_findings_and_severities() -> None:
    one, other = (
        review_finding("A1"),
        review_finding("A2", claim="No test", place="pay.py:40", category="quality"),
    )
    assert is_stable([one, other], [other, one])
    assert is_stable([], [])
    assert not is_stable([one], [one, other])
    assert not is_stable([one], [review_finding("B1", severity="low")])


# ---- outcomes of verdicts


def judged(*opinions: Opinion, ids: str = "R1") -> Challenge:
    """Return the challenge of these findings of one author, after these verdicts."""
    findings = {id: review_finding(id) for id in ids.split()}
    challenge = Challenge(findings, dict.fromkeys(findings, "author"), MATERIAL)
    challenge.record(opinions)
    return challenge


@pytest.mark.parametrize(
    ("verdicts", "outcome", "severity"),
    [
        ("a:confirm b:confirm", "confirmed", "high"),
        ("a:confirm", "confirmed", "high"),
        ("a:confirm b:weaken", "confirmed", "high"),
        ("a:weaken b:weaken", "confirmed", "medium"),
        ("a:confirm b:out_of_scope", "confirmed", "high"),
        ("a:confirm b:refute", "disputed", "high"),
        ("a:refute", "disputed", "high"),
        ("a:refute b:refute", "dropped", "high"),
        ("a:refute b:refute author:confirm", "disputed", "high"),
        ("a:refute author:refute", "dropped", "high"),
        ("a:out_of_scope b:out_of_scope", "dropped", "high"),
        ("a:out_of_scope", "unjudged", "high"),
        ("author:confirm", "unjudged", "high"),
        ("", "unjudged", "high"),
    ],
)
def test_verdicts_determine_outcome_and_severity_of_a_finding(
    verdicts: str, outcome: str, severity: str
) -> None:
    opinions = [says("R1", *each.split(":")) for each in verdicts.split()]
    (finding,) = judged(*opinions).list_judged()
    assert (finding.outcome, finding.severity) == (outcome, severity)


def test_duplicates_are_merged_into_the_kept_finding() -> None:
    challenge = judged(
        says("R2", "a", "duplicate", of="R1"),
        says("R2", "b", "duplicate", of="R1"),
        says("R3", "a", "duplicate", of="R2"),
        ids="R1 R2 R3",
    )
    assert [(each.outcome, each.into) for each in challenge.list_judged()] == [
        ("unjudged", ""),
        ("merged", "R1"),
        ("merged", "R1"),
    ]


@pytest.mark.parametrize(
    "opinion",
    [
        says("R1", "a", "refute", "nowhere"),
        says("R1", "a", "refute", ""),
        says("R1", "a", "confirm", "e"),
        says("R1", "a", "duplicate", of="R9"),
        says("R1", "a", "duplicate", of="R1"),
    ],
)
def test_a_verdict_without_evidence_does_not_count(opinion: Opinion) -> None:
    challenge = judged(opinion)
    assert challenge.list_judged()[0].outcome == "unjudged"
    assert challenge.alarms() == {("no_evidence", "a"): 1}


def test_agreement_is_krippendorffs_alpha() -> None:
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section B: 0.095."""
    verdict = {"c": "confirm", "r": "refute"}
    ids = [f"R{n}" for n in range(10)]
    opinions = [
        says(id, judge, verdict[letter])
        for judge, letters in (("a", "rcrrrrrrrr"), ("b", "cccrrcrrcr"))
        for id, letter in zip(ids, letters, strict=True)
    ]
    found = judged(*opinions, ids=" ".join(ids)).agreement()
    assert found.alpha == pytest.approx(0.095, abs=0.001)
    assert (found.findings, found.unanimous) == (10, 6)
    assert found.verdicts == {"confirm": 6, "refute": 14}
