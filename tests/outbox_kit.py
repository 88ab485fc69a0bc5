"""A local Slack with one mention in it, and an outbox that writes there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from engine_kit import MUX
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_shown import Shown

from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, User, Workspace
from bot.slack.client import RateLimit, WriteTimes
from bot.slack.messages import MessagePart
from bot.slack.stream import StreamingReply
from bot.slack.writer import MessageWriter
from bot.storage.requests import StoredReply, StoredRequest
from config.sections import ReplySettings
from config.settings import load_settings

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

    def new_outbox(self, **more: Any) -> MessageWriter:
        times = WriteTimes(**{"backoff_s": 0.001, "settle_s": 0.002, **more})
        return MessageWriter(self.web, load_settings(env={}).slack, RateLimit(None), times)

    def answers(self, channel: str = CHANNEL) -> list[Shown]:
        """What the bot shows in the thread."""
        return [m for m in self.slack.visible(channel, ASKED) if m.user == BOT_USER]


@asynccontextmanager
async def desk(slack: LocalSlack | None = None, **settings: Any) -> AsyncIterator[Desk]:
    """`settings` are those of the reply; its updates come fast unless they say otherwise."""
    slack = slack or LocalSlack(workspace())
    chosen = load_settings(env={}).reply.model_copy(update={"update_s": 0.01, **settings})
    with MUX.serving(slack.app) as url:
        async with aiohttp.ClientSession() as session:
            web = AsyncWebClient(token=BOT_TOKEN, base_url=url + API_PATH, session=session)
            made = Desk(slack, web, None, chosen)  # type: ignore[arg-type]
            made.writer = made.new_outbox()
            yield made


def rendered(text: str, *more: str) -> Sequence[MessagePart]:
    """An answer in parts, made as bot.slack.blocks makes them."""
    parts = [MessagePart(each, ({"type": "markdown", "text": each},)) for each in (text, *more)]
    said = {"type": "context", "elements": [{"type": "mrkdwn", "text": "1 subagent"}]}
    parts[-1] = MessagePart(parts[-1].text, (*parts[-1].blocks, said))
    return parts
