"""Many reads at once: who is refused by Slack takes turns from then on, and nothing is lost."""

from __future__ import annotations

import asyncio

from engine_kit import MUX, workspace

from bot.local.slack.faults import Fault
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from bot.slack.client import ReadTurns
from config.sections import SlackSettings
from config.settings import load_settings
from scopes.slack_client import connect, open_session

INFO = "conversations.info"


def slack_settings(**more: object) -> SlackSettings:
    return load_settings(env={}).slack.model_copy(update={"timeout_s": 5, **more})


async def infos(local: LocalSlack, turns: ReadTurns, count: int, retries: int) -> int:
    settings = slack_settings(retry_attempts=retries)
    channel = next(iter(local.state.channels))
    with MUX.serving(local.app) as url:
        async with open_session(settings) as session:
            client = connect(session, BOT_TOKEN, url + API_PATH, settings, turns)
            calls = [client.call(INFO, channel=channel) for _ in range(count)]
            return len(await asyncio.gather(*calls))


async def test_calls_that_were_refused_come_again_and_are_answered() -> None:
    local = LocalSlack(workspace(1))
    local.faults += [Fault(INFO, "429", 1.0)] * 3
    assert await infos(local, ReadTurns(slack_settings()), 6, retries=1) == 6
    assert local.calls[INFO] == 9


async def test_a_method_that_was_refused_waits_before_anybody_calls_it_again() -> None:
    turns = ReadTurns(slack_settings())
    loop = asyncio.get_running_loop()
    await asyncio.wait_for(turns.take(INFO), 1)
    turns.record_refusal(INFO, 0.3)
    began = loop.time()
    await turns.take(INFO)
    assert loop.time() - began >= 0.3
    await asyncio.wait_for(turns.take("conversations.history"), 1)


async def test_after_a_refusal_no_more_calls_go_out_than_the_tier_allows() -> None:
    turns = ReadTurns(slack_settings())
    for _ in range(49):
        await turns.take(INFO)
    turns.record_refusal(INFO, 0.0)
    await asyncio.wait_for(turns.take(INFO), 1)
    late = asyncio.ensure_future(turns.take(INFO))
    done, _ = await asyncio.wait([late], timeout=0.2)
    late.cancel()
    assert not done, "the 51st of a minute waits"


async def test_what_can_wait_leaves_some_calls_to_those_who_ask_now() -> None:
    turns = ReadTurns(slack_settings(), kept=0.1)
    turns.record_refusal(INFO, 0.0)
    for _ in range(45):
        await asyncio.wait_for(turns.take(INFO, patient=True), 1)
    late = asyncio.ensure_future(turns.take(INFO, patient=True))
    done, _ = await asyncio.wait([late], timeout=0.2)
    assert not done, "the 46th of a minute waits"
    for _ in range(5):
        await asyncio.wait_for(turns.take(INFO), 1)
    late.cancel()


async def test_those_who_can_wait_come_one_behind_the_other() -> None:
    turns, came = ReadTurns(slack_settings()), list[int]()
    turns.record_refusal(INFO, 0.2)

    async def call(number: int) -> None:
        await turns.take(INFO, patient=True)
        came.append(number)

    await asyncio.gather(*map(call, range(20)))
    assert came == list(range(20))


async def test_unpaced_only_what_slack_asks_for_is_waited_for() -> None:
    turns = ReadTurns(slack_settings(paced=False))
    turns.record_refusal(INFO, 0.0)
    for _ in range(200):
        await asyncio.wait_for(turns.take(INFO), 1)
