"""What a requester may not open looks to them as if it did not exist, in every tool and place."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import data_kit
import pytest
from bot_kit import delegating_model, finding_model
from engine_kit import (
    Engine,
    Json,
    brief_answer,
    channel_id,
    channel_of,
    engine,
    is_child,
    line,
    opening,
    results,
    say,
    sentence,
    thread_id,
    turn,
    turns,
    use,
    workspace,
)
from policy_kit import Clock
from serve_kit import Served, change_settings, serve, with_rules
from standins.slack import LocalSlack
from standins.slack_faults import Fault

import scopes
from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Workspace
from bot.requests.context import MAX_RECENT
from config.sections import DataSettings
from config.settings import Settings
from scopes.intent import Intent
from scopes.members import KEPT_S
from scopes.slack import OPEN_CHANNELS
from scopes.tool import ToolError, ToolResult

ANA, LUIS, EVA = "U0ANA", "U0LUIS", "U0EVA"
SECRET, NOWHERE = channel_id(2), channel_id(9)
HELD = {channel_id(1): "#support-1", SECRET: "#support-2", NOWHERE: "#support-9"}
"""Handles of a context that got a hidden and a missing channel by mistake."""
WORD = sentence("q2.0").split()[0]
TOOLS = {t.name: t for t in scopes.scope("slack").tools}


def space() -> Workspace:
    """`#support-2` is private: ANA, LUIS and the bot are in it."""
    base = workspace(3)
    secret = replace(channel_of(2, 2), is_private=True, members=(ANA, LUIS, BOT_USER))
    return replace(base, channels=(base.channels[0], secret, base.channels[2]))


def alike(text: str, n: int) -> str:
    """The text without the id and the number of this channel, and without what is random."""
    text = re.sub(r"items-[0-9a-f]{32}|[0-9]+ s · run [0-9a-f]+", "...", text)
    return text.replace(channel_id(n), "ID").replace(f"support-{n}", "NAME")


@asynccontextmanager
async def user_engine(user: str, clock: Clock | None = None) -> AsyncIterator[Engine]:
    async with engine(
        turns(), slack=LocalSlack(space()), requester=user, clock=clock or Clock()
    ) as e:
        yield e


async def call_tool(e: Engine, name: str, /, _held: Mapping[str, str] = HELD, **args: Any) -> str:
    """The text that a tool returns to the model: its result, a refusal or an error."""
    ctx = replace(e.context(_held), intent=Intent(home=channel_id(1)))
    try:
        found = await e.run.gate.call("s1", ctx, TOOLS[name], args)
    except ToolError as error:
        return str(error)
    if not isinstance(found, ToolResult):
        return found.reason
    return "\n".join([found.note, found.truncated, *(item.line() for item in found.items)])


FORMS: dict[str, tuple[str, dict[str, str]]] = {
    "read_channel_history": ("channel", {}),
    "read_thread": ("thread", {}),
    "search_messages": ("channel", {"query": "word"}),
    "get_permalink": ("message", {}),
    "post_message": ("channel", {"text": "hello"}),
    "add_reaction": ("message", {"name": "eyes"}),
}
OTHERS = {"list_channels", "list_slack_list_items", "lookup_user", "send_direct_message"}
"""Tools that take no conversation."""


def test_every_tool_that_takes_a_conversation_is_tried() -> None:
    assert FORMS.keys() | OTHERS == TOOLS.keys()
    for name in OTHERS:
        kinds = set(TOOLS[name].handle_arguments.values())
        assert not kinds & {"channel", "thread"}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", ["id", "name", "not held"])
async def test_every_tool_answers_hidden_channels_like_missing_ones(name: str, form: str) -> None:
    argument, more = FORMS[name]
    held = {channel_id(1): "#support-1"} if form == "not held" else HELD
    async with user_engine(EVA) as e:
        await call_tool(e, "read_channel_history", channel=NOWHERE)  # fills the caches for both
        for _ in range(2):  # earlier calls make no difference, either
            texts, calls = [], []
            for n in (2, 9):
                subject = f"#support-{n}" if form == "name" else channel_id(n)
                if argument in ("thread", "message"):
                    subject += "/" + thread_id(2, 0).partition("/")[2]
                before = Counter(e.slack.calls)
                text = await call_tool(e, name, held, **{argument: subject, **more})
                texts.append(alike(text, n))
                calls.append(Counter(e.slack.calls) - before)
            assert texts[0] == texts[1]
            assert texts[0].startswith("No ")
            for each in calls:  # about the requester: once, or before each write
                each.pop("users.info", 0)
            assert calls[0] == calls[1]
        assert e.slack.effects == []


async def test_listing_and_searching_do_not_reveal_hidden_channels() -> None:
    for user, home in ((EVA, channel_id(1)), (EVA, "D0EVA"), (EVA, "")):
        async with user_engine(user) as e:
            for name, more in (
                ("list_channels", [{"match": "support-2"}, {"match": "support-9"}]),
                ("search_messages", [{"query": "zebra"}, {"query": "zebra"}]),
            ):
                texts, calls = [], []
                for n, args in zip((2, 9), more, strict=True):
                    held = {OPEN_CHANNELS: "", channel_id(1): "#support-1", channel_id(n): "#x"}
                    await call_tool(e, name, held, **args)
                    before = Counter(e.slack.calls)
                    ctx = replace(e.context(held), intent=Intent(home=home))
                    found = await e.run.gate.call("s1", ctx, TOOLS[name], args)
                    assert isinstance(found, ToolResult)
                    assert found.items == ()
                    texts.append(alike(found.note, n))
                    calls.append(Counter(e.slack.calls) - before)
                assert texts[0] == texts[1]
                assert calls[0] == calls[1]


async def test_members_read_a_private_channel_by_id_and_name() -> None:
    async with user_engine(ANA) as e:
        for subject in (SECRET, "#support-2"):
            assert "4 messages in window" in await call_tool(
                e, "read_channel_history", channel=subject
            )
        thread = thread_id(2, 0)
        assert thread in await call_tool(e, "read_thread", thread=thread)
        assert thread in await call_tool(e, "search_messages", query=WORD, channel=SECRET)
        assert SECRET in await call_tool(e, "get_permalink", message=thread)


async def test_access_ends_when_membership_is_lost_after_listing() -> None:
    clock = Clock()
    async with user_engine(ANA, clock) as e:
        assert "#support-2" in await call_tool(e, "list_channels")
        assert "messages in window" in await call_tool(e, "read_channel_history", channel=SECRET)
        e.slack.people.leave(ANA, SECRET)
        clock.now += KEPT_S
        tries: tuple[tuple[str, dict[str, Any]], ...] = (
            ("read_channel_history", {"channel": SECRET}),
            ("read_thread", {"thread": thread_id(2, 0)}),
            ("search_messages", {"query": WORD, "channel": SECRET}),
        )
        for name, args in tries:
            assert (await call_tool(e, name, **args)).startswith("No ")
        assert "#support-2" not in await call_tool(e, "list_channels")
        assert (await call_tool(e, "search_messages", query=WORD)).startswith(
            "Messages found: 0; channels searched: 1."
        )


async def test_channel_without_the_bot_is_answered_like_a_missing_one() -> None:
    clock = Clock()
    async with user_engine(ANA, clock) as e:
        e.slack.people.leave(BOT_USER, SECRET)
        text = await call_tool(e, "read_channel_history", channel=SECRET)
        absent = await call_tool(e, "read_channel_history", channel=NOWHERE)
        assert alike(text, 2) == alike(absent, 9)


@pytest.mark.parametrize("method", ["users.info", "users.conversations"])
async def test_failed_access_check_denies_reading_and_is_logged(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with user_engine(ANA) as e:
        e.slack.faults.append(Fault(method, "error:fatal_error"))
        assert (await call_tool(e, "read_channel_history", channel=SECRET)).startswith(
            "No channel "
        )
        messages = [r.getMessage() for r in caplog.records if "could not check" in r.getMessage()]
        assert len(messages) == 1
        assert f"Slack refused {method}: fatal_error" in messages[0]
        assert "messages in window" in await call_tool(e, "read_channel_history", channel=SECRET)


COST = re.compile(r"\$\d\.\d{3}")
QUESTIONS = {
    "by name": "What is open in #support-{n}?",
    "by mark": "What is open in <#{id}|>?",
    "by id": "What is open in {id}?",
    "by link": "What of https://acme.slack.com/archives/{id}/p{ts}?",
}


async def test_request_and_its_follow_up_are_offered_only_databases_of_their_requester(
    tmp_path: Path,
) -> None:
    path = data_kit.duck_file(tmp_path / "shop.duckdb")
    pay = {"path": path, "readers": [EVA]}
    databases = {"shop": {"path": path, "readers": ["members"]}, "pay": pay}

    def change(settings: Settings) -> Settings:
        data = DataSettings.model_validate({**settings.data.model_dump(), "databases": databases})
        return settings.model_copy(update={"data": data})

    task = "What was sold?"
    query = finding_model("execute_query", sql="SELECT count(*) AS n FROM orders")
    model = delegating_model((task, "data", "data:shop"), readers={task: query})
    async with serve(tmp_path, model, change=change) as bot:
        thread = bot.ask(task)
        await bot.answer(thread)
        assert line(bot.parents()[0], "DATA").startswith("data:shop (shop): with it")
        bot.ask("And before?", thread_ts=thread)
        await bot.answers(thread, 2)
        assert "[F1001.1] n BIGINT | in q-" in opening(bot.parents()[-1]), "an earlier finding"


def curious(body: Json) -> Answer:
    """A parent that tries each way to read the channel that it was asked about."""
    if is_child(body):
        return say("not reached")
    request = opening(body).rpartition("\nREQUEST: ")[2] or opening(body)
    n = 2 if "support-2" in request or SECRET in request else 9
    thread = f"{channel_id(n)}/{thread_id(2, 0).partition('/')[2]}"
    attempts = [
        Answer([use("list_channels", match=f"support-{n}"), use("list_channels")]),
        Answer([use("read_thread", thread=thread), use("read_thread", thread=f"#support-{n}/1.1")]),
        brief_answer(n, task="Find out what is open there", description="It"),
        brief_answer(n, handles=[f"#support-{n}"], task="Find it out, please", description="It"),
    ]
    return attempts[turn(body)] if turn(body) < len(attempts) else say("Nothing was found.")


def without_backfill(settings: Settings) -> Settings:
    """Turn off the backfill, which calls Slack at any time."""
    return with_rules(scopes=("slack",))(change_settings(settings, slack={"backfill_hours": 0}))


def shown_to_model(bot: Served, n: int, since: int) -> list[str]:
    """What the model saw of its attempts, without the name of the channel."""
    last = bot.parents()[since:][-1]
    sources = [t for t in str(last["messages"][0]).split("\\n") if t.startswith("NAMED SOURCES")]
    return [alike(each, n) for each in [*sources, *(r["content"] for r in results(last))]]


@pytest.mark.parametrize("face", ["channel", "dm"])
async def test_request_about_a_hidden_channel_is_answered_like_a_missing_one(
    tmp_path: Path, face: str
) -> None:
    slack = LocalSlack(space(), retries_s=(0.0, 0.3, 1.0))
    async with serve(tmp_path, curious, slack=slack, change=without_backfill) as bot:
        place = slack.people.dm(EVA) if face == "dm" else channel_id(1)

        async def ask(text: str, n: int) -> tuple[list[str], str, Counter[str]]:
            since, before = len(bot.parents()), Counter(slack.calls)
            stamp = thread_id(2, 0).partition("/")[2].replace(".", "")
            question = text.format(n=n, id=channel_id(n), ts=stamp)
            at = (
                slack.people.say(EVA, place, question)
                if face == "dm"
                else bot.ask(question, user=EVA, channel=place)
            )
            answer = await bot.answer(at, channel=place)
            calls = Counter(slack.calls) - before
            reads = {m: c for m, c in calls.items() if m.startswith(("conversations", "users"))}
            reply = COST.sub("$", answer.text)  # it grows with earlier questions
            return shown_to_model(bot, n, since), alike(reply, n), Counter(reads)

        # Fills the caches, and the history of the direct message, equally for both.
        for _ in range(MAX_RECENT if face == "dm" else 1):
            await ask(QUESTIONS["by name"], 9)
        for form in QUESTIONS.values():
            for _ in range(3):  # a cached listing may expire between the two, never each time
                hidden, absent = await ask(form, 2), await ask(form, 9)
                if hidden[2] == absent[2]:
                    break
            assert hidden[0] == absent[0], form
            assert hidden[1] == absent[1], form
            assert hidden[2] == absent[2], form
            assert len(hidden[0]) > 4
            assert not any(secret in str(hidden[0]) for secret in (WORD, "a2.0"))
