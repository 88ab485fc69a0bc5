"""Delete stored data about a person, channel, source or message, and data past its retention.

The id, kind, status, cost and times of a run stay. The log of decisions is permanent: it contains
no text, only names of tools and rules, ids, and hashes of arguments.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.background import repeat
from bot.reports.issues import PANEL, Issue
from bot.slack.messages import edited_at
from bot.storage.database import Database, chunks
from bot.storage.deletions import (
    DELETION_FLAG_PREFIX,
    Condition,
    ForgetTarget,
    note,
    runs_that_read,
)
from bot.storage.encryption import WrongKey, cipher_of_dialect
from bot.storage.requests import AT_WORK, LOOKUPS
from bot.storage.schedules import FREE_NAME_STATES
from bot.storage.tables import (
    actions,
    address_of,
    blocks,
    contexts,
    conversations,
    credentials,
    feedback,
    flags,
    inbox,
    issues,
    ledger,
    mail_corrections,
    mail_cursors,
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
from bot.tooling.files import idle_folders, place_of, work_of
from config.sections import RetentionSettings
from scopes.label import Label
from scopes.resources import space_of_run
from subagents.sanitizer import source_of

log = logging.getLogger(__name__)

APPROVED_STATE = "approved"
"""State of an action that is being executed."""
DEAD_AFTER = timedelta(hours=6)
"""A run that started so long ago and has not ended counts as dead."""
ORIGIN = ("space", "name", "run", "label", "by", "place", "requester", "state")
"""Columns with the owner or the origin of a row."""
KEPT_EVENT_FIELDS = (
    "type",
    "channel",
    "channel_type",
    "ts",
    "thread_ts",
    "event_ts",
    "user",
    "team",
)
"""Fields of a request's event that stay."""
KEPT_ARGS = ("schedule", "limits")
"""Arguments of a run that stay; the others name files, addresses and people."""

