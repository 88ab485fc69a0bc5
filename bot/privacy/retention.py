"""Retention of each class of data. Of a run its id, kind, status, cost and times stay.

The log of decisions is kept permanently: it holds no text, only names of tools and rules, ids, and
hashes of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database, chunks
from bot.storage.tables import (
    actions,
    blocks,
    contexts,
    conversations,
    deliveries,
    issues,
    ledger,
    mail_acts,
    mail_corrections,
    mail_threads,
    names,
    notes,
    oauth_states,
    outside_calls,
    preferences,
    questions,
    quoted,
    replies,
    requests,
    resources,
    runs,
    schedule_runs,
    schedules,
    steps,
    subagents,
)
from config.sections import RetentionSettings
from scopes.resources import space_of_run

Purge = Callable[[sa.Connection, datetime], int]
"""Deletes data of some runs from before then; returns of how many, 0 if nothing is left."""
Condition = sa.ColumnElement[bool]

RUNS = 20
"""Runs of one transaction: others, such as storing a new Slack message, wait for it."""
THREADS_DAYS = 365
"""Minimum days to keep ids of handled mail threads, which a new listing of a mailbox needs."""


async def tidy(database: Database, retention: RetentionSettings) -> None:
    """Delete data that is past its retention. Raises StoreError."""
    now, days = datetime.now(UTC), retention
    threads_days = days.results_days and max(days.results_days, THREADS_DAYS)
    of_run, snoozed = resources.c.space.startswith(space_of_run("")), mail_threads.c.until
    purges: tuple[tuple[int | None, Purge], ...] = (
        (days.trajectories_days, _purge_trajectories),
        (days.results_days, _purge_results),
    )
    rows: tuple[tuple[int | None, sa.Column[Any], Condition], ...] = (
        (days.results_days, mail_corrections.c.at, sa.true()),
        (days.results_days, mail_acts.c.at, sa.true()),
        (days.results_days, names.c.at, sa.true()),
        (days.results_days, deliveries.c.at, _is_over(deliveries)),
        (days.results_days, issues.c.last, sa.true()),
        (days.results_days, schedule_runs.c.at, _is_over(schedule_runs)),
        (days.results_days, schedules.c.changed, schedules.c.state == "done"),
        (threads_days, mail_threads.c.at, snoozed.is_(None)),
        (days.actions_days, actions.c.made, sa.true()),
        (days.actions_days, outside_calls.c.at, sa.true()),
        (days.notes_days, notes.c.at, sa.true()),
        (days.notes_days, preferences.c.at, sa.true()),
        (days.notes_days, resources.c.at, ~of_run),  # files of a run are deleted with its results
    )
    for age, purge in purges:
        before = now - timedelta(days=age or 0)
        while age and await database.change(lambda c, p=purge, t=before: p(c, t)):  # type: ignore[misc]
            pass
    for age, time, is_old in rows:
        if age:
            past = time < now - timedelta(days=age)
            await database.write(sa.delete(time.table).where(past, is_old))
    await database.write(sa.delete(oauth_states).where(oauth_states.c.expires < now))
    await database.empty_log()


def _is_over(table: sa.Table) -> Condition:
    """Match rows that are over, except the last reported one, where the next report begins."""
    told = deliveries.alias()
    latest = sa.select(sa.func.max(told.c.at)).where(told.c.state.in_(("delivered", "quiet")))
    done = sa.select(schedules.c.id).where(schedules.c.state == "done")
    mine = sa.and_(told.c.schedule == table.c.schedule, table.c.schedule.not_in(done))
    kept = latest.where(mine).scalar_subquery()
    over = table.c.state.not_in(("due", "running", "waiting"))
    return sa.and_(over, sa.or_(kept.is_(None), table.c.at != kept))


def _purge_results(connection: sa.Connection, before: datetime) -> int:
    query = sa.select(runs.c.id).where(runs.c.started < before, runs.c.question != "")
    old = list(connection.execute(query.order_by(runs.c.started).limit(RUNS)).scalars())
    empty_runs(connection, old)
    return len(old)


def _purge_trajectories(connection: sa.Connection, before: datetime) -> int:
    held = sa.or_(*(sa.exists().where(t.c.run == runs.c.id) for t in (contexts, steps)))
    query = sa.select(runs.c.id).where(runs.c.started < before, held)
    old = list(connection.execute(query.order_by(runs.c.started).limit(RUNS)).scalars())
    empty_trajectories(connection, old)
    return len(old)


def empty_runs(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Delete questions, answers and findings of these runs."""
    spaces = [space_of_run(id) for id in ids]
    for table in (subagents, questions):
        connection.execute(sa.delete(table).where(table.c.run.in_(ids)))
    connection.execute(sa.delete(conversations).where(conversations.c.run.in_(ids)))
    connection.execute(sa.delete(resources).where(resources.c.space.in_(spaces)))
    # What a run has seen stays known while anything of it is kept that may rest on that.
    holding = (contexts, notes, preferences, resources)
    kept = [sa.exists().where(t.c.run == quoted.c.run) for t in holding]
    connection.execute(sa.delete(quoted).where(quoted.c.run.in_(ids), ~sa.or_(*kept)))
    empty: dict[str, Any] = {"question": "", "result": None, "error": None}
    connection.execute(sa.update(runs).where(runs.c.id.in_(ids)).values(empty))


def empty_trajectories(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Delete the trajectories of these runs, and blocks that no other run holds."""
    query = sa.select(ledger.c.hash).distinct().where(ledger.c.run.in_(ids))
    hashes = list(connection.execute(query).scalars())
    for table in (requests, replies, ledger, contexts, steps):
        connection.execute(sa.delete(table).where(table.c.run.in_(ids)))
    kept = sa.exists().where(ledger.c.hash == blocks.c.hash)
    for some in chunks(hashes):
        connection.execute(sa.delete(blocks).where(blocks.c.hash.in_(some), ~kept))
