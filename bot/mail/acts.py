"""What buttons under a digest do, once each, however often and wherever they are clicked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.errors import SetupError
from bot.storage.database import Database
from bot.storage.mail_tables import mail_acts

Outcome = Mapping[str, Any]
"""What came of it, as JSON: such as the id of a draft."""

GIVEN_UP_AFTER = timedelta(minutes=2)
"""After this somebody who began and never ended is taken for dead."""


class UnderWay(SetupError):
    """The same click is being worked on, here or by another replica."""

    def __init__(self) -> None:
        super().__init__("under_way", "That is being done already.", "Look again in a moment.")


class MailActs:
    """The acts of one database, by account and key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(
        self, account: str, key: str, thread: str, act: Callable[[], Awaitable[Outcome]]
    ) -> Outcome:
        """What `act` came to, now or when it was done before under this key.

        After a crash in the middle it is done again, so it must do no harm twice: Gmail's labels
        and drafts are made so. Raises UnderWay, StoreError, or what the act raises: then the next
        click does it anew.
        """
        began = datetime.now(UTC)
        row = {"account": account, "key": key, "thread": thread, "outcome": None, "at": began}
        insert = self._database.upsert(mail_acts).values(row)
        if not await self._database.write(insert):
            found = await self._taken_over(account, key, began)
            if found is not None:
                return found
        mine = sa.and_(_is(account, key), mail_acts.c.at == began, mail_acts.c.outcome.is_(None))
        try:
            outcome = await act()
        except BaseException:
            await self._database.write(sa.delete(mail_acts).where(mine))
            raise
        await self._database.write(sa.update(mail_acts).where(mine).values(outcome=dict(outcome)))
        return outcome

    async def done(self, account: str, key: str) -> Outcome | None:
        """What came of it; None = nothing yet. Raises StoreError."""
        query = sa.select(mail_acts.c.outcome).where(_is(account, key))
        rows = await self._database.read(query)
        return rows[0]["outcome"] if rows else None

    async def _taken_over(self, account: str, key: str, began: datetime) -> Outcome | None:
        """The outcome that is there already; None = nobody is at work on it, and now we are."""
        dead = sa.and_(mail_acts.c.outcome.is_(None), mail_acts.c.at < began - GIVEN_UP_AFTER)
        take = sa.update(mail_acts).where(_is(account, key), dead).values(at=began)
        if await self._database.write(take):
            return None
        found = await self.done(account, key)
        if found is None:
            raise UnderWay
        return found


def _is(account: str, key: str) -> sa.ColumnElement[bool]:
    return sa.and_(mail_acts.c.account == account, mail_acts.c.key == key)