Statement = sa.Delete | sa.Update


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Counts of deleted data; in a dry run, of data that would be deleted."""

    items: int = 0
    """Messages, mails, rows, files and similar items that runs had seen."""
    runs: int = 0
    conversations: int = 0
    """Searchable requests with their answers."""
    notes: int = 0
    preferences: int = 0
    """Preferences of people, and instructions of channels."""
    issues: int = 0
    """Issues in the reports of schedules."""
    files: int = 0
    """Stored files; all versions of one count once."""
    requests: int = 0
    """Requests that lost their text."""
    actions: int = 0
    """Actions proposed for approval."""
    feedback: int = 0
    credentials: int = 0
    schedules: int = 0
    mail: int = 0
    """Stored data of mailboxes: cursors, handled threads, corrections."""
    names: int = 0
    """The name in Slack that pages show."""
    later: int = 0
    """Runs and requests in use that saw part of it: they are deleted when they have ended."""


@dataclass(frozen=True)
class Forget:
    """Deletes in one database. Repeating it, even after a crash in between, is harmless.

    Its methods raise StoreError.
    """

    database: Database
    dry_run: bool = False
    data_dir: Path | None = None
    """Folder of the requests' folders on this machine; None = do not touch these folders."""

    async def __call__(
        self, target: ForgetTarget, before: datetime | None = None, with_request: bool = True
    ) -> Forgotten:
        """Delete the target, and each run that saw it.

        `before` limits this to runs that started earlier. `with_request` = False keeps the text of
        the stored request that is the target. The runs are deleted last, because all other data is
        found by them.
        """
        items_by_run = await self._items_by_run(target, before)
        query = sa.select(runs.c.id).where(target.runs(), _holds_text())
        seen = items_by_run.keys() | {row.id for row in await self.database.read(query)}
        busy = set(await at_work(self.database))
        deletable = seen - busy
        items = set[str]().union(*(items_by_run.get(run, ()) for run in deletable))
        rests = target if before is None else None  # issues may rest on its edited text
        requests, waiting = await self._requests(target, deletable, with_request)
        lost_issues = await self._issues(rests, items, deletable)
        deleted = await self._of_runs(target, deletable, busy)
        own = await self._own_rows(target)
        later = len(seen & busy) + waiting
        counts = {"items": len(items), "runs": len(deletable), "issues": lost_issues}
        done = replace(deleted, **own, **counts, requests=requests, later=later)
        if self.dry_run:
            return done
        if self.data_dir:
            folders = [work_of(self.data_dir) / place_of(run) for run in deletable]
            await asyncio.to_thread(_delete_folders, folders)
        for some in chunks(deletable, MAX_RUNS_PER_TRANSACTION):
            await self.database.change(partial(_delete_runs, ids=some))
        if done != Forgotten():
            await self.database.empty_log()
        return done

    async def _items_by_run(
        self, target: ForgetTarget, before: datetime | None
    ) -> dict[str, set[str]]:
        """Return the items of the target that each run has seen."""
        query = sa.select(quoted.c.run, quoted.c.item).where(target.quotes())
        if before:
            query = query.join(runs).where(runs.c.started < before)
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in await self.database.read(query):
            found[row.run].add(row.item)
        if target.told_by_label:
            readers = await runs_that_read(self.database, found, target.id)
            return {run: found[run] for run in readers}
        return found

    async def _requests(
        self, target: ForgetTarget, deletable: Set[str], with_request: bool
    ) -> tuple[int, int]:
        """Empty the requests that are the target or belong to these runs.

        Return the number of emptied ones, and of target requests that still wait for an answer.
        """
        query = sa.select(inbox).where(target.requests())
        rows = await self.database.read(query) if with_request else []
        waiting = sum(row.state in ("new", "waiting") for row in rows)
        found = {row.key: row for row in rows}
        for some in chunks(deletable):
            keys = sa.select(runs.c.request).where(runs.c.id.in_(some))
            rows = await self.database.read(sa.select(inbox).where(inbox.c.key.in_(keys)))
            found |= {row.key: row for row in rows}
        emptied = {key: _empty_event(row) for key, row in found.items()}
        changed = [key for key, event in emptied.items() if event != found[key].event]
        for some in chunks(changed):
            updates = [(inbox.c.key == key, emptied[key]) for key in some]
            await self._execute([sa.update(inbox).where(k).values(event=e) for k, e in updates])
        for some in chunks(found):  # a comment on the answer may repeat what was read
            rated = feedback.c.request.in_(some)
            await self._execute([sa.update(feedback).where(rated).values(comment=None)])
        return len(changed), waiting

    async def _of_runs(
        self, target: ForgetTarget, deletable: Set[str], busy: Set[str]
    ) -> Forgotten:
        """Delete data that came from these runs, or from the target.

        A note, a preference or a file came from the target if it is in the target's own space, or
        if it was written by a context that had read the target. Files of runs in use stay.
        """
        user = target.id if target.kind == "user" else None
        channel = target.id if target.kind == "channel" else ""
        answered = deletable | await self._runs_in(channel)
        busy_spaces = set(map(space_of_run, busy))

        def is_note(row: sa.Row[Any]) -> bool:
            read = not target.labels.isdisjoint(Label.of(row.label).sources)
            return row.run in deletable or row.space == target.space or read

        def is_file(row: sa.Row[Any]) -> bool:
            return row.space not in busy_spaces and is_note(row)

        def is_action(row: sa.Row[Any]) -> bool:
            return row.state != APPROVED_STATE and (row.run in deletable or row.requester == user)

        own = await self._delete_rows(preferences, lambda row: row.by == user or is_note(row))
        searchable = await self._delete_rows(
            conversations, lambda row: row.run in answered or row.place == channel
        )
        return Forgotten(
            notes=len(await self._delete_rows(notes, is_note)),
            preferences=len(own),
            files=len(
                {(row.space, row.name) for row in await self._delete_rows(resources, is_file)}
            ),
            conversations=len(searchable),
            actions=len(await self._delete_rows(actions, is_action)),
        )

    async def _delete_rows(
        self, table: sa.Table, is_lost: Callable[[sa.Row[Any]], bool]
    ) -> list[sa.Row[Any]]:
        """Delete and return the rows of a table that `is_lost` selects by the columns of ORIGIN."""
        query = sa.select(table.c.id, *(column for column in table.c if column.name in ORIGIN))
        deleted = [row for row in await self.database.read(query) if is_lost(row)]
        for some in chunks(row.id for row in deleted):
            await self._execute([sa.delete(table).where(table.c.id.in_(some))])
        return deleted

    async def _runs_in(self, channel: str) -> set[str]:
        """Return the runs that were requested in a channel."""
        in_channel = runs.c.request.contains(f"/{channel}/", autoescape=True)
        query = sa.select(runs.c.id).where(in_channel)
        return {row.id for row in await self.database.read(query)} if channel else set()

    async def _issues(
        self, target: ForgetTarget | None, items: Set[str], deletable: Set[str]
    ) -> int:
        """Delete issues that rest on the target or these items, or come only from these runs."""
        found = {
            (row.schedule, row.id): Issue.of(row)
            for row in await self.database.read(sa.select(issues))
        }
        messages = {id for issue in found.values() for id in issue.trace.messages}
        readers: defaultdict[str, set[str]] = defaultdict(set)
        for some in chunks(messages):
            query = sa.select(quoted.c.item, quoted.c.run).where(quoted.c.item.in_(some))
            for row in await self.database.read(query):
                readers[row.item].add(row.run)

        def comes_from_gone(issue: Issue) -> bool:
            sources = set[str]().union(*(readers[id] for id in issue.trace.messages))
            return bool(sources) and sources <= deletable

        seen = {source_of(item)[0] for item in items}  # a finding of a panel names a line
        deleted = [
            sa.and_(issues.c.schedule == schedule, issues.c.id == id)
            for (schedule, id), issue in found.items()
            if _rests_on(issue, target, seen) or comes_from_gone(issue)
        ]
        await self._execute([sa.delete(issues).where(each) for each in deleted])
        return len(deleted)

    async def _schedules(self, target: ForgetTarget) -> int:
        """Delete the schedules that a user owns, and those whose words may come from the target,
        with their findings; return how many.

        For a schedule from the settings, delete only its findings. A deleted one leaves no data.
        """
        user, rows = target.id, await self.database.read(sa.select(schedules))
        if target.kind == "user":
            reviewed = issues.c.schedule.startswith(f"{PANEL}/{user}/", autoescape=True)
            await self._execute([sa.delete(issues).where(reviewed)])

        def is_lost(each: sa.Row[Any]) -> bool:
            says = each.spec.request or each.spec.text
            owned = target.kind == "user" and each.spec.owner == user
            return owned or bool(says and not target.labels.isdisjoint(each.label.sources))

        lost = list(filter(is_lost, rows))
        for each in lost:
            of_it = issues.c.schedule == each.id
            statements: list[Statement] = [sa.delete(issues).where(of_it)]
            itself = schedules.c.id == each.id
            is_configured = each.origin == "config" and each.state != "deleted"
            of_it, why = schedule_runs.c.schedule == each.id, schedule_runs.c.why
            clear_reasons = sa.update(schedule_runs).where(of_it, why != "").values(why="")
            statements.append(
                clear_reasons if is_configured else sa.delete(schedule_runs).where(of_it)
            )
            clear_failure = sa.update(schedules).where(itself).values(trouble=None)
            statements.append(
                clear_failure if is_configured else sa.delete(schedules).where(itself)
            )
            await self._execute(statements)
        return len(lost)

    async def _own_rows(self, target: ForgetTarget) -> dict[str, int]:
        """Delete the rows of the target itself; return how many, by field of `Forgotten`.

        When a thread is forgotten, the record that it was handled (ids only) stays; otherwise the
        next triage would read it again.
        """
        id, mail = target.id, list[Statement]()
        if target.is_person and "@" in id:
            c = mail_corrections.c
            by_sender = sa.and_(c.sender == address_of(id), c.account != id)
            mail.append(sa.delete(mail_corrections).where(by_sender))
        if target.kind == "source":
            snoozed = sa.and_(mail_threads.c.thread == id, mail_threads.c.until.is_not(None))
            mail.append(sa.update(mail_threads).where(snoozed).values(until=None))
            mail.append(sa.delete(mail_corrections).where(mail_corrections.c.thread == id))
        is_named = names.c.id == (id if target.kind in ("channel", "user") else "")
        counts = {
            "schedules": await self._schedules(target),
            "names": await self._execute([sa.delete(names).where(is_named)]),
        }
        if target.kind != "user":
            return {**counts, "mail": await self._execute(mail)}
        accounts = (mail_cursors, mail_threads, mail_corrections)
        mail += [sa.delete(table).where(table.c.account == id) for table in accounts]
        await self._execute([sa.delete(oauth_states).where(oauth_states.c.account == id)])
        ratings = sa.delete(feedback).where(feedback.c.user == id)
        tokens = sa.delete(credentials).where(credentials.c.account == id)
        return {
            **counts,
            "mail": await self._execute(mail),
            "feedback": await self._execute([ratings]),
            "credentials": await self._execute([tokens]),
        }

    async def _execute(self, statements: Sequence[Statement]) -> int:
        """Execute statements in one transaction; return the number of affected rows."""

        def count(each: Statement) -> sa.Select[Any]:
            condition = sa.true() if each.whereclause is None else each.whereclause
            return sa.select(sa.func.count().label("n")).select_from(each.table).where(condition)

        if self.dry_run:
            return sum([(await self.database.read(count(each)))[0].n for each in statements])
        return await self.database.change(
            lambda connection: sum(connection.execute(each).rowcount for each in statements)
        )


