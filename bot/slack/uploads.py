"""Upload files to a thread: each once, found again by its name there."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext

import aiohttp

from bot.slack.client import ApiCalls, OutcomeUnknown, PostedMessages, WriteFailed

log = logging.getLogger(__name__)

ASK, DONE = "files.getUploadURLExternal", "files.completeUploadExternal"
SEND = "upload"
"""Name for sending the bytes, which is not a Slack method."""
LOOKS = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Pauses between looks for a file that was handed over, in units of `settle_s`: Slack shows it
after it was checked (slackapi/bolt-js#2115)."""
NOT_SHOWN = "not_shown"
TAKEN = "file_not_found"
"""Slack's error for a file that was already shown: an earlier process may have done it."""


class Uploads:
    """Puts files into threads. Raises WriteFailed; TokenRefused without the scope files:write."""

    def __init__(self, writes: ApiCalls, posted: PostedMessages) -> None:
        self._writes, self._posted = writes, posted

    async def share(
        self, channel: str, thread_ts: str, name: str, content: bytes, title: str = ""
    ) -> str:
        """Put a file into a thread, and return the ts of its message.

        If we already put a file of this name there, it stays and nothing is uploaded. A file that
        was handed over but is not shown yet is not handed over again: OutcomeUnknown.
        """
        async with self._writes.within_deadline(DONE):
            if ts := await self._posted.find_file(channel, thread_ts, name):
                return ts
            id = await self.hand_over(name, content)
            return await self._complete(channel, thread_ts, id, title or name)

    async def hand_over(self, name: str, content: bytes) -> str:
        """Upload a file to Slack, and return its id; it is invisible until it is shown."""
        async with self._writes.within_deadline(SEND):
            given = {"filename": name, "length": len(content)}
            asked = await self._writes.call(ASK, given, repeatable=True)
            id, url = asked.get("file_id"), asked.get("upload_url")
            if not isinstance(id, str) or not isinstance(url, str):
                raise OutcomeUnknown(ASK, "malformed_answer")
            await self._send(url, content)
            return id

    async def show(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        """Show an uploaded file in a thread, once; return the ts of its message."""
        async with self._writes.within_deadline(DONE):
            if ts := await self._posted.find_file(channel, thread_ts, id):
                return ts
            return await self._complete(channel, thread_ts, id, title)

    async def _complete(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        files = [{"id": id, "title": title}]
        args = {"files": files, "channel_id": channel, "thread_ts": thread_ts}
        last: WriteFailed = OutcomeUnknown(DONE, NOT_SHOWN)
        try:
            await self._writes.call(DONE, args, repeatable=False)
        except WriteFailed as error:
            if not isinstance(error, OutcomeUnknown) and error.code != TAKEN:
                raise
            last = error
        for pause in LOOKS:
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
            self._writes.count(SEND, "ok" if status == 200 else why)
            if status == 200:
                return
            if 400 <= status < 500 and status not in (408, 429):
                raise WriteFailed(SEND, why)
            log.warning("a file could not be sent: %s", why)
            await self._writes.pause(failures)
        raise OutcomeUnknown(SEND, why)

    async def _put(self, url: str, content: bytes) -> int:
        async with (
            asyncio.timeout(self._writes.timeout_s),
            self._session() as session,
            session.post(url, data=content, allow_redirects=False) as response,
        ):
            await response.read()
            return response.status

    def _session(self) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
        session = self._writes.web.session
        return nullcontext(session) if session else aiohttp.ClientSession()
