"""What a local Slack tells the app of: event envelopes, the tries to deliver them, and the acks."""

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from bot.local.slack.state import APP_ID, BOT_USER, SlackState

Json = dict[str, Any]

VERIFICATION_TOKEN = "local-verification-token"
"""The outdated token that Slack still puts into each payload."""
RETRIES_S = (0.0, 60.0, 300.0)
"""Waits before the retries of an event: docs.slack.dev/apis/events-api, "Error handling"."""
ACK_S = 3.0
"""An app has this long to acknowledge: docs.slack.dev/apis/events-api, "Responding to events"."""


@dataclass(slots=True)
class Delivery:
    """One try to deliver one event."""

    event_id: str
    """The same in every try."""
    type: str
    """Of the event ("app_mention", "message"), "block_actions" or "slash_commands"."""
    attempt: int
    """0 = the first try, 1 = the first retry."""
    sent_at: float
    """Seconds since 1970, like `acked_at`."""
    acked_at: float | None = None
    reason: str = ""
    """Why this try failed ("no_socket", "timeout", "http_error", ...); empty = it has not."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is to be delivered."""

    kind: str
    """ "events_api", "interactive" or "slash_commands"."""
    id: str
    type: str
    payload: Mapping[str, Any]
    answered: Callable[[Any], None] | None = None
    """Called with the payload of the ack, where Slack accepts one."""
    body: str = field(default="", repr=False)
    """`payload` as JSON, made once for all tries."""

    @property
    def accepts_response(self) -> bool:
        return self.kind != "events_api"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try ended."""

    failure: str = ""
    """Empty = acknowledged."""
    answer: Any = None
    final: bool = False
    """The app asked for no retry."""


Done = Callable[[Outcome], None]


class Carrier(Protocol):
    """The way to the app. All methods may be called from any thread."""

    @property
    def is_reachable(self) -> bool:
        """Whether there is, or was, an app at the other end."""
        ...

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        """Try once; `done` is called exactly once, perhaps in another thread."""
        ...

    def later(self, seconds: float, action: Callable[[], None]) -> None: ...


class Deliveries:
    """Every try of every event, on Slack's schedule; what no try brings to the app is lost."""

    def __init__(
        self, state: SlackState, carrier: Carrier, retries_s: Sequence[float] = RETRIES_S
    ) -> None:
        self.log: list[Delivery] = []
        self._state = state
        self._carrier = carrier
        self._retries_s = tuple(retries_s)
        self._numbers = itertools.count(1)

    @property
    def is_heard(self) -> bool:
        """False as long as no app has ever listened: then nothing need be told."""
        return self._carrier.is_reachable

    def event(self, event: Json) -> None:
        """Deliver an event."""
        id = self.new_id()
        self.put("events_api", id, event["type"], self.callback(event, id))

    def new_id(self) -> str:
        return f"Ev0LOCAL{next(self._numbers):06d}"

    def put(
        self,
        kind: str,
        id: str,
        type: str,
        payload: Mapping[str, Any],
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        """Begin with the tries; returns at once."""
        body = json.dumps(payload)
        self._try(Envelope(kind, id, type, payload, answered, body), 0, "")

    def callback(self, event: Json, event_id: str) -> Json:
        """Return the payload of an event."""
        team = self._state.team.id
        channel = self._state.channels.get(event.get("channel", ""))
        return {
            "token": VERIFICATION_TOKEN,
            "team_id": team,
            "api_app_id": APP_ID,
            "context_team_id": team,
            "context_enterprise_id": None,
            "event": event,
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(self._state.now()),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": team,
                    "user_id": BOT_USER,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": bool(channel and channel.is_ext_shared),
            "event_context": f"4-{event_id}",
        }

    def _try(self, envelope: Envelope, attempt: int, reason: str) -> None:
        record = Delivery(envelope.id, envelope.type, attempt, time.time())
        self.log.append(record)
        self._carrier.carry(
            envelope, attempt, reason, lambda outcome: self._tried(envelope, record, outcome)
        )

    def _tried(self, envelope: Envelope, record: Delivery, outcome: Outcome) -> None:
        if not outcome.failure:
            record.acked_at = time.time()
            if envelope.answered:
                envelope.answered(outcome.answer)
            return
        record.reason = outcome.failure
        number = record.attempt
        is_retried = envelope.kind == "events_api" and number < len(self._retries_s)
        if not is_retried or outcome.final or not self._carrier.is_reachable:
            return
        again = partial(self._try, envelope, number + 1, outcome.failure)
        self._carrier.later(self._retries_s[number], again)
