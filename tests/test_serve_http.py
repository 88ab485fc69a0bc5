"""The whole bot behind a public address: only Slack is heard there, and nothing of it is missed."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import aiohttp
from engine_kit import led_by, until, workspace
from serve_kit import ASKER, Served, echo, free_port, heard_at, mentioned, serving
from slack_sdk.signature import SignatureVerifier
from timing import patient

from bot.local.slack.server import SIGNING_SECRET, LocalSlack

TS = "1795000000.000100"


def body(bot: Served) -> str:
    event = {"type": "app_mention", "channel": bot.channel, "ts": TS, "user": ASKER}
    event |= {"text": mentioned("Hello?"), "team": "T0ACME", "event_ts": TS}
    told = {"type": "event_callback", "team_id": "T0ACME", "event_id": "Ev1", "event": event}
    return json.dumps(told)


def signed(text: str, secret: str = SIGNING_SECRET, age_s: float = 0) -> dict[str, str]:
    at = str(int(time.time() - age_s))
    signature = SignatureVerifier(secret).generate_signature(timestamp=at, body=text)
    assert signature
    return {"x-slack-request-timestamp": at, "x-slack-signature": signature}


async def sent(bot: Served, text: str, headers: dict[str, str]) -> tuple[int, str]:
    headers = {"content-type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{bot.bench.url}/slack/events", data=text, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_only_what_slack_has_signed_is_heard(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), mode="http") as bot:
        text = body(bot)
        forged: list[dict[str, str]] = [
            {},
            signed(text, "another secret"),
            signed(text, age_s=3_600),
            signed(text + " "),
            {**signed(text), "x-slack-signature": "v0=0"},
            {**signed(text), "x-slack-signature": "v0=é"},
            {**signed(text), "x-slack-request-timestamp": "soon"},
            {**signed(text), "x-slack-request-timestamp": "²"},
            {**signed(text), "x-slack-request-timestamp": "9" * 5_000},
        ]
        for headers in forged:
            assert (await sent(bot, text, headers))[0] == 401
        assert await bot.inbox.request(f"T0ACME/{bot.channel}/{TS}") is None
        assert (await sent(bot, text, signed(text)))[0] == 200
        assert await bot.inbox.request(f"T0ACME/{bot.channel}/{TS}")


async def test_slack_may_try_the_address_out(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), mode="http") as bot:
        text = json.dumps({"type": "url_verification", "challenge": "abc", "token": "t"})
        status, answer = await sent(bot, text, signed(text))
        assert (status, "abc" in answer) == (200, True)
        assert (await sent(bot, text, {}))[0] == 401
        broken = (
            "",
            "{",
            "[]",
            '"x"',
            "5",
            "null",
            "payload=%7B",
            "payload=5",
            "\x00",
            "[" * 100_000,
        )
        for odd in broken:
            assert (await sent(bot, odd, signed(odd)))[0] == 200


async def test_what_came_while_nobody_was_there_is_answered_once(tmp_path: Path) -> None:
    """Slack sends it again, and the bot looks for it when it starts."""
    port = free_port()
    slack = LocalSlack(
        workspace(2), retries_s=(0.2, 0.5, 4.0, 4.0), ack_s=1.0, request_url=heard_at(port)
    )
    channel = next(iter(slack.state.channels))
    asked = slack.people.say(ASKER, channel, mentioned("Anybody there?"))
    await until(lambda: any(d.reason for d in slack.deliveries))
    async with serving(tmp_path, led_by(echo), slack=slack, mode="http", port=port) as bot:
        assert "Anybody there?" in (await bot.answer(asked)).text
        await until(lambda: any(d.acked_at for d in slack.deliveries))
        await asyncio.sleep(0.3)
        await until(lambda: not bot.bench.dispatch.at_work)
        assert len(bot.replies(asked)) == 1
        assert len(await bot.store.runs()) == 1
    slack.close()


async def test_health_and_metrics_tell_of_the_work(tmp_path: Path) -> None:
    async with serving(tmp_path) as bot, aiohttp.ClientSession() as session:
        await bot.answer(bot.ask())
        for path in ("healthz", "readyz"):
            async with patient(30):
                while (await got(session, f"{bot.bench.url}/{path}"))[0] != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        assert "assistant_" in (await got(session, f"{bot.bench.url}/metrics"))[1]


async def got(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as answer:
        return answer.status, await answer.text()
