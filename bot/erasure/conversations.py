"""Forgets what was asked and answered in a channel; all else of it goes with the runs."""

from __future__ import annotations

import sqlalchemy as sa

from bot.erasure.targets import Target
from bot.memory.conversations import without
from bot.storage.database import Database
from bot.storage.tables import runs
from bot.storage.tool_tables import conversations


async def forget_conversations(database: Database, target: Target, dry_run: bool) -> int:
    """How many went, or would, private answers to what was asked there among them.

    Raises StoreError.
    """
    if target.kind != "channel":
        return 0
    asked = sa.select(runs.c.id).where(runs.c.request.contains(f"/{target.id}/", autoescape=True))
    c = conversations.c
    mine = sa.or_(c.place == target.id, c.run.in_(asked))
    rows = await database.read(sa.select(c.id).where(mine))
    if rows and not dry_run:
        ids = [row["id"] for row in rows]
        await database.change(lambda connection: without(connection, c.id.in_(ids)))
    return len(rows)
