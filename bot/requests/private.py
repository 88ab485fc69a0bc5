"""An answer that not everyone may see where it was asked for: it goes to the requester alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.replies import render
from bot.replies.outbox import Outbox
from bot.replies.render import Part
from bot.replies.shown import rendered
from bot.replies.writes import WriteFailed
from bot.requests.requests import StoredRequest
from bot.requests.sentences import HELD_BACK, SENT_IN_PRIVATE
from config.settings import Settings
from scopes.tool import ToolContext
from subagents.directory import Obstacle
from subagents.gate import Gate

log = logging.getLogger(__name__)

MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of an answer that its requester alone may see."""

    said: str
    """The sentence for the place of the request."""
    place: tuple[str, str] | None = None
    """Channel and ts of the message that it begins with; None = it was not sent."""


@dataclass(frozen=True, slots=True)
class Private:
    """Sends what may not stand in the place where it was asked for."""

    outbox: Outbox
    settings: Settings

    async def send(
        self,
        gate: Gate,
        ctx: ToolContext,
        request: StoredRequest,
        document: Mapping[str, Any],
        obstacles: Sequence[Obstacle],
        seconds: float,
    ) -> Sent:
        """Send the answer to its requester alone.

        May be called again. A requester who may not read it (any more) gets nothing of it.
        """
        if not (await gate.release("p1", ctx, to=request.user)).public:
            return Sent(HELD_BACK)
        parts = rendered(document, request, self.settings, seconds).parts
        first = render.sentence(why(obstacles)).parts[0]
        try:
            channel = await self.outbox.direct(request.user)
            ts = await self._post(request, channel, [first, *parts])
        except WriteFailed as error:
            log.warning("the answer to %s could not be sent in private: %s", request.key, error)
            return Sent(HELD_BACK)
        return Sent(SENT_IN_PRIVATE, (channel, ts))

    async def _post(self, request: StoredRequest, channel: str, parts: Sequence[Part]) -> str:
        """The ts of the first message; the others stand in its thread."""
        thread = ""
        for number, part in enumerate(parts, 1):
            ts = await self.outbox.post(
                f"{request.written_key}/private#{number}",
                channel,
                thread or None,
                part.text,
                part.blocks,
                look_first=True,
            )
            thread = thread or ts
        return thread


def why(obstacles: Sequence[Obstacle]) -> str:
    """What stands in the way, for the requester alone: it names channels that they can read."""
    named = list(dict.fromkeys(f"{o.name} ({o.why})" for o in obstacles))
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    ever = " An administrator can allow it there for good."
    ever = ever if all(o.grantable for o in obstacles) else ""
    return (
        "This answer is for you alone. Where you asked, not everyone may read what it rests on: "
        f"{'; '.join(named[:MOST_NAMED])}{more}.{ever}"
    )
