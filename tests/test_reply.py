"""Messages, files and the live reply: each stands there once, whatever the network does."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from engine_kit import MUX, until
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault
from standins.slack_scopes import Identity
from standins.slack_shown import Shown
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Sent

from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, File, Message, User, Workspace
from bot.slack.client import (
    ChannelClosed,
    OutcomeUnknown,
    RateLimit,
    WriteFailed,
    WriteTimes,
)
from bot.slack.messages import Mark, MessagePart
from bot.slack.stream import StreamingReply
from bot.slack.writer import MessageWriter
from bot.storage.requests import StoredReply, StoredRequest
from config.sections import ReplySettings
from config.settings import load_settings
from subagents.events import (
    AnswerDelta,
    AnswerRestarted,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
)

ASKED = "1740000000.000100"
CHANNEL, DM, USER = "C0HELP", "D0ANA", "U0ANA"


def workspace() -> Workspace:
    asked = Message(ASKED, f"<@{BOT_USER}> what is open?", USER)
    return Workspace(
        users=(User(USER, "ana", "Ana Ruiz"),),
        channels=(
            Channel(CHANNEL, "help", (asked,), members=(USER,)),
            Channel(DM, "", (asked,), is_im=True, members=(USER, BOT_USER)),
        ),
    )


@dataclass
class Desk:
    """What a test writes with, and what it sees."""

    slack: LocalSlack
    web: AsyncWebClient
    writer: MessageWriter
    settings: ReplySettings

    def reply(self, state: StoredReply | None = None, **more: Any) -> StreamingReply:
        asked = StoredRequest("T0LOCAL", CHANNEL, ASKED, ASKED, USER, "mention", {})
        return StreamingReply(self.writer, asked, self.settings, state, **more)

    def new_outbox(self, web: AsyncWebClient | None = None, **more: Any) -> MessageWriter:
        times = WriteTimes(**{"backoff_s": 0.001, "settle_s": 0.002, **more})
        return MessageWriter(web or self.web, load_settings(env={}).slack, RateLimit(None), times)

    def answers(self, channel: str = CHANNEL) -> list[Shown]:
        """What the bot shows in the thread."""
        return [m for m in self.slack.visible(channel, ASKED) if m.user == BOT_USER]


@asynccontextmanager
async def desk(slack: LocalSlack | None = None, **settings: Any) -> AsyncIterator[Desk]:
    """`settings` are those of the reply; its updates come fast unless they say otherwise."""
    slack = slack or LocalSlack(workspace())
    chosen = load_settings(env={}).reply.model_copy(update={"update_s": 0.01, **settings})
    with MUX.served_app(slack.app) as url:
        async with aiohttp.ClientSession() as session:
            web = AsyncWebClient(token=BOT_TOKEN, base_url=url + API_PATH, session=session)
            made = Desk(slack, web, None, chosen)  # type: ignore[arg-type]
            made.writer = made.new_outbox()
            yield made


def answer_parts(text: str, *more: str) -> Sequence[MessagePart]:
    """An answer in parts, made as bot.slack.blocks makes them."""
    parts = [MessagePart(each, ({"type": "markdown", "text": each},)) for each in (text, *more)]
    said = {"type": "context", "elements": [{"type": "mrkdwn", "text": "1 subagent"}]}
    parts[-1] = MessagePart(parts[-1].text, (*parts[-1].blocks, said))
    return parts


START, APPEND, STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"
POST, UPDATE, DELETE = "chat.postMessage", "chat.update", "chat.delete"
NO_STREAM = [Fault(START, "error:not_allowed")]
ANSWER = "Two invoices are open.\n\nBoth wait for Ana."


def texts(d: Desk) -> list[str]:
    return [m.text for m in d.answers()]


def one(d: Desk) -> Any:
    (shown,) = d.answers()
    return shown


def work(reply: StreamingReply) -> None:
    reply.emit(SubagentQueued("s1", "Read #help", "slack", "fast"))
    reply.emit(SubagentStarted("s1"))
    reply.emit(SubagentFinished("s1", "complete", "none", 2, 0.001))


async def stream_text(d: Desk, reply: StreamingReply, text: str = ANSWER) -> None:
    """Emit the text in pieces and wait until some of it is shown."""
    for start in range(0, len(text), 7):
        reply.emit(AnswerDelta(text[start : start + 7]))
        await asyncio.sleep(0.003)
    await until(lambda: text[:5] in one(d).text)


async def test_reply_writes_at_most_once_per_interval_and_skips_unchanged_content() -> None:
    async with desk(update_s=0.2) as d:
        reply = d.reply()
        await reply.open(look_first=False)
        began = time.monotonic()
        for n in range(300):
            reply.emit(SubagentQueued(f"s{n % 30}", f"Read {n % 30}", "slack", "fast"))
            await asyncio.sleep(0.002)
        reply.emit(SubagentQueued("s30", "The last one", "slack", "fast"))
        await until(lambda: "The last one" in str(one(d).plan))
        calls = d.slack.calls[APPEND]
        assert 2 <= calls <= (time.monotonic() - began) / 0.2 + 3
        reply.emit(SubagentQueued("s30", "The last one", "slack", "fast"))
        await asyncio.sleep(0.5)
        assert d.slack.calls[APPEND] == calls
        await reply.aclose()


async def test_restarted_answer_replaces_the_streamed_text() -> None:
    async with desk() as d:
        reply = d.reply()
        await reply.open(look_first=False)
        await stream_text(d, reply, "It is all fine. ")
        reply.emit(AnswerRestarted())
        reply.emit(AnswerDelta("Two "))
        await until(lambda: one(d).text == "Two ")
        assert not one(d).streaming
        await reply.finish(answer_parts(ANSWER))
        assert one(d).text == ANSWER + "\n1 subagent"


def ignore_disconnects(app: ASGIApp) -> ASGIApp:
    """The app, for which no caller ever hangs up: what it has heard it carries out."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        heard = [await receive()]
        while heard[-1].get("more_body"):
            heard.append(await receive())

        async def again() -> Sent:
            return heard.pop(0) if heard else await asyncio.Future[Sent]()

        await app(scope, again, send)

    return call


