"""Messages, files and the live reply: each is shown once, whatever the network does."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
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
from bot.local.workspace import Channel, Message, User, Workspace
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
from scopes.label import Label
from subagents.events import (
    AnswerDelta,
    AnswerRestarted,
    ContextGrew,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
)

ROOT = "1740000000.000100"
CHANNEL, DM, USER = "C0HELP", "D0ANA", "U0ANA"


def workspace() -> Workspace:
    request = Message(ROOT, f"<@{BOT_USER}> what is open?", USER)
    return Workspace(
        users=(User(USER, "ana", "Ana Ruiz"),),
        channels=(
            Channel(CHANNEL, "help", (request,), members=(USER,)),
            Channel(DM, "", (request,), is_im=True, members=(USER, BOT_USER)),
        ),
    )


@dataclass
class ReplyThread:
    """A thread of a local Slack, and the writer of its messages."""

    slack: LocalSlack
    web: AsyncWebClient
    writer: MessageWriter
    settings: ReplySettings

    def reply(self, state: StoredReply | None = None, **more: Any) -> StreamingReply:
        request = StoredRequest("T0LOCAL", CHANNEL, ROOT, ROOT, USER, "mention", {})
        return StreamingReply(self.writer, request, self.settings, state, **more)

    def new_writer(self, web: AsyncWebClient | None = None, **more: Any) -> MessageWriter:
        times = WriteTimes(**{"backoff_s": 0.001, "settle_s": 0.002, **more})
        return MessageWriter(web or self.web, load_settings(env={}).slack, RateLimit(None), times)

    def answers(self, channel: str = CHANNEL) -> list[Shown]:
        """What the bot shows in the thread."""
        return [m for m in self.slack.visible(channel, ROOT) if m.user == BOT_USER]


@asynccontextmanager
async def reply_thread(
    slack: LocalSlack | None = None, **settings: Any
) -> AsyncIterator[ReplyThread]:
    """`settings` are those of the reply; its updates come fast unless they say otherwise."""
    slack = slack or LocalSlack(workspace())
    chosen = load_settings(env={}).reply.model_copy(update={"update_s": 0.01, **settings})
    with MUX.served_app(slack.app) as url:
        async with aiohttp.ClientSession() as session:
            web = AsyncWebClient(token=BOT_TOKEN, base_url=url + API_PATH, session=session)
            t = ReplyThread(slack, web, None, chosen)  # type: ignore[arg-type]
            t.writer = t.new_writer()
            yield t


def answer_parts(text: str, *more: str) -> Sequence[MessagePart]:
    """An answer in parts, made as bot.slack.blocks makes them."""
    parts = [MessagePart(each, ({"type": "markdown", "text": each},)) for each in (text, *more)]
    footer = {"type": "context", "elements": [{"type": "mrkdwn", "text": "1 subagent"}]}
    parts[-1] = MessagePart(parts[-1].text, (*parts[-1].blocks, footer))
    return parts


START, APPEND, STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"
POST, UPDATE, DELETE = "chat.postMessage", "chat.update", "chat.delete"
SESSION = "agents.sessions.setStatus"
NO_STREAM = [Fault(START, "error:not_allowed")]
ANSWER = "Two invoices are open.\n\nBoth wait for Ana."


def texts(t: ReplyThread) -> list[str]:
    return [m.text for m in t.answers()]


def one(t: ReplyThread) -> Any:
    (shown,) = t.answers()
    return shown


def work(reply: StreamingReply) -> None:
    reply.emit(SubagentQueued("s1", "Read #help", "slack", "fast"))
    reply.emit(SubagentStarted("s1"))
    reply.emit(SubagentFinished("s1", "complete", "none", 2, 0.001))


async def stream_text(t: ReplyThread, reply: StreamingReply, text: str = ANSWER) -> None:
    """Emit the text in pieces and wait until some of it is shown."""
    for start in range(0, len(text), 7):
        reply.emit(AnswerDelta(text[start : start + 7]))
        await asyncio.sleep(0.003)
    await until(lambda: text[:5] in one(t).text)


async def test_reply_writes_at_most_once_per_interval() -> None:
    async with reply_thread(update_s=0.2) as t:
        reply = t.reply()
        await reply.open(look_first=False)
        began = time.monotonic()
        for n in range(300):
            reply.emit(SubagentQueued(f"s{n % 30}", f"Read {n % 30}", "slack", "fast"))
            await asyncio.sleep(0.002)
        reply.emit(SubagentQueued("s30", "The last one", "slack", "fast"))
        await until(lambda: "The last one" in str(one(t).plan))
        assert 2 <= t.slack.calls[APPEND] <= (time.monotonic() - began) / 0.2 + 3
        await reply.aclose()


async def test_restarted_answer_replaces_the_streamed_text() -> None:
    async with reply_thread() as t:
        reply = t.reply()
        await reply.open(look_first=False)
        await stream_text(t, reply, "It is all fine. ")
        reply.emit(AnswerRestarted())
        reply.emit(AnswerDelta("Two "))
        await until(lambda: one(t).text == "Two ")
        assert not one(t).streaming
        await reply.finish(answer_parts(ANSWER))
        assert one(t).text == ANSWER + "\n1 subagent"


async def test_later_process_goes_on_with_its_message_if_it_cannot_look_messages_up() -> None:
    async with reply_thread() as t:
        reply = t.reply()
        state = await reply.open(look_first=False)
        await reply.aclose()
        t.slack.faults += [Fault("conversations.replies", "error:missing_scope")] * 9
        later = t.reply(state)
        await later.open()
        await later.finish(answer_parts(ANSWER))
        assert texts(t) == [ANSWER + "\n1 subagent"]


async def test_progress_that_not_everyone_there_may_read_is_not_shown() -> None:
    async with reply_thread() as t:
        reply = t.reply()
        await reply.open(look_first=False)
        reply.emit(ContextGrew("p1", Label(readers=frozenset({USER}))))
        work(reply)
        reply.emit(AnswerDelta("Salaries rise."))
        await asyncio.sleep(0.1)
        assert "Salaries" not in str(one(t))
        assert "Read #help" not in str(one(t))
        await reply.aclose()


async def test_readers_are_checked_again_before_the_first_words_of_an_answer() -> None:
    checks: list[bool] = []

    async def admits(label: Label, fresh: bool) -> bool:
        checks.append(fresh)
        return True

    async with reply_thread() as t:
        reply = t.reply(admits=admits)
        await reply.open(look_first=False)
        work(reply)
        await until(lambda: checks)
        await stream_text(t, reply)
        await reply.finish(answer_parts(ANSWER))
    assert checks[0] is False
    assert checks.count(True) == 1


def ignore_disconnects(app: ASGIApp) -> ASGIApp:
    """The app, which carries out a request even if its caller hangs up."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())

        async def replay() -> Sent:
            return messages.pop(0) if messages else await asyncio.Future[Sent]()

        await app(scope, replay, send)

    return call


