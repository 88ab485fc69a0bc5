"""Whatever Slack refuses, a write or a read, a request ends in its answer or in one sentence."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from engine_kit import (
    Json,
    brief_answer,
    channel_id,
    come,
    results,
    say,
    scripted_parent,
    submission,
    until,
    use,
    workspace,
)
from serve_kit import ASKER, Served, change_settings, echo, serve, with_rules, with_sections
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault, Lasting
from standins.slack_scopes import BOT_SCOPES, Identity
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from test_attaching import save_call
from test_attaching import saving_model as keeping
from test_serve_policy import GUEST, SHARED, STRANGER, mixed_workspace

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_ID, BOT_USER
from config.settings import Settings
from config.words import phrase

START, UPDATE, POST = "chat.startStream", "chat.update", "chat.postMessage"
BEGIN, NEARLY, END = "It is **open**", "✓", "This is all of it"
LAST_WRITE = "feedback_buttons"
"""Stands in the write that completes an answer."""
ANSWER = (
    f"{BEGIN} [F1.1]. {'Nobody has looked at it yet. ' * 8}{NEARLY} Nearly done, so wait. {END}."
)
LINES = "\n".join(f"{n}. {'word ' * 12}" for n in range(400))
LONG_ANSWER = ANSWER.replace(NEARLY, f"\n\n{LINES}\n\n{NEARLY}")
"""It comes in three messages."""


WIDE = with_sections(policy={"user_daily_usd": None, "daily_usd": None}, slack={"paced": False})
"""People may ask as often as they like."""


# ---- one refusal, and the answer stands


async def test_delivered_answer_is_kept_when_finishing_its_run_fails(tmp_path: Path) -> None:
    async with serve(tmp_path) as bot:
        with sqlite3.connect(bot.settings.data_dir / "assistant.sqlite") as database:
            database.execute(
                "create trigger full before update on runs when new.status = 'complete'"
                " begin select raise(abort, 'the disk is full'); end"
            )
        asked = bot.ask()
        shown = await bot.answer(asked, seconds=40)
        assert BEGIN in shown.text
        assert len(bot.replies(asked)) == 1
        (run,) = await bot.store.runs()
        assert run.status == "failed", "what is tested has happened"


async def test_stream_for_an_external_user_names_their_team(
    tmp_path: Path,
) -> None:
    mind, asked_by_all = (
        scripted_parent(say(f"{BEGIN}.")),
        with_rules(shared=True, ask=("members", "external")),
    )

    def change(settings: Settings) -> Settings:
        """Heard by an event alone: the stand-in's history does not name their workspace."""
        return asked_by_all(change_settings(settings, slack={"backfill_hours": 0}))

    async with serve(tmp_path, mind, space=mixed_workspace(), change=change) as bot:
        asked = bot.ask("What is open?", user=STRANGER, channel=SHARED)
        assert BEGIN in (await bot.answer(asked, channel=SHARED)).text
        (start,) = [e for e in bot.slack.effects if e.method == START]
        assert start.args["recipient_team_id"] == "T0OTHER"
        assert start.args["recipient_user_id"] == STRANGER


# ---- every code


@dataclass
class Script:
    """Stands before a Slack and refuses chosen calls of one method."""

    app: ASGIApp
    method: str = ""
    code: str = ""
    which: str = ""
    """`first`, `second`, `last` (it holds `mark`) or `every`."""
    mark: str = ""
    seen: int = 0
    refused: int = 0

    async def next_call(self, after: int, seconds: float) -> None:
        """Return when the method was called more than `after` times, or when the time is over."""
        for _ in range(round(seconds / 0.01)):
            if self.seen > after:
                return
            await asyncio.sleep(0.01)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != f"{API_PATH}{self.method}":
            await self.app(scope, receive, send)
            return
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        self.seen += 1
        if self._picks(b"".join(m.get("body", b"") for m in messages).decode()):
            self.refused += 1
            await self._refusal()(scope, receive, send)
            return

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, again, send)

    def _picks(self, body: str) -> bool:
        match self.which:
            case "first" | "second":
                return self.seen == ("first", "second").index(self.which) + 1
            case "last":
                return self.mark in body and not self.refused
        return self.which == "every"

    def _refusal(self) -> Response:
        if self.code.startswith("http_"):
            return Response("no", int(self.code.removeprefix("http_")))
        return JSONResponse({"ok": False, "error": self.code})

    def set(self, method: str, code: str, which: str, mark: str) -> None:
        self.method, self.code, self.which, self.mark = method, code, which, mark
        self.seen = self.refused = 0


