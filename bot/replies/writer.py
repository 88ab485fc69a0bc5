"""What the write tools of the `slack` scope write with: the outbox, and texts that cannot act."""

from __future__ import annotations

from bot.replies import render
from bot.replies.outbox import Outbox
from bot.replies.writes import ChannelClosed, WriteFailed
from config.settings import Reply
from scopes.tool import ToolError

WORDS = {
    "is_archived": "the channel is archived",
    "channel_not_found": "there is no such channel for me",
    "not_in_channel": "I am not in that channel; somebody has to invite me",
    "user_not_found": "there is no such person",
    "cannot_dm_bot": "that is a bot",
    "user_disabled": "that account was switched off",
    "thread_not_found": "there is no such thread",
    "message_not_found": "there is no such message",
    "invalid_name": "there is no such emoji",
}
"""Slack's words for why not, in ours."""


class Writer:
    """Writes for the tools: `scopes.slack_writer.SlackWriter`."""

    def __init__(self, outbox: Outbox, settings: Reply) -> None:
        self._outbox, self._settings = outbox, settings

    async def post(
        self, key: str, channel: str, thread_ts: str, text: str, request: str, by: str = ""
    ) -> str:
        parts = render.message(text, request, self._settings, by)
        first = ""
        try:
            for number, part in enumerate(parts, 1):
                ts = await self._outbox.post(
                    f"{key}#{number}",
                    channel,
                    thread_ts or first or None,
                    part.text,
                    part.blocks,
                    look_first=True,
                )
                first = first or ts
        except WriteFailed as error:
            raise _refused(error) from error
        return f"{channel}/{first}"

    async def message(self, key: str, user: str, text: str, request: str, by: str = "") -> str:
        try:
            channel = await self._outbox.direct(user)
        except WriteFailed as error:
            raise _refused(error) from error
        return await self.post(key, channel, "", text, request, "" if by == user else by)

    async def react(self, channel: str, ts: str, name: str) -> None:
        try:
            await self._outbox.react(channel, ts, name)
        except WriteFailed as error:
            raise _refused(error) from error


def _refused(error: WriteFailed) -> ToolError:
    why = WORDS.get(error.code, f"Slack says {error.code}")
    again = "" if isinstance(error, ChannelClosed) or error.code in WORDS else " Try again later."
    return ToolError(f"It was not written: {why}.{again}")