@pytest.mark.parametrize("method", [START, APPEND, UPDATE])
async def test_late_slack_responses_leave_one_answer(method: str) -> None:
    slack = LocalSlack(workspace())
    slack.app = ignore_disconnects(slack.app)  # type: ignore[assignment]
    async with desk(slack) as d:
        d.writer = d.new_outbox(quick_s=0.1, settle_s=0.3)
        d.slack.faults += NO_STREAM if method == UPDATE else []
        d.slack.faults += [Fault(method, "slow", 0.2)]
        reply = d.reply()
        await reply.open(look_first=False)
        work(reply)
        reply.emit(AnswerDelta("Two invoices "))
        await asyncio.sleep(0.15)
        await reply.finish(answer_parts(ANSWER))
        await asyncio.sleep(0.1)
        assert texts(d) == [ANSWER + "\n1 subagent"]


async def test_closing_the_reply_keeps_the_message_and_removes_the_stop_button() -> None:
    async with desk() as d:
        reply = d.reply()
        await reply.open(look_first=False)
        await reply.set_working(True)
        await stream_text(d, reply)
        await reply.aclose()
        assert one(d).streaming
        assert d.slack.state.sessions[CHANNEL, ASKED] == "active"


async def test_a_message_found_after_a_crash_is_not_taken_for_a_stream() -> None:
    async with desk(LocalSlack(workspace(), streams_refused="404")) as d:
        killed = d.reply()
        await killed.open(look_first=False)
        await killed.aclose()
        again = d.reply()
        await again.open()
        again.emit(AnswerDelta("Now "))
        await until(lambda: one(d).text == "Now ")
        await again.finish(answer_parts(ANSWER))
        assert texts(d) == [ANSWER + "\n1 subagent"]


async def test_replacement_post_with_unknown_outcome_leaves_one_answer() -> None:
    async with desk(LocalSlack(workspace(), streams_refused="404")) as d:
        reply = d.reply()
        await reply.open(look_first=False)
        d.slack.faults += [Fault(UPDATE, "error:a_code_nobody_listed")] * 99
        d.slack.faults += [Fault(POST, "500")]
        await reply.finish(answer_parts(ANSWER))
        assert texts(d) == [ANSWER + "\n1 subagent"]


