"""Implement `assistant schedules`: the status of each schedule, dry runs, and changes."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from pydantic import BaseModel

from bot.cli.output import CommandContext, name_or_default, on_database
from bot.doctor.services import find_server
from bot.mailbox.accounts import Credentials, Mailboxes
from bot.policy.directory import Grants, SlackDirectory
from bot.policy.policy import PolicyFile
from bot.runs.durable import REPLICA_LOCK_CLASS
from bot.schedules import description
from bot.schedules.description import schedule_statuses, status_lines
from bot.schedules.run import RunPlanner
from bot.schedules.store import ScheduleError, ScheduleStore
from bot.schedules.validation import ScheduleFault, ScheduleValidator
from bot.slack.client import clients, who_am_i
from bot.slack.people import People
from bot.storage.database import Database
from bot.storage.schedules import Occurrence, State, StoredSchedule
from bot.terminal import DONE, INCOMPLETE, tell
from config.schedules import ScheduleKind
from config.settings import Settings
from scopes.members import Members
from scopes.slack_client import open_session
from scopes.slack_reader import SlackReader
from scopes.tool import iso
from subagents.directory import Obstacle

REPLICA_CONDITION = (
    "locktype = 'advisory' AND classid = :classid AND granted AND "
    "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Condition on `pg_locks`: a replica serves from this database."""


async def is_served(database: Database, data_dir: Path) -> bool:
    """Return whether a process is serving this database now. Raises StoreError."""
    if database.shared:
        condition = sa.text(REPLICA_CONDITION).bindparams(classid=REPLICA_LOCK_CLASS)
        locks = sa.select(sa.text("1")).select_from(sa.text("pg_locks")).where(condition)
        return bool(await database.read(locks))
    return find_server(data_dir) is not None


MOST_SHOWN = 40
"""Maximum number of channels on the terminal; --json lists all."""
NOT_SERVED = "`assistant serve` is not running: this is done as soon as it starts."


class Span(BaseModel):
    oldest: datetime
    latest: datetime


class PlannedChannel(BaseModel):
    """A channel that a run would read."""

    id: str
    name: str
    since: datetime


class DryRun(BaseModel):
    """The sources that a run would read now, and the destination of its report."""

    name: str
    kind: ScheduleKind
    state: State
    at: datetime
    next_runs: tuple[datetime, ...]
    window: Span | None = None
    """None if it could not run."""
    channels: tuple[PlannedChannel, ...] = ()
    channels_added: tuple[str, ...] = ()
    channels_gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    likely_usd: float | None = None
    budget_usd: float
    to: str
    in_the_way: tuple[Obstacle, ...] = ()
    wrong: str | None = None
    """Why it could not run."""


@on_database
async def run_list(context: CommandContext) -> None:
    """List all schedules, including those that no process has loaded yet."""
    settings, now = context.settings, datetime.now(UTC)
    found = await schedule_statuses(context.database, settings.schedules, now)
    served = await is_served(context.database, settings.data_dir)
    schedules = [each.to_json() for each in found]
    empty = "There is no schedule. Set one under `schedules` in assistant.yaml, or in chat."
    blocks = ("\n".join(status_lines(each, now)) for each in found)
    context.show({"served": served, "schedules": schedules}, *blocks, empty=empty)
    if found and not served and not context.as_json:
        tell("`assistant serve` is not running: schedules run only while it does.")


@on_database
async def run_now(context: CommandContext, name: str) -> None:
    """Request a run in addition to the schedule's times; the serving process starts it."""
    row = await ScheduleStore(context.database).require(name)
    if row.state == "paused":
        raise ScheduleError(f"{name} is paused.", "`assistant schedules resume` lets it go on.")
    _is_to_come(row)
    if row.state != "active":
        raise ScheduleError(f"{name} cannot run: {row.why}", "Fix it first.")
    occurrence = await ScheduleStore(context.database).ask_now(name, datetime.now(UTC))
    served = await is_served(context.database, context.settings.data_dir)
    then = "`assistant schedules` shows the result." if served else NOT_SERVED
    found = {"name": name, "at": occurrence.at, "served": served}
    context.show(found, f"{name} is to run now.", then)


@on_database
async def run_dry(context: CommandContext, name: str) -> int:
    """Show the plan of a run now; this calls no model, and sends and stores nothing.

    Exit code 1 if it could not run, or its report could not be delivered.
    """
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    settings, database, now = context.settings, context.database, datetime.now(UTC)
    schedules = ScheduleStore(database)
    row = await schedules.get(name)
    if row is None and (spec := settings.schedules.get(name)):
        row = StoredSchedule.new(name, "config", spec, now)
    row = row or await schedules.require(name)
    async with _validator(settings, database) as validator:
        planner = RunPlanner(settings, validator, ScheduleStore(database))
        dry = await _dry_run(planner, row, now)
    context.show(dry.model_dump(mode="json"), *_dry_lines(dry))
    return INCOMPLETE if dry.wrong or dry.in_the_way else DONE


