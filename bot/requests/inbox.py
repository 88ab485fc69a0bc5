"""What was asked in Slack, from the moment it is heard until its answer stands there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.erasure.targets import Target, note
from bot.requests.requests import LOOKUPS, ROUND, new_run_id, stored
from bot.requests.requests import Incoming as Incoming
from bot.requests.requests import StoredRequest as StoredRequest
from bot.requests.turns import next_in_turn
from bot.runs.purses import forget_calls_under_way
from bot.schedule.tables import ticks
from bot.storage.database import Database
from bot.storage.serve_tables import (
    cursors,
    feedback,
    flags,
    inbox,
    purses,
    reservations,
    steps,
    stops,
)
from bot.storage.tables import StoredRun, runs
from scopes.tool import readable
from subagents.purse import NANO

AT_WORK = ("new", "running", "waiting")
SCHEDULED = "schedule"
"""Kind of the runs that a schedule began."""
PAUSED = "paused"
STOPPED = "stopped_by"
"""Key put into the event of a request that was stopped while it waited for its turn."""


class Inbox:
    """The requests, cursors and flags of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def add(self, incoming: Incoming) -> bool:
        """Store a request before it is acked; whether it is new. Raises StoreError."""
        event = readable(dict(incoming.event))
        row = {
            **{n: getattr(incoming, n) for n in Incoming.__dataclass_fields__},
            "key": incoming.key,
            "event": event,
            "state": "new",
            "attempt": 0,
            "received": datetime.now(UTC),
        }
        insert = self.database.insert(inbox).values(row).on_conflict_do_nothing()
        return bool(await self.database.write(insert))

    async def amend(
        self, team: str, channel: str, ts: str, text: str | None, at: datetime | None = None
    ) -> None:
        """The message was edited, or deleted (None): what was read of it is noted to be forgotten.

        A request that nobody has begun changes with it. `at`: when that was; None = just now.
        """
        database, target = self.database, Target("item", f"{channel}/{ts}")

        def change(connection: sa.Connection) -> None:
            mine = sa.and_(inbox.c.key == f"{team}/{channel}/{ts}", inbox.c.state == "new")
            row = connection.execute(sa.select(inbox.c.event).where(mine)).one_or_none()
            edited = text is not None
            amended = edited and row is not None
            note(connection, database, target, at, edited=edited, amended=amended)
            if row is None:
                return
            event = {**row.event, "text": readable(text or "")}
            values = {"event": event} if text is not None else {"state": "ignored"}
            connection.execute(sa.update(inbox).where(mine).values(**values))

        await self.database.change(change)

    async def advance(self, team: str, channel: str, ts: str) -> None:
        """This message of the channel was heard; the cursor never goes back."""
        insert = self.database.insert(cursors).values(team=team, channel=channel, ts=ts)
        newer = insert.on_conflict_do_update(
            index_elements=["team", "channel"], set_={"ts": ts}, where=cursors.c.ts < ts
        )
        await self.database.write(newer)

    async def cursors(self, team: str) -> dict[str, str]:
        rows = await self.database.read(sa.select(cursors).where(cursors.c.team == team))
        return {row["channel"]: row["ts"] for row in rows}

    async def has_answered(self, team: str, channel: str, thread_ts: str) -> bool:
        """Whether a request in this thread was taken up before."""
        mine = _thread(team, channel, thread_ts) & (inbox.c.state != "ignored")
        return bool(await self.database.read(sa.select(inbox.c.key).where(mine).limit(1)))

    async def threads(self, team: str, since: datetime, most: int) -> list[tuple[str, str, str]]:
        """Channel, root and first request of the threads last asked in since then, newest first."""
        first, last = sa.func.min(inbox.c.ts).label("first"), sa.func.max(inbox.c.received)
        here = sa.and_(inbox.c.team == team, inbox.c.state != "ignored")
        query = sa.select(inbox.c.channel, inbox.c.thread_ts, first).where(here)
        query = query.group_by(inbox.c.channel, inbox.c.thread_ts).having(last >= since)
        rows = await self.database.read(query.order_by(last.desc()).limit(most))
        return [(row["channel"], row["thread_ts"], row["first"]) for row in rows]

    async def answered(self, request: StoredRequest) -> list[str]:
        """Runs that were answered in this thread before the request, the first one first."""
        mine = _thread(request.team, request.channel, request.thread_ts)
        done = sa.and_(mine, inbox.c.state == "done", inbox.c.ts < request.ts)
        rows = await self.database.read(sa.select(inbox.c.run).where(done).order_by(inbox.c.ts))
        return [row["run"] for row in rows if row["run"]]

    async def stop(self, team: str, channel: str, thread_ts: str, user: str) -> int:
        """Ask the request at work in this thread to stop; how many there were."""

        def change(connection: sa.Connection) -> int:
            here = _thread(team, channel, thread_ts)
            running = here & (inbox.c.state == "running")
            idle = here & inbox.c.state.in_(("new", "waiting"))
            for row in connection.execute(sa.select(inbox.c.key, inbox.c.event).where(idle)):
                told = {"state": "new", "event": {**row.event, STOPPED: user}}
                connection.execute(sa.update(inbox).where(inbox.c.key == row.key).values(**told))
            found = connection.execute(sa.select(inbox.c.run).where(running))
            ids = [row.run for row in found if row.run]
            known = connection.execute(sa.select(runs.c.id).where(runs.c.id.in_(ids)))
            rows = [{"run": row.id, "by": user, "at": datetime.now(UTC)} for row in known]
            if rows:
                insert = self.database.insert(stops).on_conflict_do_nothing()
                connection.execute(insert, rows)
            return len(rows)

        return await self.database.change(change)

    async def take(self, owner: str, free: int, now: datetime) -> list[StoredRequest]:
        """Take up to `free` requests to work on: the oldest first, of each thread one at a time."""

        def take(connection: sa.Connection) -> list[StoredRequest]:
            rows = next_in_turn(connection, free, now, shared=self.database.shared)
            given = [
                {"state": "running", "owner": owner, "run": row["run"] or new_run_id()}
                for row in rows
            ]
            if rows:
                update = sa.update(inbox).where(inbox.c.key == sa.bindparam("of"))
                keys = [{"of": row["key"]} for row in rows]
                connection.execute(update, [k | g for k, g in zip(keys, given, strict=True)])
            return [stored({**row, **new}) for row, new in zip(rows, given, strict=True)]

        return await self.database.change(take) if free > 0 else []

    async def finish(self, key: str, state: str, reply: Mapping[str, Any] | None = None) -> None:
        """The request is answered (`done`), refused or silent (`ignored`), or `failed`."""
        await self._end(key, {"state": state, "reply": reply, "owner": None})

    async def forget(self, before: datetime) -> int:
        """Delete what was asked before then and is over; returns how many requests."""
        over = sa.and_(inbox.c.received < before, inbox.c.state.not_in(AT_WORK))
        at_work = sa.union(
            sa.select(inbox.c.run).where(inbox.c.state == "running", inbox.c.run.is_not(None)),
            sa.select(ticks.c.run).where(ticks.c.state == "running", ticks.c.run.is_not(None)),
        )

        def forget(connection: sa.Connection) -> int:
            gone = connection.execute(sa.delete(inbox).where(over)).rowcount
            for table in (steps, reservations, stops):
                connection.execute(sa.delete(table).where(table.c.run.not_in(at_work)))
            kept = sa.select(inbox.c.key)
            connection.execute(sa.delete(feedback).where(feedback.c.request.not_in(kept)))
            return gone

        return await self.database.change(forget)

    async def postpone(self, key: str, until: datetime, reply: Mapping[str, Any] | None) -> None:
        """Try the request anew from then on, as another run."""
        again = {"state": "waiting", "not_before": until, "owner": None, "run": None}
        await self._end(key, again | {"reply": reply, "attempt": inbox.c.attempt + 1})

    async def again(self, key: str, run: str, lookups: Sequence[str]) -> bool:
        """Have a request answered again whose answer is that of this run, with these look-ups
        approved; whether it is, also where this call is made again."""

        def change(connection: sa.Connection) -> bool:
            mine = inbox.c.key == key
            row = connection.execute(sa.select(inbox).where(mine)).mappings().one_or_none()
            if row is None:
                return False
            known = {str(each) for each in row["event"].get(LOOKUPS) or ()}
            if known.issuperset(lookups):
                return True
            if row["run"] != run or row["state"] != "done":
                return False
            event = {**row["event"], LOOKUPS: sorted(known.union(lookups))}
            event[ROUND] = int(row["event"].get(ROUND) or 0) + 1
            anew = {"state": "waiting", "not_before": datetime.now(UTC), "owner": None, "run": None}
            anew |= {"reply": None, "attempt": row["attempt"] + 1, "event": event}
            connection.execute(sa.update(inbox).where(mine).values(**anew))
            return True

        return await self.database.change(change)

    async def _end(self, key: str, change: dict[str, Any]) -> None:
        """Its run is over; what the steps returned goes with it: nobody will ask for it again."""
        mine = inbox.c.key == key

        def end(connection: sa.Connection) -> None:
            run = connection.execute(sa.select(inbox.c.run).where(mine)).scalar()
            connection.execute(sa.update(inbox).where(mine).values(**change))
            for table in (steps, reservations):
                connection.execute(sa.delete(table).where(table.c.run == run))

        await self.database.change(end)

    async def at_work(self, owner: str | None = None) -> list[StoredRequest]:
        """The requests at work, or those of one process."""
        query = sa.select(inbox).where(inbox.c.state == "running")
        if owner:
            query = query.where(inbox.c.owner == owner)
        return [stored(row) for row in await self.database.read(query)]

    async def adopt(self, dead: str, owner: str) -> None:
        """Take over the requests of a process that died, and close its books."""

        def adopt(connection: sa.Connection) -> None:
            theirs = sa.and_(inbox.c.owner == dead, inbox.c.state == "running")
            connection.execute(sa.update(inbox).where(theirs).values(owner=owner))
            forget_calls_under_way(connection, dead)

        await self.database.change(adopt)

    async def claim(self, key: str, owner: str) -> None:
        """This process works on the request."""
        mine = sa.and_(inbox.c.key == key, inbox.c.state == "running")
        await self.database.write(sa.update(inbox).where(mine).values(owner=owner))

    async def waiting(self) -> int:
        """How many requests wait for their turn."""
        return int((await self.database.read(_WAITING))[0]["n"])

    async def stopped(self, ids: list[str]) -> set[str]:
        """Which of these runs were asked to stop."""
        if not ids:
            return set()
        query = sa.select(stops.c.run).where(stops.c.run.in_(ids))
        return {row["run"] for row in await self.database.read(query)}

    async def feedback(self, key: str, user: str, value: str) -> None:
        """What a user thinks of an answer; the last click counts."""
        row = {"request": key, "user": user, "value": value, "at": datetime.now(UTC)}
        insert = self.database.insert(feedback).values(row)
        latest = {"value": value, "at": row["at"]}
        await self.database.write(
            insert.on_conflict_do_update(index_elements=["request", "user"], set_=latest)
        )

    async def paused(self) -> str | None:
        """Who paused all new work; None = it is not paused."""
        rows = await self.database.read(_PAUSED)
        return str((rows[0]["value"] or {}).get("by") or "an administrator") if rows else None

    async def pause(self, by: str) -> None:
        row = {"name": PAUSED, "value": {"by": by}, "at": datetime.now(UTC)}
        insert = self.database.insert(flags).values(row)
        await self.database.write(insert.on_conflict_do_nothing())

    async def resume(self) -> None:
        await self.database.write(sa.delete(flags).where(flags.c.name == PAUSED))

    async def spent(self, user: str | None, since: datetime) -> tuple[float, float]:
        """US dollars of the runs that `user` (None = anyone) asked for since then: what they have
        spent and reserved, and what those at work may spend beyond that. Of a user, those of their
        schedules do not count: they have budgets of their own.
        """
        if user:
            rows = await self.database.read(_SPENT_BY, since=since, user=user)
        else:
            rows = await self.database.read(_SPENT, since=since)
        return float(rows[0]["paid"] or 0.0), float(rows[0]["open"] or 0.0)

    async def recent(self, user: str, limit: int = 5) -> list[StoredRun]:
        """The latest runs that a user asked for, newest first."""
        query = sa.select(runs).where(runs.c.requester == user, runs.c.request.is_not(None))
        newest = query.order_by(runs.c.started.desc()).limit(limit)
        return [StoredRun(**row) for row in await self.database.read(newest)]

    async def request(self, key: str) -> StoredRequest | None:
        rows = await self.database.read(_REQUEST, key=key)
        return stored(rows[0]) if rows else None