async def test_closed_channel_is_reported_and_temporary_failures_are_retried() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(method, "error:is_archived") for method in (START, POST)]
        with pytest.raises(ChannelClosed):
            await d.reply().open(look_first=False)
        d.slack.faults += [*NO_STREAM, *[Fault(POST, "500")] * 4]
        d.slack.faults += [Fault("conversations.replies", "500")] * 4
        reply = d.reply()
        assert await reply.open(look_first=False) == StoredReply()
        work(reply)
        await until(lambda: d.answers())
        d.slack.faults.clear()
        await reply.finish(answer_parts(ANSWER))
        assert texts(d) == [ANSWER + "\n1 subagent"]


async def test_stop_button_is_removed_when_the_answer_cannot_be_written() -> None:
    def session(d: Desk) -> Any:
        return d.slack.state.sessions[CHANNEL, ASKED]

    async with desk() as d:
        reply = d.reply(title="What is open? " * 50)
        await reply.open(look_first=False)
        await reply.set_working(True)
        assert session(d) == "processing"
        assert {len(e.args["title"]) for e in d.slack.effects if e.args.get("title")} == {200}
        d.slack.faults += [Fault(m, "error:is_archived") for m in (STOP, STOP, UPDATE, POST)]
        with pytest.raises(WriteFailed):
            await reply.finish(answer_parts(ANSWER))
        await reply.aclose()
        assert session(d) == "active"


async def test_progress_errors_do_not_prevent_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(text: str) -> str:
        raise ZeroDivisionError(text)

    async with desk() as d:
        reply = d.reply(shown=broken)
        await reply.open(look_first=False)
        reply.emit(AnswerDelta("x"))
        reply.emit(None)  # type: ignore[arg-type]
        await until(lambda: "cannot be shown" in caplog.text)
        await reply.finish(answer_parts(ANSWER))
        assert texts(d) == [ANSWER + "\n1 subagent"]


# ---- crashes


class Mortal(AsyncWebClient):
    """The SDK's client in a process that dies at one of its calls."""

    dies_at = -1
    after = False
    made = 0

    async def api_call(self, *args: Any, **kwargs: Any) -> Any:
        self.made += 1
        dead = 0 < self.dies_at <= self.made
        if dead and not (self.after and self.made == self.dies_at):
            raise asyncio.CancelledError
        answer = await super().api_call(*args, **kwargs)
        if dead:
            raise asyncio.CancelledError
        return answer


def mortal(d: Desk, dies_at: int, after: bool) -> MessageWriter:
    web = Mortal(token=d.web.token, base_url=d.web.base_url, session=d.web.session)
    web.dies_at, web.after = dies_at, after
    return d.new_outbox(web)


async def life(reply: StreamingReply, store: dict[str, Any], answer: Any, first: bool) -> None:
    """What a run does with its reply; `store` outlives it."""
    store["state"] = await reply.open(look_first=not first)
    work(reply)
    reply.emit(AnswerDelta("Two invoices "))
    await asyncio.sleep(0.03)
    store["done"] = await reply.finish(answer)


