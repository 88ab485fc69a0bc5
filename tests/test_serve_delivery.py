"""Delivery: every request is answered once, through lost sockets, outages and restarts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa
from engine_kit import Json, scripted_parent, until, workspace
from serve_kit import (
    ASKER,
    Served,
    echo,
    events_url,
    free_port,
    mention,
    request_in,
    serve,
    with_sections,
)
from slack_sdk.signature import SignatureVerifier
from standins.model_faults import Fault as ModelFault
from standins.model_faults import Faults
from standins.slack import SIGNING_SECRET, LocalSlack

from bot.local.slack.state import BOT_USER
from config.words import phrase

LUIS, EVA = "U0LUIS", "U0EVA"


async def test_messages_missed_without_a_socket_are_answered_after_reconnect(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        people = bot.slack.people
        thread = bot.ask("Hello?")
        await bot.answer(thread)
        bot.slack.sockets.refuse(1.0)
        bot.slack.sockets.drop("abort")
        await until(lambda: bot.slack.sockets.count == 0)
        new = bot.ask("While you were away?")
        bot.ask("And this?", thread_ts=thread)
        people.say(LUIS, bot.channel, "And I?", thread)
        dm = people.dm(LUIS)
        private = people.say(LUIS, dm, "Anybody home?")
        people.say(LUIS, bot.channel, "Just talking.")
        edited = bot.ask("Wrong")
        people.edit(ASKER, bot.channel, edited, mention("Right"))
        deleted = bot.ask("Never mind")
        people.delete(ASKER, bot.channel, deleted)
        assert "While you were away?" in (await bot.answer(new)).text
        assert "Right" in (await bot.answer(edited)).text
        assert "Anybody home?" in (await bot.answer(private, channel=dm)).text
        replies = [m.text.splitlines()[0] for m in await bot.answers(thread, 3)]
        assert replies == ["You asked: Hello?", "You asked: And this?", "You asked: And I?"]
        await bot.bench.backfill.idle()
        await bot.quiet()
        assert len(await bot.store.runs()) == 6


@pytest.mark.parametrize(("which", "retries_s"), [(0, (0.1, 0.3, 0.5)), (None, ())])
async def test_messages_lost_on_a_silent_socket_are_answered_once(
    tmp_path: Path, which: int | None, retries_s: tuple[float, ...]
) -> None:
    """Slack sends it again; if every socket is silent, the bot reads it when it replaces them."""
    slack = LocalSlack(workspace(3), ack_s=0.4, retries_s=retries_s)
    change = with_sections(slack={"deaf_after_s": 1.0})
    async with serve(tmp_path, scripted_parent(echo), slack=slack, change=change) as bot:
        await until(lambda: slack.sockets.count == 2)
        slack.sockets.drop("silent", which)
        threads = [bot.ask("Are you there?"), bot.ask("And there?")]
        for each in threads:
            await bot.answer(each)
        await until(lambda: "timeout" in {d.reason for d in slack.deliveries})
        await bot.quiet()
        assert len(await bot.store.runs()) == 2
        assert [len(bot.replies(each)) for each in threads] == [1, 1]


REFUSES = """create trigger full before insert on inbox
    begin select raise(abort, 'the disk is full'); end"""


async def test_event_that_could_not_be_stored_is_answered_when_slack_redelivers_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path, scripted_parent(echo), ack_s=0.5) as bot:
        database = bot.store.database
        await database.change(lambda c: c.execute(sa.text(REFUSES)))
        thread = bot.ask("Hello?")
        await until(lambda: any(d.attempt == 2 for d in bot.slack.deliveries))
        assert not any(d.acked_at for d in bot.slack.deliveries)
        await database.change(lambda c: c.execute(sa.text("drop trigger full")))
        assert "Hello?" in (await bot.answer(thread)).text
        await bot.quiet()
        assert len(await bot.store.runs()) == 1
    assert "could not be stored" in caplog.text


# ---- the model is down


async def test_model_outage_is_announced_once_and_requests_are_answered_after_it(
    tmp_path: Path,
) -> None:
    down = [True]
    faults = Faults(lambda index, body: ModelFault("http_529", retry_after=0) if down[0] else None)
    async with serve(
        tmp_path, scripted_parent(echo), faults=faults, models={"max_attempts": 1}
    ) as bot:
        thread = bot.ask("Hello?")
        await until(lambda: any(phrase("reply.down") in m.text for m in bot.replies(thread)))
        second = bot.ask("And?", thread_ts=thread)
        await until(lambda: len(bot.parents()) > 2)
        assert [m.text for m in bot.replies(thread)] == [phrase("reply.down")]
        assert bot.slack.state.sessions[bot.channel, thread] == "active"
        down[0] = False
        first, after = await bot.answers(thread, 2)
        assert (first.text.splitlines()[0], after.text.splitlines()[0]) == (
            "You asked: Hello?",
            "You asked: And?",
        )
        assert second < after.ts
        assert phrase("reply.down") not in str(bot.replies(thread))
        runs = await bot.store.runs()
        assert [r.status for r in runs][:2] == ["complete", "complete"]
        assert {r.status for r in runs[2:]} == {"failed"}


TS = "1795000000.000100"


def body(bot: Served) -> str:
    event = {"type": "app_mention", "channel": bot.channel, "ts": TS, "user": ASKER}
    event |= {"text": mention("Hello?"), "team": "T0ACME", "event_ts": TS}
    payload = {"type": "event_callback", "team_id": "T0ACME", "event_id": "Ev1", "event": event}
    return json.dumps(payload)


def signature_headers(text: str, secret: str = SIGNING_SECRET, age_s: float = 0) -> dict[str, str]:
    at = str(int(time.time() - age_s))
    signature = SignatureVerifier(secret).generate_signature(timestamp=at, body=text)
    assert signature
    return {"x-slack-request-timestamp": at, "x-slack-signature": signature}


async def post_event(bot: Served, text: str, headers: dict[str, str]) -> tuple[int, str]:
    headers = {"content-type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{bot.bench.url}/slack/events", data=text, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_requests_without_a_valid_slack_signature_are_rejected(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), mode="http") as bot:
        text = body(bot)
        forged: list[dict[str, str]] = [
            {},
            signature_headers(text, "another secret"),
            signature_headers(text, age_s=3_600),
            signature_headers(text + " "),
            {**signature_headers(text), "x-slack-signature": "v0=é"},
            {**signature_headers(text), "x-slack-request-timestamp": "soon"},
            {**signature_headers(text), "x-slack-request-timestamp": "9" * 5_000},
        ]
        for headers in forged:
            assert (await post_event(bot, text, headers))[0] == 401
        assert await bot.inbox.request(f"T0ACME/{bot.channel}/{TS}") is None
        check = json.dumps({"type": "url_verification", "challenge": "4711"})
        code, answered = await post_event(bot, check, signature_headers(check))
        assert (code, json.loads(answered)) == (200, {"challenge": "4711"})
        assert (await post_event(bot, text, signature_headers(text)))[0] == 200
        assert await bot.inbox.request(f"T0ACME/{bot.channel}/{TS}")


async def test_message_sent_while_the_bot_was_down_is_answered_once(tmp_path: Path) -> None:
    """Slack sends it again, and the bot reads it when it starts."""
    port = free_port()
    slack = LocalSlack(
        workspace(2), retries_s=(0.2, 0.5, 4.0, 4.0), ack_s=1.0, request_url=events_url(port)
    )
    channel = next(iter(slack.state.channels))
    thread = slack.people.say(ASKER, channel, mention("Anybody there?"))
    await until(lambda: any(d.reason for d in slack.deliveries))
    async with serve(tmp_path, scripted_parent(echo), slack=slack, mode="http", port=port) as bot:
        assert "Anybody there?" in (await bot.answer(thread)).text
        await until(lambda: any(d.acked_at for d in slack.deliveries))
        await bot.quiet()
        assert len(bot.replies(thread)) == 1
        assert len(await bot.store.runs()) == 1
    slack.close()


async def state(bot: Served, ts: str) -> str:
    request = await bot.inbox.request(f"T0ACME/{bot.channel}/{ts}")
    return request.state if request else ""


async def test_queued_requests_reflect_edits_and_deletions(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        await bot.inbox.pause("a test")
        people = bot.slack.people
        edited, deleted, plain = bot.ask("Wrong?"), bot.ask("Never mind?"), bot.ask("Plain?")
        people.edit(ASKER, bot.channel, edited, mention("Right?"))
        people.delete(ASKER, bot.channel, deleted)
        await until(lambda: all(d.acked_at for d in bot.slack.deliveries))
        await bot.inbox.resume()
        assert "Right?" in (await bot.answer(edited)).text
        assert "Plain?" in (await bot.answer(plain)).text
        await bot.quiet()
        assert await state(bot, deleted) == "ignored"
        assert "Never mind?" not in str(bot.parents())
        assert len(await bot.store.runs()) == 2


async def test_request_deleted_during_work_leaves_no_message_in_the_channel(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), latency_s=0.5) as bot:
        thread = bot.ask("Hello?")
        await until(lambda: bot.replies(thread))
        bot.slack.people.delete(ASKER, bot.channel, thread)
        await bot.quiet()
        assert await state(bot, thread) in ("done", "failed")  # a reply that had begun may stay
        top = [m for m in bot.slack.visible(bot.channel) if m.user == BOT_USER and not m.thread_ts]
        assert top == []
        assert "Still?" in (await bot.answer(bot.ask("Still?"))).text


def slow_first(index: int, body: Json) -> ModelFault | None:
    return ModelFault("slow", seconds=30) if request_in(body) == "First?" else None


async def test_stop_cancels_waiting_requests_of_the_thread_but_not_later_ones(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path, scripted_parent(echo), faults=Faults(slow_first)) as bot:
        thread = bot.ask("First?")
        await until(lambda: bot.replies(thread) and bot.model.recorded)
        second = bot.ask("Second?", thread_ts=thread)
        await bot.wait_until_stored(second)
        bot.slack.people.stop(LUIS, bot.channel, thread)
        first, waiting = await bot.answers(thread, 2)
        assert "Stopped before anything was looked at" in first.text
        assert waiting.text == phrase("reply.stopped_early")
        bot.ask("Third?", thread_ts=thread)
        assert "You asked: Third?" in (await bot.answers(thread, 3))[2].text
        assert [r.status for r in await bot.store.runs()] == ["complete", "cancelled"]


# ---- streams that end early


@pytest.mark.parametrize(("stream_s", "ttl_s"), [(0.3, 300.0), (240.0, 0.3)])
async def test_answer_is_completed_by_edits_after_its_stream_ends(
    tmp_path: Path, stream_s: float, ttl_s: float
) -> None:
    """The bot ends its stream after `stream_s`, Slack after `ttl_s`; then the bot edits."""
    slack = LocalSlack(workspace(3), retries_s=(0.0, 0.3), stream_ttl_s=ttl_s)
    async with serve(tmp_path, slack=slack, latency_s=0.3, reply={"stream_s": stream_s}) as bot:
        thread = bot.ask()
        shown = await bot.answer(thread)
        assert "It is **open**" in shown.text
        assert len(bot.replies(thread)) == 1
        assert slack.calls["chat.startStream"] == 1
        assert slack.calls["chat.update"] >= 1
