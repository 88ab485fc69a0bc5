"""A sweep requested in Slack: which words request it, who may, and what the requester gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from document_kit import gap_lines
from engine_kit import call, is_child, results, say, turn
from serve_kit import ASKER, CENTURY_DAYS, Served, change_settings, serve

from bot.local.model.answer import Answer
from bot.local.offline.model import answer as offline_model
from bot.tasks.reports import ONE_REPORT, UNLISTED
from config.settings import Settings
from subagents.overlap import audit

Json = dict[str, Any]

LONG = {"since_days": CENTURY_DAYS, "time_s": 100.0}


def with_tracker(settings: Settings) -> Settings:
    return change_settings(settings, slack={"lists": {"F0BUGTRACK": "Bug tracker"}})


async def result_of(bot: Served) -> Json:
    (run, *_) = await bot.store.runs(1)
    assert run.result
    return dict(run.result)


async def test_sweep_treats_a_private_channel_as_missing_for_non_members(tmp_path: Path) -> None:
    async with serve(tmp_path, offline_model, sweep=LONG) as bot:
        hidden = bot.slack.state.channels[bot.channel]
        bot.slack.state.channels[bot.channel] = replace(hidden, is_private=True)
        del bot.slack.state.members[bot.channel][ASKER]
        home = bot.slack.people.dm(ASKER)

        async def request_sweep(name: str) -> Json:
            ts = bot.slack.people.say(ASKER, home, f"sweep #{name} #support-2")
            await bot.answers(ts, channel=home)
            return await result_of(bot)

        there, nowhere = await request_sweep(hidden.name), await request_sweep("nowhere")
    for document in (there, nowhere):
        assert [s["item"] for s in document["sections"]] == ["support-2"]
    missing = [str(gap_lines(d)) for d in (there, nowhere)]
    assert "'nowhere: " in missing[1]
    assert missing[0].replace(hidden.name, "X") == missing[1].replace("nowhere", "X")


def sweep_model(*names: str, then: str) -> Callable[[Json], Answer]:
    """A parent that sweeps one channel after the other, and then writes this."""

    def responder(body: Json) -> Answer:
        if is_child(body) or "WRITE: top lines" in str(body["messages"]):
            return offline_model(body)
        done = turn(body)
        return call("sweep_channels", channels=[names[done]]) if done < len(names) else say(then)

    return responder


async def test_answer_to_an_extra_question_is_shown_above_the_sweep_report(tmp_path: Path) -> None:
    responder = sweep_model("support-1", then="Tell Ana first.")
    async with serve(tmp_path, responder, sweep=LONG) as bot:
        shown = await bot.answers(bot.ask("Sweep #support-1. Whom do I tell?"))
        document = await result_of(bot)
        (run, *_) = await bot.store.runs(1)
        trajectory = await bot.store.trajectory(run.id)
    assert document["lead"] == "Tell Ana first."
    assert document["answer"].startswith("Tell Ana first.\n\n")
    assert [s["item"] for s in document["sections"]] == ["support-1"]
    assert [s["id"] for s in document["subagents"]] == ["s1"]
    assert shown[0].text == "Tell Ana first."
    assert "support-1" in str([message.blocks for message in shown[1:]])
    assert audit(trajectory).leaks == ()


async def test_channel_not_named_in_the_request_is_not_swept(tmp_path: Path) -> None:
    async with serve(tmp_path, sweep_model("support-2", then="No."), sweep=LONG) as bot:
        await bot.answers(bot.ask("Sweep #support-1"))
        document = await result_of(bot)
        (result,) = results(bot.parents()[-1])
    assert result["is_error"]
    assert str(UNLISTED) in str(result["content"])
    assert document["kind"] == "ask"
    assert not any(is_child(body) for body in bot.model.recorded)


@pytest.mark.parametrize(
    ("words", "pattern", "count"),
    [
        ("Sweep the support channels", "support-*", 6),
        ("Sweep #support-1 and those of the helpers", "s*-*", 1),
    ],
)
async def test_pattern_sweeps_only_channels_that_the_request_describes(
    tmp_path: Path, words: str, pattern: str, count: int
) -> None:
    async with serve(tmp_path, sweep_model(pattern, then="NONE"), sweep=LONG) as bot:
        await bot.answers(bot.ask(words), count=1)
        document = await result_of(bot)
    assert len(document["sections"]) == count
    left_out = [gap for gap in gap_lines(document) if str(UNLISTED) in gap]
    assert len(left_out) == 6 - count  # reported, not passed over


async def test_second_sweep_of_a_request_is_refused(tmp_path: Path) -> None:
    responder = sweep_model("support-1", "support-2", then="NONE")
    async with serve(tmp_path, responder, sweep=LONG) as bot:
        await bot.answers(bot.ask("Sweep #support-1, then #support-2"))
        document = await result_of(bot)
        (_, second) = results(bot.parents()[-1])
    assert ONE_REPORT in str(second["content"])
    assert [s["item"] for s in document["sections"]] == ["support-1"]