def paced_model(script: Script) -> Callable[[ASGIApp], ASGIApp]:
    """A model that writes on when the words before are shown, or after a quarter of a second."""

    def slow(app: ASGIApp) -> ASGIApp:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            async def slowly(message: Message) -> None:
                before = script.seen
                await send(message)
                if b"text_delta" in message.get("body", b""):
                    await script.next_call(before, 0.25)

            await app(scope, receive, slowly)

        return call

    return slow


@dataclass(frozen=True)
class Write:
    """One kind of write, and the requests in which it is refused."""

    method: str
    columns: tuple[str, ...]
    mark: str = LAST_WRITE
    """Stands in its last call."""
    streams: bool = True
    is_long: bool = False
    """The answer comes in several messages."""
    title: str = ""
    has_answer: bool = False
    """All of it stands there already, and no apology may replace it."""
    has_file: bool = False
    is_whisper: bool = False

    @property
    def name(self) -> str:
        return self.title or self.method


ALWAYS, COLUMNS = ("first", "every"), ("first", "second", "last", "every")
WRITES = (
    Write("chat.startStream", ALWAYS),
    Write("chat.appendStream", COLUMNS, json.dumps(NEARLY)[1:-1]),
    Write("chat.stopStream", ALWAYS),
    Write(UPDATE, ALWAYS, title="chat.update behind a stream", has_answer=True),
    Write(UPDATE, COLUMNS, streams=False),
    Write(POST, ("first", "second", "last"), streams=False, is_long=True),
    Write("chat.postEphemeral", ALWAYS, is_whisper=True),
    Write("files.completeUploadExternal", ALWAYS, has_file=True),
)
PACED = ("chat.appendStream", UPDATE)
"""Methods that are called again while the model writes."""
CODES = {
    "chat.startStream": "team_not_found missing_scope is_archived a_code_nobody_listed",
    "chat.appendStream": "channel_type_not_supported missing_scope message_not_found",
    "chat.stopStream": "http_404 unknown_method missing_scope message_not_found",
    UPDATE: "update_failed block_mismatch message_not_found edit_window_closed unknown_method",
    POST: "invalid_blocks a_code_nobody_listed restricted_action",
    "chat.postEphemeral": "user_not_in_channel",
    "files.completeUploadExternal": "missing_scope file_type_not_allowed",
}
"""Of each class that the writer tells apart one code or two, of those that docs.slack.dev lists."""
FINE = {"answer", "sentence"}
STREAM_LEFT = "answer below a stream that nobody can end"
"""Slack ends it by itself after five minutes."""
NOBODY_CAN = {"nothing"}
"""No plain message is taken either: nothing stands there, so no placeholder does. What one person
was to read in private, nobody reads instead."""


async def ask_and_wait(bot: Served, write: Write) -> str:
    """Ask, and return the thread when the request has ended."""
    user = GUEST if write.is_whisper else ASKER
    bot.slack.state.members[bot.channel][user] = None
    thread = bot.ask("Write the plan" if write.has_file else "What is open?", user=user)
    key = f"T0ACME/{bot.channel}/{thread}"

    async def is_over() -> bool:
        request = await bot.inbox.request(key)
        ended = request and request.state in ("done", "failed", "ignored")
        return bool(ended and not bot.bench.dispatch.at_work)

    await come(is_over)
    return thread


def outcome(bot: Served, write: Write, thread: str) -> str:
    """What is seen in the thread in the end."""
    shown = bot.replies(thread)
    text = "\n".join(m.text for m in shown)
    if write.has_file:
        has_file = any(m.files for m in shown)
        is_told = "Files that are not here" in text
        return "answer" if "Here they are" in text and has_file != is_told else text
    if not shown:
        return "nothing"
    if text.count(phrase("reply.failed")) == 1:
        return "sentence"
    answer = [m for m in shown if m.metadata and not m.streaming]
    parts = {m.metadata["event_payload"].get("of") for m in answer if m.metadata}
    said = "\n".join(m.text for m in answer)
    is_whole = said.count(BEGIN) == said.count(END) == 1 and parts == {len(answer)}
    if is_whole and len(shown) > len(answer) == 1 and write.method == "chat.stopStream":
        return STREAM_LEFT
    return "answer" if is_whole and len(shown) == len(answer) else f"WRONG: {text}"


async def cell(bot: Served, script: Script, write: Write, code: str, column: str) -> str:
    """What came of one code at one call; `-` where no request made such a call."""
    for _ in range(3):
        script.set(write.method, code, column, write.mark)
        thread = await ask_and_wait(bot, write)
        refused = script.refused
        script.set("", "", "", "")
        if refused:
            return outcome(bot, write, thread)
    return "-"


