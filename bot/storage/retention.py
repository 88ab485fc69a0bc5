"""How long each class of data is kept. Of a run its id, kind, status, cost and times stay.

The log of decisions is kept for good: it holds no text, only names of tools and rules, ids, and
hashes of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.accounts.oauth_states import expired
from bot.memory import conversations
from bot.memory.notes import notes, without
from bot.memory.resources import spaces_of
from bot.schedule.tables import deliveries, issues, ticks
from bot.storage import tables
from bot.storage.database import Database
from bot.storage.gate_tables import actions, quoted
from bot.storage.mail_tables import mail_acts, mail_corrections, mail_threads
from bot.storage.tables import runs, subagents
from bot.storage.tool_tables import conversations as talks
from bot.storage.tool_tables import resources
from bot.tooling.outside_tools import old_calls
from config.sections import Retention
from scopes.resources import space_of_run

Purge = Callable[[sa.Connection, datetime], int]
"""Deletes some of what is from before then; returns how much, 0 where nothing is left."""

RUNS = 20
"""Runs of one transaction: others, such as the store of what Slack just said, wait for it."""
HASHES = 500
TOLD = ("delivered", "quiet")
"""States of a delivery whose readers have the report."""
OPEN = ("due", "running", "waiting")
"""States of ticks and deliveries that are not over."""
MONTH_DAYS = 33
"""Ticks are kept so long at least: they tell what a schedule has cost this month."""
THREADS_DAYS = 365
"""Ids of handled mail threads are kept so long at least: who lists a mailbox anew asks for them."""


async def tidy(database: Database, retention: Retention) -> None:
    """Delete what is older than it is kept. Raises StoreError."""
    classes: tuple[tuple[int | None, Purge], ...] = (
        (retention.trajectories_days, trajectories),
        (retention.results_days, results),
        (retention.results_days, mail),
        (retention.results_days, reports),
        (retention.results_days and max(retention.results_days, MONTH_DAYS), times),
        (retention.results_days and max(retention.results_days, THREADS_DAYS), mail_handled),
        (retention.actions_days, proposals),
        (retention.actions_days, old_calls),
        (retention.notes_days, kept),
    )
    for days, purge in classes:
        if days:
            await _purge(database, purge, datetime.now(UTC) - timedelta(days=days))
    await database.change(expired)


async def _purge(database: Database, purge: Purge, before: datetime) -> None:
    while await database.change(lambda connection: purge(connection, before)):
        pass


def results(connection: sa.Connection, before: datetime) -> int:
    """Delete what the first `RUNS` runs from before then were asked, were told and found."""
    asked = sa.type_coerce(runs.c.question, sa.Text)  # as it is stored: emptied, it is not sealed
    query = sa.select(runs.c.id).where(runs.c.started < before, asked != "")
    old = list(connection.execute(query.order_by(runs.c.started).limit(RUNS)).scalars())
    empty_runs(connection, old)
    return len(old)


def empty_runs(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Delete what these runs were asked, were told and found."""
    recorded = sa.exists().where(tables.contexts.c.run == quoted.c.run)
    connection.execute(sa.delete(subagents).where(subagents.c.run.in_(ids)))
    conversations.without(connection, talks.c.run.in_(ids))
    connection.execute(sa.delete(resources).where(resources.c.space.in_(spaces_of(ids))))
    noted = sa.exists().where(notes.c.run == quoted.c.run)  # who is forgotten is in no note either
    filed = sa.exists().where(resources.c.run == quoted.c.run)
    connection.execute(sa.delete(quoted).where(quoted.c.run.in_(ids), ~recorded, ~noted, ~filed))
    empty: dict[str, Any] = {"question": sa.literal_column("''"), "result": None, "error": None}
    connection.execute(sa.update(runs).where(runs.c.id.in_(ids)).values(empty))


def kept(connection: sa.Connection, before: datetime) -> int:
    """Delete the first notes that were kept before then, and the files beside them; those of a run
    go with its results."""
    of_runs = resources.c.space.startswith(space_of_run(""))
    connection.execute(sa.delete(resources).where(resources.c.at < before, ~of_runs))
    old = sa.select(notes.c.id).where(notes.c.at < before).limit(HASHES)
    return without(connection, notes.c.id.in_(list(connection.execute(old).scalars())))


def mail(connection: sa.Connection, before: datetime) -> int:
    """Delete what was corrected and clicked before then in digests of mail."""
    for table in (mail_corrections, mail_acts):
        connection.execute(sa.delete(table).where(table.c.at < before))
    return 0


def reports(connection: sa.Connection, before: datetime) -> int:
    """Delete the deliveries from before then, and the issues that were told last then."""
    _over(connection, deliveries, before)
    connection.execute(sa.delete(issues).where(issues.c.last < before))
    return 0


def times(connection: sa.Connection, before: datetime) -> int:
    """Delete the ticks from before then."""
    _over(connection, ticks, before)
    return 0


def _over(connection: sa.Connection, table: sa.Table, before: datetime) -> None:
    """Delete what ended; where the last report did stays, as the next one begins there."""
    told = deliveries.alias()
    latest = sa.select(sa.func.max(told.c.at)).where(told.c.state.in_(TOLD))
    kept = latest.where(told.c.schedule == table.c.schedule).scalar_subquery()
    over = table.c.state.not_in(OPEN)
    old = sa.and_(table.c.at < before, over, sa.or_(kept.is_(None), table.c.at != kept))
    connection.execute(sa.delete(table).where(old))


def mail_handled(connection: sa.Connection, before: datetime) -> int:
    """Delete which threads were handled before then; a snoozed one stays."""
    old = sa.and_(mail_threads.c.at < before, mail_threads.c.until.is_(None))
    connection.execute(sa.delete(mail_threads).where(old))
    return 0


def proposals(connection: sa.Connection, before: datetime) -> int:
    """Delete the actions that were proposed before then; none of them can be executed any more."""
    connection.execute(sa.delete(actions).where(actions.c.made < before))
    return 0


def trajectories(connection: sa.Connection, before: datetime) -> int:
    """Delete the trajectories of the first `RUNS` runs started before `before` (UTC); how many.

    Blocks that no other run holds go with them.
    """
    held = sa.exists().where(tables.contexts.c.run == tables.runs.c.id)
    query = sa.select(tables.runs.c.id).where(tables.runs.c.started < before, held)
    old = list(connection.execute(query.order_by(tables.runs.c.started).limit(RUNS)).scalars())
    empty_trajectories(connection, old)
    return len(old)


def empty_trajectories(connection: sa.Connection, ids: Sequence[str]) -> int:
    """Delete the trajectories of these runs; how many blocks went, held by no other run."""
    ledger = tables.ledger.c
    hashes = connection.execute(sa.select(ledger.hash).distinct().where(ledger.run.in_(ids)))
    found = list(hashes.scalars())
    for table in (tables.requests, tables.replies, tables.ledger, tables.contexts):
        connection.execute(sa.delete(table).where(table.c.run.in_(ids)))
    return sum(
        _drop(connection, found[start : start + HASHES]) for start in range(0, len(found), HASHES)
    )


def _drop(connection: sa.Connection, hashes: Sequence[str]) -> int:
    blocks = tables.blocks
    kept = sa.exists().where(tables.ledger.c.hash == blocks.c.hash)
    return connection.execute(sa.delete(blocks).where(blocks.c.hash.in_(hashes), ~kept)).rowcount