@pytest.mark.parametrize(
    ("method", "settle_s"), [(START, 0.3), (START, 0.001), (APPEND, 0.3), (UPDATE, 0.3)]
)
async def test_late_slack_responses_leave_one_answer(method: str, settle_s: float) -> None:
    slack = LocalSlack(workspace())
    slack.app = ignore_disconnects(slack.app)  # type: ignore[assignment]
    async with reply_thread(slack) as t:
        t.writer = t.new_writer(quick_s=0.1, settle_s=settle_s)
        t.slack.faults += NO_STREAM if method == UPDATE else []
        t.slack.faults += [Fault(method, "slow", 0.2)]
        reply = t.reply()
        await reply.open(look_first=False)
        work(reply)
        reply.emit(AnswerDelta("Two invoices "))
        await asyncio.sleep(0.15)
        await reply.finish(answer_parts(ANSWER))
        await asyncio.sleep(0.1)
        assert texts(t) == [ANSWER + "\n1 subagent"]


async def test_replacement_post_with_unknown_outcome_leaves_one_answer() -> None:
    async with reply_thread(LocalSlack(workspace(), streams_refused="404")) as t:
        reply = t.reply()
        await reply.open(look_first=False)
        t.slack.faults += [Fault(UPDATE, "error:a_code_nobody_listed")] * 99
        t.slack.faults += [Fault(POST, "500")]
        await reply.finish(answer_parts(ANSWER))
        assert texts(t) == [ANSWER + "\n1 subagent"]


async def test_closed_channel_is_reported_and_temporary_failures_are_retried() -> None:
    async with reply_thread() as t:
        t.slack.faults += [Fault(method, "error:is_archived") for method in (START, POST)]
        with pytest.raises(ChannelClosed):
            await t.reply().open(look_first=False)
        t.slack.faults += [*NO_STREAM, *[Fault(POST, "500")] * 4]
        t.slack.faults += [Fault("conversations.replies", "500")] * 4
        reply = t.reply()
        assert await reply.open(look_first=False) == StoredReply()
        work(reply)
        await until(lambda: t.answers())
        t.slack.faults.clear()
        await reply.finish(answer_parts(ANSWER))
        assert texts(t) == [ANSWER + "\n1 subagent"]


