"""What Slack does not let the bot read is told with who can change that, and how."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from typing import Any

import pytest
from engine_kit import (
    Json,
    brief_answer,
    channel_id,
    is_child,
    led_by,
    results,
    say,
    submitted,
    turn,
    until,
    use,
    workspace,
)
from serve_kit import Served, echo, ruled, serving
from standins.slack import BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault, Lasting

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_ID, BOT_SCOPES, BOT_USER, Identity

ADD = "An administrator can add it under OAuth & Permissions and reinstall the app."


def lacking(*scopes: str, **more: Any) -> LocalSlack:
    """A workspace in which the app lacks these scopes."""
    less = Identity(BOT_USER, BOT_ID, BOT_SCOPES - set(scopes))
    return LocalSlack(workspace(3), tokens={BOT_TOKEN: less}, **more)


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
async def test_a_scope_that_is_missing_to_see_who_asks_is_named(
    tmp_path: Path, scope: str, rules: Json, said: str
) -> None:
    change = ruled(**rules)
    async with serving(tmp_path, led_by(echo), slack=lacking(scope), change=change) as bot:
        bot.ask("Hello?")
        await until(bot.whispers)
        assert bot.whispers()[0] == f"{said}: the app lacks the scope {scope}. {ADD}"


async def test_only_what_passes_is_to_be_asked_again(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(echo), serve={"outage_give_up_s": 0.1}) as bot:
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
    return submitted("Nothing was found.")


def led(body: Json) -> Answer:
    if is_child(body):
        return reader(body)
    return brief_answer(2) if not turn(body) else say("Nothing was found.")


async def shown(bot: Served, text: str, channel: str = "") -> str:
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
async def test_a_scope_that_is_missing_to_read_or_to_see_memberships_is_named(
    tmp_path: Path, scope: str, said: str
) -> None:
    """Without memberships no private channel is known to be anybody's."""
    async with serving(tmp_path, led, slack=lacking(scope)) as bot:
        told = await shown(bot, "What is open in #support-2?")
        assert f"{said}: the app lacks the scope {scope}. {ADD[:-1]}" in told