def _rests_on(issue: Issue, target: ForgetTarget | None, sources: Set[str]) -> bool:
    ids = {source_of(id)[0] for id in issue.trace.messages | issue.trace.threads}
    if not ids.isdisjoint(sources):
        return True
    if target is None:
        return False
    return any(id == target.id or id.startswith(f"{target.id}/") for id in ids)


async def at_work(database: Database) -> dict[str, datetime]:
    """Return the runs in use, with their start: they read, write, or wait for delivery."""
    alive = datetime.now(UTC) - DEAD_AFTER
    answering = sa.select(inbox.c.run).where(inbox.c.state == "running", inbox.c.run.is_not(None))
    executing = sa.select(actions.c.run).where(actions.c.state == APPROVED_STATE)
    c = schedule_runs.c
    is_running = sa.or_(c.state == "running", c.delivery == "waiting")
    reporting = sa.select(c.run).where(is_running, c.run.is_not(None))
    unsettled = sa.or_(runs.c.status == "running", runs.c.id.in_(reporting))
    busy = sa.or_(
        runs.c.id.in_(answering),
        runs.c.id.in_(executing),
        sa.and_(unsettled, runs.c.started > alive),
    )
    rows = await database.read(sa.select(runs.c.id, runs.c.started).where(busy))
    return {row.id: row.started for row in rows}


