"""What the write tools of the `slack` scope write with."""

from __future__ import annotations

from typing import Protocol


class SlackWriter(Protocol):
    """Writes to Slack, once for each key whatever fails; texts are cleaned and never parsed.

    Its methods raise ToolError where Slack will not have it, with a sentence that says why.
    """

    async def post(
        self, key: str, channel: str, thread_ts: str, text: str, request: str, by: str = ""
    ) -> str:
        """Post in a conversation, or in a thread of it; the message's id `<channel>/<ts>`.

        Below it stands for whom (`by`). Addresses in the text become links only where they stand
        in `request`, too.
        """

    async def message(self, key: str, user: str, text: str, request: str, by: str = "") -> str:
        """Send a direct message; its id."""

    async def react(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction; one that stands there already is fine."""