async def lives(d: Desk, deaths: list[int], after: bool, answer: Sequence[MessagePart]) -> None:
    """A request whose process dies at these calls, one life after the other; the last one lives."""
    good, others, store = d.writer, asyncio.all_tasks(), dict[str, Any]()
    for born, dies_at in enumerate(deaths):
        d.writer = mortal(d, dies_at, after)
        ended = life(d.reply(store.get("state")), store, answer, born == 0)
        await asyncio.gather(ended, return_exceptions=True)
        for task in asyncio.all_tasks() - others:
            task.cancel()
    d.writer = good
    await life(d.reply(store.get("state")), store, answer, False)
    assert list(store["done"].ts) == [m.ts for m in d.answers()]
    assert not any(m.streaming for m in d.answers())


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_call_leaves_one_answer(streams: bool, after: bool) -> None:
    wanted = ["Two invoices are open.", "Part two.", "Part three."]
    for dies_at in range(1, 12):
        async with desk() as d:
            d.slack.faults += [] if streams else NO_STREAM
            await lives(d, [dies_at, 1 + dies_at // 2], after, answer_parts(*wanted))
            assert texts(d) == [*wanted[:2], wanted[2] + "\n1 subagent"], f"died at {dies_at}"


KINDS = ["500", "lost", "drop", "malformed", "429", "error:internal_error"]
METHODS = [START, APPEND, STOP, POST, UPDATE, DELETE, "conversations.replies"]


@pytest.mark.parametrize(
    ("seed", "rounds", "mortality"),
    [(11, 15, 0), (12, 15, 2), pytest.param(13, 200, 2, marks=pytest.mark.slow)],
)
async def test_writes_that_fail_at_random_leave_one_answer(
    seed: int, rounds: int, mortality: int
) -> None:
    rng = random.Random(seed)
    for number in range(rounds):
        async with desk() as d:
            for _ in range(rng.randint(1, 6)):
                d.slack.faults.append(Fault(rng.choice(METHODS), rng.choice(KINDS), 0))
            parts = ["Two invoices are open.", "Part two.", "Part three."][: rng.randint(1, 3)]
            deaths = [rng.randint(1, 14) for _ in range(rng.randint(0, mortality))]
            await lives(d, deaths, rng.random() < 0.5, answer_parts(*parts))
            shown = [text.removesuffix("\n1 subagent") for text in texts(d)]
            assert shown == parts, f"round {number}"


MARKDOWN = {"type": "markdown", "text": "**four** open"}


async def test_a_post_is_not_repeated_while_its_outcome_cannot_be_looked_up() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "lost")]
        d.slack.faults += [Fault("conversations.replies", "500")] * 20
        with pytest.raises(OutcomeUnknown):
            await d.writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("x"))
        d.slack.faults.clear()
        assert d.slack.calls[POST] == 1
        again = await d.writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("x"), look_first=True)
        assert [m.ts for m in d.answers()] == [again]


async def test_message_of_another_app_with_our_key_is_ignored() -> None:
    metadata = {"event_type": "assistant_reply", "event_payload": {"key": "k1"}}
    slack = LocalSlack(workspace(), tokens={"xoxb-other": Identity(USER, "B0OTHER")})
    async with desk(slack) as d:
        other = AsyncWebClient("xoxb-other", base_url=d.web.base_url, session=d.web.session)
        await other.chat_postMessage(
            channel=CHANNEL, thread_ts=ASKED, text="Not ours.", metadata=metadata
        )
        assert await d.writer.posted.find(CHANNEL, ASKED, "k1") is None
        ts = await d.writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("Ours."), look_first=True)
        assert await d.writer.posted.find(CHANNEL, ASKED, "k1") == ts
        assert [m.text for m in d.answers()] == ["Ours."]


async def test_rate_limit_delays_all_calls_of_its_method() -> None:
    calls: Counter[tuple[str, str]] = Counter()
    async with desk() as d:
        d.writer.count_calls(lambda *call: calls.update([call]))
        d.slack.faults += [Fault(POST, "429", 1)]
        posts = (
            d.writer.post(Mark(f"k{n}"), CHANNEL, ASKED, MessagePart(f"{n}")) for n in range(5)
        )
        began = time.monotonic()
        await asyncio.gather(*posts)
        assert time.monotonic() - began >= 1.0
        assert sorted(m.text for m in d.answers()) == list("01234")
        assert calls[POST, "ratelimited"] == 1
        assert calls[POST, "ok"] == 5


async def test_post_to_unreachable_slack_is_retried_and_then_fails() -> None:
    settings = load_settings(env={}).slack
    async with aiohttp.ClientSession() as session:
        web = AsyncWebClient(token="x", base_url="http://127.0.0.1:9/api/", session=session)
        writer = MessageWriter(web, settings, times=WriteTimes(backoff_s=0.001))
        calls: Counter[tuple[str, str]] = Counter()
        writer.count_calls(lambda *call: calls.update([call]))
        with pytest.raises(WriteFailed, match=r"chat\.postMessage failed: no_connection"):
            await writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("x"))
        assert calls[POST, "unsent"] == settings.retry_attempts + 1


async def test_no_write_takes_longer_than_its_deadline() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "slow", 600)]
        writer = d.new_outbox(deadline_s=0.2)
        with pytest.raises(OutcomeUnknown, match="deadline"):
            await writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("x"))