def _thread(team: str, channel: str, thread_ts: str) -> sa.ColumnElement[bool]:
    return sa.and_(inbox.c.team == team, inbox.c.channel == channel, inbox.c.thread_ts == thread_ts)


# Made once: an idle bot asks the first two every second, each request the others.
_PAUSED = sa.select(flags.c.value).where(flags.c.name == PAUSED)
_WAITING = (
    sa.select(sa.func.count().label("n"))
    .select_from(inbox)
    .where(inbox.c.state.in_(("new", "waiting")))
)
_REQUEST = sa.select(inbox).where(inbox.c.key == sa.bindparam("key"))
_PAID = purses.c.spent_nanousd + purses.c.reserved_nanousd
_USD = 1.0 / NANO
_OPEN = sa.case((runs.c.status == "running", purses.c.cap_nanousd - _PAID), else_=0)
_SPENT = (
    sa.select(
        sa.func.sum(sa.func.coalesce(runs.c.cost_usd, _PAID * _USD)).label("paid"),
        sa.func.sum(_OPEN * _USD).label("open"),
    )
    .select_from(runs.outerjoin(purses))
    .where(runs.c.started >= sa.bindparam("since", type_=runs.c.started.type))
)
_SPENT_BY = _SPENT.where(runs.c.requester == sa.bindparam("user"), runs.c.kind != SCHEDULED)
