"""When Slack refuses a write or a read, a request ends in its answer or in one sentence."""

from __future__ import annotations

import sqlite3
from html import unescape
from itertools import product
from pathlib import Path

import pytest
from engine_kit import (
    Json,
    brief_answer,
    channel_id,
    results,
    say,
    scripted_parent,
    submission,
    until,
    use,
    workspace,
)
from serve_kit import ASKER, Served, change_settings, echo, serve, with_rules, with_sections
from standins.slack import BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault, LastingFaults
from standins.slack_scopes import BOT_SCOPES, Identity
from test_attaching import save_call, saving_model
from test_serve_policy import GUEST, SHARED, STRANGER, mixed_workspace

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_ID, BOT_USER
from config.settings import Settings
from config.words import phrase

START, UPDATE, POST = "chat.startStream", "chat.update", "chat.postMessage"
BEGIN, END = "It is **open**", "This is all of it"
ANSWER = f"{BEGIN} [F1.1]. {'Nobody has looked at it yet. ' * 8} {END}."


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

WHOLE, SENTENCE = "the answer", "one sentence"
STREAM_LEFT = "the answer beside a stream that nobody can end"
"""Slack ends it by itself after five minutes."""
NOTHING = "nothing"
"""Slack accepts no plain message either, so not even a placeholder is posted."""
ENDS = {WHOLE, SENTENCE}


def outcome(bot: Served, thread: str) -> str:
    """Return what the thread shows in the end."""
    shown = bot.replies(thread)
    if not shown:
        return NOTHING
    if sum(phrase("reply.failed") in m.text for m in shown) == 1:
        return SENTENCE
    (answer,) = [m for m in shown if m.metadata and not m.streaming]
    assert answer.metadata
    assert answer.metadata["event_payload"]["of"] == 1
    assert answer.text.count(BEGIN) == answer.text.count(END) == 1
    return WHOLE if shown == [answer] else STREAM_LEFT


@pytest.mark.system
@pytest.mark.parametrize(
    ("method", "codes", "streams", "allowed"),
    [
        (START, "team_not_found missing_scope is_archived never_heard_of", True, ENDS),
        ("chat.appendStream", "channel_type_not_supported missing_scope", True, ENDS),
        ("chat.stopStream", "unknown_method missing_scope", True, {*ENDS, STREAM_LEFT}),
        (UPDATE, "update_failed message_not_found edit_window_closed", True, {WHOLE}),
        (UPDATE, "block_mismatch message_not_found unknown_method", False, ENDS),
        (POST, "invalid_blocks never_heard_of restricted_action", False, {*ENDS, NOTHING}),
    ],
)
async def test_request_ends_in_an_answer_or_an_error_when_slack_refuses_a_write(
    tmp_path: Path, method: str, codes: str, streams: bool, allowed: set[str]
) -> None:
    """Each call is refused, or the first one; docs.slack.dev lists the codes."""
    slack = LocalSlack(workspace(6), streams_refused=None if streams else "unknown_method")
    model, limit = scripted_parent(brief_answer(2), say(ANSWER)), {"outage_give_up_s": 2.5}
    async with serve(
        tmp_path, model, slack=slack, latency_s=0.02, change=UNLIMITED, serve=limit
    ) as bot:
        for code, kind in product(codes.split(), (list, LastingFaults)):
            before = slack.calls[method]
            slack.faults = kind([Fault(method, f"error:{code}")])
            thread = bot.ask()
            await bot.quiet()
            slack.faults = []
            assert slack.calls[method] > before
            assert outcome(bot, thread) in allowed, (code, kind)


@pytest.mark.parametrize(
    ("code", "told"), [("restricted_action", 1), ("not_in_channel", 1), ("thread_not_found", 0)]
)
async def test_requester_is_told_that_the_bot_cannot_write_where_they_asked(
    tmp_path: Path, code: str, told: int
) -> None:
    """Nobody is told whose message is gone."""
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        bot.slack.faults += [Fault(each, f"error:{code}") for each in (START, POST, POST)]
        thread = bot.ask()
        await bot.quiet()
        assert bot.slack.faults == []
        assert bot.replies(thread) == []
        text = phrase("reply.closed", channel=f"<#{bot.channel}>")
        assert [m.text for m in bot.slack.visible(bot.slack.people.dm(ASKER))] == [text] * told


async def test_private_message_that_slack_refuses_is_not_posted_in_public(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), space=mixed_workspace()) as bot:
        bot.slack.state.members[bot.channel][GUEST] = None
        bot.slack.faults.append(Fault("chat.postEphemeral", "error:user_not_in_channel"))
        thread = bot.ask(user=GUEST)
        await bot.quiet()
        assert bot.slack.faults == []
        assert bot.replies(thread) == []


@pytest.mark.parametrize("code", ["missing_scope", "file_type_not_allowed"])
async def test_file_that_slack_refuses_is_named_below_the_answer(tmp_path: Path, code: str) -> None:
    async with serve(tmp_path, saving_model(save_call("plan.md"))) as bot:
        bot.slack.faults = LastingFaults([Fault("files.completeUploadExternal", f"error:{code}")])
        thread = bot.ask("Write the plan")
        await bot.quiet()
        text = "\n".join(m.text for m in bot.replies(thread))
        assert "Here they are" in text
        assert "Files that are not here" in text


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
            ("ratelimited", "could not check it with Slack", "try again in a minute"),
        ):
            bot.slack.state.whispers.clear()
            bot.slack.faults = LastingFaults([Fault("users.info", f"error:{code}")])
            bot.ask("Hello?")
            await until(bot.whispers)
            (whisper,) = bot.whispers()
            assert reason in whisper
            assert next_step in whisper
            assert ("again" in whisper) == (next_step.startswith("try again"))


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
