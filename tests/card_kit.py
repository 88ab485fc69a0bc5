"""Requests whose parent wants to write elsewhere, for tests of approval cards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine_kit import Json, channel_id, come, say, scripted_parent, until, use, workspace
from serve_kit import ASKER as ASKER
from serve_kit import Served, with_sections
from standins.slack import LocalSlack
from standins.slack_shown import Shown

from bot.approvals.store import StoredAction
from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.records import View
from bot.local.slack.state import BOT_USER
from bot.local.workspace import User, Workspace
from config.settings import Settings
from scopes.effects import Access, Effect, Said
from scopes.tool import ToolContext, ToolResult, tool


@tool(Access.EGRESS, Effect.SEND)
async def send_mail(
    ctx: ToolContext, subject: str, text: Said, to: list[str], cc: list[str] | None = None
) -> ToolResult:
    """Send a mail."""
    return ToolResult(note=f"Sent to {', '.join(to)}.")


TOOLS = (send_mail,)
"""Tools of a scope that only tests have: tests/test_cards.py uses this module as a scope."""

LUIS, EVA, BOSS, GUEST = "U0LUIS", "U0EVA", "U0BOSS", "U0GUEST"
THERE = channel_id(2)
"""The channel that the request asks about, and that the model wants to write to."""
QUESTION = "What is open in #support-2?"
TEXT = "The login is mended."


def people(channels: int = 3) -> Workspace:
    base = workspace(channels)
    more = (User(BOSS, "boss", "Ida Boss"), User(GUEST, "gus", "Gus Guest", is_restricted=True))
    return replace(base, users=(*base.users, *more))


def posting_model(*texts: str) -> Responder:
    """Script a parent that wants to post each of these texts, and then answers."""
    posts = Answer([use("post_message", channel=THERE, text=text) for text in texts or (TEXT,)])
    return scripted_parent(posts, say("It waits for your approval."))


def with_approvers(*approvers: str, admins: Sequence[str] = ()) -> Callable[[Settings], Settings]:
    """Return a change of settings that sets these approvers and admins."""
    return with_sections(policy={"approvers": approvers, "admins": tuple(admins)})


def buttons(message: Shown) -> dict[str, str]:
    """Map the action id of each button of a message to its value."""
    return {
        element["action_id"]: element.get("value", "")
        for block in message.blocks
        if block["type"] == "actions"
        for element in block["elements"]
    }


def cards_in(slack: LocalSlack, channel: str) -> list[Shown]:
    """Return the messages that have buttons to approve with."""
    return [m for m in slack.visible(channel) if any(n.startswith("action_") for n in buttons(m))]


def cards(bot: Served, channel: str = "") -> list[Shown]:
    return cards_in(bot.slack, channel or bot.channel)


def again(bot: Served, message: Shown, channel: str = "") -> Shown:
    """Return the message as it is shown now."""
    messages = bot.slack.visible(channel or bot.channel)
    return next(m for m in messages if m.ts == message.ts)


async def wait_for_form(bot: Served) -> View:
    """Return the form once it is open."""

    def modals() -> list[View]:
        return [v for v in bot.slack.state.views.values() if v.body["type"] == "modal"]

    await until(modals)
    return modals()[0]


def bot_texts(slack: LocalSlack, channel: str) -> list[str]:
    """Return the bot's texts in a channel, without the line that names the requester."""
    texts = [m.text for m in slack.visible(channel) if m.user == BOT_USER]
    return [re.sub(r"\nFor <@\w+>\Z", "", text) for text in texts]


async def card(bot: Served, channel: str = "") -> Shown:
    """Return the card once it is posted and can be clicked."""
    await until(lambda: len(cards(bot, channel)) == 1 and not bot.bench.dispatch.at_work, 40)
    return cards(bot, channel)[0]


async def ask_for_card(bot: Served, text: str = QUESTION, **more: Any) -> Shown:
    """Ask; return the card."""
    bot.ask(text, **more)
    return await card(bot)


def posted_texts(bot: Served, channel: str = THERE) -> list[str]:
    return bot_texts(bot.slack, channel)


async def stored_actions(bot: Served, *states: str) -> list[StoredAction]:
    """Return the actions in these states, or all."""
    every = ("proposed", "asked", "approved", "denied", "expired", "edited", "done", "failed")
    return await bot.bench.approvals.actions.in_state(*(states or every))


async def reaches(bot: Served, *states: str) -> list[StoredAction]:
    """Return all actions once each of them is in one of these states."""

    async def rows_in_states() -> list[StoredAction]:
        rows = await stored_actions(bot)
        return rows if all(row.state in states for row in rows) else []

    return await come(rows_in_states)


async def wait_for_states(bot: Served, *states: str) -> None:
    """Wait until the actions are in these states, one each."""

    async def is_settled() -> bool:
        return sorted(row.state for row in await stored_actions(bot)) == sorted(states)

    await come(is_settled)


async def verdicts(bot: Served) -> list[tuple[str, str]]:
    """Return (verdict, rule) of each click that was logged."""
    rows = await stored_actions(bot)
    found = []
    for run in dict.fromkeys(["", *(row.run for row in rows)]):
        for each in await bot.store.decisions(run):
            if each.verdict in ("approved", "denied", "edited", "refused"):
                found.append((each.verdict, each.rule))
    return found


def payload(
    message: Shown,
    /,
    *,
    user: str = ASKER,
    team: str = "T0ACME",
    channel: str = "",
    action: str = "action_approve",
    value: str | None = None,
    **fields: Any,
) -> Json:
    """Return a click as Slack sends it; each field may be forged."""
    button_value = buttons(message).get(action, "") if value is None else value
    return {
        "type": "block_actions",
        "user": {"id": user, "team_id": team},
        "team": {"id": "T0ACME"},
        "trigger_id": "1.2.x",
        "container": {"type": "message", "message_ts": message.ts, "channel_id": channel},
        "channel": {"id": channel},
        "message": {"ts": message.ts, "thread_ts": message.thread_ts},
        "actions": [{"type": "button", "action_id": action, "value": button_value}],
        **fields,
    }


async def until_logged(bot: Served, count: int) -> None:
    """Wait until `count` clicks are logged."""

    async def has_logged() -> bool:
        return len(await verdicts(bot)) >= count

    await come(has_logged)
