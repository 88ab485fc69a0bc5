"""Everything that is written to Slack: once, whatever the network does.

A write whose outcome is unknown is never replayed: each message carries its key as metadata, and
is looked up by it first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.replies.forms import (
    LITERAL,
    MAX_TEXT,
    NO_UNFURLING,
    Block,
    emptied,
    in_blocks,
    in_some_form,
)
from bot.replies.pace import TIERS, Pace
from bot.replies.uploads import Uploads
from bot.replies.writes import (
    GONE,
    MessageGone,
    TokenRefused,
    Unsettled,
    WriteFailed,
    Writes,
    ts_of,
    within,
)
from bot.replies.written import Mine, Written, marks
from config.settings import Slack

log = logging.getLogger(__name__)

QUICK_S = 15.0
"""Less than what Slack's slowest answers take, so that progress holds nothing up."""


class Outbox:
    """Writes to one workspace. Its methods raise WriteFailed, at the latest after `deadline_s`."""

    def __init__(
        self,
        web: AsyncWebClient,
        slack: Slack,
        *,
        pace: Pace | None = None,
        deadline_s: float = 240.0,
        backoff_s: float = 0.5,
        settle_s: float = 2.0,
        quick_s: float = QUICK_S,
    ) -> None:
        """`web` loses its retry handlers; `settle_s` is how long a lost write may take to show;
        `quick_s` is the deadline of what is only for show.
        """
        attempts = slack.retry_attempts + 1
        pace = pace or Pace(TIERS if slack.paced else None)
        self._writes = Writes(web, slack.timeout_s, attempts, pace, backoff_s)
        self._written = Written(self._writes, slack.page_size)
        self._attempts, self._deadline_s, self._settle_s = attempts, deadline_s, settle_s
        self._sessions, self._quick_s = True, quick_s
        self.uploads = Uploads(self._writes, self._written, attempts, deadline_s, settle_s)

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Calls by method and outcome: ok, ratelimited, skipped, unsent, unknown, Slack's code."""
        return self._writes.calls

    async def post(
        self,
        key: str,
        channel: str,
        thread_ts: str | None,
        text: str,
        blocks: Sequence[Block] = (),
        *,
        look_first: bool = False,
        exact: bool = False,
        run: str = "",
        of: int = 0,
        after: str = "",
        besides: Collection[str] = (),
    ) -> str:
        """Post a message and return its ts; `look_first` = it may have been posted already.

        `exact` = as these blocks or not at all: ContentRefused where Slack does not take them.
        `of` as in `marks`. `after` (a ts older than the message) shortens the search; `besides`
        are messages with this key that are not the one.
        """
        where = {"channel": channel} | ({"thread_ts": thread_ts} if thread_ts else {})

        async def send(form: dict[str, Any]) -> str:
            return await self._posted(key, where, form | marks(key, run, of), after, besides)

        async with within(self._deadline_s, "chat.postMessage"):
            if look_first and (
                ts := await self._written.find(channel, thread_ts, key, after, besides)
            ):
                return ts
            if exact:
                return await send(in_blocks(text, blocks))
            return await in_some_form(send, text, blocks)

    async def update(
        self,
        key: str,
        channel: str,
        ts: str,
        text: str,
        blocks: Sequence[Block] = (),
        *,
        exact: bool = False,
        run: str = "",
        of: int = 0,
    ) -> None:
        """Replace a message; `exact` and `of` as in `post`. It may be repeated, so it is."""

        async def send(form: dict[str, Any]) -> str:
            form = {"channel": channel, "ts": ts, **emptied(form), **marks(key, run, of)}
            await self._writes.call("chat.update", form, repeatable=True)
            return ts

        async with within(self._deadline_s, "chat.update"):
            if exact:
                await send(in_blocks(text, blocks))
            else:
                await in_some_form(send, text, blocks)

    async def show(
        self, key: str, channel: str, ts: str, text: str, blocks: Sequence[Block], *, run: str = ""
    ) -> bool:
        """Replace a message by how far things are; False = not now, there is more urgent to say."""
        content = emptied({"text": text[:MAX_TEXT], "blocks": list(blocks), **LITERAL})
        args = {"channel": channel, "ts": ts, **content, **marks(key, run)}
        async with within(self._quick_s, "chat.update"):
            return await self._writes.call_now("chat.update", args, live=True) is not None

    async def settle(self) -> None:
        """Wait until a write whose answer was not waited for has been carried out."""
        await asyncio.sleep(self._settle_s)

    async def delete(self, channel: str, ts: str) -> None:
        """Delete a message of ours; it may be gone already."""
        async with within(self._deadline_s, "chat.delete"):
            try:
                args = {"channel": channel, "ts": ts}
                await self._writes.call("chat.delete", args, repeatable=True)
            except MessageGone as error:
                if error.code != GONE:
                    raise

    async def whisper(
        self, channel: str, user: str, text: str, thread_ts: str | None = None
    ) -> None:
        """Tell one user something that nobody else sees; in a DM it is a message.

        An ephemeral message cannot be looked up: one of unknown outcome counts as sent.
        """
        if channel.startswith("D"):
            said = hashlib.sha256(f"{user}/{thread_ts}/{text}".encode(errors="replace"))
            await self.post(f"whisper/{said.hexdigest()[:16]}", channel, thread_ts, text)
            return
        args = {"channel": channel, "user": user, "text": text[:MAX_TEXT], **LITERAL}
        async with within(self._deadline_s, "chat.postEphemeral"):
            try:
                args |= {"thread_ts": thread_ts} if thread_ts else {}
                await self._writes.call("chat.postEphemeral", args, repeatable=False)
            except Unsettled as error:
                log.warning("nobody knows whether %s was told: %s", user, error.code)

    async def direct(self, user: str) -> str:
        """The direct conversation with a user."""
        method = "conversations.open"
        async with within(self._deadline_s, method):
            body = await self._writes.call(method, {"users": user}, repeatable=True)
        channel = (body.get("channel") or {}).get("id")
        if not isinstance(channel, str) or not channel:
            raise Unsettled(method, "malformed_answer")
        return channel

    async def react(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction; one that stands there already is fine."""
        method, args = "reactions.add", {"channel": channel, "timestamp": ts, "name": name}
        async with within(self._deadline_s, method):
            try:
                await self._writes.call(method, args, repeatable=True)
            except WriteFailed as error:
                if error.code != "already_reacted":
                    raise

    async def start_stream(
        self, channel: str, thread_ts: str, team: str, user: str, chunks: Sequence[Block]
    ) -> str | None:
        """Begin a stream for a user of this team and return its ts; None = none can be had now.

        Unsettled: look for it.
        """
        args = {
            **{"channel": channel, "thread_ts": thread_ts, "task_display_mode": "plan"},
            **{"recipient_team_id": team, "recipient_user_id": user, "chunks": list(chunks)},
        }
        async with within(self._quick_s, "chat.startStream"):
            body = await self._writes.call_now("chat.startStream", args)
        if body is None:
            return None
        return ts_of(body, "chat.startStream")

    async def append(self, channel: str, ts: str, chunks: Sequence[Block]) -> bool:
        """Add to a stream; False = not now. Unsettled: text must not be sent again."""
        args = {"channel": channel, "ts": ts, "chunks": list(chunks)}
        async with within(self._quick_s, "chat.appendStream"):
            return await self._writes.call_now("chat.appendStream", args, live=True) is not None

    async def stop_stream(
        self,
        key: str,
        channel: str,
        ts: str,
        chunks: Sequence[Block] = (),
        blocks: Sequence[Block] = (),
        *,
        run: str = "",
        of: int = 0,
    ) -> None:
        """End a stream with the last chunks and what stands below them; all or nothing of it.

        StreamEnded says that it had ended, perhaps by an earlier try of ours. `of` as in `post`.
        """
        args = {"channel": channel, "ts": ts, **marks(key, run, of)}
        args |= {"chunks": list(chunks)} if chunks else {}
        args |= {"blocks": list(blocks)} if blocks else {}
        async with within(self._deadline_s, "chat.stopStream"):
            await self._writes.call("chat.stopStream", args, repeatable=True)

    async def set_status(
        self, channel: str, thread_ts: str, user: str, status: str, title: str = ""
    ) -> bool:
        """Tell Slack whether we are at work, for its Stop button. Best effort, never raises.

        False = Slack does not know now; True also where it has no sessions for us.
        """
        method = "agents.sessions.setStatus"
        if not self._sessions:
            return True
        args = {"channel_id": channel, "thread_ts": thread_ts, "status": status}
        args |= {"title": title[:200], "initiator_user_id": user} if title else {}
        try:
            async with within(self._quick_s, method):
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
        """The message with this key, if it is there."""
        async with within(self._deadline_s, "conversations.replies"):
            return await self._written.find(channel, thread_ts, key, "")

    async def mine(self, channel: str, thread_ts: str, key: str, after: str) -> Mine:
        """The messages of a reply, and unfinished ones, that are newer than `after`."""
        async with within(self._deadline_s, "conversations.replies"):
            return await self._written.of(channel, thread_ts, key, after)

    async def unfinished(self, channel: str, thread_ts: str, key: str, after: str) -> str | None:
        """The message of a stream of which nobody knows whether it began; None = it did not."""
        for _ in range(2):  # it may come to light a little later
            await asyncio.sleep(self._settle_s / 2)
            mine = await self.mine(channel, thread_ts, key, after)
            if found := (*mine.parts.get(1, ()), *mine.unmarked):
                return found[0]
        return None

    async def _posted(
        self,
        key: str,
        where: Mapping[str, str],
        form: dict[str, Any],
        after: str,
        besides: Collection[str],
    ) -> str:
        channel, thread_ts = where["channel"], where.get("thread_ts")
        form = {**where, **form, **NO_UNFURLING}
        for failures in range(1, self._attempts + 1):
            try:
                body = await self._writes.call(
                    "chat.postMessage", form, repeatable=False, channel=channel
                )
                return ts_of(body, "chat.postMessage")
            except Unsettled as error:
                last = error
            for _ in range(2):  # it may come to light a little later
                await asyncio.sleep(self._settle_s / 2)
                if ts := await self._written.find(channel, thread_ts, key, after, besides):
                    return ts
            await self._writes.pause(failures)
        raise last
