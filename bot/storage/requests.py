"""Requests: Slack messages that ask the bot for something, as received and as stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict

from bot.storage.database import Database, chunks, in_transaction
from bot.storage.deletions import ForgetTarget, note
from bot.storage.tables import (
    StoredRun,
    budgets,
    cursors,
    feedback,
    flags,
    inbox,
    reservations,
    runs,
    schedule_runs,
)
from scopes.tool import readable
from subagents.budget import NANOUSD_PER_USD
from subagents.directory import Obstacle

LOOKUPS = "approved_lookups"
"""Key added to the event of a request: outside look-ups that its requester approved."""
CHOICES = "choices"
"""Key added: the requester's choices when the bot asked back, see `Choice`."""
ASKED_BACK = "asked_back"
"""Key added: the runs that asked back, oldest first."""
CHOSEN = "chosen"
"""Key added: the requester chose a message by a shortcut or a reaction, and wrote nothing."""
ROUND = "answered_again"
"""Key added: how often it was answered again because of an approval or a choice."""
EPOCH = datetime.fromtimestamp(0, UTC)
GOOD, BAD = "good", "bad"
"""The ratings; a bad one may have a reason."""


@dataclass(frozen=True, slots=True)
class Votes:
    """The number of people who found an answer good, and of those who found it bad."""

    good: int = 0
    bad: int = 0


class Choice(BaseModel):
    """An answer that a requester chose on a card."""

    model_config = ConfigDict(frozen=True)

    question: str
    option: str
    label: dict[str, Any]
    """Label of the sources that the model had read when it wrote both."""


class StoredReply(BaseModel):
    """Where the answer to a request is."""

    model_config = ConfigDict(frozen=True)

    ts: tuple[str, ...] = ()
    """Its messages, in order."""
    streamed: bool = False
    """Whether the first message may still be open as a stream."""
    down_since: datetime | None = None
    """The time since which the model provider is down."""
    withheld: tuple[Obstacle, ...] = ()
    """The obstacles to posting the answer in the place of its request."""
    private: tuple[str, str] | None = None
    """Channel and ts of an answer that was withheld there and sent only to its requester."""

    @property
    def is_lost(self) -> bool:
        """Return whether nobody got the answer."""
        return bool(self.withheld) and self.private is None


@dataclass(frozen=True, slots=True)
class Rating:
    """A person's opinion of an answer."""

    request: str
    user: str
    value: str
    """`good` or `bad`."""
    at: datetime
    reason: str | None
    """Why it is bad: `wrong`, `missing` or `off_topic`; None = no reason given."""
    comment: str | None
    """The reason in their own words."""
    run: str | None
    """The latest run that answered the request; None = it is deleted."""
    question: str | None


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A message that asks the bot for something."""

    team: str
    channel: str
    ts: str
    thread_ts: str
    """Root of the thread that the answer goes into; `ts` itself for a top-level message."""
    user: str
    kind: str
    """`mention`, `dm` (including the agent pane) or `follow_up`."""
    event: Mapping[str, Any]
    """The event as Slack sent it."""

    @property
    def key(self) -> str:
        return f"{self.team}/{self.channel}/{self.ts}"

    @property
    def user_team(self) -> str:
        """Return the user's workspace; in a shared channel it may belong to another company."""
        teams = (self.event.get("user_team"), self.event.get("team"))
        return next((t for t in teams if isinstance(t, str) and t.startswith("T")), self.team)

    @property
    def text(self) -> str:
        text = self.event.get("text")
        return str(readable(text)) if isinstance(text, str) else ""


@dataclass(frozen=True, slots=True)
class MessageEdited:
    """A message was edited, or deleted (no text)."""

    team: str
    channel: str
    ts: str
    text: str | None


