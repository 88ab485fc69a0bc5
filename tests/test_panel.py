"""Panels: who reads what, when a phase ends, what the report says of each finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine_kit import line, results, say
from panel_kit import (
    SPECIALISTS,
    Minds,
    Voice,
    draw,
    finds,
    held,
    is_again,
    point,
    quote_of,
    review,
    specialist,
    to_judge,
    verdict,
    verdicts,
)

from bot.local.model.answer import Answer
from subagents.audit import audit
from subagents.brief import SUBMIT

Json = dict[str, Any]


async def test_specialists_who_agree_end_after_two_rounds_and_one_of_verdicts(
    tmp_path: Path,
) -> None:
    each = {name: finds(point(n, name)) for n, name in enumerate(SPECIALISTS, 1)}
    done = await held(Minds(each), tmp_path)
    report = done.report
    assert report.status == "complete"
    assert [f.outcome for f in report.findings] == ["confirmed"] * 5
    assert {s.name: (s.rounds, s.stable) for s in report.specialists} == dict.fromkeys(
        SPECIALISTS, (2, True)
    )
    assert [(p.name, p.rounds, p.stopped) for p in report.phases] == [
        ("read", 2, ""),
        ("challenge", 1, ""),
        ("report", 1, ""),
    ]
    for body in done.judgements:
        mine = specialist(body)
        assert all(f", {mine}, high |" not in said for said in to_judge(body).values())
    assert audit(done.e.sink.trajectory("r1")).leaks == ()


async def test_in_the_first_phase_nobody_is_sent_anothers_output(tmp_path: Path) -> None:
    each = {name: finds(point(n, name)) for n, name in enumerate(SPECIALISTS, 1)}
    done = await held(Minds(each), tmp_path)
    claims = {name: point(n)["claim"] for n, name in enumerate(SPECIALISTS, 1)}
    assert len(done.reads) == 10
    fences = {line(body, "FENCE") for body in (*done.reads, *done.judgements)}
    assert len(fences) == len(done.reads) + len(done.judgements)
    for body in done.reads:
        sent = str(body)
        assert not [name for name, claim in claims.items() if claim in sent]
        assert [t["name"] for t in body["tools"]] == [SUBMIT]
    for body in done.judgements:
        sent = str(body)
        assert [
            claim for name, claim in claims.items() if claim in sent and name != specialist(body)
        ]
        assert not any(point(n)["fix"] in sent for n in range(1, 6))


async def test_a_finding_of_one_round_is_kept_with_half_its_confidence(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def wavering(body: Json) -> Answer:
        return review(point(1), *([point(30)] if draw(body, seen) == 1 else []))

    done = await held(Minds({"correctness": wavering}), tmp_path)
    (found,) = [s for s in done.report.specialists if s.name == "correctness"]
    assert (found.rounds, found.stable) == (3, True)
    by_place = {f.place: (f.confidence, f.rounds) for f in done.report.findings}
    assert by_place == {"app.py:1": (0.8, 3), "app.py:30": (0.4, 1)}


async def test_a_specialist_who_never_finds_the_same_ends_at_the_cap(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def restless(body: Json) -> Answer:
        return review(point(10 * draw(body, seen)))

    done = await held(Minds({"quality": restless}), tmp_path)
    (read, *_) = done.report.phases
    assert (read.rounds, read.stopped) == (3, "rounds")
    assert [f.rounds for f in done.report.findings] == [1, 1, 1]
    assert done.report.status == "partial"


def divided(*against: str) -> Voice:
    """Judges of whom these refute everything with a quote, whatever is said."""

    def judge(body: Json) -> Answer:
        says = "refute" if specialist(body) in against else "confirm"
        return verdicts(
            *(verdict(id, says, evidence=quote_of(said)) for id, said in to_judge(body).items())
        )

    return judge


async def test_judges_who_disagree_for_ever_leave_a_dispute_with_both_sides(tmp_path: Path) -> None:
    minds = Minds({"correctness": finds(point(1))}, divided("security"))
    done = await held(minds, tmp_path)
    (found,) = done.report.findings
    assert found.outcome == "disputed"
    assert {v.verdict for v in found.verdicts} == {"confirm", "refute"}
    assert found.defence
    assert (found.defence.specialist, found.defence.verdict) == ("correctness", "confirm")
    (_, challenge, _) = done.report.phases
    assert (challenge.rounds, challenge.stopped) == (2, "")
    assert audit(done.e.sink.trajectory("r1")).leaks == ()


async def test_judges_who_flip_end_at_the_cap(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def flipping(body: Json) -> Answer:
        says = "refute" if draw(body, seen) % 2 else "weaken"
        return verdicts(
            *(verdict(id, says, evidence=quote_of(said)) for id, said in to_judge(body).items())
        )

    done = await held(Minds({"correctness": finds(point(1))}, flipping), tmp_path)
    (_, challenge, _) = done.report.phases
    assert (challenge.rounds, challenge.stopped) == (3, "rounds")
    assert done.report.findings[0].outcome in ("disputed", "dropped")


async def test_what_all_refute_and_its_author_withdraws_is_dropped(tmp_path: Path) -> None:
    minds = Minds({"correctness": finds(point(1))}, divided(*SPECIALISTS), divided(*SPECIALISTS))
    done = await held(minds, tmp_path)
    (found,) = done.report.findings
    assert found.outcome == "dropped"
    assert [v.verdict for v in found.verdicts] == ["refute", "refute"]
    assert found.defence
    assert found.defence.verdict == "refute"


async def test_specialists_who_copy_each_other_have_one_finding_that_is_judged(
    tmp_path: Path,
) -> None:
    done = await held(Minds(finds(point(7))), tmp_path)
    (found,) = done.report.findings
    assert found.found_by == list(SPECIALISTS)
    assert (found.outcome, len(found.verdicts)) == ("confirmed", 2)
    assert "security" not in {v.specialist for v in found.verdicts}


async def test_silent_specialists_are_counted_and_silent_judges_leave_findings_unjudged(
    tmp_path: Path,
) -> None:
    reads = {"correctness": finds(point(1)), "security": lambda body: say("I would rather not.")}
    done = await held(Minds(reads, lambda body: say("No comment.")), tmp_path)
    by_name = {s.name: s for s in done.report.specialists}
    assert (by_name["security"].silent, by_name["security"].rounds) == (3, 0)
    assert done.report.findings[0].outcome == "unjudged"
    assert (
        "security: 1 of 1 parts were not read (what the language model wrote could not be used)"
        in done.report.coverage.not_covered
    )
    assert done.report.material.read == 0
    assert done.report.status == "partial"


async def test_an_invalid_result_is_refused_once_with_the_exact_errors(tmp_path: Path) -> None:
    bad = point(1, category="taste", place="other.py:9", quotes=["not there at all"])

    def mending(body: Json) -> Answer:
        return review(point(2)) if is_again(body) else review(bad)

    done = await held(Minds({"correctness": mending, "quality": finds(bad)}), tmp_path)
    told = str([r for b in done.reads for r in results(b)])
    assert "category 'taste' is none of CATEGORIES" in told
    assert "place 'other.py:9' is no [id] of MATERIAL" in told
    assert [f.place for f in done.report.findings] == ["app.py:2"]
    assert done.report.unsupported == 2
