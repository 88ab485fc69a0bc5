"""The gate is the only way to a tool, and decides by what a tool declares and a caller holds."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from engine_kit import (
    OWN_TOOLS,
    Engine,
    call,
    channel_id,
    engine,
    ran,
    results,
    run_agent,
    say,
    scripted_parent,
    submission,
    thread_id,
    turns,
    use,
)
from serve_kit import serve

import scopes
from bot.local.model.answer import Answer
from config.settings import load_settings
from scopes.tool import Tool, ToolContext, ToolResult, tool
from subagents.gate import Allow, Card, Deny

ROOT = Path(__file__).resolve().parent.parent
SLACK = {t.name: t for t in scopes.scope("slack").tools}
HELD = {channel_id(1): "#support-1"}


@tool(needs="web:search")
async def roam(ctx: ToolContext) -> ToolResult:
    """Search the web."""
    return ToolResult(note="found")


def test_only_the_gate_runs_tools() -> None:
    """A call passes a tool's context to `x.run`, or uses `run` of anything called a tool."""
    callers = []
    for package in ("subagents", "bot", "scopes"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            for node in ast.walk(ast.parse(text)) if re.search(r"\brun\b", text) else ():
                if isinstance(node, ast.Attribute) and node.attr == "run":
                    is_tool = ast.unparse(node.value).lower().endswith(("tool", "tools", "]"))
                    callers += [path.relative_to(ROOT).as_posix()] if is_tool else []
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".run"):
                    args = [ast.unparse(a) for a in node.args]
                    has_context = any(a.endswith(("ctx", "context")) for a in args)
                    callers += [path.relative_to(ROOT).as_posix()] if has_context else []
    assert set(callers) == {"subagents/gate.py"}


async def decide_call(e: Engine, tool_: Tool, **args: object) -> Allow | Card | Deny:
    return await e.run.gate.decide("s1", e.context(HELD), tool_, args)


async def test_reads_within_handles_are_allowed_and_names_become_ids() -> None:
    async with engine(turns()) as e:
        for value in (channel_id(1), "#support-1", "support-1", "SUPPORT-1"):
            verdict = await decide_call(e, SLACK["read_channel_history"], channel=value)
            assert isinstance(verdict, Allow)
            assert verdict.args == {"channel": channel_id(1), "cursor": ""}
        verdict = await decide_call(
            e, SLACK["read_thread"], thread=f"#support-1/{thread_id(1, 0)[10:]}"
        )
        assert isinstance(verdict, Allow)
        assert verdict.args["thread"] == thread_id(1, 0)


async def test_unknown_and_invalid_arguments_are_named_in_the_denial() -> None:
    async with engine(turns()) as e:
        history = SLACK["read_channel_history"]
        for args, reason in (
            ({"channel": channel_id(1), "limit": 5}, "limit: is not an argument"),
            ({}, "channel: Field required"),
            ({"channel": 5}, "channel: Input should be a valid string"),
        ):
            verdict = await decide_call(e, history, **args)
            assert isinstance(verdict, Deny)
            assert (reason in verdict.reason, verdict.rule) == (True, "arguments")
        for odd in (None, "text", [1], 3):
            assert isinstance(await e.run.gate.decide("s1", e.context(HELD), history, odd), Deny)


async def test_tool_is_denied_without_the_open_handle_it_needs() -> None:
    async with engine(turns()) as e:
        assert isinstance(await e.run.gate.decide("s1", e.context(), roam, {}), Deny)
        held = e.context({"web:search": ""})
        assert isinstance(await e.run.gate.decide("s1", held, roam, {}), Allow)


READS = [
    ("read_channel_history", "channel", "{}"),
    ("read_thread", "thread", "{}/1740000000.000100"),
    ("search_messages", "channel", "{}"),
    ("get_permalink", "message", "{}/1740000000.000100"),
    ("list_slack_list_items", "list", "{}"),
]


