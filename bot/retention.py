"""How long trajectories are kept: requests and replies go first, runs and their results stay."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from bot import tables


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete the trajectories of runs started before `before` (UTC); returns how many runs.

    Blocks that no other run holds go with them.
    """
    old = sa.select(tables.runs.c.id).where(tables.runs.c.started < before)
    held = sa.select(tables.contexts.c.run).distinct().where(tables.contexts.c.run.in_(old))
    found = len(connection.execute(held).all())
    if found:
        for table in (tables.requests, tables.replies, tables.ledger, tables.contexts):
            connection.execute(sa.delete(table).where(table.c.run.in_(old)))
        kept = sa.select(tables.ledger.c.hash)
        connection.execute(sa.delete(tables.blocks).where(tables.blocks.c.hash.not_in(kept)))
    return found
