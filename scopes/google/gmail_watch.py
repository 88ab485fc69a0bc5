"""Gmail's promise to tell a Pub/Sub topic of what changes in a mailbox, for a week at a time."""

from __future__ import annotations

from datetime import UTC, datetime

from scopes.google.client import Google, GoogleBusy
from scopes.google.gmail_calls import ME, UNITS


async def watch(google: Google, topic: str) -> datetime:
    """Have the topic told from now on; until when (UTC). Asked again, it is told for longer.

    `topic` is `projects/P/topics/T`. Raises GoogleError
    (developers.google.com/gmail/api/guides/push: ask anew at least every seven days).
    """
    request = google.gmail().watch(userId=ME, body={"topicName": topic})
    answer = await google.call(request, UNITS["watch"])
    try:
        return datetime.fromtimestamp(int(answer["expiration"]) / 1000, UTC)
    except (KeyError, ValueError, OverflowError, OSError):
        raise GoogleBusy("Gmail does not say until when it tells of new mail.") from None


async def stop(google: Google) -> None:
    """Have nobody told any more. Raises GoogleError."""
    await google.call(google.gmail().stop(userId=ME), UNITS["stop"])
