"""Every try to bring the app an event, on Slack's schedule, and how it ended."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bot.local.slack import socket
from bot.local.slack.state import SlackState

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


class Deliveries(socket.Deliveries):
    """Every try of every event, on Slack's schedule; what no try brings to the app is lost."""

    def __init__(
        self, state: SlackState, carrier: Carrier, retries_s: Sequence[float] = RETRIES_S
    ) -> None:
        super().__init__(state, socket.Sockets(""))
        self.log: list[Delivery] = []
        self._carrier = carrier
        self._retries_s = tuple(retries_s)

    @property
    def is_heard(self) -> bool:
        return self._carrier.is_reachable

    def put(
        self,
        kind: str,
        id: str,
        type: str,
        payload: Mapping[str, Any],
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        """Start the tries, and return at once."""
        self._try(Envelope(kind, id, type, payload, answered), 0, "")

    def _try(self, envelope: Envelope, attempt: int, reason: str) -> None:
        record = Delivery(envelope.id, envelope.type, attempt, time.time())
        self.log.append(record)
        self._carrier.carry(
            envelope, attempt, reason, lambda outcome: self._finish_try(envelope, record, outcome)
        )

    def _finish_try(self, envelope: Envelope, record: Delivery, outcome: Outcome) -> None:
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
        retry = partial(self._try, envelope, number + 1, outcome.failure)
        self._carrier.later(self._retries_s[number], retry)