def _delete_runs(connection: sa.Connection, ids: Sequence[str]) -> None:
    empty_trajectories(connection, ids)
    empty_runs(connection, ids)
    connection.execute(sa.delete(quoted).where(quoted.c.run.in_(ids)))


def _delete_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s could not be deleted (%s): delete it by hand.", folder, error.strerror)


def _holds_text() -> Condition:
    """Match runs that still have text, not just numbers."""
    question = sa.type_coerce(runs.c.question, sa.Text)  # compared as stored, without decoding
    recorded = sa.exists().where(contexts.c.run == runs.c.id)
    return sa.or_(question != "", recorded, runs.c.result.is_not(None))


def _empty_event(request: sa.Row[Any]) -> dict[str, Any]:
    """Return the event of a request without its text.

    A request without an answer loses only its approved look-ups, whose words may come from a
    source.
    """
    event = request.event
    if request.state in AT_WORK:
        return {name: value for name, value in event.items() if name != LOOKUPS}
    return {**{name: event[name] for name in KEPT_EVENT_FIELDS if name in event}, "text": ""}


LOOK_EVERY_S = 5.0
GRACE_PERIOD = timedelta(seconds=60)
"""Minimum age of a pending deletion, because a request that starts now may read stored data."""


async def forget_pending_forever(database: Database, data_dir: Path) -> None:
    """Execute pending deletions until cancelled."""
    forget = partial(forget_pending, database, data_dir=data_dir)
    await repeat(forget, LOOK_EVERY_S, "what was deleted in Slack could not be forgotten yet")


async def forget_pending(
    database: Database, grace: timedelta = GRACE_PERIOD, data_dir: Path | None = None
) -> int:
    """Execute all pending deletions; return how many remain pending."""
    is_pending = sa.func.substr(flags.c.name, 1, len(DELETION_FLAG_PREFIX)) == DELETION_FLAG_PREFIX
    notes = await database.read(sa.select(flags).where(is_pending).order_by(flags.c.at))
    return sum([await _stays(Forget(database, data_dir=data_dir), each, grace) for each in notes])


