"""Many subagents at once: each accounted for, none able to harm another or to see what it reads."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import (
    Engine,
    Json,
    LenientServer,
    always,
    ask_engine,
    brief,
    brief_answer,
    call,
    channel_id,
    child,
    engine,
    finding,
    is_child,
    line,
    opening,
    prefixes,
    results,
    say,
    scripted_parent,
    sentence,
    settings_for,
    since,
    submission,
    submit,
    thread_id,
    turn,
    turns,
    until,
    use,
    words,
    workspace,
)
from standins.model_faults import KINDS, Fault, Faults
from standins.slack import LocalSlack
from standins.slack_faults import Fault as SlackFault
from timing import patient

from bot.local.model.answer import Answer
from subagents.brief import Brief, SpawnedBrief, text_block
from subagents.budget import Amount, Budget
from subagents.events import Event, SubagentStarted
from subagents.fanout import Fanout, TaskSpawner
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.run import Checkpoint

CHANNELS = 5
THREADS = 2


STOPPED_BY = frozenset(
    "none steps tokens cost time rate_limit model_error tool_error invalid_output needs_context "
    "injection user".split()
)


def number(body: Json) -> int:
    """The channel that a subagent is to read."""
    return int(line(body, "TASK").split()[-1])


def reader(body: Json) -> Answer:
    """Read the channel, and submit one finding on its first thread."""
    n = number(body)
    if not results(body) and "REMINDER: limit reached" not in since(body):
        return call("read_channel_history", channel=channel_id(n))
    root = thread_id(n, 0)
    if not any(root in r["content"] for r in results(body)):
        return submission("Nothing was read.")
    quote = sentence(f"q{n}.0")
    return submission(f"Read channel {n}.", findings=[finding(f"Open {n}", root, quotes=[quote])])


def briefs(
    e: Engine, count: int, task: str = "Read channel", *, writes: bool = False
) -> list[Brief]:
    """One brief for each channel, in rotation if `count` is above CHANNELS."""
    return [
        e.brief(f"{task} number {n} that is {1 + n % CHANNELS}", 1 + n % CHANNELS, writes=writes)
        for n in range(count)
    ]


def assert_accounted(e: Engine, got: Sequence[SubagentResult], count: int) -> None:
    """Check that each has one end, in order, and that their costs are what the server charged."""
    assert [r.id for r in got] == [f"s{n}" for n in range(1, count + 1)]
    assert {r.stopped_by for r in got} <= STOPPED_BY
    assert {r.status for r in got} <= {"complete", "partial", "failed", "cancelled"}
    for r in got:
        assert r.text, r.id
        assert (r.status == "complete") == (r.stopped_by == "none"), r
        assert r.reason or r.value or r.stopped_by in ("time", "user"), r
    assert e.run.budget.reserved == Amount()
    assert sum(round((r.cost_usd or 0) * 10**9) for r in got) == e.cost_nanousd()


def slack() -> LocalSlack:
    return LocalSlack(workspace(CHANNELS, THREADS))


async def test_all_subagents_are_accounted_for_when_a_tenth_of_calls_fail() -> None:
    """Every tenth subagent has a crashing tool."""
    count = 50
    crashing = set(range(0, count, 10))
    dice = random.Random(1)
    kinds = [k for k in KINDS if k != "slow"] * count
    dice.shuffle(kinds)
    faulty: set[str] = set()

    def choose(index: int, body: Json) -> Fault | None:
        if dice.random() >= 0.1:
            return None
        faulty.add(line(body, "TASK"))
        return Fault(kinds.pop(), retry_after=0.01)

    def responder(body: Json) -> Answer:
        n = int(line(body, "TASK").split()[3])
        if n in crashing and len(results(body)) == 1:
            return call("lookup_user", user="Ana Ruiz")
        return reader(body)

    local = slack()
    local.faults += [SlackFault("users.info", "malformed")] * count
    settings = settings_for({"cost_usd": 10.0}, {"max_attempts": 3})
    async with engine(responder, settings, slack=local, faults=Faults(choose)) as e:
        tasks = briefs(e, count, writes=True)
        got = await e.fanout().run_all(tasks)

    assert_accounted(e, got, count)
    spared = {n for n in range(count) if tasks[n].draft.task not in faulty}
    assert {got[n].stopped_by for n in spared & crashing} == {"tool_error"}
    assert {got[n].stopped_by for n in spared - crashing} == {"none"}
    assert all(r.findings for r in got if r.stopped_by == "none")
    assert sum(r.status == "complete" for r in got) >= count * 0.7
    assert e.run.budget.spent.nanousd >= e.cost_nanousd()
    reported = [Usage(**{k: v for k, v in r.usage.items() if k != "total"}) for r in got]
    charged = [Usage.of(m["usage"]) for m in e.server.answered]
    assert sum(reported, Usage()) == sum(charged, Usage())


async def test_stop_cancels_all_subagents_and_keeps_partial_results() -> None:
    def choose(index: int, body: Json) -> Fault | None:
        return Fault("slow") if turn(body) else None

    settings = settings_for({"max_concurrency": 10})
    async with engine(reader, settings, slack=slack(), faults=Faults(choose)) as e:
        task = asyncio.create_task(e.fanout().run_all(briefs(e, 30)))
        await until(lambda: sum(turn(b) == 1 for b in e.requests) == 10)
        e.run.stop.set()
        got = await task

    assert_accounted(e, got, 30)
    assert {(r.status, r.stopped_by) for r in got} == {("cancelled", "user")}
    assert [r.coverage["messages_read"] for r in got[:10]] == [4] * 10
    assert all("Read 4 items" in r.text for r in got[:10])
    assert len(e.requests) == 20  # the queued ones sent nothing


async def test_only_complete_results_are_reused() -> None:
    faults = Faults(lambda index, body: "refusal" if index == 0 else None)
    settings = settings_for({"max_concurrency": 1})
    async with engine(reader, settings, slack=slack(), faults=faults) as e:
        fanout = e.fanout()
        (one,) = briefs(e, 1)
        twins = await fanout.run_all([one, one])
        again = await fanout.run_all([one])

    assert [r.stopped_by for r in twins] == ["model_error", "none"]
    assert [r.id for r in again] == ["s2"]


async def test_fanout_ends_before_the_time_limit_of_the_run() -> None:
    """Queued subagents start late; the fan-out as a whole still ends before the run does."""
    now = 0.0

    def slow(body: Json) -> Answer:
        nonlocal now
        if "REMINDER: limit reached" in since(body):
            return submission("What I have.")
        now += 10.0
        return call("read_channel_history", channel=channel_id(number(body)))

    async with engine(slow, settings_for({"max_concurrency": 1}), slack=slack()) as e:
        e.run.budget = Budget(replace(e.run.budget.caps, seconds=300.0), lambda: now)
        await e.fanout().run_all(briefs(e, 4))
        assert e.run.budget.seconds_left() == 50.0  # a fifth, less the call that passed it


# ---- what one subagent reads reaches no other

FENCE = re.compile(r"items-[0-9a-f]{32}")


async def test_first_request_contains_only_prompt_tools_and_brief() -> None:
    async with engine(reader) as e:
        frozen = await e.fanout().freeze([e.brief(f"Read channel {n}", n) for n in (1, 2, 3)])
        started = [await e.spawner.start(f) for f in frozen]
        await asyncio.gather(*(joined() for joined in started))

    for one in frozen:
        first = next(b for b in e.requests if one.delimiter in json.dumps(b["messages"]))
        assert [b["text"] for b in first["system"]] == [b["text"] for b in one.system]
        assert first["tools"] == list(one.tools)
        assert first["messages"] == [
            {"role": "user", "content": [text_block(one.brief.text(one.delimiter))]}
        ]
        allowed = {"model", "max_tokens", "system", "tools", "messages", "cache_control"}
        assert first.keys() <= allowed | {"output_config", "thinking"}


async def test_siblings_share_an_identical_prompt_prefix_and_no_content() -> None:
    async with engine(reader, slack=LocalSlack(workspace(10))) as e:
        await e.fanout().run_all([e.brief(f"Read channel {n}", n) for n in range(1, 11)])
    firsts = [b for b in e.requests if turn(b) == 0]
    assert len(firsts) == 10
    assert len(prefixes(e.requests)) == 1
    assert not FENCE.search(next(iter(prefixes(e.requests))))
    fences = [set(FENCE.findall(json.dumps(b["messages"]))) for b in firsts]
    assert all(len(found) == 1 for found in fences)
    assert len(set.union(*fences)) == 10
    for body in e.requests:
        (own,) = set(FENCE.findall(opening(body)))
        assert set(FENCE.findall(json.dumps(body))) == {own}
        assert all(r["content"].startswith(f"<{own}>") for r in results(body))
        channel = int(line(body, "TASK").split()[-1])
        messages = json.dumps(body["messages"])
        others = set(range(1, 11)) - {channel}
        assert not [n for n in others if sentence(f"q{n}.0")[:30] in messages]
        assert (sentence(f"q{channel}.0")[:30] in messages) == bool(results(body))


# ---- what fails in one harms no other


async def test_result_is_returned_even_if_storing_it_fails() -> None:
    stored: list[str] = []

    class Faulty(Checkpoint):
        async def keep_result(self, frozen: SpawnedBrief, result: SubagentResult) -> None:
            if frozen.id == "s2":
                raise ValueError("no such column")
            stored.append(result.id)

    async with engine(child, slack=LocalSlack(workspace(3))) as e:
        e.run.checkpoint = Faulty()
        fanout = Fanout(e.run, TaskSpawner(e.run))
        got = await fanout.run_all([e.brief(f"Read {n}", n) for n in (1, 2, 3)])

    assert [r.status for r in got] == ["complete"] * 3
    assert sorted(stored) == ["s1", "s3"]
    assert [r.status for r in fanout.results.values()] == ["complete"] * 3


async def test_subagent_that_crashes_at_start_does_not_block_the_others() -> None:
    def emit(event: Event) -> None:
        if event == SubagentStarted("s1"):
            raise OSError("the terminal is gone")

    async with engine(child, slack=LocalSlack(workspace(3))) as e:
        e.run.emit = emit
        async with patient(10):
            got = await e.fanout().run_all([e.brief(f"Read {n}", n) for n in (1, 2, 3)])

    assert [(r.status, r.stopped_by) for r in got] == [
        ("failed", "tool_error"), ("complete", "none"), ("complete", "none"),
    ]  # fmt: skip
    assert (got[0].text, got[0].reason) == ("It failed.", "its run failed: OSError")


# ---- probes that were run against eight other systems, too (docs/conformance.md)

RICH = {"cost_usd": 20.0, "seconds": 60.0}
ALL_FIVE = "What is open in #support-1 #support-2 #support-3 #support-4 #support-5?"


def fifty(count: int = 50) -> Answer:
    return Answer([brief(1 + n % 5, task=f"Question {n} on the channel") for n in range(count)])


def questions(bodies: list[Json]) -> set[int]:
    return {int(line(b, "TASK").split()[1]) for b in bodies}


# ---- 50 calls in one turn


async def test_calls_beyond_max_subagents_in_one_turn_are_refused(
    tmp_path: Path,
) -> None:
    got = await ask_engine(
        scripted_parent(fifty(), say("Done [F1.1].")), tmp_path, settings_for(RICH), ALL_FIVE
    )
    states = [s["status"] for s in got.subagents]
    assert (len(states), states.count("complete"), states.count("refused")) == (50, 24, 26)
    assert questions(got.children) == set(range(24))
    answers = results(got.parent[1])
    assert [bool(r.get("is_error")) for r in answers] == [False] * 24 + [True] * 26
    assert all("max_subagents" in r["content"] for r in answers[24:])
    assert got.document["coverage"]["refused"] == 26


async def test_subagents_beyond_max_concurrency_are_queued(tmp_path: Path) -> None:
    settings = settings_for({**RICH, "max_subagents": 50, "max_concurrency": 5})
    script = scripted_parent(fifty(), say("Done."))
    got = await ask_engine(script, tmp_path, settings, ALL_FIVE, latency_s=0.01)
    assert [s["status"] for s in got.subagents] == ["complete"] * 50
    assert got.e.server.in_flight_max == 5


# ---- a child returns 1 MB


@pytest.mark.parametrize("form", ["result", "text"])
async def test_parent_sees_a_bounded_view_of_a_one_megabyte_result(
    form: str, tmp_path: Path
) -> None:
    megabyte = "tea and cake " * 80_000
    answered = [{**submit(megabyte), "id": "t1"}] if form == "result" else [words(megabyte)]
    lax = LenientServer(lambda body: answered if is_child(body) else None)
    got = await ask_engine(
        scripted_parent(brief_answer(1), say("It was too much.")), tmp_path, lax=lax
    )
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
            return submission("As far as I came.", findings=[found])
        return call("read_channel_history", channel=channel_id(1))

    script = scripted_parent(brief_answer(1), say("So far [F1.1]."), children=reader)
    got = await ask_engine(script, tmp_path, settings_for({"subagent_steps": 3}))
    (one,) = got.subagents
    assert (one["status"], one["stopped_by"], one["steps"]) == ("partial", "steps", 3)
    assert one["findings"][0]["id"] == "F1.1"
    view = results(got.parent[1])[0]["content"]
    assert view.startswith("s1 partial, stopped by steps (slack, fast): As far as I came.")
    assert "[F1.1] It has been open for a while" in view
    assert len(got.children) == 3


async def test_ignored_step_limit_still_yields_a_partial_result(tmp_path: Path) -> None:
    goes_on = Answer([words("I go on."), use("read_channel_history", channel=channel_id(1))])
    script = scripted_parent(brief_answer(1), say("Nothing."), children=turns(goes_on))
    got = await ask_engine(script, tmp_path, settings_for({"subagent_steps": 3}))
    (one,) = got.subagents
    assert (one["status"], one["stopped_by"], one["steps"]) == ("partial", "steps", 3)
    assert one["text"] == "Read 4 items, then stopped. Its last words: I go on."


# ---- raw tool output


@pytest.mark.parametrize("ending", ["result", "empty", "text", "garbage", "dead"])
async def test_raw_tool_output_never_reaches_the_parent(ending: str, tmp_path: Path) -> None:
    reader = turns(
        call("read_channel_history", channel=channel_id(1)),
        {
            "result": submission("Read."),
            "empty": Answer([]),
            "text": say("I read it."),
            "garbage": Answer([use("submit_result", nothing=[])]),
            "dead": say(""),
        }[ending],
    )

    def choose(index: int, body: Json) -> str | None:
        return "http_500" if ending == "dead" and is_child(body) and results(body) else None

    script = scripted_parent(brief_answer(1), say("Done."), children=reader)
    got = await ask_engine(script, tmp_path, faults=Faults(choose))
    secrets = [sentence(f"{kind}1.{n}")[:40] for kind in "qa" for n in range(2)]
    assert all(s in json.dumps(got.children) for s in secrets)
    assert not any(s in json.dumps(got.parent) for s in secrets)
    assert not any(s in json.dumps(got.document) for s in secrets)
    assert got.subagents[0]["text"]
    assert got.report.leaks == ()


# ---- other probes


async def test_structured_output_is_validated_and_repaired_once(tmp_path: Path) -> None:
    table = turns(
        call("submit_result", columns="title, n", rows=[["x", 3]]),
        call("submit_result", columns=["title", "n"], rows=[["x", "3"]], text="1 row"),
    )
    script = scripted_parent(brief_answer(1, contract="table"), say("Done."), children=table)
    got = await ask_engine(script, tmp_path)
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


async def test_child_gets_only_the_tools_of_its_scope(tmp_path: Path) -> None:
    got = await ask_engine(scripted_parent(brief_answer(1), say("Done.")), tmp_path)
    assert [t["name"] for t in got.children[0]["tools"]] == [
        "list_channels", "read_channel_history", "read_thread", "search_messages",
        "lookup_user", "get_permalink",
        "submit_result",
    ]  # fmt: skip
    assert {t["name"] for t in got.parent[0]["tools"]} == {
        "list_channels", "read_thread", "lookup_user", "run_subagent", "run_subagents",
        "challenge", "sweep_channels",
    }  # fmt: skip


async def test_child_with_many_calls_stops_before_the_cost_cap(tmp_path: Path) -> None:
    """The child is stopped before it passes the cap, and the parent sees why."""

    def reader(body: Json) -> Answer:
        if "REMINDER: limit reached (cost)" in since(body):
            return submission("What I have.")
        return call("search_messages", query=f"word{turn(body)}")

    limits = {"cost_usd": 0.14, "subagent_steps": 99, "max_fanout_tokens": 1_500}
    roles = {"parent": {"max_tokens": 1_000}, "subagent_main": {"max_tokens": 1_000}}
    asks, end = brief_answer(1, model_preference="main"), say("There was no more money.")
    script = scripted_parent(asks, end, children=reader)
    got = await ask_engine(script, tmp_path, settings_for(limits, roles=roles))
    (one,) = got.subagents
    budget = got.e.run.budget
    assert (one["status"], one["stopped_by"], one["text"]) == ("partial", "cost", "What I have.")
    assert one["steps"] > 31
    assert budget.spent.nanousd <= budget.caps.nanousd
    assert round(got.document["cost_usd"] * 10**9) == got.e.cost_nanousd()
    assert "stopped by cost" in results(got.parent[1])[0]["content"]
    assert got.document["answer"].startswith("There was no more money.")


async def test_request_ends_with_a_message_if_the_model_api_is_down(tmp_path: Path) -> None:
    got = await ask_engine(scripted_parent(), tmp_path, faults=always("http_529"))
    assert (got.document["status"], got.document["stopped_by"]) == ("failed", "rate_limit")
    assert "overloaded_error" in got.document["reason"]
    assert got.document["answer"] == "No answer could be written."
    assert got.document["cost_usd"] == 0
