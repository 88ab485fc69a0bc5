"""Calls of the Gmail API: what each costs, and how pages follow each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from scopes.google.client import GoogleClient

ME = "me"
"""The mailbox of whoever the token is from."""
PAGE = 500
"""Objects asked for in one call of a paged method."""
UNITS: Mapping[str, int] = {
    "profile": 1, "threads.list": 10, "threads.get": 40, "threads.modify": 10, "messages.get": 20,
    "messages.list": 5, "messages.send": 100, "attachment": 5, "history": 2, "labels.list": 1,
    "labels.create": 5, "drafts.list": 5, "drafts.create": 10,
}  # fmt: skip
"""What calls cost in Gmail's quota (developers.google.com/gmail/api/reference/quota; the prices of
`get` are those for projects made since May 2026)."""


async def pages(
    google: GoogleClient, method: Callable[..., Any], units: int, asked: Mapping[str, Any]
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield every page of a paged method."""
    token, seen = "", {""}
    while True:
        more = {"pageToken": token} if token else {}
        page = await google.call(method(userId=ME, **asked, **more), units)
        yield page
        token = str(page.get("nextPageToken") or "")
        if token in seen:
            return
        seen.add(token)