@dataclass(frozen=True, slots=True)
class StoredRequest(IncomingMessage):
    """A message that asks for something, and the progress of its answer."""

    state: str = "new"
    """`new`, `running`, `waiting` (for a model that is down), `done`, `ignored` or `failed`."""
    run: str | None = None
    attempt: int = 0
    """Number of retries after the model was down."""
    received: datetime = EPOCH
    not_before: datetime | None = None
    reply: StoredReply | None = None
    stopped_by: str | None = None
    """The user who stopped it."""

    @property
    def words(self) -> str:
        """Return the requester's own text; empty if they chose a thread, with words of ours."""
        return "" if self.event.get(CHOSEN) else self.text

    @property
    def lookups(self) -> tuple[str, ...]:
        """Return the outside look-ups that the requester has approved on a card."""
        return tuple(map(str, self.event.get(LOOKUPS) or ()))

    @property
    def choices(self) -> list[Choice]:
        """Return the requester's choices when the bot asked back, oldest first."""
        return [Choice.model_validate(each) for each in self.event.get(CHOICES) or ()]

    @property
    def asked_back(self) -> list[str]:
        """Return the runs of this request that asked back, oldest first."""
        return list(self.event.get(ASKED_BACK) or ())

    @property
    def action_token(self) -> str:
        """Return the token to search for the requester for a while; empty if Slack sent none.

        Slack puts it into `assistant_thread`, although its documentation names the event itself.
        """
        pane = self.event.get("assistant_thread")
        found = (pane or {}).get("action_token") if isinstance(pane, dict | None) else None
        token = found or self.event.get("action_token")
        return token if isinstance(token, str) else ""

    @property
    def written_key(self) -> str:
        """Return the key that marks the messages of its answer; answering again changes it."""
        again = self.event.get(ROUND)
        return f"{self.key}/again{again}" if again else self.key


def request_of(row: sa.Row[Any], **changes: Any) -> StoredRequest:
    fields = {name: value for name, value in row._asdict().items() if name != "key"}
    reply = StoredReply.model_validate(row.reply) if row.reply else None
    return StoredRequest(**{**fields, "reply": reply, **changes})


def asked_at(request: StoredRequest) -> datetime:
    """Return the time of the request: later messages are not sources of its answer."""
    return datetime.fromtimestamp(float(request.ts), UTC)


def workflow_id(request: StoredRequest) -> str:
    return f"request/{request.key}/{request.attempt}"


REQUESTS_LOCK = 7_003
"""Advisory lock of Postgres that a replica holds while it takes requests."""


PAUSE_FLAG = "paused"
IS_PAUSED = sa.exists().where(flags.c.name == PAUSE_FLAG)
"""Checked by the query that takes work, so that nothing starts right after a pause."""


