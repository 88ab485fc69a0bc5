"""Files that are put into a thread: once each, found again by their name there."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext

import aiohttp

from bot.replies.writes import Unsettled, WriteFailed, Writes, within
from bot.replies.written import Written

log = logging.getLogger(__name__)

ASK, DONE = "files.getUploadURLExternal", "files.completeUploadExternal"
SEND = "upload"
"""What the sending of the bytes is called, which is no method of Slack's."""
LOOKS = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Pauses between looks for a file that was handed over, in units of `settle_s`: Slack shows it
after it was checked (slackapi/bolt-js#2115)."""
NOT_SHOWN = "not_shown"
TAKEN = "file_not_found"
"""What Slack says of a file that it was told to show before: an earlier life may have done it."""


class Uploads:
    """Puts files into threads. Raises WriteFailed; TokenRefused without the scope files:write."""

    def __init__(
        self, writes: Writes, written: Written, attempts: int, deadline_s: float, settle_s: float
    ) -> None:
        self._writes, self._written = writes, written
        self._attempts, self._deadline_s, self._settle_s = attempts, deadline_s, settle_s

    async def share(
        self, channel: str, thread_ts: str, name: str, content: bytes, title: str = ""
    ) -> str:
        """Put a file into a thread, and return the ts of its message.

        One of this name that we put there before stays, and nothing is uploaded. What was handed
        over is not handed over again, though it may not show yet: Unsettled.
        """
        async with within(self._deadline_s, DONE):
            if ts := await self._written.find_file(channel, thread_ts, name):
                return ts
            id = await self._hand_over(name, content)
            return await self._complete(channel, thread_ts, id, title or name)

    async def hand_over(self, name: str, content: bytes) -> str:
        """Give Slack a file, and return its id: nobody sees it until it is shown."""
        async with within(self._deadline_s, SEND):
            return await self._hand_over(name, content)

    async def show(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        """Show a file that was handed over in a thread, once; the ts of its message."""
        async with within(self._deadline_s, DONE):
            if ts := await self._written.find_file(channel, thread_ts, id):
                return ts
            return await self._complete(channel, thread_ts, id, title)

    async def _hand_over(self, name: str, content: bytes) -> str:
        given = {"filename": name, "length": len(content)}
        asked = await self._writes.call(ASK, given, repeatable=True)
        id, url = asked.get("file_id"), asked.get("upload_url")
        if not isinstance(id, str) or not isinstance(url, str):
            raise Unsettled(ASK, "malformed_answer")
        await self._send(url, content)
        return id

    async def _complete(self, channel: str, thread_ts: str, id: str, title: str) -> str:
        files = [{"id": id, "title": title}]
        args = {"files": files, "channel_id": channel, "thread_ts": thread_ts}
        last: WriteFailed = Unsettled(DONE, NOT_SHOWN)
        try:
            await self._writes.call(DONE, args, repeatable=False)
        except WriteFailed as error:
            if not isinstance(error, Unsettled) and error.code != TAKEN:
                raise
            last = error
        for pause in LOOKS:
            await asyncio.sleep(pause * self._settle_s)
            if ts := await self._written.find_file(channel, thread_ts, id):
                return ts
        raise last

    async def _send(self, url: str, content: bytes) -> None:
        """Send the bytes to the address that Slack gave; twice is no harm."""
        for failures in range(1, self._attempts + 1):
            try:
                status = await self._sent(url, content)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                status, why = 0, type(error).__name__
            else:
                why = f"http_{status}"
            self._writes.calls[SEND, "ok" if status == 200 else why] += 1
            if status == 200:
                return
            if 400 <= status < 500 and status not in (408, 429):
                raise WriteFailed(SEND, why)
            log.warning("a file could not be sent: %s", why)
            await self._writes.pause(failures)
        raise Unsettled(SEND, why)

    async def _sent(self, url: str, content: bytes) -> int:
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
