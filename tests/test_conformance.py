"""Our rows of the probes that were run against eight other systems (docs/conformance.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_kit import (
    Json,
    Lax,
    always,
    asked,
    brief,
    brief_answer,
    call,
    channel_id,
    finding,
    is_child,
    led_by,
    line,
    results,
    say,
    sentence,
    settings_for,
    since,
    submit,
    submitted,
    thread_id,
    turn,
    turns,
    use,
    words,
)
from standins.model_faults import Faults

from bot.local.model.answer import Answer

RICH = {"cost_usd": 20.0, "seconds": 60.0}
ALL_FIVE = "What is open in #support-1 #support-2 #support-3 #support-4 #support-5?"


def fifty(count: int = 50) -> Answer:
    return Answer([brief(1 + n % 5, task=f"Question {n} on the channel") for n in range(count)])


def questions(bodies: list[Json]) -> set[int]:
    return {int(line(b, "TASK").split()[1]) for b in bodies}


# ---- 50 calls in one turn


async def test_of_50_calls_in_one_turn_those_allowed_run_and_the_rest_is_refused_by_name(
    tmp_path: Path,
) -> None:
    got = await asked(led_by(fifty(), say("Done [F1.1].")), tmp_path, settings_for(RICH), ALL_FIVE)
    states = [s["status"] for s in got.subagents]
    assert (len(states), states.count("complete"), states.count("refused")) == (50, 24, 26)
    assert questions(got.children) == set(range(24))
    answers = results(got.parent[1])
    assert [bool(r.get("is_error")) for r in answers] == [False] * 24 + [True] * 26
    assert all("max_subagents" in r["content"] for r in answers[24:])
    assert got.document["coverage"]["refused"] == 26


async def test_a_limiter_queues_what_it_does_not_let_in(tmp_path: Path) -> None:
    settings = settings_for({**RICH, "max_subagents": 50, "max_concurrency": 5})
    script = led_by(fifty(), say("Done."))
    got = await asked(script, tmp_path, settings, ALL_FIVE, latency_s=0.01)
    assert [s["status"] for s in got.subagents] == ["complete"] * 50
    assert got.e.server.in_flight_max == 5


# ---- a child returns 1 MB


@pytest.mark.parametrize("form", ["result", "text"])
async def test_a_child_that_returns_a_megabyte_reaches_the_parent_as_a_bounded_view(
    form: str, tmp_path: Path
) -> None:
    megabyte = "tea and cake " * 80_000
    answered = [{**submit(megabyte), "id": "t1"}] if form == "result" else [words(megabyte)]
    lax = Lax(lambda body: answered if is_child(body) else None)
    got = await asked(led_by(brief_answer(1), say("It was too much.")), tmp_path, lax=lax)
    (one,) = got.subagents
    assert one["status"] in ("partial", "failed")
    assert one["stopped_by"] in ("invalid_output", "tokens")
    assert len(json.dumps(one)) < 10_000
    assert len(results(got.parent[1])[0]["content"].encode()) <= 3 * 1_500
    assert max(len(json.dumps(b)) for b in lax.recorded) < 100_000
    assert got.document["answer"].startswith("It was too much.")


# ---- a step limit


async def test_a_step_limit_leaves_a_partial_result_with_its_findings(tmp_path: Path) -> None:
    def reader(body: Json) -> Answer:
        if "REMINDER: limit reached (steps)" in since(body):
            found = finding("It has been open for a while", thread_id(1, 0), state="unsolved")
            return submitted("As far as I came.", findings=[found])
        return call("read_channel_history", channel=channel_id(1))

    script = led_by(brief_answer(1), say("So far [F1.1]."), children=reader)
    got = await asked(script, tmp_path, settings_for({"subagent_steps": 3}))
    (one,) = got.subagents
    assert (one["status"], one["stopped_by"], one["steps"]) == ("partial", "steps", 3)
    assert one["findings"][0]["id"] == "F1.1"
    view = results(got.parent[1])[0]["content"]
    assert view.startswith("s1 partial, stopped by steps (slack, fast): As far as I came.")
    assert "[F1.1] It has been open for a while" in view
    assert len(got.children) == 3


async def test_a_step_limit_that_a_child_ignores_still_leaves_what_it_read(tmp_path: Path) -> None:
    goes_on = Answer([words("I go on."), use("read_channel_history", channel=channel_id(1))])
    script = led_by(brief_answer(1), say("Nothing."), children=turns(goes_on))
    got = await asked(script, tmp_path, settings_for({"subagent_steps": 3}))
    (one,) = got.subagents
    assert (one["status"], one["stopped_by"], one["steps"]) == ("partial", "steps", 3)
    assert one["text"] == "Read 4 items, then stopped. Its last words: I go on."


# ---- raw tool output


@pytest.mark.parametrize("ending", ["result", "empty", "text", "garbage", "dead"])
async def test_raw_tool_output_never_reaches_the_parent(ending: str, tmp_path: Path) -> None:
    reader = turns(
        call("read_channel_history", channel=channel_id(1)),
        {
            "result": submitted("Read."),
            "empty": Answer([]),
            "text": say("I read it."),
            "garbage": Answer([use("submit_result", nothing=[])]),
            "dead": say(""),
        }[ending],
    )

    def choose(index: int, body: Json) -> str | None:
        return "http_500" if ending == "dead" and is_child(body) and results(body) else None

    script = led_by(brief_answer(1), say("Done."), children=reader)
    got = await asked(script, tmp_path, faults=Faults(choose))
    secrets = [sentence(f"{kind}1.{n}")[:40] for kind in "qa" for n in range(2)]
    assert all(s in json.dumps(got.children) for s in secrets)
    assert not any(s in json.dumps(got.parent) for s in secrets)
    assert not any(s in json.dumps(got.document) for s in secrets)
    assert got.subagents[0]["text"]
    assert got.report.leaks == ()


# ---- other probes


async def test_structured_output_is_checked_json_and_repaired_once(tmp_path: Path) -> None:
    table = turns(
        call("submit_result", columns="title, n", rows=[["x", 3]]),
        call("submit_result", columns=["title", "n"], rows=[["x", "3"]], text="1 row"),
    )
    script = led_by(brief_answer(1, contract="table"), say("Done."), children=table)
    got = await asked(script, tmp_path)
    (one,) = got.subagents
    assert one["status"] == "complete"
    assert one["value"] == {
        "columns": ["title", "n"], "rows": [["x", "3"]], "text": "1 row", "not_covered": [],
        "needs": "",
    }  # fmt: skip
    repair = results(got.children[1])[0]["content"]
    assert "columns: Input should be a valid list" in repair
    assert "rows.0.1: Input should be a valid string" in repair
    assert json.loads(json.dumps(one)) == one


async def test_the_tools_of_a_child_are_those_of_its_scope_and_no_more(tmp_path: Path) -> None:
    got = await asked(led_by(brief_answer(1), say("Done.")), tmp_path)
    assert [t["name"] for t in got.children[0]["tools"]] == [
        "list_channels", "read_channel_history", "read_thread", "search_messages",
        "lookup_user", "get_permalink",
        "submit_result",
    ]  # fmt: skip
    assert {t["name"] for t in got.parent[0]["tools"]} == {
        "list_channels", "read_thread", "lookup_user", "run_subagent", "run_subagents",
        "challenge", "sweep_channels",
    }  # fmt: skip


async def test_a_budget_is_not_passed_by_31_calls_in_a_child(tmp_path: Path) -> None:
    """The child is stopped before the cap is passed, and the parent is told."""

    def reader(body: Json) -> Answer:
        if "REMINDER: limit reached (cost)" in since(body):
            return submitted("What I have.")
        return call("search_messages", query=f"word{turn(body)}")

    limits = {"cost_usd": 0.14, "subagent_steps": 99, "max_fanout_tokens": 1_500}
    roles = {"parent": {"max_tokens": 1_000}, "subagent_main": {"max_tokens": 1_000}}
    asks, end = brief_answer(1, model_preference="main"), say("There was no more money.")
    script = led_by(asks, end, children=reader)
    got = await asked(script, tmp_path, settings_for(limits, roles=roles))
    (one,) = got.subagents
    budget = got.e.run.budget
    assert (one["status"], one["stopped_by"], one["text"]) == ("partial", "cost", "What I have.")
    assert one["steps"] > 31
    assert budget.spent.nanousd <= budget.caps.nanousd
    assert round(got.document["cost_usd"] * 10**9) == got.e.cost_nanousd()
    assert "stopped by cost" in results(got.parent[1])[0]["content"]
    assert got.document["answer"].startswith("There was no more money.")


async def test_with_a_dead_api_a_request_still_ends_in_words(tmp_path: Path) -> None:
    got = await asked(led_by(), tmp_path, faults=always("http_529"))
    assert (got.document["status"], got.document["stopped_by"]) == ("failed", "rate_limit")
    assert "overloaded_error" in got.document["reason"]
    assert got.document["answer"] == "No answer could be written."
    assert got.document["cost_usd"] == 0