async def test_stop_button_is_removed_when_the_answer_cannot_be_written() -> None:
    def session(t: ReplyThread) -> Any:
        return t.slack.state.sessions[CHANNEL, ROOT]

    async with reply_thread() as t:
        reply = t.reply()
        await reply.open(look_first=False)
        await reply.set_working(True)
        assert session(t) == "processing"
        t.slack.faults += [Fault(m, "error:is_archived") for m in (STOP, STOP, UPDATE, POST)]
        with pytest.raises(WriteFailed):
            await reply.finish(answer_parts(ANSWER))
        await reply.aclose()
        assert session(t) == "active"


@pytest.mark.parametrize("code", ["unknown_method", "not_allowed"])
async def test_app_without_sessions_answers_and_asks_for_a_stop_button_once(code: str) -> None:
    async with reply_thread() as t:
        t.slack.faults += [Fault(SESSION, f"error:{code}")] * 9
        reply = t.reply()
        await reply.open(look_first=False)
        for _ in range(2):
            await reply.set_working(True)
        await reply.finish(answer_parts(ANSWER))
        assert texts(t) == [ANSWER + "\n1 subagent"]
        assert t.slack.calls[SESSION] == 1


async def test_progress_errors_do_not_prevent_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(text: str) -> str:
        raise ZeroDivisionError(text)

    async with reply_thread() as t:
        reply = t.reply(render=broken)
        await reply.open(look_first=False)
        reply.emit(AnswerDelta("x"))
        reply.emit(None)  # type: ignore[arg-type]
        await until(lambda: "cannot be shown" in caplog.text)
        await reply.finish(answer_parts(ANSWER))
        assert texts(t) == [ANSWER + "\n1 subagent"]


# ---- crashes