async def _stays(forget: Forget, pending: sa.Row[Any], grace: timedelta) -> bool:
    """Delete once; return whether there may be more to delete when other runs have ended."""
    database, until = forget.database, pending.at + grace
    now, busy = datetime.now(UTC), await at_work(database)  # runs that end later count as busy
    kind, _, id = pending.name.removeprefix(DELETION_FLAG_PREFIX).partition("/")
    facts = pending.value or {}
    before = pending.at if facts.get("edited") else None
    done = await forget(ForgetTarget(kind, id), before, with_request=not facts.get("amended"))
    if done.runs or done.requests:
        log.info("deleted what was deleted or edited in Slack: %s", asdict(done))
    if done.later or now < until or any(started < until for started in busy.values()):
        return True
    same = sa.and_(flags.c.name == pending.name, flags.c.at == pending.at)
    await database.write(sa.delete(flags).where(same))
    return False


async def note_changes(
    database: Database, channel: str, messages: Iterable[Mapping[str, Any]]
) -> None:
    """Record messages of a listing that people edited, or deleted with only replies left.

    Bots, and this one most of all, edit their messages while they write them. A message that was
    deleted completely is not in a listing, but neither are replies: unlisted messages are not
    recorded.
    """
    changed = [m for m in messages if (m.get("edited") and not m.get("bot_id")) or _is_gone(m)]
    by_id = {f"{channel}/{m.get('ts')}": m for m in changed}
    for some in chunks(by_id):
        query = sa.select(quoted.c.item).distinct().where(quoted.c.item.in_(some))
        for row in await database.read(query):
            edited = not _is_gone(by_id[row.item])
            at = edited_at(by_id[row.item]) if edited else None
            work = partial(note, database=database, target=ForgetTarget("item", row.item), at=at)
            await database.change(partial(work, edited=edited, amended=edited))


def _is_gone(message: Mapping[str, Any]) -> bool:
    return message.get("subtype") == "tombstone"


MAX_RUNS_PER_TRANSACTION = 20
"""Maximum runs per transaction, because others, such as a new Slack message, wait for it."""
WRITING_FOR = timedelta(days=1)
"""Time after the last write for which a folder is kept: an action may wait for approval."""
THREADS_DAYS = 365
"""Minimum days to keep ids of handled mail threads, which a new listing of a mailbox needs."""


async def tidy(
    database: Database, retention: RetentionSettings, data_dir: Path | None = None
) -> None:
    """Delete data past its retention. Raises StoreError.

    `data_dir`: the folder of the requests' folders on this machine; None = leave them.
    """
    now, days = datetime.now(UTC), retention
    threads_days = days.results_days and max(days.results_days, THREADS_DAYS)
    of_run, snoozed = resources.c.space.startswith(space_of_run("")), mail_threads.c.until
    recorded = sa.or_(*(sa.exists().where(t.c.run == runs.c.id) for t in (contexts, steps)))
    has_text = sa.or_(runs.c.question != "", runs.c.result.is_not(None))
    of_runs = (
        (days.trajectories_days, recorded, empty_trajectories),
        (days.results_days, has_text, empty_runs),
    )
    rows: tuple[tuple[int | None, sa.Column[Any], Condition], ...] = (
        (days.results_days, mail_corrections.c.at, sa.true()),
        (days.results_days, names.c.at, sa.true()),
        (days.results_days, issues.c.last, sa.true()),
        (days.results_days, schedule_runs.c.at, _is_over()),
        (days.results_days, schedules.c.changed, schedules.c.state.in_(FREE_NAME_STATES)),
        (threads_days, mail_threads.c.at, snoozed.is_(None)),
        (days.actions_days, actions.c.made, sa.true()),
        (days.actions_days, outside_calls.c.at, sa.true()),
        (days.notes_days, notes.c.at, sa.true()),
        (days.notes_days, preferences.c.at, sa.true()),
        (days.notes_days, resources.c.at, ~of_run),  # files of a run are deleted with its results
    )
    for age, holds, empty in of_runs:
        is_old = sa.and_(runs.c.started < now - timedelta(days=age or 0), holds)
        while age and await database.change(partial(_empty_some, is_old=is_old, empty=empty)):
            pass
    for age, time, is_old in rows:
        if age:
            past = time < now - timedelta(days=age)
            await database.write(sa.delete(time.table).where(past, is_old))
    await database.write(sa.delete(oauth_states).where(oauth_states.c.expires < now))
    await database.empty_log()
    if data_dir:
        await _delete_unused_folders(database, data_dir)


