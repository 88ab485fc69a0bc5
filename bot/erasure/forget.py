"""Forgets what was read of an item, of a channel or of a person: in every table, for good.

The log of decisions stays: it holds no text. So do ids, costs and times. A run at work is left
alone, since a replay must find what its steps returned; it is forgotten when it has ended: see
bot/erasure/noticed.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.erasure.conversations import forget_conversations
from bot.erasure.folders import forget_folders
from bot.erasure.mail import forget_mail
from bot.erasure.notes import forget_notes
from bot.erasure.resources import forget_resources
from bot.erasure.rows import scrubbed
from bot.erasure.schedules import forget_schedules
from bot.erasure.sightings import source_of, that_read
from bot.erasure.targets import Condition, Target
from bot.erasure.texts import Texts, texts_of
from bot.memory.conversations import kept_again
from bot.requests.inbox import AT_WORK
from bot.requests.requests import LOOKUPS
from bot.storage.database import Database
from bot.storage.gate_tables import actions, credentials, oauth_states, quoted
from bot.storage.retention import empty_runs, empty_trajectories
from bot.storage.serve_tables import feedback, inbox, steps
from bot.storage.tables import contexts, runs, subagents

APPROVED = "approved"
"""State of an action that is being executed."""

DEAD_AFTER = timedelta(hours=6)
"""A run of the command line that began so long ago and never ended is at work no more."""
CHUNK = 500
"""Rows of one transaction: others wait for it."""
KEPT = ("type", "channel", "channel_type", "ts", "thread_ts", "event_ts", "user", "team")
"""What stays of the event of a request."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What went, or of a dry run what would go."""

    items: int = 0
    """Messages, rows, files and the like of which text was held."""
    runs: int = 0
    """Runs that held any; their trajectories are gone."""
    findings: int = 0
    """Findings that lost quotes, or all that they said."""
    blocks: int = 0
    """Recorded blocks that no other run holds; 0 in a dry run."""
    requests: int = 0
    """Requests whose text went."""
    actions: int = 0
    """Actions that waited, or had waited, for approval."""
    feedback: int = 0
    credentials: int = 0
    mail: int = 0
    """What was kept of mailboxes: cursors, handled threads, corrections, and what was clicked."""
    schedules: int = 0
    """Schedules of a user, and issues that reports had told of."""
    notes: int = 0
    files: int = 0
    """Files that were kept, all versions of one together."""
    conversations: int = 0
    """Requests made in a channel, with their answers, that could be found again."""
    later: int = 0
    """Runs and requests at work that hold any: they are forgotten when they have ended."""

    @property
    def anything(self) -> bool:
        return self != Forgotten()

    def plus(self, **more: int) -> Forgotten:
        return replace(self, **{name: getattr(self, name) + n for name, n in more.items()})


