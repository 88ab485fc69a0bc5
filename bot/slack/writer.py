"""Write messages and files to Slack, each exactly once, even if the network fails.

A write with an unknown outcome is never repeated blindly: each message has its key as metadata, and
is looked up by that key first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack import blocks
from bot.slack.client import (
    MESSAGE_NOT_FOUND,
    TIERS,
    ApiCalls,
    CallCounter,
    ChannelClosed,
    MessageGone,
    OutcomeUnknown,
    PostedMessages,
    RateLimit,
    RefusedForNow,
    TokenRefused,
    WriteFailed,
    WriteRefused,
    WriteTimes,
    ts_of,
)
from bot.slack.messages import Mark, MessagePart
from config.sections import ReplySettings, SlackSettings
from scopes.slack import NewMessage
from scopes.tool import ToolError

log = logging.getLogger(__name__)

MessageArguments = dict[str, Any]
"""The content of a message, as arguments of a call."""
MAX_TEXT = 3_900
"""Characters of `text`; chat.update refuses more than 4,000."""
LITERAL: Mapping[str, Any] = {"parse": "none", "link_names": False}
"""Keep Slack from parsing addresses or names in `text`, which chat.update would do otherwise."""
NO_UNFURLING: Mapping[str, Any] = {"unfurl_links": False, "unfurl_media": False}
"""For chat.postMessage only: no other write method that we use has them or shows previews."""


def _forms(part: MessagePart, exact: bool = False) -> list[MessageArguments]:
    """Return the forms of a message, to try in order when Slack refuses one.

    The last ones are text alone, so that no answer is lost; `exact` = with these blocks only.
    """
    plain = {"text": part.text[:MAX_TEXT] or " ", **LITERAL}
    rich = {**plain, "blocks": list(part.blocks)}
    if exact:
        return [rich]
    forms = [rich] if part.blocks else []
    if part.blocks or len(part.text) > MAX_TEXT:
        forms.append({"markdown_text": part.text[: blocks.MAX_MARKDOWN]})
    return [*forms, plain]


class MessageWriter:
    """Writes to one workspace. Its methods raise WriteFailed, after a deadline at the latest."""

    def __init__(
        self,
        web: AsyncWebClient,
        slack: SlackSettings,
        pace: RateLimit | None = None,
        times: WriteTimes | None = None,
    ) -> None:
        """Removes the retry handlers of `web`."""
        pace, times = pace or RateLimit(TIERS if slack.paced else None), times or WriteTimes()
        self._writes = ApiCalls(web, slack, pace, times)
        self.posted = PostedMessages(self._writes)
        self._settle_s, self._sessions = times.settle_s, True
        self.uploads = Uploads(self._writes, self.posted)

    def count_calls(self, count: CallCounter) -> None:
        """Count each call from now on."""
        self._writes.count = count

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
        """Post a message and return its ts; `look_first` = it may already have been posted.

        `exact` = only with these blocks: ContentRefused if Slack refuses them. `after` (a ts older
        than the message) shortens the search; `besides` are other messages with this key.
        """

        async def find() -> str | None:
            return await self.posted.find(channel, thread_ts, mark.key, after, besides)

        async def send(form: MessageArguments) -> str:
            where = {"channel": channel} | ({"thread_ts": thread_ts} if thread_ts else {})
            return await self._post_once({**where, **form, **mark.metadata(), **NO_UNFURLING}, find)

        async with self._writes.within_deadline("chat.postMessage"):
            if look_first and (ts := await find()):
                return ts
            return await _send(send, _forms(part, exact))

    async def update(
        self, mark: Mark, channel: str, ts: str, part: MessagePart, *, exact: bool = False
    ) -> None:
        """Replace a message; `exact` as in `post`. It is retried, because that is safe."""

        async def send(form: MessageArguments) -> str:
            cleared: MessageArguments = (
                {} if "markdown_text" in form else {"blocks": []}
            )  # otherwise old blocks stay
            form = {"channel": channel, "ts": ts, **cleared, **form, **mark.metadata()}
            await self._writes.call("chat.update", form, repeatable=True)
            return ts

        async with self._writes.within_deadline("chat.update"):
            await _send(send, _forms(part, exact))

    async def show(self, mark: Mark, channel: str, ts: str, part: MessagePart) -> bool:
        """Show progress in a message; return False if more urgent writes come first."""
        (form,) = _forms(part, exact=True)
        args = {"channel": channel, "ts": ts, **form, **mark.metadata()}
        return await self._writes.call_now("chat.update", args, live=True) is not None

    async def settle(self) -> None:
        """Wait until a write of unknown outcome has taken effect."""
        await asyncio.sleep(self._settle_s)

    async def delete(self, channel: str, ts: str) -> None:
        """Delete one of our messages; it may already be gone."""
        try:
            args = {"channel": channel, "ts": ts}
            await self._writes.call("chat.delete", args, repeatable=True)
        except MessageGone as error:
            if error.code != MESSAGE_NOT_FOUND:
                raise

    async def whisper(
        self, channel: str, user: str, text: str, thread_ts: str | None = None
    ) -> None:
        """Send a message that only one user sees; in a direct message it is a normal one.

        An ephemeral message cannot be looked up, so one with an unknown outcome counts as sent.
        """
        if channel.startswith("D"):
            digest = hashlib.sha256(f"{user}/{thread_ts}/{text}".encode(errors="replace"))
            mark = Mark(f"whisper/{digest.hexdigest()[:16]}")
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
        """Add a reaction; it may already exist."""
        method, args = "reactions.add", {"channel": channel, "timestamp": ts, "name": name}
        try:
            await self._writes.call(method, args, repeatable=True)
        except WriteFailed as error:
            if error.code != "already_reacted":
                raise

    async def start_stream(
        self, channel: str, thread_ts: str, team: str, user: str, chunks: Sequence[blocks.Block]
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

    async def append(self, channel: str, ts: str, chunks: Sequence[blocks.Block]) -> bool:
        """Append to a stream; False = not now. Never repeat text after OutcomeUnknown."""
        args = {"channel": channel, "ts": ts, "chunks": list(chunks)}
        return await self._writes.call_now("chat.appendStream", args, live=True) is not None

    async def stop_stream(self, mark: Mark, channel: str, ts: str, rest: str = "") -> None:
        """End a stream with the rest of its text, all or nothing.

        Raises StreamEnded if it had ended, perhaps by our own earlier attempt.
        """
        args: MessageArguments = {"channel": channel, "ts": ts, **mark.metadata()}
        args |= {"chunks": [{"type": "markdown_text", "text": rest}]} if rest else {}
        await self._writes.call("chat.stopStream", args, repeatable=True)

    async def set_status(
        self, channel: str, thread_ts: str, user: str, status: str, title: str = ""
    ) -> bool:
        """Set whether we are working, for Slack's Stop button. Best effort, never raises.

        Returns False if Slack did not accept it; True also if Slack has no sessions for us.
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

    async def _post_once(
        self, form: MessageArguments, find: Callable[[], Awaitable[str | None]]
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


async def _send(
    send: Callable[[MessageArguments], Awaitable[str]], forms: Sequence[MessageArguments]
) -> str:
    """Send the first form that Slack does not refuse."""
    for form in forms[:-1]:
        try:
            return await send(form)
        except RefusedForNow:
            raise
        except WriteRefused as error:
            log.warning("Slack did not take a message as it was (%s); sent as text", error)
    return await send(forms[-1])


UPLOAD_URL, UPLOAD_DONE = "files.getUploadURLExternal", "files.completeUploadExternal"
UPLOAD = "upload"
"""Name for sending the bytes, which is not a Slack method."""
FILE_LOOKS = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Pauses between checks for an uploaded file, in units of `settle_s`: Slack shows it after it has
checked it (slackapi/bolt-js#2115)."""
FILE_NOT_SHOWN = "not_shown"
FILE_TAKEN = "file_not_found"
"""Slack's error for a file that was already shown: an earlier process may have done it."""


class Uploads:
    """Puts files into threads. Raises WriteFailed; TokenRefused without the scope files:write."""

    def __init__(self, writes: ApiCalls, posted: PostedMessages) -> None:
        self._writes, self._posted = writes, posted

    async def hand_over(self, name: str, content: bytes) -> str:
        """Upload a file to Slack and return its id; it stays invisible until `show`."""
        async with self._writes.within_deadline(UPLOAD):
            arguments = {"filename": name, "length": len(content)}
            response = await self._writes.call(UPLOAD_URL, arguments, repeatable=True)
            id, url = response.get("file_id"), response.get("upload_url")
            if not isinstance(id, str) or not isinstance(url, str):
                raise OutcomeUnknown(UPLOAD_URL, "malformed_answer")
            await self._send(url, content)
            return id

    async def show(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        """Show an uploaded file in a thread, once; return the ts of its message.

        Raises OutcomeUnknown if Slack accepts the file but does not show it in time: it is not
        sent again.
        """
        async with self._writes.within_deadline(UPLOAD_DONE):
            if ts := await self._posted.find_file(channel, thread_ts, id):
                return ts
            return await self._complete(channel, thread_ts, id, title)

    async def _complete(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        files = [{"id": id, "title": title}]
        args = {"files": files, "channel_id": channel, "thread_ts": thread_ts}
        last: WriteFailed = OutcomeUnknown(UPLOAD_DONE, FILE_NOT_SHOWN)
        try:
            await self._writes.call(UPLOAD_DONE, args, repeatable=False)
        except WriteFailed as error:
            if not isinstance(error, OutcomeUnknown) and error.code != FILE_TAKEN:
                raise
            last = error
        for pause in FILE_LOOKS:
            await asyncio.sleep(pause * self._writes.times.settle_s)
            if ts := await self._posted.find_file(channel, thread_ts, id):
                return ts
        raise last

    async def _send(self, url: str, content: bytes) -> None:
        """Send the bytes to Slack's upload address; sending twice does no harm."""
        for failures in range(1, self._writes.attempts + 1):
            try:
                status = await self._put(url, content)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                status, why = 0, type(error).__name__
            else:
                why = f"http_{status}"
            self._writes.count(UPLOAD, "ok" if status == 200 else why)
            if status == 200:
                return
            if 400 <= status < 500 and status not in (408, 429):
                raise WriteFailed(UPLOAD, why)
            log.warning("a file could not be sent: %s", why)
            await self._writes.pause(failures)
        raise OutcomeUnknown(UPLOAD, why)

    async def _put(self, url: str, content: bytes) -> int:
        session = self._writes.web.session
        assert session  # the session of the process, see `clients`
        async with (
            asyncio.timeout(self._writes.timeout_s),
            session.post(url, data=content, allow_redirects=False) as response,
        ):
            await response.read()
            return response.status


ERROR_MESSAGES = {
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
"""Our words for Slack's error codes."""


class Writer:
    """Writes for the tools: implements `scopes.slack.SlackWriter`."""

    def __init__(self, writer: MessageWriter, settings: ReplySettings) -> None:
        self._writer, self._settings = writer, settings

    async def post(self, key: str, channel: str, thread_ts: str, message: NewMessage) -> str:
        parts = blocks.message(message.text, message.request, self._settings, message.by)
        first = ""
        with _tool_errors():
            for number, part in enumerate(parts, 1):
                where = (channel, thread_ts or first or None)
                mark = Mark(f"{key}#{number}")
                ts = await self._writer.post(mark, *where, part, look_first=True)
                first = first or ts
        return f"{channel}/{first}"

    async def message(self, key: str, user: str, message: NewMessage) -> str:
        with _tool_errors():
            channel = await self._writer.direct(user)
        by = "" if message.by == user else message.by
        return await self.post(key, channel, "", replace(message, by=by))

    async def react(self, channel: str, ts: str, name: str) -> None:
        with _tool_errors():
            await self._writer.react(channel, ts, name)


@contextmanager
def _tool_errors() -> Iterator[None]:
    """Raise ToolError for refusals by Slack."""
    try:
        yield
    except WriteFailed as error:
        is_closed = isinstance(error, ChannelClosed)
        default = "I may not post there" if is_closed else f"Slack says {error.code}"
        why = ERROR_MESSAGES.get(error.code, default)
        again = "" if is_closed or error.code in ERROR_MESSAGES else " Try again later."
        raise ToolError(f"It was not written: {why}.{again}") from error