class Mortal(AsyncWebClient):
    """The SDK's client in a process that dies at one of its calls."""

    dies_at = -1
    after = False
    calls = 0

    async def api_call(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        dead = 0 < self.dies_at <= self.calls
        if dead and not (self.after and self.calls == self.dies_at):
            raise asyncio.CancelledError
        answer = await super().api_call(*args, **kwargs)
        if dead:
            raise asyncio.CancelledError
        return answer


def mortal(t: ReplyThread, dies_at: int, after: bool) -> MessageWriter:
    web = Mortal(token=t.web.token, base_url=t.web.base_url, session=t.web.session)
    web.dies_at, web.after = dies_at, after
    return t.new_writer(web)


async def run_once(reply: StreamingReply, store: dict[str, Any], answer: Any, first: bool) -> None:
    """Do what a run does with its reply; `store` outlives it."""
    store["state"] = await reply.open(look_first=not first)
    work(reply)
    reply.emit(AnswerDelta("Two invoices "))
    await asyncio.sleep(0.03)
    store["done"] = await reply.finish(answer)


async def run_until_done(
    t: ReplyThread, deaths: list[int], after: bool, answer: Sequence[MessagePart]
) -> None:
    """Answer in processes that die at these calls, one after the other, and in a last one."""
    good, others, store = t.writer, asyncio.all_tasks(), dict[str, Any]()
    for number, dies_at in enumerate(deaths):
        t.writer = mortal(t, dies_at, after)
        attempt = run_once(t.reply(store.get("state")), store, answer, number == 0)
        await asyncio.gather(attempt, return_exceptions=True)
        for task in asyncio.all_tasks() - others:
            task.cancel()
    t.writer = good
    await run_once(t.reply(store.get("state")), store, answer, False)
    assert list(store["done"].ts) == [m.ts for m in t.answers()]
    assert not any(m.streaming for m in t.answers())


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_call_leaves_one_answer(streams: bool, after: bool) -> None:
    wanted = ["Two invoices are open.", "Part two.", "Part three."]
    for dies_at in range(1, 12):
        async with reply_thread() as t:
            t.slack.faults += [] if streams else NO_STREAM
            await run_until_done(t, [dies_at, 1 + dies_at // 2], after, answer_parts(*wanted))
            assert texts(t) == [*wanted[:2], wanted[2] + "\n1 subagent"], f"died at {dies_at}"


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
        async with reply_thread() as t:
            for _ in range(rng.randint(1, 6)):
                t.slack.faults.append(Fault(rng.choice(METHODS), rng.choice(KINDS), 0))
            parts = ["Two invoices are open.", "Part two.", "Part three."][: rng.randint(1, 3)]
            deaths = [rng.randint(1, 14) for _ in range(rng.randint(0, mortality))]
            await run_until_done(t, deaths, rng.random() < 0.5, answer_parts(*parts))
            shown = [text.removesuffix("\n1 subagent") for text in texts(t)]
            assert shown == parts, f"round {number}"


async def test_a_post_is_not_repeated_while_its_outcome_cannot_be_looked_up() -> None:
    async with reply_thread() as t:
        t.slack.faults += [Fault(POST, "lost")]
        t.slack.faults += [Fault("conversations.replies", "500")] * 20
        with pytest.raises(OutcomeUnknown):
            await t.writer.post(Mark("k1"), CHANNEL, ROOT, MessagePart("x"))
        t.slack.faults.clear()
        assert t.slack.calls[POST] == 1
        again = await t.writer.post(Mark("k1"), CHANNEL, ROOT, MessagePart("x"), look_first=True)
        assert [m.ts for m in t.answers()] == [again]


async def test_message_of_another_app_with_our_key_is_ignored() -> None:
    metadata = {"event_type": "assistant_reply", "event_payload": {"key": "k1"}}
    slack = LocalSlack(workspace(), tokens={"xoxb-other": Identity(USER, "B0OTHER")})
    async with reply_thread(slack) as t:
        other = AsyncWebClient("xoxb-other", base_url=t.web.base_url, session=t.web.session)
        await other.chat_postMessage(
            channel=CHANNEL, thread_ts=ROOT, text="Not ours.", metadata=metadata
        )
        assert await t.writer.posted.find(CHANNEL, ROOT, "k1") is None
        ts = await t.writer.post(Mark("k1"), CHANNEL, ROOT, MessagePart("Ours."), look_first=True)
        assert await t.writer.posted.find(CHANNEL, ROOT, "k1") == ts
        assert [m.text for m in t.answers()] == ["Ours."]


async def test_rate_limit_delays_all_calls_of_its_method() -> None:
    calls: Counter[tuple[str, str]] = Counter()
    async with reply_thread() as t:
        t.writer.count_calls(lambda *call: calls.update([call]))
        t.slack.faults += [Fault(POST, "429", 1)]
        posts = (t.writer.post(Mark(f"k{n}"), CHANNEL, ROOT, MessagePart(f"{n}")) for n in range(5))
        await asyncio.gather(*posts)
        assert sorted(m.text for m in t.answers()) == list("01234")
        assert calls == {(POST, "ratelimited"): 1, (POST, "ok"): 5}


async def test_no_write_takes_longer_than_its_deadline() -> None:
    async with reply_thread() as t:
        t.slack.faults += [Fault(POST, "slow", 600)]
        writer = t.new_writer(deadline_s=0.2)
        with pytest.raises(OutcomeUnknown, match="deadline"):
            await writer.post(Mark("k1"), CHANNEL, ROOT, MessagePart("x"))


async def test_whisper_is_ephemeral_in_a_channel_and_a_message_in_a_dm() -> None:
    async with reply_thread() as t:
        await t.writer.whisper(CHANNEL, USER, "not here", ROOT)
        t.slack.faults += [Fault("chat.postEphemeral", "lost")]
        await t.writer.whisper(CHANNEL, USER, "nor there")
        assert [w.text for w in t.slack.state.whispers] == ["not here", "nor there"]
        assert t.answers() == []
        t.slack.faults += [Fault(POST, "lost")]
        await t.writer.whisper(DM, USER, "not here", ROOT)
        assert [m.text for m in t.answers(DM)] == ["not here"]


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
                await writer.post(Mark("k1"), CHANNEL, ROOT, MessagePart("x"))


async def test_accepted_file_that_is_not_shown_is_looked_up_and_then_fails() -> None:
    async with reply_thread() as t:
        uploads, name = t.writer.uploads, "findings.csv"
        id = await uploads.hand_over(name, b"claim,owner\nlate,nobody\n")
        t.slack.unshared = 1
        with pytest.raises(OutcomeUnknown, match="not_shown"):
            await uploads.show(CHANNEL, ROOT, id, name)
        looks = t.slack.calls["conversations.replies"]
        with pytest.raises(WriteFailed, match="file_not_found"):
            await uploads.show(CHANNEL, ROOT, id, name)
        assert t.slack.calls["conversations.replies"] > looks + 1
        assert [each.files for each in t.answers()] == []


async def test_lost_start_of_a_stream_leaves_the_file_of_another_answer_alone() -> None:
    async with reply_thread() as t:
        id = await t.writer.uploads.hand_over("findings.csv", b"claim,owner\nlate,nobody\n")
        await t.writer.uploads.show(CHANNEL, ROOT, id, "findings.csv")
        t.slack.faults += [Fault(START, "500")]
        reply = t.reply()
        await reply.open(look_first=False)
        await reply.finish(answer_parts(ANSWER))
        assert [bool(each.files) for each in t.answers()] == [True, False]
        assert t.answers()[1].text == ANSWER + "\n1 subagent"