async def test_answer_rejected_by_slack_is_sent_as_text() -> None:
    async with desk() as d:
        d.slack.faults += [Fault(POST, "error:invalid_blocks")]
        ts = await d.writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("y" * 9_000, (MARKDOWN,)))
        assert d.answers()[0].text == "y" * 9_000
        d.slack.faults += [Fault(UPDATE, "error:msg_too_long") for _ in range(2)]
        await d.writer.update(Mark("k1"), CHANNEL, ts, MessagePart("z" * 9_000, (MARKDOWN,)))
        assert d.answers()[0].text == "z" * 3_900


async def test_whisper_is_ephemeral_in_a_channel_and_a_message_in_a_dm() -> None:
    async with desk() as d:
        await d.writer.whisper(CHANNEL, USER, "not here", ASKED)
        d.slack.faults += [Fault("chat.postEphemeral", "lost")]
        await d.writer.whisper(CHANNEL, USER, "nor there")
        assert [w.text for w in d.slack.state.whispers] == ["not here", "nor there"]
        assert d.answers() == []
        d.slack.faults += [Fault(POST, "lost")]
        await d.writer.whisper(DM, USER, "not here", ASKED)
        assert [m.text for m in d.answers(DM)] == ["not here"]


@pytest.mark.parametrize("body", ["[]", "{}", '{"ok": true, "ts": 5}'])
async def test_malformed_slack_response_leaves_the_outcome_unknown(body: str) -> None:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await Response(body, media_type="application/json")(scope, receive, send)

    with MUX.served_app(serve) as url:
        async with aiohttp.ClientSession() as session:
            web = AsyncWebClient(token="x", base_url=url + API_PATH, session=session)
            times = WriteTimes(backoff_s=0.001, settle_s=0.001)
            writer = MessageWriter(web, load_settings(env={}).slack, times=times)
            with pytest.raises(OutcomeUnknown):
                await writer.post(Mark("k1"), CHANNEL, ASKED, MessagePart("x"))


NAME, CONTENT = "findings.csv", b"claim,owner\nlate,nobody\n"
ASK, DONE = "files.getUploadURLExternal", "files.completeUploadExternal"


def files(slack: LocalSlack) -> list[File]:
    return [file for each in slack.visible(CHANNEL, ASKED) for file in each.files]


async def test_file_shown_repeatedly_appears_once_in_the_thread() -> None:
    async with desk() as made:
        uploads = made.writer.uploads
        id = await uploads.hand_over(NAME, CONTENT)
        ts = await uploads.show(CHANNEL, ASKED, id, NAME)
        assert await uploads.show(CHANNEL, ASKED, id, NAME) == ts
        assert [each.name for each in files(made.slack)] == [NAME]
        assert made.slack.calls[DONE] == 1


@pytest.mark.parametrize(
    ("method", "kind"),
    [(ASK, "500"), ("upload", "drop"), ("upload", "429"), (DONE, "lost"), (DONE, "500")],
)
async def test_failed_file_upload_neither_loses_nor_duplicates_the_file(
    method: str, kind: str
) -> None:
    async with desk() as made:
        made.slack.faults.append(Fault(method, kind, 1.0))
        uploads = made.writer.uploads

        async def twice(write: Callable[[], Awaitable[str]]) -> str:
            try:
                return await write()
            except WriteFailed:
                return await write()  # as the next try of a delivery does

        id = await twice(lambda: uploads.hand_over(NAME, CONTENT))
        await twice(lambda: uploads.show(CHANNEL, ASKED, id, NAME))
        assert [each.name for each in files(made.slack)] == [NAME]


async def test_accepted_file_that_is_not_shown_is_looked_up_and_then_fails() -> None:
    async with desk() as made:
        uploads = made.writer.uploads
        id = await uploads.hand_over(NAME, CONTENT)
        made.slack.unshared = 1
        with pytest.raises(OutcomeUnknown, match="not_shown"):
            await uploads.show(CHANNEL, ASKED, id, NAME)
        looks = made.slack.calls["conversations.replies"]
        with pytest.raises(WriteFailed, match="file_not_found"):
            await uploads.show(CHANNEL, ASKED, id, NAME)
        assert made.slack.calls["conversations.replies"] > looks + 1
        assert files(made.slack) == []
