"""A parent whose context fills up is reminded, then replaced, and nothing it learned is lost."""

from __future__ import annotations

import json
from pathlib import Path

from engine_kit import (
    Json,
    asked,
    brief,
    brief_answer,
    call,
    child,
    is_child,
    results,
    say,
    settings_for,
    since,
    thread_id,
    turn,
    turns,
    use,
    words,
)

from bot.local.model.answer import Answer
from bot.local.model.server import Mind
from config.settings import Settings
from scopes.label import TRUSTED
from scopes.tool import estimate_tokens
from subagents.conversation import Ending
from subagents.events import ParentHandedOver
from subagents.handoff import package

ROLES = {"parent": {"max_tokens": 1_000}}


def small(context: int = 10_000, **limits: float) -> Settings:
    return settings_for({"parent_context": context, **limits}, roles=ROLES)


def handed_over(body: Json) -> bool:
    return len(body["messages"][0]["content"]) == 2


async def test_above_thirty_percent_a_parent_is_reminded_and_must_delegate(tmp_path: Path) -> None:
    def mind(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if "REMINDER: Your context is filling up" in since(body):
            return Answer([use("read_thread", thread=thread_id(1, 0)), use("list_channels")])
        if results(body) and "delegate this" in results(body)[-1]["content"]:
            return say("I stop reading.")
        return call("read_thread", thread=thread_id(1, 0))

    got = await asked(mind, tmp_path, small(12_000))
    reminders = [b for b in got.parent if "REMINDER: Your context is filling up" in since(b)]
    assert len(reminders) == 1
    thread, listed = results(got.parent[-1])[-2:]
    assert thread["is_error"]
    assert listed["is_error"]
    assert thread["content"] == "Your context is filling up: delegate this with run_subagent."
    assert got.document["answer"] == "I stop reading."
    assert got.document["sessions"] == 1
    assert got.report.leaks == ()


async def test_above_seventy_percent_a_fresh_session_goes_on_and_still_cites(
    tmp_path: Path,
) -> None:
    got = await asked(filling(turns(say("Open is [F1.1], as before."))), tmp_path, small(12_000))
    assert got.document["sessions"] == 2
    assert [x.session for x in got.e.events if isinstance(x, ParentHandedOver)] == [2]
    last = got.parent[-1]
    request, handed = (b["text"] for b in last["messages"][0]["content"])
    assert request == got.parent[0]["messages"][0]["content"][0]["text"]
    assert "GOAL: What is open in #support-1 and in #support-2?" in handed
    assert "LABEL: " in handed
    (state,) = [each for each in handed.splitlines() if each.startswith("STATE: ")]
    assert f"about printers, number {len(got.parent) - 2}." in state
    for s in got.subagents:
        assert f"{s['id']} complete (slack, fast): Channel 1 is read." in handed
        assert f"[{s['findings'][0]['id']}] The " in handed
    assert got.document["statements"][0]["findings"] == ["F1.1"]
    assert got.document["links"]["F1.1"]
    assert got.document["status"] == "complete"
    assert [c.id for c in got.e.sink.contexts if c.kind == "parent"] == ["p1", "p2"]
    assert json.dumps(last["system"]) == json.dumps(got.parent[0]["system"])
    assert json.dumps(last["tools"]) == json.dumps(got.parent[0]["tools"])
    assert got.report.leaks == ()
    assert round(got.document["cost_usd"] * 10**9) == got.e.served.cost_nanousd()


def filling(after: Mind) -> Mind:
    """A parent that delegates until its context is full; `after` answers in the next session."""

    def mind(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if handed_over(body):
            return after(body)
        n = turn(body)
        asks = brief(1, task=f"Question number {n} on this channel", known="word " * 500)
        return Answer([words(f"Both seem to be about printers, number {n}."), asks])

    return mind


async def test_a_new_session_goes_on_delegating_under_new_ids(tmp_path: Path) -> None:
    after = turns(brief_answer(2), say("Open: [F1.1] and [F5.1] [F9.9]."))
    got = await asked(filling(after), tmp_path, small(12_000))
    assert got.document["sessions"] == 2
    ids = [s["id"] for s in got.subagents]
    assert ids == [f"s{n}" for n in range(1, len(ids) + 1)]
    parents = {c.id: c.parent for c in got.e.sink.contexts if c.kind == "subagent"}
    assert parents[ids[-1]] == "p2"
    assert parents["s1"] == "p1"
    assert "[F9.9]" not in got.document["answer"]
    assert got.report.leaks == ()


async def test_what_a_brief_may_not_hold_is_done_by_the_parent_and_handed_over(
    tmp_path: Path,
) -> None:
    """Refused because it retypes a view: the parent reads itself, and its session is replaced."""

    def mind(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if handed_over(body):
            return say("It holds: [F1.1].")
        match turn(body):
            case 0:
                return brief_answer(1)
            case 1:
                claim = results(body)[0]["content"].split("[F1.1] ")[1].split(" | ")[0]
                return brief_answer(2, task=f"Compare: {claim}", known="word " * 300)
        again = brief_answer(2, task="", known="word " * 500)  # refused: it says no task
        return Answer([use("read_thread", thread=thread_id(1, 0)), *again.content])

    got = await asked(mind, tmp_path, small(12_000))
    assert got.subagents[1]["status"] == "refused"
    assert "task: repeats what another subagent returned" in got.subagents[1]["reason"]
    assert got.document["sessions"] == 2
    assert got.document["answer"] == "It holds: [F1.1]."
    assert got.report.leaks == ()


async def test_sessions_share_their_steps_and_their_number_is_limited(tmp_path: Path) -> None:
    def mind(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        if "REMINDER: limit reached" in since(body):
            return say("Enough: [F1.1].")
        n = len(body["messages"][0]["content"]) * 100 + turn(body)
        return brief_answer(1, task=f"Question {n} {turn(body)}", known=f"word{n} " * 250)

    got = await asked(mind, tmp_path, small(12_000, parent_steps=20, max_subagents=24))
    assert 2 <= got.document["sessions"] <= 5
    assert len(got.parent) <= 20
    assert got.document["answer"] == "Enough: [F1.1]."
    assert got.document["stopped_by"] in ("steps", "tokens")
    assert got.report.leaks == ()


def test_a_package_of_300_results_stays_within_its_share() -> None:
    views = {f"s{n}": f"s{n} complete: text {'long ' * 300}\n[F{n}.1] claim" for n in range(300)}
    ending = Ending("handoff", text="I was about to compare. " * 100)
    text = package("What is open? " * 300, ending, views, TRUSTED, 6_000)["text"]
    assert estimate_tokens(text) <= 6_000
    assert text.count("complete: text") > 50
    assert "more results are stored and in the report: s" in text
