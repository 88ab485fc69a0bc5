"""A report that waits is tried again before its time, because what kept it back is gone."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa

from bot.schedule.tables import deliveries, ticks
from bot.storage.database import Database


async def try_now(database: Database, run: str) -> bool:
    """Whether there is a report of this run that waits; it is taken up next. Raises StoreError."""
    mine = sa.select(ticks.c.schedule, ticks.c.at).where(ticks.c.run == run)
    rows = await database.read(mine)
    if not rows:
        return False
    c = deliveries.c
    waiting = sa.and_(
        c.schedule == rows[0]["schedule"], c.at == rows[0]["at"], c.state == "waiting"
    )
    update = sa.update(deliveries).where(waiting).values(not_before=datetime.now(UTC))
    return bool(await database.write(update))
