"""A reaction, or a shortcut of a message, asks something of the message's thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from card_kit import EVA, people
from engine_kit import Json, opening, until
from serve_kit import ASKER, Served, change_settings, echo, request_in, serve
from standins.slack_faults import Fault
from standins.slack_shown import Shown

from bot.local.slack.state import BOT_USER
from config.settings import Settings

WORDS = "Summarize this thread, please."
ECHO = f"You asked: {WORDS}"


def with_memo_reaction(settings: Settings) -> Settings:
    return change_settings(settings, slack={"reactions": {"memo": WORDS}})


def thread_answers(bot: Served, channel: str = "") -> list[Shown]:
    return [m for m in bot.slack.visible(channel or bot.channel) if "You asked" in m.text]


def thread(bot: Served) -> tuple[str, str]:
    """A thread of two people: its root, and a reply."""
    root = bot.slack.people.say(ASKER, bot.channel, "The parcel is late.")
    return root, bot.slack.people.say(EVA, bot.channel, "I look into it.", root)


def chosen(root: str, **fields: Any) -> Json:
    """The choice of a shortcut as Slack sends it; each field may be forged."""
    return {
        "type": "message_action",
        "callback_id": "summarize_thread",
        "user": {"id": ASKER},
        "team": {"id": "T0ACME"},
        "message_ts": root,
        "message": {"ts": root, "thread_ts": root},
        "action_ts": "1795790000.000100",
        **fields,
    }


async def test_reaction_to_a_reply_asks_once_about_its_thread_as_the_reacting_user(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, echo, space=people(), change=with_memo_reaction) as bot:
        root, reply = thread(bot)
        bot.slack.people.react(EVA, bot.channel, reply, "memo::skin-tone-2")
        await until(lambda: thread_answers(bot) and not bot.bench.dispatch.at_work)
        (shown,) = thread_answers(bot)
        assert shown.text.startswith(ECHO)
        assert shown.thread_ts == root
        (body,) = bot.parents()
        assert "I look into it." in opening(body)
        assert EVA in opening(body)
        (run,) = await bot.store.runs(5)
        assert run.requester == EVA
        assert await bot.leaks() == []


@pytest.mark.parametrize(
    ("id", "asks"),
    [("summarize_thread", "Summarize this thread"), ("open_points", "What is open here?")],
)
async def test_shortcut_asks_about_the_thread_of_the_message(
    tmp_path: Path, id: str, asks: str
) -> None:
    async with serve(tmp_path, echo, space=people()) as bot:
        root, reply = thread(bot)
        bot.slack.people.use_shortcut(ASKER, bot.channel, reply, id)
        await until(lambda: thread_answers(bot) and not bot.bench.dispatch.at_work)
        (shown,) = thread_answers(bot)
        assert shown.text.startswith(f"You asked: {asks} (Answer in the language of the thread.)")
        assert shown.thread_ts == root


async def test_bot_asks_to_be_invited_to_a_channel_it_cannot_read(tmp_path: Path) -> None:
    async with serve(tmp_path, echo, space=people()) as bot:
        _, ts = thread(bot)
        bot.slack.people.leave(BOT_USER, bot.channel)
        bot.slack.people.use_shortcut(ASKER, bot.channel, ts, "summarize_thread")
        direct = bot.slack.people.dm(ASKER)
        await until(lambda: bot.slack.visible(direct))
        (shown,) = bot.slack.visible(direct)
        assert f"I cannot read <#{bot.channel}>. Invite me there" in shown.text
        assert bot.parents() == []


async def test_reaction_is_processed_again_after_a_slack_error(tmp_path: Path) -> None:
    async with serve(tmp_path, echo, space=people(), change=with_memo_reaction) as bot:
        _, reply = thread(bot)
        bot.slack.faults.append(Fault("conversations.replies", "error:internal_error"))
        bot.slack.people.react(EVA, bot.channel, reply, "memo")
        # Slack delivers again what was not acked
        await until(lambda: thread_answers(bot) and not bot.bench.dispatch.at_work, 40)
        assert len(thread_answers(bot)) == 1


async def test_other_reactions_and_invalid_payloads_start_no_request(tmp_path: Path) -> None:
    async with serve(tmp_path, echo, space=people(), change=with_memo_reaction) as bot:
        root, _ = thread(bot)
        bot.slack.people.react(EVA, bot.channel, root, "eyes")
        bot.slack.put("events", {"odd": True})
        odd: list[dict[str, Any]] = [
            {"user": None},
            {"channel": {"id": 7}},
            {"message_ts": [], "message": "x"},
            {"callback_id": ["summarize_thread"]},
            {"callback_id": "another"},
            {"action_ts": {}},
        ]
        for change in odd:
            bot.slack.put("interactive", chosen(root, **{"channel": {"id": bot.channel}, **change}))
        await bot.answer(bot.ask("Hello"))
        assert [request_in(body) for body in bot.parents()] == ["Hello"]
