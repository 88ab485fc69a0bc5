"""A message in Slack that asks something, as it was heard and as it is stored."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scopes.tool import readable

LOOKUPS = "approved_lookups"
"""Key put into the event of a request: what its requester approved to look up outside."""
ROUND = "answered_again"
"""Key put there as well: how often it was answered again for that."""
NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that asks something of the bot."""

    team: str
    channel: str
    ts: str
    thread_ts: str
    """Root of the thread that the answer goes into; `ts` itself for a top-level message."""
    user: str
    kind: str
    """`mention`, `dm` (the agent pane, too) or `follow_up`."""
    event: Mapping[str, Any]
    """The event as Slack sent it."""

    @property
    def key(self) -> str:
        return f"{self.team}/{self.channel}/{self.ts}"

    @property
    def user_team(self) -> str:
        """The workspace that the user belongs to, in a shared channel perhaps another company's."""
        told = (self.event.get("user_team"), self.event.get("team"))
        return next((t for t in told if isinstance(t, str) and t.startswith("T")), self.team)

    @property
    def text(self) -> str:
        text = self.event.get("text")
        return str(readable(text)) if isinstance(text, str) else ""


@dataclass(frozen=True, slots=True)
class StoredRequest(Incoming):
    """A message that asks something, and how far its answer is."""

    state: str = "new"
    """`new`, `running`, `waiting` (for a model that is down), `done`, `ignored` or `failed`."""
    run: str | None = None
    attempt: int = 0
    """How often it was tried anew after the model was down."""
    received: datetime = NEVER
    not_before: datetime | None = None
    reply: Mapping[str, Any] | None = None
    """Where its answer stands: `{ts: [...], streamed, ...}`."""
    owner: str | None = None
    """The process at work on it."""

    @property
    def lookups(self) -> tuple[str, ...]:
        """What the requester has approved to look up outside, in answer to a card."""
        return tuple(map(str, self.event.get(LOOKUPS) or ()))

    @property
    def written_key(self) -> str:
        """What marks the messages of its answer: another one where it is answered again."""
        again = self.event.get(ROUND)
        return f"{self.key}/again{again}" if again else self.key


def new_run_id() -> str:
    return uuid.uuid4().hex[:12]


def stored(row: Mapping[str, Any]) -> StoredRequest:
    return StoredRequest(**{k: v for k, v in row.items() if k != "key"})


def asked_at(request: StoredRequest) -> datetime:
    """When it was asked: what was said from then on, the request itself too, is no source of it."""
    return datetime.fromtimestamp(float(request.ts), UTC)


def workflow_id(request: StoredRequest) -> str:
    return f"request/{request.key}/{request.attempt}"
