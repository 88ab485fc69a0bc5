"""Whose turn it is: the stored requests that may be worked on now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bot.storage.serve_tables import inbox

TAKING = 7_003
"""Advisory lock of Postgres that a replica holds while it takes requests."""


def next_in_turn(
    connection: sa.Connection, free: int, now: datetime, *, shared: bool
) -> list[sa.RowMapping]:
    """Up to `free` rows of requests, the oldest first, of each thread one at a time.

    `shared`: other replicas take requests, too; they wait until this transaction ends.
    """
    if shared:  # two replicas must not both find a thread idle
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(TAKING)))
    due = {"now": now, "free": free}
    found = [row for query in _DUE for row in connection.execute(query, due).mappings()]
    return sorted(found, key=lambda row: row["received"])[:free]


def _due(ready: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """The oldest requests that are `ready` and whose threads are idle."""
    other = inbox.alias()
    before = sa.or_(
        other.c.state == "running",
        sa.and_(other.c.state.in_(("new", "waiting")), other.c.ts < inbox.c.ts),
    )
    thread = [other.c[n] == inbox.c[n] for n in ("team", "channel", "thread_ts")]
    busy = sa.exists().where(*thread, other.c.key != inbox.c.key, before)
    oldest = sa.select(inbox).where(ready, ~busy).order_by(inbox.c.received)
    return oldest.limit(sa.bindparam("free", type_=sa.Integer))


_NOW = sa.bindparam("now", type_=inbox.c.not_before.type)
# Made once; two, since an index gives the oldest of one state without sorting a long queue.
_DUE = (
    _due(inbox.c.state == "new"),
    _due(sa.and_(inbox.c.state == "waiting", inbox.c.not_before <= _NOW)),
)
