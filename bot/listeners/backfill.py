"""Read the messages that were missed during a gap, starting at each channel's cursor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from bot.errors import StoreError
from bot.listeners.intake import Cursors, Intake
from bot.privacy import note_changes
from config.sections import SlackSettings
from scopes.slack_client import NOT_FOUND_ERRORS, Absent, SlackClient, SlackRefused
from scopes.slack_items import ts_of

log = logging.getLogger(__name__)

HISTORY, REPLIES = "conversations.history", "conversations.replies"
CHANNEL_TYPES = ("public_channel", "private_channel", "mpim", "im")
OVERLAP_S = 120.0
"""Seconds read again before a cursor, or twice the time that a stale socket goes unnoticed."""
SOLD_PAGE = 15
"""Messages that an app sold outside the Marketplace gets, once a minute.

Source: docs.slack.dev/apis/web-api/rate-limits.
"""
AGAIN_S = (30.0, 600.0)
"""First and longest pause before channels that could not be read are retried."""
OLD_THREADS, SOLD_THREADS = 40, 5
"""Recently used threads that a pass checks although their root is not among the listed messages.

No listing of a channel shows a new reply there. Each costs one call.
"""
OLD_THREAD_DAYS = 14
PERMANENT = NOT_FOUND_ERRORS | {"missing_scope", "not_allowed_token_type", "is_archived"}
"""Errors for which a retry is useless before the next gap."""

Message = Mapping[str, Any]


class Backfill:
    """Reads missed messages. `run` waits for `ask`; asking during a pass leads to one more pass."""

    def __init__(
        self,
        intake: Intake,
        cursors: Cursors,
        client: SlackClient,
        settings: SlackSettings,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.on_found: Callable[[int], object] = lambda count: None
        """Called after each pass with the number of new requests."""
        self._intake, self._inbox, self._cursors = intake, cursors.inbox, cursors
        self._client, self._settings, self._now = client.patient(), settings, now
        sold = settings.app_distribution == "distributed"
        self._page = min(client.page_size, SOLD_PAGE) if sold else client.page_size
        self._most_threads = SOLD_THREADS if sold else OLD_THREADS
        self._requested = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def ask(self) -> None:
        """Request a pass, because something may have been missed; return at once."""
        if self._settings.backfill_hours:
            self._cursors.is_held = True
            self._idle.clear()
            self._requested.set()

    async def idle(self) -> None:
        """Return when every requested pass has ended; some channels may be unreadable."""
        await self._idle.wait()

    async def run(self) -> None:
        """Run one pass after another, as requested, until cancelled."""
        pause = AGAIN_S[0]
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                again = await self._pass()
            except Exception as error:  # top-level boundary: the next pass retries
                trace = not isinstance(error, StoreError)
                log.error("what was missed could not be looked for: %s", error, exc_info=trace)
                again = True
            if not self._requested.is_set():
                self._cursors.is_held = again
                self._idle.set()
            if not again:
                pause = AGAIN_S[0]
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._requested.wait()
            except TimeoutError:
                self._requested.set()
                pause = min(2 * pause, AGAIN_S[1])

    async def _pass(self) -> bool:
        """Read every channel once; return whether some must be retried."""
        cursors = await self._inbox.cursors(self._intake.bot.team)
        channels, failed = await self._channels()
        threads = await self._threads()
        found = read = 0
        again = bool(set(failed.values()) - PERMANENT)
        for name in sorted(channels, key=lambda id: cursors.get(id, ""), reverse=True):
            cursor, known_roots = cursors.get(name, ""), threads.get(name, set())
            try:
                found += await self._read(name, cursor, known_roots, direct=channels[name])
            except (SlackRefused, Absent, aiohttp.ClientError, TimeoutError) as error:
                failed[name] = _reason(error)
                again = again or failed[name] not in PERMANENT
                continue
            read += 1
        self.on_found(found)
        level = logging.WARNING if failed else logging.INFO
        log.log(
            level, "looked at %d channels for what was missed: %d new, %s", read, found,
            f"not looked at: {failed}" if failed else "all could be read",
        )  # fmt: skip
        return again

    async def _channels(self) -> tuple[dict[str, bool], dict[str, str]]:
        """Return the conversations that the bot is in, and the kinds that cannot be listed.

        Conversations map an id to whether it is a direct message; kinds map to the reason.
        """
        failed: dict[str, str] = {}
        found: dict[str, bool] = {}
        for kind in CHANNEL_TYPES:
            try:
                async for channel in self._client.pages(
                    "users.conversations", "channels", types=kind, exclude_archived="true"
                ):
                    if isinstance(channel, dict) and channel.get("id"):
                        found[str(channel.get("id"))] = kind == "im"
            except (SlackRefused, Absent, aiohttp.ClientError, TimeoutError) as error:
                failed[kind] = _reason(error)
        return found, failed

    async def _threads(self) -> dict[str, set[str]]:
        """Return the roots of recently used threads, by channel."""
        since = datetime.fromtimestamp(self._now(), UTC) - timedelta(days=OLD_THREAD_DAYS)
        found: dict[str, set[str]] = {}
        team = self._intake.bot.team
        for channel, root in await self._inbox.threads(team, since, self._most_threads):
            found.setdefault(channel, set()).add(root)
        return found

    async def _read(self, name: str, cursor: str, known_roots: Set[str], *, direct: bool) -> int:
        """Process new messages of a channel, oldest first; return the number of new requests.

        It takes one call if `backfill_hours` hold less than a page. A thread is read if its root is
        among the listed messages (the newest page, or all of `backfill_hours`), or if it recently
        had a request to us (`known_roots`).
        """
        since = self._since(cursor)
        roots = await self._pages(HISTORY, {"channel": name}, self._oldest())
        due = [ts for ts, m in roots.items() if str(m.get("latest_reply") or "") > since]
        messages = dict(roots)
        for ts in (*due, *(known_roots - roots.keys())):
            messages |= await self._replies(name, ts, since, whole=ts in roots)
        await note_changes(self._inbox.database, name, list(messages.values()))
        found = 0
        for ts in sorted(ts for ts in messages if ts > since):
            event = {**messages[ts], "type": "message", "channel": name}
            event |= {"channel_type": "im"} if direct else {}
            was = bool(event.get("edited")) and ts <= cursor  # an edit makes no new request
            found += await self._intake.take_from_history(event, known_before=was)
        return found

    def _since(self, cursor: str) -> str:
        oldest = self._oldest()
        if not cursor:
            return oldest
        overlap = max(OVERLAP_S, 2 * self._settings.deaf_after_s)
        return max(oldest, f"{max(0.0, float(cursor) - overlap):017.6f}")

    def _oldest(self) -> str:
        hours = self._settings.backfill_hours
        return ts_of(datetime.fromtimestamp(max(0.0, self._now() - 3600 * hours), UTC))

    async def _replies(
        self, channel: str, ts: str, since: str, *, whole: bool
    ) -> dict[str, Message]:
        """Return a thread: all of it if `whole`; else its root and new messages."""
        has_answered = whole and await self._inbox.has_answered(self._intake.bot.team, channel, ts)
        arguments = {"channel": channel, "ts": ts, **({} if has_answered else {"oldest": since})}
        try:
            return await self._pages(REPLIES, arguments)
        except Absent:  # deleted in the meantime
            return {}

    async def _pages(
        self, method: str, arguments: Mapping[str, str], until: str = ""
    ) -> dict[str, Message]:
        """Return all messages by ts, or the pages back to the one that contains `until`."""
        messages: dict[str, Message] = {}
        cursor, seen = "", {""}
        while True:
            more = {"cursor": cursor} if cursor else {}
            body = await self._client.call(method, limit=self._page, **arguments, **more)
            for each in body.get("messages") or ():
                if isinstance(each, dict) and isinstance(ts := each.get("ts"), str):
                    messages[ts] = each
            cursor = str((body.get("response_metadata") or {}).get("next_cursor") or "")
            if cursor in seen or min(messages, default="~") <= until:
                return messages
            seen.add(cursor)


def _reason(error: Exception) -> str:
    if isinstance(error, SlackRefused):
        return error.code
    return str(error) if isinstance(error, Absent) else type(error).__name__
