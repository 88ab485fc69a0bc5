"""What was approved is executed: once, whatever becomes of the process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bot.approval.actions import BATCH, GRANT, Actions, StoredAction
from bot.approval.board import Board
from bot.approval.deciding import CLICK_RULES, RECHECK
from bot.approval.grants import Grants
from bot.durable import Durable
from bot.errors import StoreError
from bot.replies.writes import Unsettled, WriteFailed, taken
from bot.requests.finishing import NotDone
from bot.requests.inbox import Inbox
from scopes.label import is_personal
from subagents.action import Action

log = logging.getLogger(__name__)

WORKFLOW = "action"
"""Name of the workflow whose body is `Executing.execute`."""
SLACK_GONE_S = 900.0
"""How long Slack may be away before an approved action is given up."""
HOLDS_FOR = timedelta(days=1)
"""How long an approval holds where nothing could be executed."""

FAILED = "Something went wrong inside; whether it was done is not known."
UNSETTLED = "Slack gave no answer; whether it was done is not known."
CRASHED = "Each try ended with the process; whether it was done is not known."
TAMPERED = "What is stored is not what was proposed and approved."
LATE = "It was approved too long ago. Please ask again."
STOPPED = "All work was paused by {by} before it could be done. Please ask again."
PERSONAL = "It would let a person's own notes or mail be told, which nobody else can allow."
LOOKED_UP = "It may be looked up now, and the request is answered again."
OVERTAKEN = "The request was answered again meanwhile. Please ask again."
GRANTED = "The grant stands, and the answer that was held back is where it was asked for."
GRANTED_ONLY = "The grant stands from now on. The answer itself could not be shown there."


Perform = Callable[[Action], Awaitable[str]]
"""Does it, once for each id however often it is called; a sentence of what was done. Raises NotDone
and WriteFailed."""
Publish = Callable[[str], Awaitable[bool]]
"""Shows the answer of a run where it was held back; False = it may not stand there yet."""
Again = Callable[[str, Sequence[str]], Awaitable[bool]]
"""Has the request of a run answered again, which may look these up; False = it was meanwhile."""


@dataclass(frozen=True, slots=True)
class Executing:
    """Executes approved actions; one for the process. Its methods raise StoreError."""

    actions: Actions
    """Of a patient database: a workflow waits for it."""
    board: Board
    inbox: Inbox
    grants: Grants
    durable: Durable
    perform: Perform
    publish: Publish
    again: Again
    rules: frozenset[str] = CLICK_RULES

    async def begin(self, id: str) -> None:
        await self.durable.begin(WORKFLOW, f"{WORKFLOW}/{id}", id)

    async def recover(self) -> None:
        """Go on with what this process, or one that died, was to execute."""
        for row in await self.actions.in_state("approved", owner=self.durable.executor):
            if not row.place.batch:
                await self.begin(row.id)

    async def give_up(self) -> None:
        """End what took its process down too often."""
        rows = await self.actions.in_state("approved", owner=self.durable.executor)
        ids = {f"{WORKFLOW}/{row.id}": row for row in rows if not row.place.batch}
        for lost in await self.durable.lost(ids):
            log.error("the action %s is given up: each try ended with the process", ids[lost].id)
            for each in (*await self.actions.parts(ids[lost]), ids[lost]):
                await self.actions.finish(each.id, "failed", {"said": CRASHED})

    async def execute(self, id: str) -> dict[str, Any]:
        """The workflow of an approved action, or of a batch: one after another, in its order."""
        row = await self.actions.get(id)
        if row is None:
            return {"state": "gone"}
        if row.state == "approved":
            await self._draw(id)  # nobody is to press its buttons any more
            approved = [e for e in await self.actions.parts(row) if e.state == "approved"]
            for each in approved:
                if not (each.genuine and each.action.asks):
                    await self._carry_out(each)
            await self._look_up([e for e in approved if e.genuine and e.action.asks])
            if row.tool == BATCH:
                await self.actions.finish(id, "done", {"said": ""})
        await self._draw(id)
        found = await self.actions.get(id)
        return {"state": found.state if found else "gone"}

    async def _carry_out(self, row: StoredAction) -> None:
        state, said = "failed", await self._objection(row)
        if not said:
            try:
                said = await taken(lambda: self._do(row), SLACK_GONE_S)
                state = "done"
            except NotDone as refusal:
                said = str(refusal)
            except WriteFailed as error:
                log.warning("the action %s failed: %s", row.id, error)
                unsettled = isinstance(error, Unsettled)
                said = UNSETTLED if unsettled else f"Slack did not take it: {error.code}."
            except StoreError:
                raise
            except Exception:  # the seam: one action
                log.exception("the action %s failed", row.id)
                said = FAILED
        await self.actions.finish(row.id, state, {"said": said})

    async def _look_up(self, rows: Sequence[StoredAction]) -> None:
        """Have a request answered again that may look these things up outside now."""
        if not rows:
            return
        said = {row.id: await self._objection(row) for row in rows}
        asks = [ask for row in rows if not said[row.id] for ask in row.action.asks]
        (first, *_) = rows
        again = bool(asks) and await self.again(first.run, asks)
        for row in rows:
            done = again and not said[row.id]
            told = LOOKED_UP if done else said[row.id] or OVERTAKEN
            await self.actions.finish(row.id, "done" if done else "failed", {"said": told})

    async def _do(self, row: StoredAction) -> str:
        if row.tool != GRANT:
            return await self.perform(row.action)
        args = row.action.args
        sources, by = [s for s in args["sources"] if s], row.decided_by or ""
        if any(map(is_personal, sources)):  # an offer that an earlier version made
            raise NotDone(PERSONAL)
        await self.grants.add(sources, args["destination"], by, row.id)
        for other in await self.actions.in_state("asked"):
            same = other.place.batch == row.id and other.genuine
            if same and other.action.args == args:  # asked for the same meanwhile
                await self.publish(other.run)
                await self.actions.decide(other, "done", by, ())
        return GRANTED if await self.publish(row.run) else GRANTED_ONLY

    async def _objection(self, row: StoredAction) -> str:
        """Why it is not executed after all, whatever was clicked and whatever the columns say."""
        if not row.approved or row.decided_at is None:
            return TAMPERED
        if datetime.now(UTC) - row.decided_at > HOLDS_FOR:
            return LATE
        if RECHECK not in self.rules:
            return ""
        by = await self.inbox.paused()
        return STOPPED.format(by=by) if by else ""

    async def _draw(self, id: str) -> None:
        """Best effort: what is not drawn now is drawn by and by."""
        try:
            await self.board.draw(id)
        except WriteFailed as error:
            log.warning("the card of %s is not up to date: %s", id, error)
