"""The whole bot in a conversation: one good answer, wherever and however it is asked."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from engine_kit import (
    Answer,
    Json,
    brief,
    brief_answer,
    call,
    channel_id,
    is_child,
    led_by,
    line,
    opening,
    results,
    say,
    sentence,
    since,
    turn,
    until,
    words,
    workspace,
)
from serve_kit import ASKER, Served, mentioned, serving

from bot.local.slack import LocalSlack
from bot.local.slack_state import BOT_USER
from bot.render import FEEDBACK
from bot.serve_tables import feedback

MODES = pytest.mark.parametrize("mode", ["socket", "http"])


@MODES
async def test_a_mention_gets_one_answer_in_its_thread(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, mode=mode) as bot:
        asked = bot.ask("What is open?")
        shown = await bot.answer(asked)
        assert shown.thread_ts == asked
        assert shown.text.startswith("It is open") or "It is **open**" in shown.text
        print(shown.plan)
        print(shown)
        print(bot.slack.calls)
        print(bot.parents()[0])
        (run,) = await bot.store.runs()
        assert (run.status, run.requester) == ("complete", ASKER)
        assert bot.slack.state.sessions[bot.channel, asked].status == "active"
