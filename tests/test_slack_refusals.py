"""When Slack refuses a write or a read, a request ends in its answer or in one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
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
from standins.connections import read_ahead
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault, LastingFaults
from standins.slack_scopes import BOT_SCOPES, Identity
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from test_attaching import save_call, saving_model
from test_serve_policy import GUEST, SHARED, STRANGER, mixed_workspace

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_ID, BOT_USER
from config.settings import Settings
from config.words import phrase

START, UPDATE, POST = "chat.startStream", "chat.update", "chat.postMessage"
BEGIN, END = "It is **open**", "This is all of it"
LAST_WRITE = "feedback_buttons"
"""Occurs in the write that completes an answer."""
ANSWER = f"{BEGIN} [F1.1]. {'Nobody has looked at it yet. ' * 8} {END}."
LINES = "\n".join(f"{n}. {'word ' * 12}" for n in range(400))
LONG_ANSWER = f"{BEGIN} [F1.1].\n\n{LINES}\n\n{END}."
"""It comes in three messages."""


UNLIMITED = with_sections(
    policy={"user_daily_usd": None, "daily_usd": None}, slack={"paced": False}
)
"""No spending limits, and no delays between calls."""


# ---- one refusal


async def test_delivered_answer_is_kept_when_finishing_its_run_fails(tmp_path: Path) -> None:
    async with serve(tmp_path) as bot:
        with sqlite3.connect(bot.settings.data_dir / "assistant.sqlite") as database:
            database.execute(
                "create trigger full before update on runs when new.status = 'complete'"
                " begin select raise(abort, 'the disk is full'); end"
            )
        thread = bot.ask()
        shown = await bot.answer(thread, seconds=40)
        assert BEGIN in shown.text
        assert len(bot.replies(thread)) == 1
        (run,) = await bot.store.runs()
        assert run.status == "failed", "finishing the run did fail"


async def test_stream_for_an_external_user_names_their_team(
    tmp_path: Path,
) -> None:
    model = scripted_parent(say(f"{BEGIN}."))
    open_to_all = with_rules(shared=True, ask=("members", "external"))

    def change(settings: Settings) -> Settings:
        """Without backfill: the history of the stand-in does not name their workspace."""
        return open_to_all(change_settings(settings, slack={"backfill_hours": 0}))

    async with serve(tmp_path, model, space=mixed_workspace(), change=change) as bot:
        thread = bot.ask("What is open?", user=STRANGER, channel=SHARED)
        assert BEGIN in (await bot.answer(thread, channel=SHARED)).text
        (start,) = [e for e in bot.slack.effects if e.method == START]
        assert start.args["recipient_team_id"] == "T0OTHER"
        assert start.args["recipient_user_id"] == STRANGER


# ---- every error code


@dataclass
class Script:
    """Wraps the app of a Slack and refuses chosen calls of one method."""

    app: ASGIApp
    method: str = ""
    code: str = ""
    which: str = ""
    """`first`, `last` (it completes an answer) or `every`."""
    refused: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != f"{API_PATH}{self.method}":
            await self.app(scope, receive, send)
            return
        body, again = await read_ahead(receive)
        is_chosen = self.which != "last" or LAST_WRITE.encode() in body
        if is_chosen and (self.which == "every" or not self.refused):
            self.refused += 1
            await self._refusal()(scope, receive, send)
            return
        await self.app(scope, again, send)

    def _refusal(self) -> Response:
        if self.code.startswith("http_"):
            return Response("no", int(self.code.removeprefix("http_")))
        return JSONResponse({"ok": False, "error": self.code})

    def set(self, method: str, code: str, which: str) -> None:
        self.method, self.code, self.which, self.refused = method, code, which, 0


@dataclass(frozen=True)
class Write:
    """One kind of write, and the requests in which it is refused."""

    method: str
    columns: tuple[str, ...] = ("first", "every")
    streams: bool = True
    is_long: bool = False
    """The answer comes in several messages."""
    has_answer: bool = False
    """The answer is complete already, and no apology may replace it."""
    has_file: bool = False
    is_whisper: bool = False


WRITES = {
    "start of a stream": Write(START),
    "text of a stream": Write("chat.appendStream"),
    "end of a stream": Write("chat.stopStream"),
    "edit behind a stream": Write(UPDATE, has_answer=True),
    "edit without streams": Write(UPDATE, ("first", "last", "every"), streams=False),
    "message": Write(POST, ("first", "last"), streams=False, is_long=True),
    "private message": Write("chat.postEphemeral", is_whisper=True),
    "file": Write("files.completeUploadExternal", has_file=True),
}
CODES = {
    START: "team_not_found missing_scope is_archived a_code_nobody_listed",
    "chat.appendStream": "channel_type_not_supported missing_scope message_not_found",
    "chat.stopStream": "http_404 unknown_method missing_scope message_not_found",
    UPDATE: "update_failed block_mismatch message_not_found edit_window_closed unknown_method",
    POST: "invalid_blocks a_code_nobody_listed restricted_action",
    "chat.postEphemeral": "user_not_in_channel",
    "files.completeUploadExternal": "missing_scope file_type_not_allowed",
}
"""One or two codes of each class that the writer distinguishes; docs.slack.dev lists them."""
ENDINGS = {"answer", "sentence"}
STREAM_LEFT = "answer below a stream that nobody can end"
"""Slack ends it by itself after five minutes."""
NO_REPLY = {"nothing"}
"""Slack accepts no plain message either, so not even a placeholder is posted. A private message
is not posted in public instead."""


async def ask_and_wait(bot: Served, write: Write) -> str:
    """Ask, and return the thread when the request has ended."""
    user = GUEST if write.is_whisper else ASKER
    bot.slack.state.members[bot.channel][user] = None
    thread = bot.ask("Write the plan" if write.has_file else "What is open?", user=user)
    key = f"T0ACME/{bot.channel}/{thread}"

    async def is_over() -> bool:
        request = await bot.inbox.request(key)
        is_finished = request and request.state in ("done", "failed", "ignored")
        return bool(is_finished and not bot.bench.dispatch.at_work)

    await come(is_over)
    return thread


def outcome(bot: Served, write: Write, thread: str) -> str:
    """Return what the thread shows in the end."""
    shown = bot.replies(thread)
    text = "\n".join(m.text for m in shown)
    if write.has_file:
        has_file = any(m.files for m in shown)
        has_note = "Files that are not here" in text
        return "answer" if "Here they are" in text and has_file != has_note else text
    if not shown:
        return "nothing"
    if text.count(phrase("reply.failed")) == 1:
        return "sentence"
    answer = [m for m in shown if m.metadata and not m.streaming]
    parts = {m.metadata["event_payload"].get("of") for m in answer if m.metadata}
    answer_text = "\n".join(m.text for m in answer)
    is_whole = answer_text.count(BEGIN) == answer_text.count(END) == 1 and parts == {len(answer)}
    if is_whole and len(shown) > len(answer) == 1 and write.method == "chat.stopStream":
        return STREAM_LEFT
    return "answer" if is_whole and len(shown) == len(answer) else f"WRONG: {text}"


async def cell(bot: Served, script: Script, write: Write, code: str, column: str) -> str:
    """Return the outcome of one code at one call; `-` if no request made such a call."""
    for _ in range(3):
        script.set(write.method, code, column)
        thread = await ask_and_wait(bot, write)
        refused = script.refused
        script.set("", "", "")
        if refused:
            return outcome(bot, write, thread)
    return "-"


@asynccontextmanager
async def scripted_bot(write: Write, folder: Path) -> AsyncIterator[tuple[Served, Script]]:
    """A bot whose requests make this write, and the script in front of its Slack."""
    space = mixed_workspace() if write.is_whisper else workspace(6)
    slack = LocalSlack(space, streams_refused=None if write.streams else "unknown_method")
    script = Script(slack.app)
    slack.app = script  # type: ignore[assignment]
    answer = say(LONG_ANSWER if write.is_long else ANSWER)
    model = (
        saving_model(save_call("plan.md"))
        if write.has_file
        else scripted_parent(brief_answer(2), answer)
    )
    async with serve(
        folder,
        model,
        slack=slack,
        latency_s=0.02,
        change=UNLIMITED,
        roles={"parent": {"max_tokens": 20_000}},
        serve={"outage_give_up_s": 2.5},
    ) as bot:
        yield bot, script


@pytest.mark.system
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_request_ends_in_an_answer_or_an_error_when_slack_refuses_a_write(
    write: Write, tmp_path: Path
) -> None:
    allowed = {"answer"} if write.has_answer else set(ENDINGS)
    allowed |= NO_REPLY if write.method == POST else set()
    allowed = NO_REPLY if write.is_whisper else allowed
    called = set[str]()
    async with scripted_bot(write, tmp_path) as (bot, script):
        for code, column in product(CODES[write.method].split(), write.columns):
            result = await cell(bot, script, write, code, column)
            if result != "-":
                called.add(column)
                expected = allowed | ({STREAM_LEFT} if column == "every" else set())
                assert result in expected, (code, column)
    assert called == set(write.columns)


# ---- missing scopes and failed look-ups


ADD = "An administrator can add it under OAuth & Permissions and reinstall the app."


def slack_without(*scopes: str) -> LocalSlack:
    """A workspace in which the app lacks these scopes."""
    limited = Identity(BOT_USER, BOT_ID, BOT_SCOPES - set(scopes))
    return LocalSlack(workspace(3), tokens={BOT_TOKEN: limited})


@pytest.mark.parametrize(
    ("scope", "rules", "reason"),
    [
        ("users:read", {}, "I may not look up users"),
        ("usergroups:read", {"ask": ("S0CSM",)}, "I may not look up user groups"),
    ],
)
async def test_missing_scope_for_looking_up_the_requester_is_named(
    tmp_path: Path, scope: str, rules: Json, reason: str
) -> None:
    change = with_rules(**rules)
    async with serve(
        tmp_path, scripted_parent(echo), slack=slack_without(scope), change=change
    ) as bot:
        bot.ask("Hello?")
        await until(bot.whispers)
        assert bot.whispers()[0] == f"{reason}: the app lacks the scope {scope}. {ADD}"


async def test_retry_is_suggested_only_for_transient_slack_errors(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), serve={"outage_give_up_s": 0.1}) as bot:
        for code, reason, next_step in (
            ("account_inactive", "does not accept my token", "`assistant setup`"),
            ("never_heard_of", "look up users: Slack says", "docs.slack.dev"),
            ("ratelimited", "could not check who you are", "ask again in a minute"),
        ):
            bot.slack.state.whispers.clear()
            bot.slack.faults = LastingFaults([Fault("users.info", f"error:{code}")])
            bot.ask("Hello?")
            await until(bot.whispers)
            (whisper,) = bot.whispers()
            assert reason in whisper
            assert next_step in whisper
            assert ("again" in whisper) == (next_step.startswith("ask again"))


# ---- reading


def reader(body: Json) -> Answer:
    """A subagent that reads one channel and finds nothing."""
    if not results(body):
        return Answer([use("read_channel_history", channel=channel_id(2))])
    return submission("Nothing was found.")


READING_MODEL = scripted_parent(brief_answer(2), say("Nothing was found."), children=reader)


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ("channels:history", "I may not read messages"),
        ("mpim:read", "I may not see which channels somebody is in"),
    ],
)
async def test_missing_scope_for_reading_messages_or_memberships_is_named(
    tmp_path: Path, scope: str, reason: str
) -> None:
    """Without memberships the bot cannot know who may read a private channel."""
    async with serve(tmp_path, READING_MODEL, slack=slack_without(scope)) as bot:
        shown = await bot.answer(bot.ask("What is open in #support-2?"))
        text = unescape(f"{shown.text}\n{shown.blocks}").replace("\N{WORD JOINER}", "")
        assert f"{reason}: the app lacks the scope {scope}. {ADD[:-1]}" in text
