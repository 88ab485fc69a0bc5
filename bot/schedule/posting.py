"""A report in Slack: a message, the rest of it and files in its thread; each of them once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.policy.directory import PERSON
from bot.replies import render
from bot.replies.outbox import Outbox
from bot.replies.render import Part
from bot.replies.writes import TokenRefused, Unsettled, WriteFailed
from scopes.google.gmail_compose import Attached

log = logging.getLogger(__name__)

CLOCKS = timedelta(minutes=10)
"""Slack's clock may be so far behind ours."""
NO_SCOPE = "I lack the permission files:write. Whoever runs me can install me again with it."
NOT_SHOWN = "Slack gave no proper answer."
NOT_TAKEN = "Slack did not take it."
MISSING = "{name} could not be put here: {why} The report above is whole without it."


@dataclass(frozen=True, slots=True)
class Posting:
    """Posts one report; what stands there from an earlier try is left as it is."""

    outbox: Outbox
    run: str
    """Its id is the key of the messages."""
    since: datetime
    """Nothing of it was posted before."""

    async def post(
        self, place: str, parts: Sequence[Part], files: Sequence[Attached]
    ) -> dict[str, Any]:
        """Where it stands then; `place` is a conversation or, for a direct message, a user.

        Raises WriteFailed.
        """
        channel = await self.outbox.direct(place) if PERSON.fullmatch(place) else place
        first, *rest = parts
        after = f"{(self.since - CLOCKS).timestamp():.6f}"
        said = (first.text, first.blocks)
        key = f"{self.run}#1"
        root = await self.outbox.post(
            key, channel, None, *said, look_first=True, run=self.run, after=after
        )
        there = (await self.outbox.mine(channel, root, self.run, "")).parts if rest else {}
        for number, part in enumerate(rest, 2):
            if number not in there:
                key, said = f"{self.run}#{number}", (part.text, part.blocks)
                await self.outbox.post(key, channel, root, *said, run=self.run)
        for file in files:
            await self._attach(channel, root, file)
        return {"channel": channel, "ts": root}

    async def _attach(self, channel: str, root: str, file: Attached) -> None:
        """Put a file into the thread; where it cannot be, that is said there instead."""
        try:
            await self.outbox.uploads.share(channel, root, file.name, file.content)
            return
        except WriteFailed as error:
            log.warning("%s is not attached to %s: %s", file.name, self.run, error)
            why = NO_SCOPE if isinstance(error, TokenRefused) else NOT_TAKEN
            why = NOT_SHOWN if isinstance(error, Unsettled) else why
        part = render.sentence(MISSING.format(name=file.name, why=why)).parts[0]
        key = f"{self.run}/{file.name}"
        await self.outbox.post(key, channel, root, part.text, part.blocks, look_first=True)
