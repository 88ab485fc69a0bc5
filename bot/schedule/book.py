"""The schedules that there are: set in `assistant.yaml` or in chat, paused, refused, deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from bot.errors import SetupError
from bot.schedule.due import note
from bot.schedule.records import Row, StoredSchedule, body_of, opened
from bot.schedule.tables import deliveries, issues, schedules, ticks
from bot.storage.database import Database
from config.schedules import Schedule

log = logging.getLogger(__name__)

SYNCING = 7_004
"""Advisory lock of Postgres that a replica holds while it reads the settings into the table."""
PAUSED = "the schedule was paused"
DELETED = "the schedule was deleted"
REPLACED = "A schedule of the same name that had been set in chat was replaced by the settings."


class ScheduleError(SetupError):
    """A schedule that cannot be set, or that is not there; the text is for whoever asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("schedule", message, hint)


class ScheduleBook:
    """The schedules of one database. All methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def all(self) -> list[StoredSchedule]:
        """Those that were not deleted, by name."""
        there = sa.select(schedules).where(schedules.c.state != "deleted")
        rows = await self.database.read(there.order_by(schedules.c.id))
        return [each for row in rows if (each := opened(row))]

    async def get(self, id: str) -> StoredSchedule | None:
        """A deleted one is not there any more."""
        mine = sa.and_(schedules.c.id == id, schedules.c.state != "deleted")
        rows = await self.database.read(sa.select(schedules).where(mine))
        return opened(rows[0]) if rows else None

    async def versions(self) -> dict[str, datetime]:
        """When each of them was last changed: cheap enough to be asked for every few seconds."""
        there = sa.select(schedules.c.id, schedules.c.changed).where(schedules.c.state != "deleted")
        return {row["id"]: row["changed"] for row in await self.database.read(there)}

    async def sync(self, config: Mapping[str, Schedule], now: datetime) -> list[StoredSchedule]:
        """Make the table what the settings say; what was set in chat stays, but for its names.

        Returns those set in chat that gave way to one of the same name.
        """

        gone = await self.database.change(lambda c: self._sync(c, config, now))
        for each in gone:
            log.warning(
                "the schedule %s of the settings replaced that of %s", each.id, each.spec.owner
            )
        return gone

    async def create(
        self, id: str, spec: Schedule, origin: Literal["config", "chat"], now: datetime
    ) -> StoredSchedule:
        """Set a new one, whose first time is after now. Raises ScheduleError for a name in use."""

        def change(connection: sa.Connection) -> bool:
            return self._begin(connection, id, spec, origin, now, anew=False)

        if not await self.database.change(change):
            hint = "Choose another name, or delete that one first."
            raise ScheduleError(f"There is a schedule named {id!r} already.", hint)
        return await self._known(id)

    async def pause(self, id: str, by: str) -> None:
        """Begin nothing for it until it is resumed; what is at work goes on to its end.

        `by` is told to whoever looks. Raises ScheduleError where there is none.
        """
        now = datetime.now(UTC)

        def change(connection: sa.Connection) -> int:
            there = _set(connection, id, ("active", "refused"), state="paused", why=by, changed=now)
            if there:
                _skip_due(connection, id, PAUSED, now)
            return there

        if not await self.database.change(change):
            await self._known(id)

    async def resume(self, id: str, now: datetime) -> None:
        """Go on from now; the times of the pause are not caught up. Raises ScheduleError."""
        told = {"state": "active", "why": "", "changed": now, "watermark": _latest(now)}
        if not await self.database.change(lambda c: _set(c, id, ("paused",), **told)):
            await self._known(id)

    async def delete(self, id: str) -> None:
        """Raises ScheduleError where there is none, or it stands in the settings."""
        now, known = datetime.now(UTC), await self._known(id)
        if known.origin == "config":
            what = f"The schedule {id!r} stands in assistant.yaml."
            raise ScheduleError(what, "Take it out there and start again, or pause it.")

        def change(connection: sa.Connection) -> None:
            self._end(connection, id, now)
            connection.execute(sa.delete(issues).where(issues.c.schedule == id))

        await self.database.change(change)

    async def refuse(self, id: str, why: str) -> bool:
        """It cannot run as it is set; whether that is news. Its times are caught up afterwards."""
        told = {"state": "refused", "why": why, "changed": datetime.now(UTC)}
        news = await self.database.change(lambda c: _set(c, id, ("active",), **told))
        if not news:
            await self.database.change(lambda c: _set(c, id, ("refused",), why=why))
        return bool(news)

    async def accept(self, id: str) -> bool:
        """What was refused can run; whether it was refused."""
        told = {"state": "active", "why": "", "changed": datetime.now(UTC)}
        return bool(await self.database.change(lambda c: _set(c, id, ("refused",), **told)))

    async def _known(self, id: str) -> StoredSchedule:
        found = await self.get(id)
        if found is None:
            names = ", ".join(each.id for each in await self.all()) or "none"
            raise ScheduleError(f"There is no schedule {id[:40]!r}.", f"There are: {names}.")
        return found

    def _sync(
        self, connection: sa.Connection, config: Mapping[str, Schedule], now: datetime
    ) -> list[StoredSchedule]:
        if self.database.shared:  # two replicas must not begin one schedule twice
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SYNCING)))
        found = {row["id"]: row for row in connection.execute(sa.select(schedules)).mappings()}
        there = {id for id, row in found.items() if row["state"] != "deleted"}
        for id in there - config.keys():
            if found[id]["origin"] == "config":
                self._end(connection, id, now)
        replaced = []
        for id, spec in config.items():
            if id in found and self._is_known(connection, found[id], spec, now):
                self._update(connection, found[id], spec, now)
                continue
            self._begin(connection, id, spec, "config", now, anew=True)
            if id in there and (old := opened(found[id])):
                _set(connection, id, why=REPLACED)
                replaced.append(old)
        return replaced

    @staticmethod
    def _is_known(connection: sa.Connection, row: Row, spec: Schedule, now: datetime) -> bool:
        """Whether a schedule of the settings goes on: it was there, or it is back in the file."""
        if row["origin"] == "config" and _comes_back(row, spec):
            _set(connection, row["id"], state="active", changed=now, watermark=_latest(now))
            return True
        return bool(row["origin"] == "config" and row["state"] != "deleted")

    def _begin(
        self,
        connection: sa.Connection,
        id: str,
        spec: Schedule,
        origin: str,
        now: datetime,
        *,
        anew: bool,
    ) -> bool:
        """A row that begins now, in place of a deleted one or, `anew`, of any; whether it does."""
        row: dict[str, Any] = {
            "state": "active",
            "origin": origin,
            "why": "",
            "body": body_of(id, spec),
        }
        row |= {"made": now, "changed": now, "trouble": None}
        insert = self.database.insert(schedules).values(id=id, watermark=now, **row)
        where = None if anew else schedules.c.state == "deleted"
        again = insert.on_conflict_do_update(
            index_elements=["id"], set_={**row, "watermark": _latest(now)}, where=where
        ).execution_options(preserve_rowcount=True)
        if not connection.execute(again).rowcount:
            return False
        for table in (ticks, deliveries, issues):
            connection.execute(sa.delete(table).where(table.c.schedule == id))
        return True

    def _update(self, connection: sa.Connection, row: Row, spec: Schedule, now: datetime) -> None:
        """A schedule of the settings, which may say something else today."""
        old = opened(row)
        if old and old.spec == spec:
            return
        state = "paused" if row["state"] == "paused" else "active"
        told: dict[str, Any] = {"body": body_of(row["id"], spec), "state": state, "changed": now}
        told |= {} if state == "paused" else {"why": ""}
        if old is None or old.spec.timetable != spec.timetable:
            if old and state == "active":
                while note(connection, self.database, row["id"], now):
                    pass  # what was missed under the old times is still to be caught up
            told["watermark"] = _latest(now)
        _set(connection, row["id"], **told)

    @staticmethod
    def _end(connection: sa.Connection, id: str, now: datetime) -> None:
        _set(connection, id, state="deleted", why="", changed=now, trouble=None)
        _skip_due(connection, id, DELETED, now)
        waiting = sa.and_(deliveries.c.schedule == id, deliveries.c.state == "waiting")
        over = {"state": "superseded", "why": DELETED}
        connection.execute(sa.update(deliveries).where(waiting).values(over))


def _comes_back(row: Row, spec: Schedule) -> bool:
    """Whether a deleted schedule of the settings stands there again: its next report goes on where
    the last one ended, whatever file the bot was started with in between."""
    old = opened(row) if row["state"] == "deleted" else None
    reads = ("kind", "channels", "owner")
    return old is not None and all(getattr(old.spec, n) == getattr(spec, n) for n in reads)


def _latest(now: datetime) -> sa.ColumnElement[datetime]:
    """The watermark at now, where it is not beyond that: a clock may have been set back."""
    at = sa.literal(now, schedules.c.watermark.type)
    return sa.case((schedules.c.watermark > at, schedules.c.watermark), else_=at)


def _set(connection: sa.Connection, id: str, among: tuple[str, ...] = (), **told: Any) -> int:
    mine = schedules.c.id == id
    if among:
        mine = sa.and_(mine, schedules.c.state.in_(among))
    return connection.execute(sa.update(schedules).where(mine).values(**told)).rowcount


def _skip_due(connection: sa.Connection, id: str, why: str, now: datetime) -> None:
    due = sa.and_(ticks.c.schedule == id, ticks.c.state == "due")
    told = {"state": "skipped", "why": why, "ended": now}
    connection.execute(sa.update(ticks).where(due).values(told))
