"""The whole bot and what happens on the way to it: every request is answered, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import led_by, until, workspace
from serve_kit import ASKER, Served, echo, mentioned, serving

from bot.local.model.faults import Fault as ModelFault
from bot.local.model.faults import Faults
from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER
from bot.messages import DOWN, GIVEN_UP
from config.settings import Settings

MODES = pytest.mark.parametrize("mode", ["socket", "http"])
LUIS = "U0LUIS"


async def quiet(bot: Served, seconds: float = 0.4) -> None:
    """Long enough for what is heard to be taken up, and then until all of it has ended."""
    await asyncio.sleep(seconds)
    await until(lambda: not bot.bench.dispatch.at_work)


async def test_what_no_socket_delivers_is_read_when_they_are_back(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo)) as bot:
        people = bot.slack.people
        known = bot.ask("Hello?")
        await bot.answer(known)
        bot.slack.sockets.refuse(1.0)
        bot.slack.sockets.drop("abort")
        await until(lambda: bot.slack.sockets.count == 0)
        new = bot.ask("While you were away?")
        more = bot.ask("And this?", thread_ts=known)
        people.say(LUIS, bot.channel, "And I?", known)
        dm = people.dm(LUIS)
        private = people.say(LUIS, dm, "Anybody home?")
        people.say(LUIS, bot.channel, "Just talking.")
        edited = bot.ask("Wrong")
        people.edit(ASKER, bot.channel, edited, mentioned("Right"))
        gone = bot.ask("Never mind")
        people.delete(ASKER, bot.channel, gone)
        assert "While you were away?" in (await bot.answer(new)).text
        assert "Right" in (await bot.answer(edited)).text
        assert "Anybody home?" in (await bot.answer(private, channel=dm)).text
        said = [m.text.splitlines()[0] for m in await bot.answers(known, 3)]
        assert said == ["You asked: Hello?", "You asked: And this?", "You asked: And I?"]
        await bot.bench.backfill.idle()
        await quiet(bot)
        assert len(await bot.store.runs()) == 6
        assert more


def soon_deaf(settings: Settings) -> Settings:
    slack = settings.slack.model_copy(update={"deaf_after_s": 1.0})
    return settings.model_copy(update={"slack": slack})


@pytest.mark.parametrize(("which", "retries_s"), [(0, (0.1, 0.3, 0.5)), (None, ())])
async def test_what_a_deaf_socket_swallows_is_answered_once(
    tmp_path: Path, which: int | None, retries_s: tuple[float, ...]
) -> None:
    """By what Slack sends again; where all are deaf, by what is read when they are replaced."""
    slack = LocalSlack(workspace(3), ack_s=0.4, retries_s=retries_s)
    async with serving(tmp_path, led_by(echo), slack=slack, change=soon_deaf) as bot:
        await until(lambda: slack.sockets.count == 2)
        slack.sockets.drop("silent", which)
        asked = [bot.ask("Are you there?"), bot.ask("And there?")]
        for each in asked:
            await bot.answer(each)
        await until(lambda: "timeout" in {d.reason for d in slack.deliveries})
        await quiet(bot, 1.0)
        assert len(await bot.store.runs()) == 2
        assert [len(bot.replies(each)) for each in asked] == [1, 1]


REFUSES = """create trigger full before insert on inbox
    begin select raise(abort, 'the disk is full'); end"""


@MODES
async def test_slack_sends_again_what_could_not_be_stored(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, led_by(echo), mode=mode, ack_s=0.5) as bot:
        database = bot.store.database
        await database.change(lambda c: c.execute(sa.text(REFUSES)))
        asked = bot.ask("Hello?")
        await until(lambda: any(d.attempt == 2 for d in bot.slack.deliveries))
        assert not any(d.acked_at for d in bot.slack.deliveries)
        await database.change(lambda c: c.execute(sa.text("drop trigger full")))
        assert "Hello?" in (await bot.answer(asked)).text
        await quiet(bot)
        assert len(await bot.store.runs()) == 1
    assert "could not be stored" in caplog.text


async def test_what_people_and_bots_do_without_asking_starts_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo)) as bot:
        people = bot.slack.people
        asked = bot.ask("Hello?")
        shown = await bot.answer(asked)
        people.say_as_bot("B0OTHER", bot.channel, mentioned("I am a bot"))
        people.say_as_bot("B0OTHER", bot.channel, mentioned("I am a bot"), asked)
        people.react(LUIS, bot.channel, shown.ts, "tada")
        people.join("U0EVA", bot.channel)
        people.edit(ASKER, bot.channel, asked, mentioned("Hello again?"))
        people.say(LUIS, bot.channel, "No question to you")
        await until(lambda: all(d.acked_at for d in bot.slack.deliveries))
        await quiet(bot)
        assert len(await bot.store.runs()) == 1
        assert len([m for m in bot.slack.visible(bot.channel) if m.user == BOT_USER]) == 1


# ---- the model is down


async def test_an_outage_is_said_once_and_the_request_is_answered_after_it(tmp_path: Path) -> None:
    down = [True]
    faults = Faults(lambda index, body: ModelFault("http_529", retry_after=0) if down[0] else None)
    async with serving(tmp_path, led_by(echo), faults=faults, models={"max_attempts": 1}) as bot:
        asked = bot.ask("Hello?")
        await until(lambda: any(DOWN in m.text for m in bot.replies(asked)))
        second = bot.ask("And?", thread_ts=asked)
        await asyncio.sleep(1.2)
        assert [m.text for m in bot.replies(asked)] == [DOWN]
        assert bot.slack.state.sessions[bot.channel, asked].status == "active"
        down[0] = False
        first, after = await bot.answers(asked, 2)
        assert (first.text.splitlines()[0], after.text.splitlines()[0]) == (
            "You asked: Hello?",
            "You asked: And?",
        )
        assert second < after.ts
        assert DOWN not in str(bot.replies(asked))
        runs = await bot.store.runs()
        assert [r.status for r in runs][:2] == ["complete", "complete"]
        assert {r.status for r in runs[2:]} == {"failed"}


async def test_an_outage_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    faults = Faults(lambda index, body: ModelFault("http_529", retry_after=0))
    async with serving(
        tmp_path,
        led_by(echo),
        faults=faults,
        models={"max_attempts": 1},
        serve={"outage_give_up_s": 1.5},
    ) as bot:
        asked = bot.ask("Hello?")
        await until(lambda: [m.text for m in bot.replies(asked)] == [GIVEN_UP])
        await quiet(bot)
        request = await bot.inbox.request(f"T0ACME/{bot.channel}/{asked}")
        assert request
        assert request.state == "failed"
        assert len(bot.replies(asked)) == 1
