"""The whole bot at odd moments: what people change, take away or overlap while it works."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import Json, brief, child, is_child, led_by, opening, say, since, until
from engine_kit import workspace as small
from serve_kit import ASKER, Served, echo, mentioned, request_in, ruled, serving

from bot.local.model.answer import Answer
from bot.local.model.faults import Fault as ModelFault
from bot.local.model.faults import Faults
from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, Workspace
from bot.messages import STOPPED_EARLY

LUIS, EVA = "U0LUIS", "U0EVA"
SECRET = "C0SECRET"


async def over(bot: Served, seconds: float = 0.3) -> None:
    await asyncio.sleep(seconds)
    await until(lambda: not bot.bench.dispatch.at_work, 20)


async def state(bot: Served, ts: str) -> str:
    request = await bot.inbox.request(f"T0ACME/{bot.channel}/{ts}")
    return request.state if request else ""


async def test_what_is_changed_before_it_is_begun_is_answered_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo)) as bot:
        await bot.inbox.pause("a test")
        people = bot.slack.people
        edited, gone, plain = bot.ask("Wrong?"), bot.ask("Never mind?"), bot.ask("Plain?")
        people.edit(ASKER, bot.channel, edited, mentioned("Right?"))
        people.delete(ASKER, bot.channel, gone)
        await until(lambda: bot.bench.intake.counts["messageedited"] == 2)
        await bot.inbox.resume()
        assert "Right?" in (await bot.answer(edited)).text
        assert "Plain?" in (await bot.answer(plain)).text
        await over(bot)
        assert await state(bot, gone) == "ignored"
        assert "Never mind?" not in str(bot.parents())
        assert len(await bot.store.runs()) == 2


async def test_a_request_that_is_deleted_at_work_ends_quietly(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), latency_s=0.5) as bot:
        asked = bot.ask("Hello?")
        await until(lambda: bot.replies(asked))
        bot.slack.people.delete(ASKER, bot.channel, asked)
        await over(bot)
        assert await state(bot, asked) in ("done", "failed")  # a reply that was begun may stand
        top = [m for m in bot.slack.visible(bot.channel) if m.user == BOT_USER and not m.thread_ts]
        assert top == []
        assert "Still?" in (await bot.answer(bot.ask("Still?"))).text


async def test_a_bot_that_is_removed_from_the_channel_ends_quietly(tmp_path: Path) -> None:
    private = Channel(SECRET, "secret", (), (ASKER, BOT_USER), is_private=True)
    space = replace(small(2), channels=(*small(2).channels, private))
    async with serving(tmp_path, led_by(echo), space=space, latency_s=0.5) as bot:
        asked = bot.ask("Hello?", channel=SECRET)
        await until(lambda: bot.replies(asked, SECRET))
        bot.slack.people.leave(BOT_USER, SECRET)
        await over(bot)
        request = await bot.inbox.request(f"T0ACME/{SECRET}/{asked}")
        assert request
        assert request.state == "failed"
        assert "Still?" in (await bot.answer(bot.ask("Still?"))).text


def slow_first(index: int, body: Json) -> ModelFault | None:
    return ModelFault("slow", seconds=30) if request_in(body) == "First?" else None


async def test_a_stop_ends_what_waits_in_the_thread_too_and_nothing_after_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, led_by(echo), faults=Faults(slow_first)) as bot:
        asked = bot.ask("First?")
        await until(lambda: bot.replies(asked) and bot.model.recorded)
        second = bot.ask("Second?", thread_ts=asked)
        await stored(bot, second)
        bot.slack.people.stop(LUIS, bot.channel, asked)
        first, waiting = await bot.answers(asked, 2)
        assert "Stopped as asked" in first.text
        assert waiting.text == STOPPED_EARLY
        bot.ask("Third?", thread_ts=asked)
        assert "You asked: Third?" in (await bot.answers(asked, 3))[2].text
        assert [r.status for r in await bot.store.runs()] == ["complete", "cancelled"]


async def test_a_stop_says_nothing_to_those_who_did_not_ask(tmp_path: Path) -> None:
    """People went on talking in the thread, where only mentions count."""
    change = ruled(mention_needed=True)
    async with serving(tmp_path, led_by(echo), faults=Faults(slow_first), change=change) as bot:
        asked = bot.ask("First?")
        await until(lambda: bot.replies(asked) and bot.model.recorded)
        said = bot.slack.people.say(LUIS, bot.channel, "I wonder, too.", asked)
        await stored(bot, said)
        bot.slack.people.stop(ASKER, bot.channel, asked)
        await bot.answer(asked)
        await over(bot)
        assert len(bot.replies(asked)) == 1
        assert await state(bot, said) == "ignored"


async def stored(bot: Served, ts: str) -> None:
    for _ in range(500):
        if await state(bot, ts):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{ts} was not heard")


async def test_a_mention_alone_and_a_broadcast_reply_are_requests(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo)) as bot:
        bare = bot.ask("")
        assert "says nothing else" in (await bot.answer(bare)).text
        bot.slack.people.say(LUIS, bot.channel, mentioned("To all?"), bare, broadcast=True)
        said = await bot.answers(bare, 2)
        assert "To all?" in said[1].text
        await over(bot)
        assert len(await bot.store.runs()) == 2


# ---- what may be read


def with_secret() -> Workspace:
    said = (Message("1740000000.000100", "The merger is on Friday", EVA),)
    private = Channel(SECRET, "secret", said, (EVA, ASKER, BOT_USER), is_private=True)
    base = small(2)
    return replace(base, channels=(*base.channels, private))


def reads_secret(body: Json) -> Answer:
    if is_child(body):
        return child(body)
    if body["messages"][-1]["role"] == "user" and len(body["messages"]) == 1:
        return Answer([brief(handles=[SECRET])])
    return say("Told: " + since(body)[:200].replace("\n", " "))


async def test_a_private_channel_is_read_only_where_it_is_asked_in(tmp_path: Path) -> None:
    async with serving(tmp_path, reads_secret, space=with_secret()) as bot:
        asked = bot.ask(f"What is in <#{SECRET}|secret>?")
        shown = await bot.answer(asked)
        assert "merger" not in shown.text
        assert "merger" not in str(bot.model.recorded)
        dm = bot.slack.people.dm(ASKER)
        private = bot.slack.people.say(ASKER, dm, f"What is in <#{SECRET}|secret>?")
        await bot.answer(private, channel=dm)
        assert "merger" not in str(bot.model.recorded)


async def test_a_thread_in_a_private_channel_may_be_spoken_of_there(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), space=with_secret()) as bot:
        root = bot.slack.people.say(EVA, SECRET, "The merger is on Monday")
        bot.ask("When?", channel=SECRET, thread_ts=root)
        await bot.answers(root, 1, channel=SECRET)
        assert "The merger is on Monday" in opening(bot.parents()[0])


# ---- streams that end early


@pytest.mark.parametrize(("ours", "theirs"), [(0.3, 300.0), (240.0, 0.3)])
async def test_an_answer_outlives_its_stream(tmp_path: Path, ours: float, theirs: float) -> None:
    """Ours is ended in time; where Slack ends it before, the message is edited from then on."""
    slack = LocalSlack(small(3), retries_s=(0.0, 0.3), stream_ttl_s=theirs)
    async with serving(tmp_path, slack=slack, latency_s=0.3, reply={"stream_s": ours}) as bot:
        asked = bot.ask()
        shown = await bot.answer(asked)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1
        assert slack.calls["chat.startStream"] == 1
        assert slack.calls["chat.update"] >= 1