@asynccontextmanager
async def scripted_bot(write: Write, folder: Path) -> AsyncIterator[tuple[Served, Script]]:
    """A bot whose requests make this write, and what stands before its Slack."""
    space = mixed_workspace() if write.is_whisper else workspace(6)
    slack = LocalSlack(space, streams_refused=None if write.streams else "unknown_method")
    script = Script(slack.app)
    slack.app = script  # type: ignore[assignment]
    answer = say(LONG_ANSWER if write.is_long else ANSWER)
    mind = (
        keeping(save_call("plan.md"))
        if write.has_file
        else scripted_parent(brief_answer(2), answer)
    )
    async with serve(
        folder,
        mind,
        slack=slack,
        latency_s=0.02,
        before_model=paced_model(script) if write.method in PACED else lambda app: app,
        change=WIDE,
        roles={"parent": {"max_tokens": 20_000}},
        serve={"outage_give_up_s": 2.5},
    ) as bot:
        yield bot, script


@pytest.mark.system
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
async def test_request_ends_in_an_answer_or_an_error_when_slack_refuses_a_write(
    write: Write, tmp_path: Path
) -> None:
    allowed = {"answer"} if write.has_answer else set(FINE)
    allowed |= NOBODY_CAN if write.method == POST else set()
    allowed = NOBODY_CAN if write.is_whisper else allowed
    called = set[str]()
    async with scripted_bot(write, tmp_path) as (bot, script):
        for code, column in product(CODES[write.method].split(), write.columns):
            came = await cell(bot, script, write, code, column)
            if came != "-":
                called.add(column)
                good = allowed | ({STREAM_LEFT} if column == "every" else set())
                assert came in good, (code, column)
    assert called == set(write.columns)


# ---- what the bot may not read is told with who can change that, and how


ADD = "An administrator can add it under OAuth & Permissions and reinstall the app."


def slack_without(*scopes: str) -> LocalSlack:
    """A workspace in which the app lacks these scopes."""
    less = Identity(BOT_USER, BOT_ID, BOT_SCOPES - set(scopes))
    return LocalSlack(workspace(3), tokens={BOT_TOKEN: less})


def bare(text: str) -> str:
    """A text as people see it, without the joiners that keep names in it from being mentions."""
    return unescape(text).replace("\N{WORD JOINER}", "")


# ---- who asks, and where


@pytest.mark.parametrize(
    ("scope", "rules", "said"),
    [
        ("users:read", {}, "I may not look up users"),
        ("usergroups:read", {"ask": ("S0CSM",)}, "I may not look up user groups"),
    ],
)
async def test_missing_scope_for_looking_up_the_requester_is_named(
    tmp_path: Path, scope: str, rules: Json, said: str
) -> None:
    change = with_rules(**rules)
    async with serve(
        tmp_path, scripted_parent(echo), slack=slack_without(scope), change=change
    ) as bot:
        bot.ask("Hello?")
        await until(bot.whispers)
        assert bot.whispers()[0] == f"{said}: the app lacks the scope {scope}. {ADD}"


async def test_retry_is_suggested_only_for_transient_slack_errors(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), serve={"outage_give_up_s": 0.1}) as bot:
        for code, said, next_step in (
            ("account_inactive", "does not accept my token", "`assistant setup`"),
            ("never_heard_of", "look up users: Slack says", "docs.slack.dev"),
            ("ratelimited", "could not check who you are", "ask again in a minute"),
        ):
            bot.slack.state.whispers.clear()
            bot.slack.faults = Lasting([Fault("users.info", f"error:{code}")])
            bot.ask("Hello?")
            await until(bot.whispers)
            (told,) = bot.whispers()
            assert said in told
            assert next_step in told
            assert ("again" in told) == (next_step.startswith("ask again"))


# ---- what is read


def reader(body: Json) -> Answer:
    """A subagent that finds nothing, whatever its tool says."""
    if not results(body):
        return Answer([use("read_channel_history", channel=channel_id(2))])
    return submission("Nothing was found.")


LED = scripted_parent(brief_answer(2), say("Nothing was found."), children=reader)


async def answer_text(bot: Served, text: str, channel: str = "") -> str:
    """All that the bot says to a request."""
    answer = await bot.answer(bot.ask(text, channel=channel), channel=channel)
    return bare(f"{answer.text}\n{answer.blocks}")


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("channels:history", "I may not read messages"),
        ("mpim:read", "I may not see which channels somebody is in"),
    ],
)
async def test_missing_scope_for_reading_messages_or_memberships_is_named(
    tmp_path: Path, scope: str, said: str
) -> None:
    """Without memberships no private channel is known to be anybody's."""
    async with serve(tmp_path, LED, slack=slack_without(scope)) as bot:
        told = await answer_text(bot, "What is open in #support-2?")
        assert f"{said}: the app lacks the scope {scope}. {ADD[:-1]}" in told
