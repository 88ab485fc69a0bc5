"""How long trajectories are kept: requests and replies go first, runs and their results stay."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from bot import tables

RUNS = 20
"""Runs of one transaction: others, such as the store of what Slack just said, wait for it."""
HASHES = 500


def purge(connection: sa.Connection, before: datetime) -> int:
    """Delete the trajectories of the first `RUNS` runs started before `before` (UTC); how many.

    Blocks that no other run holds go with them.
    """
    held = sa.exists().where(tables.contexts.c.run == tables.runs.c.id)
    query = sa.select(tables.runs.c.id).where(tables.runs.c.started < before, held)
    old = list(connection.execute(query.order_by(tables.runs.c.started).limit(RUNS)).scalars())
    ledger = tables.ledger.c
    hashes = connection.execute(sa.select(ledger.hash).distinct().where(ledger.run.in_(old)))
    found = list(hashes.scalars())
    for table in (tables.requests, tables.replies, tables.ledger, tables.contexts):
        connection.execute(sa.delete(table).where(table.c.run.in_(old)))
    for start in range(0, len(found), HASHES):
        _forget(connection, found[start : start + HASHES])
    return len(old)


def _forget(connection: sa.Connection, hashes: Sequence[str]) -> None:
    blocks = tables.blocks
    kept = sa.exists().where(tables.ledger.c.hash == blocks.c.hash)
    connection.execute(sa.delete(blocks).where(blocks.c.hash.in_(hashes), ~kept))