@dataclass
class Forget:
    """Forgets in one database. Doing it again, or from the middle after a crash, does no harm."""

    database: Database
    dry_run: bool = False
    data_dir: Path | None = None
    """Where requests have folders on this machine; None = their folders are left alone."""
    done: Forgotten = field(default_factory=Forgotten)

    async def __call__(
        self, target: Target, before: datetime | None = None, heard: bool = True
    ) -> Forgotten:
        """Forget the target. Raises StoreError.

        `before`: only in runs that began before then. `heard` = False leaves the stored requests
        alone that are meant by it.
        """
        self.done = Forgotten()
        held = await self._held(target, before)
        whole = await self._ids(sa.select(runs.c.id).where(target.runs(), _holds_text()))
        busy = set(await at_work(self.database))
        free = {run: items for run, items in held.items() if run not in busy}
        gone = len(set().union(*free.values())) if free else 0
        later = len((held.keys() | whole) & busy)
        self.done = self.done.plus(items=gone, later=later)
        words = await texts_of(self.database, free)
        await self._rests_on(target, held, busy)  # before the runs, which tell what it is of
        if not self.dry_run:  # before the rows, by which they are found
            await asyncio.to_thread(forget_folders, self.data_dir, free.keys() | (whole - busy))
        for run in sorted(free.keys() - whole):
            await self._scrub(target, run, free[run], words)
        for run in sorted(whole - busy):
            await self._empty(run)
        if heard:
            await self._requests(target)
        await self._rest(target)
        self.done = self.done.plus(mail=await forget_mail(self.database, target, self.dry_run))
        return self.done

    async def _rests_on(self, target: Target, held: Mapping[str, Set[str]], busy: Set[str]) -> None:
        """What rests on runs and outlives them: by these it is found."""
        items = set().union(*held.values()) if held else set()
        kept = await forget_schedules(self.database, target, items, self.dry_run)
        noted = await forget_notes(self.database, target, held, self.dry_run)
        talked = await forget_conversations(self.database, target, self.dry_run)
        filed = await forget_resources(self.database, target, held, busy, self.dry_run)
        self.done = self.done.plus(schedules=kept, notes=noted, conversations=talked, files=filed)

    async def _held(self, target: Target, before: datetime | None) -> dict[str, set[str]]:
        """Run -> the items of the target that it holds text of."""
        query = sa.select(quoted.c.run, quoted.c.item).where(target.quotes())
        if before:
            query = query.join(runs).where(runs.c.started < before)
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in await self.database.read(query):
            found[row["run"]].add(row["item"])
        if target.told_by_label:
            theirs = await that_read(self.database, found, target.id)
            held = {r: {i for i in found[r] if source_of(i) not in theirs[r]} for r in theirs}
            return {run: items for run, items in held.items() if items}
        return found

    async def _ids(self, query: sa.Select[Any]) -> set[str]:
        return {row["id"] for row in await self.database.read(query)}

    async def _scrub(self, target: Target, run: str, items: Set[str], words: Texts) -> None:
        """One run, in one transaction."""
        read = self.database.read
        row = (await read(sa.select(runs).where(runs.c.id == run)))[0]
        children = await read(sa.select(subagents).where(subagents.c.run == run))
        proposed = await read(sa.select(actions).where(actions.c.run == run))
        made = await asyncio.to_thread(scrubbed, row, children, proposed, items, words)

        def change(connection: sa.Connection) -> int:
            blocks = empty_trajectories(connection, [run])
            for id, values in made.subagents.items():
                mine = sa.and_(subagents.c.run == run, subagents.c.id == id)
                connection.execute(sa.update(subagents).where(mine).values(**values))
            if made.run:
                connection.execute(sa.update(runs).where(runs.c.id == run).values(**made.run))
                kept_again(connection, self.database.digest_key, run)
            connection.execute(sa.delete(steps).where(steps.c.run == run))
            connection.execute(sa.delete(actions).where(actions.c.id.in_(made.actions)))
            _drop_lookups(connection, row["request"])
            mine = sa.and_(quoted.c.run == run, target.quotes())
            if target.told_by_label:  # rows of another database may still have to be found
                mine &= quoted.c.channel.in_({source_of(item) for item in items})
            connection.execute(sa.delete(quoted).where(mine))
            return blocks

        blocks = await self._change(change)
        gone = len(made.actions)
        self.done = self.done.plus(runs=1, findings=made.findings, actions=gone, blocks=blocks)

    async def _empty(self, run: str) -> None:
        """Of this run nothing stays but numbers."""
        proposed = await self._ids(sa.select(actions.c.id).where(actions.c.run == run))

        def change(connection: sa.Connection) -> int:
            blocks = empty_trajectories(connection, [run])
            empty_runs(connection, [run])
            for table in (steps, actions):
                connection.execute(sa.delete(table).where(table.c.run == run))
            return blocks

        blocks = await self._change(change)
        self.done = self.done.plus(runs=1, actions=len(proposed), blocks=blocks)

    async def _requests(self, target: Target) -> None:
        """What was asked, as it was heard; that at work is left for later."""
        rows = await self.database.read(sa.select(inbox).where(target.requests()))
        waiting = [row for row in rows if row["state"] in ("new", "waiting")]
        over = {r["key"]: _emptied(r["event"]) for r in rows if r["state"] not in AT_WORK}
        held = [r["key"] for r in rows if r["key"] in over and over[r["key"]] != r["event"]]

        def change(connection: sa.Connection, some: Sequence[str]) -> int:
            for key in some:
                update = sa.update(inbox).where(inbox.c.key == key)
                connection.execute(update.values(event=over[key]))
            return len(some)

        for start in range(0, len(held), CHUNK):
            await self._change(partial(change, some=held[start : start + CHUNK]))
        self.done = self.done.plus(requests=len(held), later=len(waiting))

    async def _rest(self, target: Target) -> None:
        """What else a person left here."""
        if target.kind != "user":
            return
        over = actions.c.state != APPROVED
        of_user = {
            "actions": (actions, sa.and_(actions.c.requester == target.id, over)),
            "feedback": (feedback, feedback.c.user == target.id),
            "credentials": (credentials, credentials.c.account == target.id),
        }
        for name, (table, mine) in of_user.items():
            count = sa.select(sa.func.count().label("n")).select_from(table).where(mine)
            found = (await self.database.read(count))[0]["n"]
            await self._change(partial(_delete, table=table, mine=mine))
            self.done = self.done.plus(**{name: found})
        begun = oauth_states.c.account == target.id
        await self._change(partial(_delete, table=oauth_states, mine=begun))

    async def _change(self, work: Callable[[sa.Connection], int]) -> int:
        return 0 if self.dry_run else await self.database.change(work)


async def at_work(database: Database) -> dict[str, datetime]:
    """The runs that may still read or write, and when they began. Raises StoreError."""
    alive = datetime.now(UTC) - DEAD_AFTER
    answering = sa.select(inbox.c.run).where(inbox.c.state == "running", inbox.c.run.is_not(None))
    executing = sa.select(actions.c.run).where(actions.c.state == APPROVED)
    busy = sa.or_(
        runs.c.id.in_(answering),
        runs.c.id.in_(executing),
        sa.and_(runs.c.status == "running", runs.c.started > alive),
    )
    rows = await database.read(sa.select(runs.c.id, runs.c.started).where(busy))
    return {row["id"]: row["started"] for row in rows}


def _holds_text() -> Condition:
    """Runs of which anything but numbers is left."""
    asked = sa.type_coerce(runs.c.question, sa.Text)  # as it is stored: emptied, it is not sealed
    recorded = sa.exists().where(contexts.c.run == runs.c.id)
    return sa.or_(asked != "", recorded, runs.c.result.is_not(None))


def _emptied(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: event[name] for name in KEPT if name in event}, "text": ""}


def _drop_lookups(connection: sa.Connection, request: str | None) -> None:
    """Drop the words that a requester approved to look up: they may be of what was read."""
    mine = inbox.c.key == request
    event = connection.execute(sa.select(inbox.c.event).where(mine)).scalar()
    if event and LOOKUPS in event:
        bare = {name: value for name, value in event.items() if name != LOOKUPS}
        connection.execute(sa.update(inbox).where(mine).values(event=bare))


def _delete(connection: sa.Connection, table: sa.Table, mine: Condition) -> int:
    return connection.execute(sa.delete(table).where(mine)).rowcount
