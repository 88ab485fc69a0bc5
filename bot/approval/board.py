"""Where cards are put up in Slack, and brought up to date."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.approval import cards
from bot.approval.actions import Actions, StoredAction
from bot.approval.cards import Card
from bot.replies.outbox import Outbox
from bot.replies.writes import ChannelClosed, ContentRefused, MessageGone, WriteFailed

log = logging.getLogger(__name__)

OVER = ("denied", "expired", "done", "failed")
"""States of which a card tells for good; that of an edited action shows what stands for it."""
UNSHOWABLE = (
    "Something that I was to do for you was dropped: I cannot show it to you for approval. It is "
    "too long, or rests on what you may not read (any more)."
)


@dataclass(frozen=True, slots=True)
class Board:
    """Writes cards: each once, whatever fails. Its methods raise WriteFailed and StoreError."""

    actions: Actions
    outbox: Outbox
    address: str
    """Of the workspace: only links that begin with it are links on a card."""
    waits: timedelta
    """How long a person may take to decide, from when the card is shown."""

    async def post(self, key: str, card: Card, channel: str, thread: str, after: str = "") -> str:
        """Show a card and what does not fit into it; its ts. It may stand there already.

        ContentRefused where Slack takes it in no form that shows all of it.
        """
        await self._texts(key, card, channel, thread, after)
        text, blocks, root = card.last.text, card.last.blocks, thread or None
        return await self.outbox.post(
            key, channel, root, text, blocks, look_first=True, exact=True, after=after
        )

    async def _texts(self, key: str, card: Card, channel: str, thread: str, after: str) -> None:
        for number, part in enumerate(card.before, 1):
            at, root = f"{key}/text/{number}", thread or None
            await self.outbox.post(
                *(at, channel, root, part.text, part.blocks),
                look_first=True,
                exact=True,
                after=after,
            )

    async def drop(
        self, rows: Sequence[StoredAction], channel: str, user: str, thread: str | None
    ) -> None:
        """End what cannot be shown, so cannot be approved of, and tell who asked for it."""
        for row in rows:
            await self.actions.decide(row, "denied", "", (), among=("proposed",))
        log.warning("%s cannot be shown to %s", [row.id for row in rows], user)
        try:
            await self.outbox.whisper(channel, user, UNSHOWABLE, thread)
        except WriteFailed as error:
            log.warning("%s is not told: %s", user, error)

    async def reshow(self, row: StoredAction) -> None:
        """Show an edited action in the card of the one that it stands for."""
        place, until = row.place, datetime.now(UTC) + self.waits
        card = cards.waiting(row.action, until) if row.genuine else None
        if card and await self._replaced(row, card):
            await self.actions.ask({row.id: replace(place, drawn="asked")}, until)
            return
        for channel, _ in place.messages[:1]:
            await self.drop([row], channel, row.requester, place.thread or None)

    async def _replaced(self, row: StoredAction, card: Card) -> bool:
        """Whether the messages are there to be replaced."""
        key, place = f"action/{row.id}", row.place
        text, blocks = card.last.text, card.last.blocks
        try:
            for channel, ts in place.messages:
                await self._texts(key, card, channel, place.thread, ts)
                await self.outbox.update(key, channel, ts, text, blocks, exact=True)
        except (MessageGone, ChannelClosed, ContentRefused) as error:
            log.warning("the card of %s cannot be shown: %s", row.id, error)
            return False
        return True

    async def draw(self, id: str) -> None:
        """Let a card show what has become of it; one that is gone is left alone."""
        row = await self.actions.get(id)
        if row and row.place.batch:
            row = await self.actions.get(row.place.batch)
        if row is None or not row.place.messages or row.state not in (*OVER, "approved"):
            return
        part = cards.ended(await self.actions.parts(row), self.address)
        for channel, ts in row.place.messages:
            try:
                await self.outbox.update(f"action/{row.id}", channel, ts, part.text, part.blocks)
            except WriteFailed as error:
                if not isinstance(error, MessageGone | ChannelClosed):
                    raise
                log.info("the card of %s is not there any more: %s", row.id, error)
        await self.actions.drew(row.id, replace(row.place, drawn=row.state))

    async def undrawn(self, since: datetime) -> Sequence[str]:
        """Ids of the actions whose cards do not show yet what has become of them."""
        rows = await self.actions.in_state(*OVER, since=since)
        shown = [(row, row.place) for row in rows if row.card]
        return [r.id for r, p in shown if p.messages and not p.batch and p.drawn != r.state]