def _due(ready: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the oldest requests that are `ready` and whose threads are idle; none in a pause."""
    other = inbox.alias()
    before = sa.or_(
        other.c.state == "running",
        sa.and_(other.c.state.in_(("new", "waiting")), other.c.ts < inbox.c.ts),
    )
    thread = [other.c[n] == inbox.c[n] for n in ("team", "channel", "thread_ts")]
    busy = sa.exists().where(*thread, other.c.key != inbox.c.key, before)
    oldest = sa.select(inbox).where(ready, ~busy, ~IS_PAUSED).order_by(inbox.c.received)
    return oldest.limit(sa.bindparam("free", type_=sa.Integer))


_NOW = sa.bindparam("now", type_=inbox.c.not_before.type)
# Built once; two queries, because an index finds the oldest of one state without sorting.
_DUE = (
    _due(inbox.c.state == "new"),
    _due(sa.and_(inbox.c.state == "waiting", inbox.c.not_before <= _NOW)),
)

AT_WORK = ("new", "running", "waiting")
SCHEDULE_KIND = "schedule"
"""Kind of the runs that a schedule started."""


@dataclass(frozen=True)
class RequestQueue:
    """The requests, cursors and flags of one database. Its methods raise StoreError."""

    database: Database

    async def add(self, incoming: IncomingMessage) -> bool:
        """Store a request before it is acked; return whether it is new."""
        insert = self.database.upsert(inbox).values(
            **{
                n: getattr(incoming, n)
                for n in IncomingMessage.__dataclass_fields__
                if n != "event"
            },
            key=incoming.key,
            event=readable(dict(incoming.event)),
            state="new",
            attempt=0,
            received=datetime.now(UTC),
        )
        return bool(await self.database.write(insert))

    @in_transaction
    def amend(
        self, connection: sa.Connection, edit: MessageEdited, at: datetime | None = None
    ) -> None:
        """Record that a message was edited or deleted: its stored text must be deleted.

        Update its request if that has not started. `at`: time of the change; None = now.
        """
        message, edited = f"{edit.channel}/{edit.ts}", edit.text is not None
        target = ForgetTarget("item", message)
        is_new_request = sa.and_(inbox.c.key == f"{edit.team}/{message}", inbox.c.state == "new")
        event = connection.execute(sa.select(inbox.c.event).where(is_new_request)).scalar()
        facts = {"edited": edited, "amended": edited and event is not None}
        note(connection, self.database, target, at, **facts)
        if event is not None:
            changed = {"event": {**event, "text": readable(edit.text or "")}}
            values = changed if edited else {"state": "ignored"}
            connection.execute(sa.update(inbox).where(is_new_request).values(**values))

    async def advance(self, team: str, channel: str, ts: str) -> None:
        """Move the channel's cursor to this message; it never goes back."""
        insert = self.database.insert(cursors).values(team=team, channel=channel, ts=ts)
        newer = insert.on_conflict_do_update(
            index_elements=["team", "channel"], set_={"ts": ts}, where=cursors.c.ts < ts
        )
        await self.database.write(newer)

    async def cursors(self, team: str) -> dict[str, str]:
        rows = await self.database.read(sa.select(cursors).where(cursors.c.team == team))
        return {row.channel: row.ts for row in rows}

    async def has_answered(
        self, team: str, channel: str, thread_ts: str, before: str | None = None
    ) -> bool:
        """Return whether a request in this thread was accepted; `before`: only requests older than
        this message count. Slack may deliver a message after a later request in its thread.
        """
        in_thread = _thread(team, channel, thread_ts) & (inbox.c.state != "ignored")
        if before is not None:
            in_thread &= inbox.c.ts < before
        return bool(await self.database.read(sa.select(inbox.c.key).where(in_thread).limit(1)))

    async def threads(self, team: str, since: datetime, most: int) -> list[tuple[str, str]]:
        """Return channel and root of threads used since then, latest first."""
        last = sa.func.max(inbox.c.received)
        in_team = sa.and_(inbox.c.team == team, inbox.c.state != "ignored")
        query = sa.select(inbox.c.channel, inbox.c.thread_ts).where(in_team)
        query = query.group_by(inbox.c.channel, inbox.c.thread_ts).having(last >= since)
        rows = await self.database.read(query.order_by(last.desc()).limit(most))
        return [(row.channel, row.thread_ts) for row in rows]

    async def earlier_runs(self, request: StoredRequest) -> list[str]:
        """Return the runs that were answered in this thread before the request, oldest first."""
        in_thread = _thread(request.team, request.channel, request.thread_ts)
        done = sa.and_(in_thread, inbox.c.state == "done", inbox.c.ts < request.ts)
        rows = await self.database.read(sa.select(inbox.c.run).where(done).order_by(inbox.c.ts))
        return [row.run for row in rows]

    async def find_earlier(
        self, request: StoredRequest, since: datetime, most: int
    ) -> dict[str, str]:
        """Return time and run of the user's last answered requests before this one, oldest first:
        from its thread, or for a request outside of threads, those outside of threads in its
        channel.
        """
        threaded = request.thread_ts != request.ts
        where = sa.and_(
            *(inbox.c.team == request.team, inbox.c.channel == request.channel),
            inbox.c.thread_ts == (request.thread_ts if threaded else inbox.c.ts),
            *(inbox.c.user == request.user, inbox.c.state == "done"),
            *(inbox.c.ts < request.ts, inbox.c.ts >= f"{since.timestamp():.6f}"),
        )
        query = sa.select(inbox.c.ts, inbox.c.run).where(where)
        rows = await self.database.read(query.order_by(inbox.c.ts.desc()).limit(most))
        return {row.ts: row.run for row in reversed(rows)}

    @in_transaction
    def stop(
        self, connection: sa.Connection, team: str, channel: str, thread_ts: str, user: str
    ) -> int:
        """Stop the requests in this thread; return how many of them were running."""
        stop = sa.update(inbox).where(_thread(team, channel, thread_ts)).values(stopped_by=user)
        idle = inbox.c.state.in_(("new", "waiting"))
        connection.execute(stop.where(idle).values(state="new"))  # it no longer waits for the model
        return connection.execute(stop.where(inbox.c.state == "running")).rowcount

    @in_transaction
    def take(self, connection: sa.Connection, free: int, now: datetime) -> list[StoredRequest]:
        """Take up to `free` requests to work on: oldest first, one at a time per thread."""
        if self.database.shared:  # two replicas must not both find a thread idle
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(REQUESTS_LOCK)))
        parameters = {"now": now, "free": free}
        found = [row for query in _DUE for row in connection.execute(query, parameters)]
        claimed = []
        for row in sorted(found, key=lambda row: row.received)[:free]:
            run = row.run or uuid.uuid4().hex[:12]
            changes = {"state": "running", "run": run}
            connection.execute(sa.update(inbox).where(inbox.c.key == row.key).values(changes))
            claimed.append(request_of(row, **changes))
        return claimed

    async def finish(self, key: str, state: str, reply: StoredReply | None = None) -> None:
        """Mark the request as answered (`done`), refused or silent (`ignored`), or `failed`."""
        await self._end(key, reply, {"state": state})

    @in_transaction
    def forget(self, connection: sa.Connection, before: datetime) -> int:
        """Delete finished requests older than that; return how many."""
        is_finished = sa.and_(inbox.c.received < before, inbox.c.state.not_in(AT_WORK))
        at_work = sa.union(
            sa.select(inbox.c.run).where(inbox.c.state == "running", inbox.c.run.is_not(None)),
            sa.select(schedule_runs.c.run).where(
                schedule_runs.c.state == "running", schedule_runs.c.run.is_not(None)
            ),
        )
        count = connection.execute(sa.delete(inbox).where(is_finished)).rowcount
        connection.execute(sa.delete(reservations).where(reservations.c.run.not_in(at_work)))
        remaining = sa.select(inbox.c.key)
        connection.execute(sa.delete(feedback).where(feedback.c.request.not_in(remaining)))
        return count

    async def postpone(self, key: str, until: datetime, reply: StoredReply | None) -> None:
        """Retry the request after that time, as another run."""
        attempt = {"run": None, "attempt": inbox.c.attempt + 1}
        await self._end(key, reply, {"state": "waiting", "not_before": until, **attempt})

    @in_transaction
    def again(
        self,
        connection: sa.Connection,
        key: str,
        run: str,
        lookups: Sequence[str] = (),
        choice: Choice | None = None,
    ) -> bool | None:
        """Queue the request of this run again, with these look-ups approved, or with its
        requester's choice.

        Return whether it is queued; repeating the call returns the same. None = its answer is not
        finished yet: try again in a moment.
        """
        is_request = inbox.c.key == key
        row = connection.execute(sa.select(inbox).where(is_request)).one_or_none()
        if row is None:
            return False
        found = request_of(row)
        approved, choices, asked_back = set(found.lookups), found.choices, found.asked_back
        if run in asked_back if choice else approved.issuperset(lookups):
            return True
        if row.run != run or row.state != "done":
            return None if row.run == run and row.state == "running" else False
        event = {**row.event, LOOKUPS: sorted(approved.union(lookups))}
        if choice:
            event[CHOICES] = [each.model_dump() for each in (*choices, choice)]
            event[ASKED_BACK] = [*asked_back, run]
        event[ROUND] = int(row.event.get(ROUND) or 0) + 1
        values = {"state": "waiting", "not_before": datetime.now(UTC), "event": event}
        values["attempt"] = row.attempt + 1
        values |= dict.fromkeys(("stopped_by", "run", "reply"))
        connection.execute(sa.update(inbox).where(is_request).values(**values))
        return True

    @in_transaction
    def _end(
        self,
        connection: sa.Connection,
        key: str,
        reply: StoredReply | None,
        change: Mapping[str, Any],
    ) -> None:
        """Record that its run has ended."""
        is_request, reply_json = inbox.c.key == key, reply and reply.model_dump(mode="json")
        run = connection.execute(sa.select(inbox.c.run).where(is_request)).scalar()
        connection.execute(sa.update(inbox).where(is_request).values(reply=reply_json, **change))
        delete_reservations(connection, run)

    async def at_work(self) -> list[StoredRequest]:
        """Return the running requests."""
        query = sa.select(inbox).where(inbox.c.state == "running")
        return [request_of(row) for row in await self.database.read(query)]

    async def count_waiting(self) -> int:
        """Return how many requests wait for their turn."""
        return int((await self.database.read(_WAITING_COUNT_QUERY))[0].n)

    async def find_stopped(self, ids: list[str]) -> set[str]:
        """Return which of these runs somebody has stopped."""
        if not ids:
            return set()
        stopped = sa.and_(inbox.c.state == "running", inbox.c.stopped_by.is_not(None))
        query = sa.select(inbox.c.run).where(stopped, inbox.c.run.in_(ids))
        return {row.run for row in await self.database.read(query)}

    @in_transaction
    def feedback(self, connection: sa.Connection, key: str, user: str, value: str) -> bool:
        """Store a user's rating of an answer; return whether it is new.

        The last click counts. The reason for a bad answer is dropped when its rating changes.
        """
        c = feedback.c
        is_rating = sa.and_(c.request == key, c.user == user)
        if connection.execute(sa.select(c.value).where(is_rating)).scalar() == value:
            return False
        changing = ("value", "at", "reason", "comment")
        insert = self.database.upsert(feedback, ("request", "user"), changing)
        row = {"request": key, "user": user, "value": value, "at": datetime.now(UTC)}
        connection.execute(insert.values(**row, reason=None, comment=None))
        return True

    async def explain(self, key: str, user: str, reason: str, comment: str) -> bool:
        """Store why a user rated an answer as bad; return False if they have not rated it so."""
        c = feedback.c
        bad = sa.and_(c.request == key, c.user == user, c.value == BAD)
        changes = {"reason": reason or None, "comment": comment or None}
        return bool(await self.database.write(sa.update(feedback).where(bad).values(changes)))

    async def ratings(self, limit: int, value: str = "") -> list[Rating]:
        """Return the latest ratings of answers with their runs, newest first; all or by value."""
        c = feedback.c
        latest = (
            sa.select(runs.c.id)
            .where(runs.c.request == c.request)
            .order_by(runs.c.started.desc())
            .limit(1)
            .correlate(feedback)
            .scalar_subquery()
        )
        query = sa.select(feedback, runs.c.id.label("run"), runs.c.question)
        query = query.join_from(feedback, runs, runs.c.id == latest, isouter=True)
        query = query.where(c.value == value) if value else query
        query = query.order_by(c.at.desc(), c.request, c.user).limit(limit)
        return [Rating(**row._asdict()) for row in await self.database.read(query)]

    async def votes(self, keys: Iterable[str]) -> dict[str, Votes]:
        """Return the votes on the answer to each request."""
        c, found = feedback.c, dict.fromkeys(keys, Votes())
        good, bad = (sa.func.count().filter(c.value == value) for value in (GOOD, BAD))
        counted = sa.select(c.request, good.label("good"), bad.label("bad")).group_by(c.request)
        for some in chunks(found):
            for row in await self.database.read(counted.where(c.request.in_(some))):
                found[row.request] = Votes(row.good, row.bad)
        return found

    async def paused_by(self) -> str | None:
        """Return who paused all new work; None = it is not paused."""
        rows = await self.database.read(_PAUSE_QUERY)
        return str((rows[0].value or {}).get("by") or "an administrator") if rows else None

    async def pause(self, by: str) -> None:
        insert = self.database.upsert(flags)
        await self.database.write(
            insert.values(name=PAUSE_FLAG, value={"by": by}, at=datetime.now(UTC))
        )

    async def resume(self) -> None:
        await self.database.write(sa.delete(flags).where(flags.c.name == PAUSE_FLAG))

    async def spending(self, user: str | None, since: datetime) -> tuple[float, float]:
        """Return the US dollars of the runs that `user` (None = anyone) has requested since then.

        First the spent and reserved sum, then the sum that running ones may spend beyond that. For
        a user, runs of their schedules do not count: these have separate budgets.
        """
        paid, usd = budgets.c.spent_nanousd + budgets.c.reserved_nanousd, 1.0 / NANOUSD_PER_USD
        remaining = sa.case((runs.c.status == "running", budgets.c.cap_nanousd - paid), else_=0)
        query = sa.select(
            sa.func.sum(sa.func.coalesce(runs.c.cost_usd, paid * usd)).label("paid"),
            sa.func.sum(remaining * usd).label("open"),
        )
        query = query.select_from(runs.outerjoin(budgets)).where(runs.c.started >= since)
        if user:
            query = query.where(runs.c.requester == user, runs.c.kind != SCHEDULE_KIND)
        (row,) = await self.database.read(query)
        return float(row.paid or 0.0), float(row.open or 0.0)

    async def recent(self, user: str, limit: int = 5) -> list[StoredRun]:
        """Return the latest runs that a user requested, newest first."""
        query = sa.select(runs).where(runs.c.requester == user, runs.c.request.is_not(None))
        newest = query.order_by(runs.c.started.desc()).limit(limit)
        return [StoredRun(**row._asdict()) for row in await self.database.read(newest)]

    async def request(self, key: str) -> StoredRequest | None:
        rows = await self.database.read(sa.select(inbox).where(inbox.c.key == key))
        return request_of(rows[0]) if rows else None


def delete_reservations(connection: sa.Connection, run: str | None) -> None:
    """Delete the reservations of the calls of an ended run."""
    connection.execute(sa.delete(reservations).where(reservations.c.run == run))


def _thread(team: str, channel: str, thread_ts: str) -> sa.ColumnElement[bool]:
    return sa.and_(inbox.c.team == team, inbox.c.channel == channel, inbox.c.thread_ts == thread_ts)


# Built once: an idle bot runs them every second.
_PAUSE_QUERY = sa.select(flags.c.value).where(flags.c.name == PAUSE_FLAG)
_WAITING_COUNT_QUERY = (
    sa.select(sa.func.count().label("n"))
    .select_from(inbox)
    .where(inbox.c.state.in_(("new", "waiting")))
)


async def try_now(database: Database, run: str) -> bool:
    """Deliver the waiting report of this run next; return if there is one. Raises StoreError."""
    waiting = sa.and_(schedule_runs.c.run == run, schedule_runs.c.delivery == "waiting")
    update = sa.update(schedule_runs).where(waiting).values(not_before=datetime.now(UTC))
    return bool(await database.write(update))
