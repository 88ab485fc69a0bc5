"""Messages of a Google Pub/Sub subscription: pulled, and acknowledged when they are done with."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.settings import Google as Limits
from scopes.google.auth import Access, Sentences, delegated_credentials
from scopes.google.client import Google

SCOPE = "https://www.googleapis.com/auth/pubsub"
CONSUME = "pubsub.subscriptions.consume"
"""The permission that pulling needs; the role Pub/Sub Subscriber has it."""
PULL_S = 100.0
"""Google holds a pull open while there is nothing, for a minute and a half at most."""
MOST = 100
"""Messages of one pull."""
SERVICE = Sentences(
    "Google does not accept the key in google.pubsub_service_account: make a new one.",
    "Google does not accept the key in google.pubsub_service_account: its account was deleted.",
    "google.pubsub_service_account",
)


@dataclass(frozen=True, slots=True)
class Received:
    """One message; it comes again until it is acknowledged, and now and then although it was."""

    ack_id: str
    data: bytes


def pubsub_credentials(
    key_file: Path, oauth_endpoint: str | None = None, timeout_s: float = 30.0
) -> Access:
    """A service account as itself. Raises GoogleError when the key file cannot be used."""
    return delegated_credentials(
        key_file, None, oauth_endpoint, timeout_s, scopes=(SCOPE,), sentences=SERVICE
    )


class Pubsub:
    """One subscription."""

    def __init__(
        self, access: Access, limits: Limits, subscription: str, endpoint: str | None = None
    ) -> None:
        """`subscription` is `projects/P/subscriptions/S`."""
        once = {"max_attempts": 1, "timeout_s": PULL_S, "workers": 2}  # who pulls tries again
        self._google = Google(access, limits.model_copy(update=once), endpoint)
        self._subscription = subscription
        self._subscriptions: Any = self._google.service("pubsub", "v1").projects().subscriptions()

    async def pull(self) -> list[Received]:
        """What waits; if nothing does, what comes until Google answers. Raises GoogleError."""
        body = {"maxMessages": MOST}
        request = self._subscriptions.pull(subscription=self._subscription, body=body)
        answer = await self._google.call(request, 0)
        found = answer.get("receivedMessages") or ()
        return [Received(str(e["ackId"]), _data(e)) for e in found if e.get("ackId")]

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Have these messages come no more; of ids that ended Google takes no notice.

        Raises GoogleError.
        """
        body = {"ackIds": list(ack_ids)}
        request = self._subscriptions.acknowledge(subscription=self._subscription, body=body)
        await self._google.call(request, 0)

    async def is_open(self) -> bool:
        """Whether this account may pull; also False where there is no such subscription.

        Raises GoogleError.
        """
        body = {"permissions": [CONSUME]}
        request = self._subscriptions.testIamPermissions(resource=self._subscription, body=body)
        answer = await self._google.call(request, 0)
        return CONSUME in (answer.get("permissions") or ())

    async def aclose(self) -> None:
        await self._google.aclose()


def _data(received: dict[str, Any]) -> bytes:
    """What a message holds; nothing where that cannot be read."""
    try:
        return base64.b64decode(str((received.get("message") or {}).get("data") or ""))
    except (binascii.Error, ValueError, AttributeError):
        return b""
