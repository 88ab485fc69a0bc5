"""Whether our clock is right, judged by what Slack signs with its own."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping

from slack_sdk.signature import SignatureVerifier

log = logging.getLogger(__name__)

ALLOWED_S = 300
"""An older signature is refused: docs.slack.dev/authentication/verifying-requests-from-slack."""
SAY_EVERY_S = 60.0


class Clock:
    """Says it, once a minute, when signed requests are refused for their time alone."""

    def __init__(self, secret: str, now: Callable[[], float] = time.time) -> None:
        """Without a secret nothing is signed, and nothing is said."""
        self._verifier = SignatureVerifier(secret) if secret else None
        self._now = now
        self._said = float("-inf")

    def look(self, headers: Mapping[str, str], body: str) -> None:
        """At a request that was refused; anybody may have sent it, and anything."""
        at, signature = (
            headers.get(f"x-slack-{n}", "") for n in ("request-timestamp", "signature")
        )
        if not (at.isascii() and at.isdigit() and len(at) <= 12 and signature.isascii()):
            return
        ahead, monotonic = self._now() - int(at), time.monotonic()
        if not self._verifier or abs(ahead) <= ALLOWED_S or monotonic - self._said < SAY_EVERY_S:
            return
        right = self._verifier.generate_signature(timestamp=at, body=body) or ""
        if hmac.compare_digest(right, signature):
            self._said = monotonic
            log.error(
                "Slack's requests are refused: by their time this machine's clock is %d s %s. "
                "Set it right (NTP).", abs(ahead), "ahead" if ahead > 0 else "behind",
            )  # fmt: skip
