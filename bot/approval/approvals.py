"""Cards: what waits for a person's word is shown below the answer, decided by a click, executed.

Nothing is held in memory while a card waits: all that is known of it stands in its row.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.approval.actions import Actions
from bot.approval.clicking import After, Clicking
from bot.approval.clicks import Clicked, Submitted
from bot.approval.deciding import CLICK_RULES, Deciding
from bot.approval.executing import Executing
from bot.approval.grants import Grants
from bot.approval.proposals import Proposals
from bot.durable import Durable
from bot.errors import StoreError
from bot.replies.writes import WriteFailed
from bot.requests.finishing import Finishing
from bot.requests.inbox import Inbox
from bot.storage.database import Database

log = logging.getLogger(__name__)

TIDY_EVERY_S = 20.0
UNSEEN_FOR = timedelta(days=1)
"""After that an action counts as expired that never came to be shown."""
REDRAWN_FOR = timedelta(days=2)
"""How long a card that shows an old state is brought up to date."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """The cards of one process."""

    actions: Actions
    proposals: Proposals
    """Puts cards up."""
    clicking: Clicking
    executing: Executing

    @classmethod
    def made(
        cls,
        proposals: Proposals,
        database: Database,
        web: AsyncWebClient,
        durable: Durable,
        team: str,
        finishing: Finishing,
        rules: frozenset[str] = CLICK_RULES,
    ) -> Approvals:
        """The parts put together. A click does not wait for `database`: Slack wants its ack."""
        board, patient = proposals.board, proposals.actions
        actions, deciding = Actions(database), Deciding(proposals.admission, team, rules)
        executing = Executing(
            patient,
            board,
            Inbox(patient.database),
            Grants(patient.database),
            durable,
            finishing.perform,
            finishing.publish,
            finishing.again,
            rules,
        )
        clicking = Clicking(actions, deciding, board, executing, web)
        return cls(actions, proposals, clicking, executing)

    async def clicked(self, click: Clicked | Submitted) -> After:
        """Decide and store, before the ack; what it returns is to be done after it."""
        return await self.clicking.clicked(click)

    async def execute(self, id: str) -> dict[str, Any]:
        """The body of the workflow `action`."""
        return await self.executing.execute(id)

    async def adopt(self, dead: str) -> None:
        """Take over what a dead replica was to execute; `recover` begins it."""
        await self.actions.adopt(dead, self.executing.durable.executor)

    async def owners(self) -> set[str]:
        return await self.actions.owners()

    async def recover(self) -> None:
        """Go on with what an earlier process of this id, or a dead replica, had left."""
        await self.executing.recover()

    async def run(self) -> None:
        """See to what nobody clicked on, and to cards that are behind. Until cancelled."""
        while True:
            try:
                await self.tidy()
            except (StoreError, WriteFailed) as error:
                log.warning("the cards are not up to date: %s", error)
            except Exception:  # the seam: one look
                log.exception("the cards are not up to date")
            await asyncio.sleep(TIDY_EVERY_S)

    async def tidy(self) -> None:
        """One such look. Raises StoreError and WriteFailed."""
        now, board = datetime.now(UTC), self.proposals.board
        await self.actions.expire(now, now - UNSEEN_FOR)
        await self.executing.give_up()
        for row in await self.actions.in_state("proposed"):
            if row.instead_of and row.card:
                await board.reshow(row)
        for id in await board.undrawn(now - REDRAWN_FOR):
            await board.draw(id)
