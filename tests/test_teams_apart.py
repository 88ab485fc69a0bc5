"""What people of one workspace do and ask shows, changes and spends nothing of another."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from engine_kit import Json, say, turn, until, use
from serve_kit import ASKER, request_in
from teams_kit import ACME, BETA, Place, Two, environment, two_teams
from timing import WAIT_S

from bot.local.model.answer import Answer
from bot.local.slack.interactions import block_actions

pytestmark = pytest.mark.system


def mind(body: Json) -> Answer:
    """Ask back, or say what was asked."""
    asked = request_in(body)
    if "which report" in asked and turn(body) == 0:
        return Answer([use("ask_user", question="Which one?", options=["weekly", "monthly"])])
    return say(f"You asked: {asked}")


async def answer(place: Place, text: str) -> str:
    return (await place.answer(place.ask(text))).text


async def test_a_click_in_another_workspace_decides_nothing(tmp_path: Path) -> None:
    async with two_teams(tmp_path, mind) as two:
        assert two.serving
        thread = two.acme.ask("Send me which report?")

        def cards() -> list[Json]:
            shown = two.acme.slack.visible(two.acme.channel, thread)
            blocks = [block for message in shown for block in message.blocks]
            each = [e for block in blocks for e in block.get("elements", ())]
            return [dict(e) for e in each if e.get("action_id") == "action_choose_1"]

        await until(cards, WAIT_S)
        (card,) = cards()
        click = {"type": "button", "action_id": card["action_id"], "value": card["value"]}
        body = block_actions(two.beta.slack.state, ASKER, {**click, "action_ts": "1.0"})
        two.beta.slack.put("interactive", body)
        deliveries = two.beta.slack.deliveries
        await until(lambda: deliveries and deliveries[-1].acked_at, WAIT_S)
        assert "blue-pear" in await answer(two.beta, "What of the blue-pear?")
        assert cards() == [card], "the card still waits"
        people = two.acme.slack.people
        ts = next(
            m.ts
            for m in two.acme.slack.visible(two.acme.channel, thread)
            if card["value"] in str(m.blocks)
        )
        people.click(ASKER, two.acme.channel, ts, card["action_id"])
        await until(lambda: not cards(), WAIT_S)


async def test_metrics_name_no_workspace_and_no_person(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        texts = await asyncio.gather(
            answer(two.acme, "What of the red-apple?"), answer(two.beta, "What of the blue-pear?")
        )
        assert ["red-apple" in texts[0], "blue-pear" in texts[1]] == [True, True]
        status, measured, _ = await two.visit("/metrics")
        assert (status, "assistant_" in measured) == (200, True)
        for hidden in (ACME, BETA, "red-apple", "blue-pear", ASKER):
            assert hidden not in measured


LISTS = (
    ("runs",),
    ("runs", "--json"),
    ("feedback", "--json"),
    ("approvals", "--json"),
    ("schedules", "--json"),
    ("review-briefs", "--json"),
)
OF_A_RUN = ("show", "audit", "replay", "decisions")


async def command(two: Two, *words: str) -> tuple[int, str]:
    """Exit code and all output of a command on the stored state of one workspace."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bot", *words),
        cwd=two.folder,
        env=environment(two),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_commands_for_one_workspace_show_nothing_of_another(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        await answer(two.acme, "What of the red-apple?")
        await answer(two.beta, "What of the blue-pear?")
    _, listed = await command(two, "--team", ACME, "runs", "--json")
    (run,) = [each["id"] for each in json.loads(listed)]

    assert "red-apple" in listed
    for words in LISTS:
        code, out = await command(two, "--team", BETA, *words)
        assert (code, "red-apple" in out, run in out) == (0, False, False), out
    for name in OF_A_RUN:
        code, out = await command(two, "--team", BETA, name, run)
        assert (code != 0, "red-apple" in out) == (True, False), out
    _, own = await command(two, "--team", BETA, "runs")
    assert "blue-pear" in own
