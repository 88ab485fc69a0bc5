"""What a click on a card does: decided and stored before Slack gets its ack, the rest after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.approval import cards
from bot.approval.actions import WAITS, Actions, StoredAction
from bot.approval.board import Board
from bot.approval.clicks import APPROVE, EDIT, Clicked, Submitted
from bot.approval.deciding import BOUND, DECIDED, ONCE, UNBOUND, UNKNOWN, Deciding, Objection, named
from bot.approval.described import editable
from bot.approval.executing import Executing
from bot.faces.pane import attempt
from bot.replies.writes import WriteFailed
from subagents.gate import Decision

log = logging.getLogger(__name__)

After = Callable[[], Coroutine[Any, Any, None]]
"""What follows a click when it is acked."""

NO_FORM = "The form could not be opened. Please press again."
ANY_STATE = (*WAITS, "approved", "denied", "expired", "edited", "done", "failed")


@dataclass(frozen=True, slots=True)
class Clicking:
    """Takes clicks on cards and their forms."""

    actions: Actions
    deciding: Deciding
    board: Board
    executing: Executing
    web: AsyncWebClient

    async def clicked(self, click: Clicked | Submitted) -> After:
        """Decide and store. Raises StoreError: then nothing was decided."""
        row = await self.actions.get(click.id) if click.id else None
        objection = Objection(BOUND, UNKNOWN)
        found = await self.deciding.objection(click, row) if row else objection
        if row is None or found:
            return await self._refused(click, row, found or objection)
        if isinstance(click, Submitted):
            return await self._submitted(click, row)
        if click.what == EDIT:
            return lambda: self._open_form(click, row)
        return await self._decided(click, row)

    async def _decided(self, click: Clicked, row: StoredAction) -> After:
        approved = click.what == APPROVE
        state = "approved" if approved else "denied"
        decided = await self._lines(click, row, state)
        owner = self.executing.durable.executor if approved else None
        among = ("asked",) if ONCE in self.deciding.rules else ANY_STATE
        if not await self.actions.decide(row, state, click.user, decided, owner=owner, among=among):
            return await self._too_late(click, row)
        log.info("%s has %s the action %s", click.user, state, row.id)
        return lambda: self.executing.begin(row.id) if approved else self._draw(row.id)

    async def _submitted(self, click: Submitted, row: StoredAction) -> After:
        old = row.action
        if not click.texts.keys() <= editable(old).keys():
            return await self._refused(click, row, Objection(BOUND, UNBOUND))
        new = old.edited(click.texts)
        if new.args == old.args:
            return self._nothing
        decided = await self._lines(click, row, "edited")
        if not await self.actions.replace(row, new, click.user, decided):
            return await self._too_late(click, row)
        log.info("%s has edited the action %s, now %s", click.user, row.id, new.id)
        return lambda: self._reshow(new.id)

    async def _too_late(self, click: Clicked | Submitted, row: StoredAction) -> After:
        """Somebody else was first."""
        now = await self.actions.get(row.id) or row
        sentence = DECIDED.get(now.state, UNKNOWN).format(by=named(now.decided_by))
        return await self._refused(click, now, Objection(ONCE, sentence))

    async def _refused(
        self, click: Clicked | Submitted, row: StoredAction | None, objection: Objection
    ) -> After:
        log.warning(
            "a click of %s on %s counts for nothing: %s", click.user, click.id, objection.rule
        )
        for line in await self._lines(click, row, "refused", objection.rule):
            await self.actions.log(line)
        return lambda: self._tell(click, row, objection.sentence)

    async def _lines(
        self, click: Clicked | Submitted, row: StoredAction | None, verdict: str, rule: str = ""
    ) -> Sequence[Decision]:
        """The gate's log of a click; of a batch one line for each action. `rule`: that it broke;
        else that which wants a person's word."""
        now = datetime.now(UTC)
        if row is None:
            return [Decision("", "", "click", "", verdict, rule, now, click.user)]
        return [
            Decision(
                *(each.run, each.id, each.tool, each.digest[:16]),
                *(verdict, rule or each.rule, now, click.user),
            )
            for each in await self.actions.parts(row)
        ]

    async def _tell(
        self, click: Clicked | Submitted, row: StoredAction | None, sentence: str
    ) -> None:
        """Tell who clicked, and nobody else."""
        place = row.place.messages if row else ()
        where = place[0][0] if place else ""
        channel = click.channel if isinstance(click, Clicked) else where
        thread = click.thread_ts if isinstance(click, Clicked) else row.place.thread if row else ""
        try:
            if channel:
                await self.board.outbox.whisper(channel, click.user, sentence, thread or None)
        except WriteFailed as error:
            log.warning("%s is not told of a click: %s", click.user, error)
        if row and row.state not in WAITS:
            await self._draw(row.id)

    async def _open_form(self, click: Clicked, row: StoredAction) -> None:
        view = cards.form(row.action)
        opened = self.web.views_open(trigger_id=click.trigger, view=view) if view else None
        if opened is None or await attempt("the form of a card", opened):
            await self._tell(click, row, NO_FORM)

    async def _reshow(self, id: str) -> None:
        row = await self.actions.get(id)
        if row and row.state == "proposed":
            await self.board.reshow(row)

    async def _draw(self, id: str) -> None:
        await self.board.draw(id)

    async def _nothing(self) -> None:
        return
