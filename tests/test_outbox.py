"""The outbox: each message once, whatever the network does, and errors that say what is wrong."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest
from engine_kit import MUX
from outbox_kit import ASKED, CHANNEL, DM, USER, desk, workspace
from slack_sdk.web.async_client import AsyncWebClient
from starlette.responses import Response
from timing import waited_within

from bot.local.slack.faults import Fault
from bot.local.slack.server import API_PATH, LocalSlack
from bot.local.slack.state import Identity
from bot.slack.client import (
    TIERS,
    ChannelClosed,
    MessageGone,
    OutcomeUnknown,
    RateLimit,
    StreamEnded,
    Tier,
    TokenRefused,
    WriteFailed,
)
from bot.slack.writer import MessageWriter
from config.settings import load_settings

POST, UPDATE, DELETE = "chat.postMessage", "chat.update", "chat.delete"
NETWORK = ["500", "lost", "drop", "malformed", "error:internal_error", "error:fatal_error"]
MARKDOWN = {"type": "markdown", "text": "**four** open"}


@pytest.mark.parametrize("kind", NETWORK)
async def test_a_post_of_unknown_outcome_is_looked_up_and_never_doubled(kind: str) -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, kind)] * 2
        ts = await d.writer.post("k1", CHANNEL, ASKED, "four open", [MARKDOWN])
        (shown,) = d.answers()
        assert (shown.ts, shown.text) == (ts, "**four** open")
        assert shown.metadata == {
            "event_type": "assistant_reply",
            "event_payload": {"key": "k1", "part": 1, "run": ""},
        }
        assert await d.writer.find(CHANNEL, ASKED, "k1") == ts
        assert await d.writer.find(CHANNEL, ASKED, "k2") is None
        if kind == "lost":
            assert d.slack.calls[POST] == 1, "it is found without a second try"


async def test_a_post_is_not_repeated_while_its_outcome_cannot_be_looked_up() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "lost")]
        d.slack.faults += [Fault("conversations.replies", "500")] * 20
        with pytest.raises(OutcomeUnknown):
            await d.writer.post("k1", CHANNEL, ASKED, "x")
        d.slack.faults.clear()
        assert d.slack.calls[POST] == 1
        again = await d.writer.post("k1", CHANNEL, ASKED, "x", look_first=True)
        assert [m.ts for m in d.answers()] == [again]


async def test_a_post_outside_of_threads_is_looked_up_in_the_channel() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "lost"), Fault("conversations.history", "drop")]
        ts = await d.writer.post("daily/1", CHANNEL, None, "report")
        assert [m.text for m in d.slack.visible(CHANNEL)][1:] == ["report"]
        assert await d.writer.find(CHANNEL, None, "daily/1") == ts


async def test_slack_is_told_to_look_for_nothing_in_a_text() -> None:
    async with desk() as d:
        ts = await d.writer.post("k1", CHANNEL, ASKED, "@channel evil.example", [MARKDOWN])
        await d.writer.update("k1", CHANNEL, ts, "@channel", [MARKDOWN])
        await d.writer.show("k1", CHANNEL, ts, "@channel #help", [])
        await d.writer.whisper(CHANNEL, "U0ANA", "@here")
        assert len(d.slack.effects) == 4
        for effect in d.slack.effects:
            assert (effect.args["parse"], effect.args["link_names"]) == ("none", False)
        posted = d.slack.effects[0].args
        assert posted["unfurl_links"] is posted["unfurl_media"] is False


async def test_a_message_of_another_app_with_our_key_is_not_taken_for_ours() -> None:
    metadata = {"event_type": "assistant_reply", "event_payload": {"key": "k1"}}
    slack = LocalSlack(workspace(), tokens={"xoxb-other": Identity(USER, "B0OTHER")})
    async with desk(slack) as d:
        other = AsyncWebClient("xoxb-other", base_url=d.web.base_url, session=d.web.session)
        await other.chat_postMessage(
            channel=CHANNEL, thread_ts=ASKED, text="Not ours.", metadata=metadata
        )
        assert await d.writer.find(CHANNEL, ASKED, "k1") is None
        ts = await d.writer.post("k1", CHANNEL, ASKED, "Ours.", look_first=True)
        assert await d.writer.find(CHANNEL, ASKED, "k1") == ts
        assert [m.text for m in d.answers()] == ["Ours."]


@pytest.mark.parametrize("kind", [*NETWORK, "429"])
async def test_updates_and_deletions_are_repeated_until_they_are_known(kind: str) -> None:
    async with desk() as d:
        ts = await d.writer.post("k1", CHANNEL, ASKED, "x")
        d.slack.faults += [Fault(UPDATE, kind, 0), Fault(UPDATE, kind, 0)]
        await d.writer.update("k1", CHANNEL, ts, "four open", [MARKDOWN])
        assert d.answers()[0].text == "**four** open"
        d.slack.faults += [Fault(DELETE, kind, 0), Fault(DELETE, kind, 0)]
        await d.writer.delete(CHANNEL, ts)
        await d.writer.delete(CHANNEL, ts)
        assert d.answers() == []


async def test_an_update_with_text_alone_takes_the_old_blocks_away() -> None:
    async with desk() as d:
        ts = await d.writer.post("k1", CHANNEL, ASKED, "x", [MARKDOWN])
        await d.writer.update("k1", CHANNEL, ts, "Stopped.")
        assert (d.answers()[0].text, d.answers()[0].blocks) == ("Stopped.", ())


async def test_a_rate_limit_is_waited_out_for_the_whole_method() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "429", 1)]
        posts = (d.writer.post(f"k{n}", CHANNEL, ASKED, f"{n}") for n in range(5))
        with waited_within(4, least=1.0):
            await asyncio.gather(*posts)
        assert sorted(m.text for m in d.answers()) == list("01234")
        assert d.writer.calls[POST, "ratelimited"] == 1
        assert d.writer.calls[POST, "ok"] == 5


async def test_what_cannot_be_reached_is_tried_again_and_given_up_in_time() -> None:
    settings = load_settings(env={}).slack
    async with aiohttp.ClientSession() as session:
        web = AsyncWebClient(token="x", base_url="http://127.0.0.1:9/api/", session=session)
        writer = MessageWriter(web, settings, backoff_s=0.001)
        with pytest.raises(WriteFailed, match=r"chat\.postMessage failed: no_connection"):
            await writer.post("k1", CHANNEL, ASKED, "x")
        assert writer.calls[POST, "unsent"] == settings.retry_attempts + 1


async def test_no_write_takes_longer_than_its_deadline() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "slow", 5)]
        writer = d.new_outbox(deadline_s=0.2)
        with waited_within(1), pytest.raises(OutcomeUnknown, match="deadline"):
            await writer.post("k1", CHANNEL, ASKED, "x")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("is_archived", ChannelClosed),
        ("not_in_channel", ChannelClosed),
        ("token_revoked", TokenRefused),
        ("missing_scope", TokenRefused),
        ("message_not_found", MessageGone),
        ("streaming_state_conflict", StreamEnded),
        ("something_new", WriteFailed),
    ],
)
async def test_a_refusal_is_typed_and_not_repeated(code: str, kind: type[WriteFailed]) -> None:
    async with desk() as d:
        d.slack.faults += [Fault(UPDATE, f"error:{code}")]
        with pytest.raises(kind) as caught:
            await d.writer.update("k1", CHANNEL, ASKED, "x")
        assert (caught.value.method, caught.value.code) == (UPDATE, code)
        assert d.slack.calls[UPDATE] == 1
        assert d.writer.calls[UPDATE, code] == 1


@pytest.mark.parametrize("code", ["invalid_blocks", "msg_blocks_too_long", "msg_too_long"])
async def test_an_answer_that_slack_does_not_take_is_sent_as_text(code: str) -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, f"error:{code}")]
        ts = await d.writer.post("k1", CHANNEL, ASKED, "y" * 9_000, [MARKDOWN])
        assert d.answers()[0].text == "y" * 9_000
        d.slack.faults += [Fault(UPDATE, f"error:{code}"), Fault(UPDATE, f"error:{code}")]
        await d.writer.update("k1", CHANNEL, ts, "z" * 9_000, [MARKDOWN])
        assert d.answers()[0].text == "z" * 3_900


async def test_a_whisper_reaches_one_user_and_in_a_dm_it_is_a_message() -> None:
    async with desk() as d:
        await d.writer.whisper(CHANNEL, USER, "not here", ASKED)
        d.slack.faults += [Fault("chat.postEphemeral", "lost")]
        await d.writer.whisper(CHANNEL, USER, "nor there")
        assert [w.text for w in d.slack.state.whispers] == ["not here", "nor there"]
        assert d.answers() == []
        d.slack.faults += [Fault(POST, "lost")]
        await d.writer.whisper(DM, USER, "not here", ASKED)
        assert [m.text for m in d.answers(DM)] == ["not here"]


async def test_a_stream_is_not_waited_for() -> None:
    async with desk() as d:
        writer = d.new_outbox(pace=RateLimit())
        chunks = [{"type": "plan_update", "title": "On it"}]
        with waited_within(5):
            made = [
                await writer.start_stream(CHANNEL, ASKED, "T0LOCAL", USER, chunks)
                for _ in range(22)
            ]
        assert [bool(ts) for ts in made] == [True] * 20 + [False] * 2
        assert writer.calls["chat.startStream", "skipped"] == 2


async def test_a_session_status_is_best_effort() -> None:
    async with desk() as d:
        d.slack.faults += [Fault("agents.sessions.setStatus", "missing_scope")]
        await d.writer.set_status(CHANNEL, ASKED, USER, "processing", "t" * 300)
        await d.writer.set_status(CHANNEL, ASKED, USER, "active")
        assert d.slack.calls["agents.sessions.setStatus"] == 1, "this app has no sessions"


@pytest.mark.parametrize(
    "body", ["[]", "null", '"ok"', "{}", '{"ok": true}', '{"ok": true, "ts": 5}']
)
async def test_an_answer_of_a_wrong_shape_settles_nothing(body: str) -> None:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await Response(body, media_type="application/json")(scope, receive, send)

    with MUX.serving(serve) as url:
        async with aiohttp.ClientSession() as session:
            web = AsyncWebClient(token="x", base_url=url + API_PATH, session=session)
            writer = MessageWriter(
                web, load_settings(env={}).slack, backoff_s=0.001, settle_s=0.001
            )
            with pytest.raises(OutcomeUnknown):
                await writer.post("k1", CHANNEL, ASKED, "x")


# ---- pace


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_leaves_room_for_final_words() -> None:
    clock = Clock()
    pace = RateLimit(clock=clock)
    live = 0
    for _ in range(600):
        clock.now += 0.1
        live += pace.take_now("chat.update", "", live=True)
    assert 20 <= live <= 25
    assert all(pace.take_now("chat.update", "") for _ in range(TIERS["chat.update"].calls - live))
    assert not pace.take_now("chat.update", "")


def test_channels_do_not_wait_for_each_other() -> None:
    clock = Clock()
    pace = RateLimit({"chat.postMessage": Tier(2, 2.0, per_channel=True)}, clock)
    taken = [c for c in "aaabb" if pace.take_now("chat.postMessage", c)]
    assert "".join(taken) == "aabb"
    pace.hold("chat.postMessage", "b", 30)
    clock.now = 5.0
    assert [pace.take_now("chat.postMessage", c) for c in "ab"] == [True, False]


async def test_a_burst_keeps_to_the_rate() -> None:
    pace = RateLimit({"m": Tier(5, 0.2)})
    began = time.monotonic()
    await asyncio.gather(*(pace.take("m", "") for _ in range(12)))
    assert time.monotonic() - began >= 0.4
