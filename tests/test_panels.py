"""Panels: who reads what, when a phase ends, what the report says of each finding."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_kit import line, opening, results, sentence, settings_for
from panel_kit import (
    EACH,
    LINES,
    SPECIALISTS,
    PanelModel,
    Voice,
    count_contexts,
    defends,
    finds,
    material,
    panel,
    panel_settings,
    point,
    quote_of,
    review,
    run_panel,
    specialist,
    to_judge,
    verdict,
    verdicts,
    was_refused,
    write_profile,
)

from bot.local.model.answer import Answer
from bot.memory import NoteStore
from bot.privacy import Forget
from bot.reports.frame import gaps
from bot.reports.issues import known_findings, panel_key
from bot.reports.text import report_text
from bot.storage.deletions import ForgetTarget
from scopes.effects import OPEN_NOTES
from scopes.label import TRUSTED_LABEL
from scopes.notes import NewNote, Notes
from scopes.spaces import space_of
from subagents.brief import SUBMIT
from subagents.budget import NANOUSD_PER_USD
from subagents.overlap import audit
from subagents.run import Run

Json = dict[str, Any]


async def test_agreeing_specialists_finish_after_two_rounds_and_one_verdict_round(
    tmp_path: Path,
) -> None:
    fixed = point(3, SPECIALISTS[2], claim="It is slow.", fix="Do not compute it twice")
    far = point(1, SPECIALISTS[0], quotes=["value_1 = compute_1(first", "# step 60"])
    each = EACH | {SPECIALISTS[2]: finds(fixed), SPECIALISTS[0]: finds(far)}
    done = await run_panel(PanelModel(each), tmp_path)
    report = done.report
    assert report.alarms == [], "a fix is an order to the author"
    assert report.unsupported == 0, "a short quote of another item counts, too"
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
        assert all(f", {mine}, high |" not in text for text in to_judge(body).values())
    assert audit(done.e.sink.trajectory("r1")).leaks == ()


async def test_first_phase_sends_no_specialist_the_output_of_another(tmp_path: Path) -> None:
    done = await run_panel(PanelModel(EACH), tmp_path)
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


def restless_reviewer(step: int) -> Voice:
    """A reviewer that finds another point in each round."""
    counts: dict[str, int] = {}
    return lambda body: review(point(step * count_contexts(body, counts)))


async def test_unstable_specialist_stops_at_the_round_limit(tmp_path: Path) -> None:
    done = await run_panel(PanelModel({"quality": restless_reviewer(10)}), tmp_path)
    (read, *_) = done.report.phases
    assert (read.rounds, read.stopped) == (3, "rounds")
    assert [f.rounds for f in done.report.findings] == [1, 1, 1]
    assert done.report.status == "complete"
    text = report_text(done.report)
    assert "ended by its limit of rounds" in text
    assert "ended before all was settled" not in text, "readers seldom find the same twice"


def judges_saying(says: str, *names: str) -> Voice:
    """Judges who say this with a quote: these, while the others confirm, or all of them."""

    def judge(body: Json) -> Answer:
        said = says if not names or specialist(body) in names else "confirm"
        return verdicts(
            *(verdict(id, said, evidence=quote_of(text)) for id, text in to_judge(body).items())
        )

    return judge


async def test_persistent_disagreement_marks_the_finding_as_disputed_with_both_verdicts(
    tmp_path: Path,
) -> None:
    responders = PanelModel({"correctness": finds(point(1))}, judges_saying("refute", "security"))
    done = await run_panel(responders, tmp_path)
    (finding,) = done.report.findings
    assert finding.outcome == "disputed"
    assert {v.verdict for v in finding.verdicts} == {"confirm", "refute"}
    assert finding.defence
    assert (finding.defence.specialist, finding.defence.verdict) == ("correctness", "confirm")
    (_, challenge, _) = done.report.phases
    assert (challenge.rounds, challenge.stopped) == (2, "")
    assert audit(done.e.sink.trajectory("r1")).leaks == ()


async def test_a_third_round_judges_only_what_changed_in_the_second(tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def judge(body: Json) -> Answer:
        """Refute, but weaken the second point when asked again."""
        again, shown = count_contexts(body, counts) > 1, to_judge(body)
        said = {quote_of(text): "refute" for text in shown.values()}
        said |= {q: "weaken" for q in said if again and q.startswith("value_2 ")}
        return verdicts(
            *(verdict(id, said[q := quote_of(text)], evidence=q) for id, text in shown.items())
        )

    responders = PanelModel({"correctness": finds(point(1), point(2))}, judge)
    done = await run_panel(responders, tmp_path)
    asked = Counter(quote_of(t)[:7] for body in done.judgements for t in to_judge(body).values())
    assert asked == {"value_1": 5, "value_2": 7}, "two judges in each round, and the author"


async def test_author_reads_the_finding_that_judges_call_the_same_as_its_own(
    tmp_path: Path,
) -> None:
    ids: dict[str, str] = {}

    def judge(body: Json) -> Answer:
        """Call the first point the same as the second; confirm the second."""
        ids.update({quote_of(text)[:7]: id for id, text in to_judge(body).items()})
        one, other = ids["value_1"], ids["value_2"]
        said = {one: "duplicate", other: "confirm"}
        return verdicts(
            *(
                verdict(id, said[id], duplicate_of=other, evidence=quote_of(text))
                for id, text in to_judge(body).items()
            )
        )

    points = {"a": finds(point(1, "a"), point(2, "a"))}
    own = tmp_path / "profiles"
    write_profile(own)
    settings = panel_settings(profiles=own)
    done = await run_panel(PanelModel(points, judge), tmp_path, profile="own", settings=settings)
    (defence,) = [to_judge(body) for body in done.judgements if defends(body)]
    (shown,) = defence.values()
    assert "objection: duplicate" in shown
    assert "called the same: [F" in shown
    assert sentence("claim 2", 9) in shown
    assert audit(done.e.sink.trajectory("r1")).leaks == ()


async def test_finding_weakened_by_everyone_is_lowered_in_severity_after_one_round(
    tmp_path: Path,
) -> None:
    judge = judges_saying("weaken")
    done = await run_panel(PanelModel({"correctness": finds(point(1))}, judge, judge), tmp_path)
    (finding,) = done.report.findings
    assert (finding.outcome, finding.severity) == ("confirmed", "medium")
    assert finding.defence
    assert len(done.judgements) == 3, "two judges and the author"
    (_, challenge, _) = done.report.phases
    assert (challenge.rounds, challenge.stopped) == (1, "")
    assert done.report.status == "complete"
    sent = str(done.e.requests[-1]["messages"])
    assert "correctness, medium | app.py:1" in sent, "the severity after judging"
    assert "correctness, high" not in sent


async def test_an_invalid_result_is_refused_once_with_the_exact_errors(tmp_path: Path) -> None:
    bad = point(1, category="taste", place="other.py:9", quotes=["not there at all"])

    good = point(2)
    good["quotes"] = [*good["quotes"], "not there at all"]

    def correcting_reviewer(body: Json) -> Answer:
        return review(good) if was_refused(body) else review(bad)

    done = await run_panel(
        PanelModel({"correctness": correcting_reviewer, "quality": finds(bad)}), tmp_path
    )
    refusals = str([r for b in done.reads for r in results(b)])
    assert "category 'taste' is none of CATEGORIES" in refusals
    assert "place 'other.py:9' is no [id] of MATERIAL" in refusals
    assert [(f.place, f.quotes) for f in done.report.findings] == [("app.py:2", point(2)["quotes"])]
    assert done.report.unsupported == 4


# ---- budget


async def test_phase_ends_when_its_budget_share_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.tasks.panel.SHARES", {"read": 0.08, "challenge": 0.82, "report": 0.1})
    settings = panel_settings(budget_usd=4.0, rounds=10)
    long = material("\n".join(LINES * 5))
    done = await run_panel(PanelModel(restless_reviewer(5)), tmp_path, of=long, settings=settings)
    read, challenge, _ = done.report.phases
    assert read.stopped == "budget"
    assert read.rounds < 10
    assert challenge.rounds == 1
    assert [f.outcome for f in done.report.findings] == ["confirmed"] * len(done.report.findings)
    assert done.report.status == "partial"


@pytest.mark.parametrize("budget", [0.4, 1.6])
async def test_panel_cost_stays_within_its_budget(tmp_path: Path, budget: float) -> None:
    settings = panel_settings(settings_for({"cost_usd": budget}), budget_usd=budget)
    done = await run_panel(
        PanelModel(EACH, judges_saying("refute", "quality", "security")),
        tmp_path,
        settings=settings,
    )
    assert done.report.cost_usd is not None
    assert done.report.cost_usd <= budget
    assert done.e.cost_nanousd() <= budget * NANOUSD_PER_USD


# ---- large material, references


async def test_large_material_is_split_at_functions_and_read_completely(tmp_path: Path) -> None:
    functions = [
        f"def function_{n}():\n" + "\n".join(f"    {sentence(f'{n}.{k}', 8)}" for k in range(30))
        for n in range(12)
    ]

    def by_part(body: Json) -> Answer:
        starts = re.findall(r"\[(app\.py:\d+)\]\n\|def (function_(?:0|11))\(\):", opening(body))
        return review(
            *(
                point(
                    n, claim=f"{name} misses {sentence(name)}", place=place, quotes=[f"{name}():"]
                )
                for n, (place, name) in enumerate(starts, 1)
            )
        )

    settings = panel_settings(settings_for({"cost_usd": 20.0, "max_material_tokens": 3_000}))
    whole = material("\n".join(functions))
    model = PanelModel({"correctness": by_part})
    done = await run_panel(model, tmp_path, of=whole, settings=settings)
    report, parts = done.report, done.task.parts
    assert report.material.parts == len(parts) > 3
    assert all(part[0].text.startswith("def function_") for part in parts)
    assert [item.id for part in parts for item in part] == [item.id for item in whole.items]
    assert report.material.read == 1.0
    assert [f.outcome for f in report.findings] == ["confirmed"] * 2
    assert not any("def function_6():" in opening(body) for body in done.judgements)


async def test_a_quote_of_a_reference_is_no_evidence(tmp_path: Path) -> None:
    own = tmp_path / "profiles"
    write_profile(own, references={"a": ["short.md"]})
    rule = point(1, "a", quotes=["Rule: always say please"])
    settings = panel_settings(profiles=own)
    done = await run_panel(
        PanelModel({"a": finds(rule)}), tmp_path, profile="own", settings=settings
    )
    assert done.report.findings == []
    assert done.report.unsupported == 2


# ---- a second panel


async def test_a_second_panel_says_what_is_new_fixed_and_remaining(tmp_path: Path) -> None:
    first = PanelModel({"correctness": finds(point(5), point(20))})
    async with panel(first, tmp_path) as (_, task):
        before = await task.work()
        await task.record_delivery(before)
    assert before.compared is None
    assert {f.change for f in before.findings} == {None}

    kept = [line for n, line in enumerate(LINES, 1) if n != 5]
    moved = "\n".join([*[f"# {sentence(f'note {n}', 5)}" for n in range(40)], *kept])
    same = point(20, claim=f"Worded {sentence('otherwise', 8)}", place="app.py:59")
    again = PanelModel({"correctness": finds(same, point(50, place="app.py:89"))})
    async with panel(again, tmp_path, of=material(moved), run_id="r2") as (_, task):
        after = await task.work()
        await task.record_delivery(after)
    changes = {f.quotes[0].partition(" ")[0]: (f.change, f.issue) for f in after.findings}
    issues = {f.quotes[0].partition(" ")[0]: f.issue for f in before.findings}
    assert changes["value_20"] == ("remaining", issues["value_20"])
    assert changes["value_50"][0] == "new"
    assert [(f.issue, f.quoted) for f in after.fixed] == [(issues["value_5"], False)]
    assert "1 new, 1 fixed, 1 remaining" in report_text(after)


async def test_finding_refuted_by_everyone_is_neither_summed_up_nor_remembered(
    tmp_path: Path,
) -> None:
    judge = judges_saying("refute")
    model = PanelModel({"correctness": finds(point(1))}, judge, judge)
    async with panel(model, tmp_path, requester="U0ANA") as (_, task):
        report = await task.work()
        await task.record_delivery(report)
        known = await known_findings(task.app.database, panel_key("U0ANA", "code", "app.py"))
    assert [f.outcome for f in report.findings] == ["dropped"]
    assert (report.top_lines, known.findings) == ([], ())


async def test_referenced_notes_are_sent_and_missing_ones_are_reported_as_gaps(
    tmp_path: Path,
) -> None:
    own = tmp_path / "profiles"
    write_profile(own, references={"a": ["note/1"], "b": ["note/2", "note/99"]})
    settings = panel_settings(profiles=own)
    async with panel(PanelModel(), tmp_path, profile="own", settings=settings) as (e, task):
        store = NoteStore(task.app.database)
        space = space_of(OPEN_NOTES, None)
        hers = space_of(OPEN_NOTES, "U0EVA")
        await store.save(NewNote(space, "k1", "Manners", "Say please", TRUSTED_LABEL, "r0"))
        await store.save(NewNote(hers, "k2", "Diary", "Be curt", TRUSTED_LABEL, "r0"))
        e.run.clients = {**e.run.clients, Notes: store}
        e.run.handles = {OPEN_NOTES: "own"}
        report = await task.work()
        sent = {specialist(body): opening(body) for body in e.requests}
    assert "[note/1@" in sent["a"]
    assert "Say please" in sent["a"]
    assert "Say please" not in sent["b"] + sent["c"]
    assert "Be curt" not in str(sent)
    unreadable, absent = (gap for gap in gaps(report) if "note/" in gap)
    assert unreadable.replace("note/2", "note/99") == absent


async def test_forgetting_a_person_deletes_the_findings_of_their_reviews(tmp_path: Path) -> None:
    model = PanelModel({"correctness": finds(point(5))})
    async with panel(model, tmp_path, requester="U0ANA") as (_, task):
        await task.record_delivery(await task.work())
        database = task.app.database
        key = panel_key("U0ANA", "code", "app.py")
        assert len((await known_findings(database, key)).findings) == 1
        await Forget(database, False, tmp_path)(ForgetTarget("user", "U0EVA"))
        assert len((await known_findings(database, key)).findings) == 1
        await Forget(database, False, tmp_path)(ForgetTarget("user", "U0ANA"))
        assert (await known_findings(database, key)).last is None


async def test_stopped_panel_requests_no_verdicts_and_reports_the_stop(tmp_path: Path) -> None:
    running: list[Run] = []
    loop = asyncio.get_running_loop()  # the model answers on a thread of its own

    def stopping_reviewer(body: Json) -> Answer:
        if specialist(body) == "quality":
            loop.call_soon_threadsafe(running[0].stop.set)
        return review(point(1))

    async with panel(PanelModel(stopping_reviewer), tmp_path) as (e, task):
        running.append(e.run)
        report = await task.work()
        assert not [b for b in e.requests if "CONTRACT: verdicts" in opening(b)]
    assert report.status == "cancelled"
    assert "Stopped as asked" in report_text(report)