@pytest.mark.parametrize(("name", "argument", "form"), READS)
async def test_forbidden_and_nonexistent_handles_get_the_same_answer(
    name: str, argument: str, form: str
) -> None:
    """Neither the answer nor a call to Slack reveals that a handle exists."""
    more = {"query": "word"} if name == "search_messages" else {}
    names = (channel_id(2), "C99999999", "#support-2")
    calls = Answer([use(name, **{argument: form.format(i), **more}) for i in names])
    e, *_ = await ran(turns(calls, submission()), tools=SLACK.values(), handles=HELD)

    answers = [r["content"] for r in results(e.requests[1])]
    texts = {answer.replace(id, "X") for answer, id in zip(answers, names, strict=True)}
    assert len(texts) == 1
    assert texts.pop().startswith("No ")
    assert e.slack.calls.total() == 0


ODD = ["", " ", "/", f"{channel_id(1)}/", f"{channel_id(1)}/x", "C1/../C2"]


@pytest.mark.parametrize(("name", "argument", "form"), READS)
async def test_malformed_handles_return_error_results(name: str, argument: str, form: str) -> None:
    searches = name == "search_messages"
    more = {"query": "word"} if searches else {}
    calls = Answer([use(name, **{argument: value, **more}) for value in ODD])
    e, _, ending = await ran(turns(calls, submission()), tools=SLACK.values(), handles=HELD)
    assert ending.stopped_by == "none"
    failed = [bool(each.get("is_error")) for each in results(e.requests[1])]
    assert failed == [not searches, *[True] * 5]  # an empty one means all held channels


async def test_listing_channels_does_not_widen_a_subagents_access() -> None:
    asks = call("list_channels")
    async with engine(turns(asks, call("read_channel_history", channel=channel_id(2)),
                            submission())) as e:  # fmt: skip
        await run_agent(e.agent(tools=SLACK.values(), handles={"slack:channels": "", **HELD}))
    listed, read = results(e.requests[2])
    assert "#support-2" in listed["content"]
    assert read["is_error"]


async def test_every_decision_is_logged_without_the_arguments() -> None:
    calls = Answer(
        [use("look", word="secret words"), use("mend"), use("nothing"), use("look", wrong=1)]
    )
    e, *_ = await ran(turns(calls, submission()), tools=OWN_TOOLS)
    logged = [(d.context, d.tool, d.verdict, d.rule) for d in e.decisions]
    assert logged == [
        ("s1", "look", "allow", "none within all rules"),
        ("s1", "mend", "allow", "none within all rules"),
        ("s1", "look", "deny", "arguments"),
    ]
    assert all(d.at.tzinfo and len(d.args_hash) == 16 for d in e.decisions)
    assert "secret" not in json.dumps([str(d) for d in e.decisions])


LOOK = [use("list_channels") for _ in range(4)]


@pytest.mark.parametrize(
    ("limits", "counts", "message"),
    [
        pytest.param({"turn": 3}, [3, 3], "3 calls were made in this turn", id="turn"),
        pytest.param({"context": 5}, [4, 1], "5 calls were made in this context", id="context"),
        pytest.param({"request": 6}, [4, 2], "6 calls were made in this request", id="request"),
    ],
)
async def test_tool_calls_over_a_limit_are_refused(
    tmp_path: Path, limits: dict[str, int], counts: list[int], message: str
) -> None:
    """The model replies twice with four calls each; `counts` of them run."""
    model = scripted_parent(Answer(LOOK), Answer(LOOK), say("That is all."))
    async with serve(tmp_path, model, limits=calls_at_most(**limits)) as bot:
        await bot.answer(bot.ask("Which channels are there?"))
        answers = results(bot.parents()[-1])
        (run,) = await bot.store.runs(1)
        log = await bot.store.decisions(run.id)
    refused = [bool(each.get("is_error")) for each in answers]
    assert [refused[:4].count(False), refused[4:].count(False)] == counts
    for each in answers:
        if each.get("is_error"):
            assert f"{message}. Use what you have, or narrow the question." in str(each["content"])
    assert sum(d.verdict == "allow" and d.tool == "list_channels" for d in log) == sum(counts)


def calls_at_most(**most: int) -> dict[str, Any]:
    usual = load_settings(env={}).limits.tool_calls
    return {"tool_calls": usual.model_copy(update=most)}
