"""Write messages to Slack, each exactly once, even if the network fails.

A write whose outcome is unknown is never replayed: each message carries its key as metadata, and is
looked up by that key first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.client import (
    GONE,
    LITERAL,
    MAX_TEXT,
    NO_UNFURLING,
    TIERS,
    ApiCalls,
    Block,
    MessageGone,
    OutcomeUnknown,
    PostedMessages,
    RateLimit,
    ReplyMessages,
    TokenRefused,
    WriteFailed,
    block_form,
    clear_blocks,
    message_metadata,
    send_with_fallback,
    ts_of,
    within,
)
from bot.slack.messages import Mark, MessagePart
from bot.slack.uploads import Uploads
from config.sections import SlackSettings

log = logging.getLogger(__name__)

QUICK_S = 15.0
"""Shorter than Slack's slowest answers, so that progress does not block anything."""


class MessageWriter:
    """Writes to one workspace. Its methods raise WriteFailed, at the latest after `deadline_s`."""

    def __init__(
        self,
        web: AsyncWebClient,
        slack: SlackSettings,
        *,
        pace: RateLimit | None = None,
        deadline_s: float = 240.0,
        backoff_s: float = 0.5,
        settle_s: float = 2.0,
        quick_s: float = QUICK_S,
    ) -> None:
        """`web` loses its retry handlers; `settle_s` is how long a lost write may take to appear.

        `quick_s` is the deadline of writes that only show progress.
        """
        attempts = slack.retry_attempts + 1
        pace = pace or RateLimit(TIERS if slack.paced else None)
        self._writes = ApiCalls(
            *(web, slack.timeout_s, attempts, pace, backoff_s, deadline_s, quick_s)
        )
        self._written = PostedMessages(self._writes, slack.page_size)
        self._settle_s, self._sessions = settle_s, True
        self.uploads = Uploads(self._writes, self._written, settle_s)

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Calls by method and outcome: ok, ratelimited, skipped, unsent, unknown, Slack's code."""
        return self._writes.calls

    async def post(
        self,
        mark: Mark,
        channel: str,
        thread_ts: str | None,
        part: MessagePart,
        *,
        look_first: bool = False,
        exact: bool = False,
        after: str = "",
        besides: Collection[str] = (),
    ) -> str:
        """Post a message and return its ts; `look_first` = it may have been posted already.

        `exact` = with these blocks or not at all: ContentRefused if Slack refuses them. `after` (a
        ts older than the message) shortens the search; `besides` are other messages with this key.
        """

        async def find() -> str | None:
            return await self._written.find(channel, thread_ts, mark.key, after, besides)

        async def send(form: dict[str, Any]) -> str:
            where = {"channel": channel} | ({"thread_ts": thread_ts} if thread_ts else {})
            form = {**where, **form, **message_metadata(mark), **NO_UNFURLING}
            return await self._post_once(form, find)

        async with within(self._writes.deadline_s, "chat.postMessage"):
            if look_first and (ts := await find()):
                return ts
            if exact:
                return await send(block_form(part))
            return await send_with_fallback(send, part)

    async def update(
        self, mark: Mark, channel: str, ts: str, part: MessagePart, *, exact: bool = False
    ) -> None:
        """Replace a message; `exact` as in `post`. It is retried, because that is safe."""

        async def send(form: dict[str, Any]) -> str:
            form = {
                "channel": channel,
                "ts": ts,
                **clear_blocks(form),
                **message_metadata(mark),
            }
            await self._writes.call("chat.update", form, repeatable=True)
            return ts

        async with within(self._writes.deadline_s, "chat.update"):
            if exact:
                await send(block_form(part))
            else:
                await send_with_fallback(send, part)

    async def show(self, mark: Mark, channel: str, ts: str, part: MessagePart) -> bool:
        """Show progress in a message; return False if more urgent writes come first."""
        args = {"channel": channel, "ts": ts, **block_form(part), **message_metadata(mark)}
        return await self._writes.call_now("chat.update", args, live=True) is not None

    async def settle(self) -> None:
        """Wait until a write of unknown outcome has taken effect."""
        await asyncio.sleep(self._settle_s)

    async def delete(self, channel: str, ts: str) -> None:
        """Delete a message of ours; it may be gone already."""
        try:
            args = {"channel": channel, "ts": ts}
            await self._writes.call("chat.delete", args, repeatable=True)
        except MessageGone as error:
            if error.code != GONE:
                raise

    async def whisper(
        self, channel: str, user: str, text: str, thread_ts: str | None = None
    ) -> None:
        """Send a message that only one user sees; in a direct message it is a normal one.

        An ephemeral message cannot be looked up: one of unknown outcome counts as sent.
        """
        if channel.startswith("D"):
            said = hashlib.sha256(f"{user}/{thread_ts}/{text}".encode(errors="replace"))
            mark = Mark(f"whisper/{said.hexdigest()[:16]}")
            await self.post(mark, channel, thread_ts, MessagePart(text))
            return
        args = {"channel": channel, "user": user, "text": text[:MAX_TEXT], **LITERAL}
        try:
            args |= {"thread_ts": thread_ts} if thread_ts else {}
            await self._writes.call("chat.postEphemeral", args, repeatable=False)
        except OutcomeUnknown as error:
            log.warning("a message that only %s sees may not have arrived: %s", user, error.code)

    async def direct(self, user: str) -> str:
        """Return the direct conversation with a user."""
        method = "conversations.open"
        body = await self._writes.call(method, {"users": user}, repeatable=True)
        channel = (body.get("channel") or {}).get("id")
        if not isinstance(channel, str) or not channel:
            raise OutcomeUnknown(method, "malformed_answer")
        return channel

    async def react(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction; one that exists already is fine."""
        method, args = "reactions.add", {"channel": channel, "timestamp": ts, "name": name}
        try:
            await self._writes.call(method, args, repeatable=True)
        except WriteFailed as error:
            if error.code != "already_reacted":
                raise

    async def start_stream(
        self, channel: str, thread_ts: str, team: str, user: str, chunks: Sequence[Block]
    ) -> str | None:
        """Start a stream for a user of this team and return its ts; None = not possible now.

        After OutcomeUnknown, look for it.
        """
        args = {
            **{"channel": channel, "thread_ts": thread_ts, "task_display_mode": "plan"},
            **{"recipient_team_id": team, "recipient_user_id": user, "chunks": list(chunks)},
        }
        body = await self._writes.call_now("chat.startStream", args)
        if body is None:
            return None
        return ts_of(body, "chat.startStream")

    async def append(self, channel: str, ts: str, chunks: Sequence[Block]) -> bool:
        """Append to a stream; False = not now. Never repeat text after OutcomeUnknown."""
        args = {"channel": channel, "ts": ts, "chunks": list(chunks)}
        return await self._writes.call_now("chat.appendStream", args, live=True) is not None

    async def stop_stream(
        self,
        mark: Mark,
        channel: str,
        ts: str,
        chunks: Sequence[Block] = (),
        blocks: Sequence[Block] = (),
    ) -> None:
        """End a stream with the last chunks and the blocks below them, all or nothing.

        Raises StreamEnded if it had ended, perhaps by an earlier try of ours.
        """
        args = {"channel": channel, "ts": ts, **message_metadata(mark)}
        args |= {"chunks": list(chunks)} if chunks else {}
        args |= {"blocks": list(blocks)} if blocks else {}
        await self._writes.call("chat.stopStream", args, repeatable=True)

    async def set_status(
        self, channel: str, thread_ts: str, user: str, status: str, title: str = ""
    ) -> bool:
        """Set whether we are working, for Slack's Stop button. Best effort, never raises.

        Returns False if Slack did not take it; True also if Slack has no sessions for us.
        """
        method = "agents.sessions.setStatus"
        if not self._sessions:
            return True
        args = {"channel_id": channel, "thread_ts": thread_ts, "status": status}
        args |= {"title": title[:200], "initiator_user_id": user} if title else {}
        try:
            if status == "processing":
                return await self._writes.call_now(method, args, live=True) is not None
            await self._writes.call(method, args, repeatable=True)
            return True
        except WriteFailed as error:
            if isinstance(error, TokenRefused) or error.code in ("unknown_method", "not_allowed"):
                self._sessions = False  # this app has no agent view
            log.info("no session status: %s", error)
            return not self._sessions

    async def find(self, channel: str, thread_ts: str | None, key: str) -> str | None:
        """Return the message with this key, if it exists."""
        return await self._written.find(channel, thread_ts, key, "")

    async def mine(self, channel: str, thread_ts: str, key: str, after: str) -> ReplyMessages:
        """Return the messages of a reply, and unfinished ones, that are newer than `after`."""
        return await self._written.of(channel, thread_ts, key, after)

    async def unfinished(self, channel: str, thread_ts: str, key: str, after: str) -> str | None:
        """Find the message of a stream that may have started; None = it did not."""
        for _ in range(2):  # it may appear a little later
            await asyncio.sleep(self._settle_s / 2)
            mine = await self.mine(channel, thread_ts, key, after)
            if found := (*mine.parts.get(1, ()), *mine.unmarked):
                return found[0]
        return None

    async def _post_once(
        self, form: dict[str, Any], find: Callable[[], Awaitable[str | None]]
    ) -> str:
        method, channel = "chat.postMessage", str(form.get("channel"))
        for failures in range(1, self._writes.attempts + 1):
            try:
                body = await self._writes.call(method, form, repeatable=False, channel=channel)
                return ts_of(body, method)
            except OutcomeUnknown as error:
                last = error
            for _ in range(2):  # it may appear a little later
                await asyncio.sleep(self._settle_s / 2)
                if ts := await find():
                    return ts
            await self._writes.pause(failures)
        raise last