async def _delete_unused_folders(database: Database, data_dir: Path) -> None:
    """Delete the folders of runs whose text is deleted; a run may have ended on another machine."""
    before = (datetime.now(UTC) - WRITING_FOR).timestamp()
    idle = await asyncio.to_thread(idle_folders, work_of(data_dir), before)
    for some in chunks(idle):
        is_stored = sa.and_(runs.c.id.in_([each.name for each in some]), runs.c.question != "")
        stored = {row.id for row in await database.read(sa.select(runs.c.id).where(is_stored))}
        unused = [each for each in some if each.name not in stored]
        await asyncio.to_thread(_delete_folders, unused)


def _is_over() -> Condition:
    """Match finished occurrences, except the last reported one, where the next one begins."""
    c, others = schedule_runs.c, schedule_runs.alias()
    latest = sa.select(sa.func.max(others.c.at)).where(
        others.c.delivery.in_(("delivered", "quiet"))
    )
    ended = sa.select(schedules.c.id).where(schedules.c.state.in_(FREE_NAME_STATES))
    last_reported = latest.where(
        others.c.schedule == c.schedule, c.schedule.not_in(ended)
    ).scalar_subquery()
    waits = sa.func.coalesce(c.delivery, "") == "waiting"
    is_finished = sa.and_(c.state.not_in(("due", "running")), ~waits)
    return sa.and_(is_finished, sa.or_(last_reported.is_(None), c.at != last_reported))


def _empty_some(
    connection: sa.Connection,
    is_old: Condition,
    empty: Callable[[sa.Connection, Sequence[str]], None],
) -> int:
    """Empty the oldest of these runs; return how many, 0 at the end."""
    query = sa.select(runs.c.id).where(is_old).order_by(runs.c.started)
    old = list(connection.execute(query.limit(MAX_RUNS_PER_TRANSACTION)).scalars())
    empty(connection, old)
    return len(old)


def empty_runs(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Delete questions, answers and findings of these runs."""
    spaces = [space_of_run(id) for id in ids]
    for table in (subagents, questions):
        connection.execute(sa.delete(table).where(table.c.run.in_(ids)))
    connection.execute(sa.delete(conversations).where(conversations.c.run.in_(ids)))
    connection.execute(sa.delete(resources).where(resources.c.space.in_(spaces)))
    # Seen items of a run stay recorded while any stored data may come from them.
    holding = (contexts, notes, preferences, resources)
    remaining = [sa.exists().where(t.c.run == quoted.c.run) for t in holding]
    connection.execute(sa.delete(quoted).where(quoted.c.run.in_(ids), ~sa.or_(*remaining)))
    empty: dict[str, Any] = {"question": "", "result": None, "error": None}
    for id, args in connection.execute(sa.select(runs.c.id, runs.c.args).where(runs.c.id.in_(ids))):
        kept = {name: args[name] for name in KEPT_ARGS if name in args}
        connection.execute(sa.update(runs).where(runs.c.id == id).values(**empty, args=kept))


def empty_trajectories(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Delete the trajectories of these runs, and blocks that no other run uses."""
    query = sa.select(ledger.c.hash).distinct().where(ledger.c.run.in_(ids))
    hashes = list(connection.execute(query).scalars())
    for table in (requests, replies, ledger, contexts, steps):
        connection.execute(sa.delete(table).where(table.c.run.in_(ids)))
    is_used = sa.exists().where(ledger.c.hash == blocks.c.hash)
    for some in chunks(hashes):
        connection.execute(sa.delete(blocks).where(blocks.c.hash.in_(some), ~is_used))
        _renew_blocks(connection, some)


def _renew_blocks(connection: sa.Connection, hashes: Sequence[str]) -> None:
    """Encrypt with the first key those of these blocks that an earlier key encrypted.

    Later runs use a stored block as it is: without this, its key could never be removed.
    """
    cipher = cipher_of_dialect(connection.dialect)
    stored = sa.type_coerce(blocks.c.body, sa.Text)
    query = sa.select(blocks.c.hash, stored).where(blocks.c.hash.in_(hashes))
    for hash, token in connection.execute(query).all():
        if cipher.is_current(token):
            continue
        try:
            body = cipher.decrypt(token)
        except WrongKey as error:  # the deletion must go on
            log.warning("%s", error)
        else:
            connection.execute(sa.update(blocks).where(blocks.c.hash == hash).values(body=body))
