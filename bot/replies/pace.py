"""How often Slack lets us write: a call waits for its turn, or is left out if it can wait."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from config.settings import Slack


@dataclass(frozen=True, slots=True)
class Tier:
    """Calls that Slack allows in any stretch of so many seconds."""

    calls: int
    seconds: float = 60.0
    per_channel: bool = False
    live: float = 1.0
    """Share of the calls that live progress may use up; the rest is kept for final words."""


TIERS: Mapping[str, Tier] = {
    "chat.postMessage": Tier(10, 10.0, per_channel=True),
    "chat.postEphemeral": Tier(100),
    "chat.update": Tier(50, live=0.5),
    "chat.delete": Tier(50),
    "chat.startStream": Tier(20),
    "chat.appendStream": Tier(100, live=0.9),
    "chat.stopStream": Tier(20),
    "agents.sessions.setStatus": Tier(50, live=0.5),
    "files.getUploadURLExternal": Tier(100),
    "files.completeUploadExternal": Tier(100),
    "conversations.history": Tier(50),
    "conversations.replies": Tier(50),
}
"""docs.slack.dev/apis/web-api/rate-limits: one message a second in a channel with short bursts,
tiers 2 to 4 (20, 50, 100 calls a minute) for the others."""

MINUTE_S = 60.5
"""Slack counts a call when it comes in, which may be a little later than we send it."""
READING: Mapping[str, Tier] = {
    "conversations.history": Tier(50, MINUTE_S),
    "conversations.replies": Tier(50, MINUTE_S),
    "conversations.info": Tier(50, MINUTE_S),
    "conversations.members": Tier(100, MINUTE_S),
    "conversations.list": Tier(20, MINUTE_S),
    "slackLists.items.list": Tier(20, MINUTE_S),
    "search.messages": Tier(20, MINUTE_S),
    "users.conversations": Tier(50, MINUTE_S),
    "users.info": Tier(100, MINUTE_S),
    "users.list": Tier(20, MINUTE_S),
}
"""The same tiers, for what is read."""
READING_SOLD = {
    **READING,
    "conversations.history": Tier(1, MINUTE_S),
    "conversations.replies": Tier(1, MINUTE_S),
}
"""Of an app that is sold outside of Slack's marketplace."""

KEPT = 0.1
"""Share of the calls that what can wait, such as a sweep, leaves to those who ask meanwhile."""

BURST = 5
"""Live writes that may come without a pause between them."""


@dataclass(slots=True)
class _Window:
    """The calls of one method (in one channel) that still count."""

    tier: Tier
    times: deque[float] = field(default_factory=deque)
    held_until: float = 0.0
    burst: float = BURST
    refilled: float = 0.0

    def wait(self, now: float, kept: float = 0.0) -> float:
        """Seconds until one more call is allowed that leaves this share of them to others."""
        while self.times and now - self.times[0] >= self.tier.seconds:
            self.times.popleft()
        most = max(1, self.tier.calls - int(self.tier.calls * kept))
        full = len(self.times) >= most
        free = self.times[-most] + self.tier.seconds - now if full else 0.0
        return max(free, self.held_until - now, 0.0)

    def allows_live(self, now: float) -> bool:
        """Whether a write that may as well be left out should be made now."""
        most = self.tier.calls * self.tier.live
        rate = most / self.tier.seconds
        self.burst = min(BURST, self.burst + (now - self.refilled) * rate)
        self.refilled = now
        return self.wait(now) == 0 and len(self.times) < most and self.burst >= 1


class Pace:
    """Our own rate limits, so that Slack's are met as the exception."""

    def __init__(
        self,
        tiers: Mapping[str, Tier] | None = TIERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tiers` None = only what Slack itself asks for by a 429; `clock` is in seconds."""
        self._tiers = tiers or {}
        self._clock = clock
        self._windows: dict[tuple[str, str], _Window] = {}

    async def take(self, method: str, channel: str, kept: float = 0.0) -> None:
        """Wait until the method may be called, and leave this share of its calls to others."""
        window = self._window(method, channel)
        while True:
            wait = window.wait(self._clock(), kept)
            if not wait:
                break
            await asyncio.sleep(wait)
        window.times.append(self._clock())

    def take_now(self, method: str, channel: str, *, live: bool = False) -> bool:
        """Whether the method may be called at once; False = leave it for now.

        `live` is for progress: it keeps room for what has to be said.
        """
        window, now = self._window(method, channel), self._clock()
        if window.wait(now) or (live and not window.allows_live(now)):
            return False
        window.times.append(now)
        if live:
            window.burst -= 1
        return True

    def note(self, method: str) -> None:
        """The method is called now, whatever its pace."""
        window, now = self._window(method, ""), self._clock()
        window.wait(now)  # lets go of the calls that no longer count
        window.times.append(now)

    def hold(self, method: str, channel: str, seconds: float) -> None:
        """Slack said to wait."""
        window = self._window(method, channel)
        window.held_until = max(window.held_until, self._clock() + seconds)

    def _window(self, method: str, channel: str) -> _Window:
        tier = self._tiers.get(method) or Tier(1_000_000, 1.0)
        key = (method, channel if tier.per_channel else "")
        if key not in self._windows:
            self._forget_old()
            self._windows[key] = _Window(tier, refilled=self._clock())
        return self._windows[key]

    def _forget_old(self) -> None:
        """Windows are a few a channel; channels that went quiet keep none."""
        if len(self._windows) < 1000:
            return
        now = self._clock()
        idle = [k for k, w in self._windows.items() if not w.wait(now) and not w.times]
        for key in idle:
            del self._windows[key]


class ReadTurns:
    """When each method that reads may be called: at once, and from the first refusal on in its
    turn. So a few channels are read without a pause, and hundreds without being refused again.

    Patient calls stand in line, one behind the other, and let all that are not go first.
    """

    def __init__(self, settings: Slack, kept: float = 0.0) -> None:
        """`kept` is the share of a method's calls that patient ones leave to others."""
        sold = settings.app_distribution == "distributed"
        self._pace = Pace((READING_SOLD if sold else READING) if settings.paced else None)
        self._refused: set[str] = set()
        self._kept = kept
        self._lines: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, method: str, *, patient: bool = False) -> None:
        """Wait until the method may be called."""
        if method not in self._refused:
            self._pace.note(method)
        elif patient:
            async with self._lines[method]:
                await self._pace.take(method, "", self._kept)
        else:
            await self._pace.take(method, "")

    def refused(self, method: str, seconds: float) -> None:
        """Slack asked to wait for so long before this method is called again."""
        self._refused.add(method)
        self._pace.hold(method, "", seconds)
