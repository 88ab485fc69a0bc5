"""How far each channel was heard: what the backfill starts from after a gap or a crash."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bot.errors import StoreError
from bot.requests.inbox import Inbox

log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""A channel's cursor is written at most so often."""
AHEAD_S = 2 * 86_400.0
"""A timestamp further in the future than this is nonsense, and would blind the backfill."""

Place = tuple[str, str]
"""Team and channel."""


class Cursors:
    """Collects each channel's newest message, and stores it once nothing before it can be lost.

    A cursor is held where a message could not be stored, and, from a gap on, until the backfill
    has read the channel. So what a crash leaves in the database is ahead of what was missed by no
    more than the time from a socket's last sign of life to the discovery of its silence.
    """

    def __init__(self, inbox: Inbox, now: Callable[[], float] = time.time) -> None:
        self._inbox = inbox
        self._now = now
        self._newest: dict[Place, str] = {}
        self._unstored: set[tuple[Place, str]] = set()
        self._gaps = 0
        self._read_all = 0
        """The gaps that every channel was read for, but for `_unread`."""
        self._read: dict[str, int] = {}
        self._unread: set[str] = set()

    @contextmanager
    def passing(self, team: str, channel: str, ts: str) -> Iterator[None]:
        """Round the storing of a message: its cursor moves on only if that succeeds."""
        mark = ((team, channel), ts)
        self._unstored.add(mark)
        yield
        self._unstored.discard(mark)
        self.note(team, channel, ts)

    def note(self, team: str, channel: str, ts: str) -> None:
        """This message needs no second look."""
        if float(ts) <= self._now() + AHEAD_S:
            self._newest[team, channel] = max(ts, self._newest.get((team, channel), ""))

    def gap(self) -> int:
        """Something may have been missed: no cursor moves before its channel was read."""
        self._gaps += 1
        return self._gaps

    def read(self, channel: str, gap: int) -> None:
        """The channel was read after this gap."""
        self._read[channel] = gap
        self._unread.discard(channel)

    def read_all(self, gap: int, unread: set[str]) -> None:
        """Every channel was, except for these."""
        self._read_all, self._unread = gap, set(unread)

    async def flush(self) -> None:
        """Store what may be stored. Raises StoreError; nothing is forgotten then."""
        held = {place for place, _ in self._unstored}
        due = [p for p in self._newest if p not in held and self._open(p[1])]
        for team, channel in due:
            ts = self._newest[team, channel]
            await self._inbox.advance(team, channel, ts)
            if self._newest[team, channel] == ts:
                del self._newest[team, channel]

    def _open(self, channel: str) -> bool:
        read = 0 if channel in self._unread else self._read_all
        return max(read, self._read.get(channel, 0)) >= self._gaps

    async def run(self) -> None:
        """Store now and then, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self._try_flush()
        finally:
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self.flush()
        except StoreError as error:
            log.warning("the cursors are kept in memory for now: %s", error)
        except Exception:
            log.exception("the cursors could not be stored")
