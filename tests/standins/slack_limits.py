"""How often the methods may be called, and who has to wait how long."""

import math
import time
from collections import deque
from collections.abc import Mapping

TIERS: Mapping[str, int] = {
    "agents.sessions.setStatus": 50,
    "apps.connections.open": 10,
    "assistant.threads.setSuggestedPrompts": 50,
    "assistant.threads.setTitle": 50,
    "chat.appendStream": 100,
    "chat.delete": 50,
    "chat.getPermalink": 600,
    "chat.postEphemeral": 100,
    "chat.postMessage": 60,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.update": 50,
    "conversations.history": 50,
    "conversations.info": 50,
    "conversations.list": 20,
    "conversations.members": 100,
    "conversations.open": 50,
    "conversations.replies": 50,
    "files.completeUploadExternal": 100,
    "files.getUploadURLExternal": 100,
    "files.info": 100,
    "reactions.add": 50,
    "search.messages": 20,
    "assistant.search.context": 20,
    "slackLists.items.list": 20,
    "usergroups.users.list": 20,
    "users.conversations": 50,
    "users.info": 100,
    "users.list": 20,
    "views.open": 100,
    "views.publish": 100,
}
"""Calls a minute that Slack allows an app in a workspace (rate limit tiers 1 to 4).

slackapi/java-slack-sdk, metadata/web-api/rate_limit_tiers.json. getPermalink has a
"special" limit that is documented nowhere; 600 stands for "hundreds a minute". Tier 1 is "1+": an
app may have ten sockets, and opens them at its start.
"""

_WINDOW_S = 60.0
_CHANNEL_S = 1.0
_CHANNEL_BURST = 5
"""Messages a second in one channel: Slack allows one and "short bursts" of unknown size."""


class RateLimits:
    """Counts the calls of each token and method; a method without a limit is not limited."""

    def __init__(self, limits: Mapping[str, int] | None) -> None:
        """`limits` is in calls a minute; None = no limits."""
        self._limits = limits or {}
        self._recent: dict[tuple[str, ...], deque[float]] = {}

    def wait(self, method: str, token: str, channel: str = "") -> int:
        """Whole seconds until the call may be made; 0 = now, and then it counts."""
        if method not in self._limits:
            return 0
        if method == "chat.postMessage":
            window = _CHANNEL_BURST * _CHANNEL_S * 60 / self._limits[method]
            return self._wait((method, token, channel), _CHANNEL_BURST, window)
        return self._wait((method, token), self._limits[method], _WINDOW_S)

    def _wait(self, key: tuple[str, ...], most: int, window: float) -> int:
        now = time.monotonic()
        recent = self._recent.setdefault(key, deque())
        while recent and now - recent[0] >= window:
            recent.popleft()
        if len(recent) >= most:
            return max(1, math.ceil(recent[0] + window - now))
        recent.append(now)
        return 0