@asynccontextmanager
async def _validator(settings: Settings, database: Database) -> AsyncIterator[ScheduleValidator]:
    """Open the validator that `serve` uses."""
    async with open_session(settings.slack) as session:
        client, _ = clients(settings, session)
        bot, _ = await who_am_i(client, settings)
        members, people = Members(client), People(client)
        directory = SlackDirectory(
            members, people, Grants(database).sources_for, bot.user, bot.team
        )
        mail = Mailboxes(settings, Credentials(database), people.address)
        reader = SlackReader(client, timedelta(days=settings.slack.lookback_days), members=members)
        async with aclosing(members), aclosing(people):
            yield ScheduleValidator(reader, directory, PolicyFile(None, settings.policy), mail)


async def _dry_run(planner: RunPlanner, row: StoredSchedule, now: datetime) -> DryRun:
    """Plan a run in the same way as the scheduler. Raises StoreError."""
    spec, validator = row.spec, planner.validator
    dry = DryRun(
        name=row.id,
        kind=spec.kind,
        state=row.state,
        at=now,
        next_runs=tuple(spec.timetable.next(description.NEXT_RUN_COUNT, now)),
        budget_usd=spec.budget_usd,
        to=spec.to,
    )
    try:
        async with aclosing(validator.reader.fresh()) as reader:
            occurrence = Occurrence(row.id, now, "due")
            plan = await planner.plan(row, occurrence, reader, spec.budget_usd)
            place = await validator.place(spec, reader)
            obstacles = await validator.obstacles(
                spec, plan.channels, place, row.label, trusted=True
            )
    except ScheduleFault as fault:
        return dry.model_copy(update={"wrong": str(fault)})
    channels = [PlannedChannel(id=c.id, name=c.name, since=plan.since[c.id]) for c in plan.channels]
    return dry.model_copy(
        update={
            "window": Span(oldest=plan.oldest, latest=plan.latest),
            "channels": tuple(channels),
            "channels_added": plan.added,
            "channels_gone": plan.gone,
            "notes": plan.notes,
            "likely_usd": plan.likely_usd,
            "in_the_way": obstacles,
        }
    )


def _dry_lines(dry: DryRun) -> Iterator[str]:
    """Format a dry run for the terminal."""
    yield f"{dry.name}: a {description.name(dry.kind)}, {dry.state}. Nothing was sent."
    times = "; ".join(description.moment(at) for at in dry.next_runs)
    yield f"next runs: {times or 'never'}"
    if dry.window is None:
        yield f"It could not run: {dry.wrong}"
        return
    yield f"window: {iso(dry.window.oldest)} to {iso(dry.window.latest)}"
    for each in dry.channels[:MOST_SHOWN]:
        yield f"  #{each.name}  since {iso(each.since)}"
    if len(dry.channels) > MOST_SHOWN:
        yield f"  and {len(dry.channels) - MOST_SHOWN:,} channels more"
    for names, label in ((dry.channels_added, "new since last time"), (dry.channels_gone, "gone")):
        if names:
            yield f"{label}: {', '.join(f'#{name}' for name in names)}"
    yield from (f"note: {note}" for note in dry.notes)
    if dry.kind == "reminder":
        yield f"it would go to {dry.to}"
        return
    about = "" if dry.likely_usd is None else f"; estimated cost ${dry.likely_usd:.2f}"
    yield f"it may spend ${dry.budget_usd:.2f}{about}"
    yield f"it would go to {dry.to}"
    for obstacle in dry.in_the_way:
        grant = "; an administrator could allow it" if obstacle.grantable else ""
        yield f"  but not as configured: {obstacle.name}: {obstacle.why}{grant}"
    if dry.kind == "ask":
        yield "  if all readers there may read the sources of the answer, which are not known yet"
    elif not dry.in_the_way:
        yield "  all readers there may read its sources"


@on_database
async def run_pause(context: CommandContext, name: str, by: str | None) -> None:
    row = await ScheduleStore(context.database).require(name)
    _is_to_come(row)
    changed = row.state != "paused"
    if changed:
        await ScheduleStore(context.database).pause(name, f"paused by {name_or_default(by)}")
    text = f"Paused: {name}." if changed else f"{name} was paused before; nothing changed."
    context.show({"name": name, "state": "paused", "changed": changed}, text)


@on_database
async def run_resume(context: CommandContext, name: str) -> None:
    row, now = await ScheduleStore(context.database).require(name), datetime.now(UTC)
    changed = row.state == "paused"
    if changed:
        await ScheduleStore(context.database).resume(name, now)
    is_over = row.spec.timetable.after(now) is None
    state = "done" if is_over else "active" if changed else row.state
    text = f"{name} is not paused but {row.state}; nothing changed."
    if is_over:
        text = f"The one time of {name} is over: it is done."
    elif changed:
        text = f"{name} goes on. Next run: {description.next_run(row.spec, now)}.\n"
        text += "What came due while it was paused is not caught up."
    context.show({"name": name, "state": state, "changed": changed}, text)


@on_database
async def run_delete(context: CommandContext, name: str) -> None:
    schedules = ScheduleStore(context.database)
    await schedules.require(name)
    await schedules.delete(name)
    context.show({"name": name, "state": "deleted"}, f"Deleted: {name}.")


def _is_to_come(row: StoredSchedule) -> None:
    """Raise ScheduleError if its only time has passed."""
    if row.state == "done":
        raise ScheduleError(f"The one time of {row.id} is over.", "Set up another one.")
