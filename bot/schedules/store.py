"""Store schedules, occurrences and deliveries: create due rows, apply policies, claim work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

import sqlalchemy as sa

from bot.errors import SetupError
from bot.storage.database import Database, in_transaction
from bot.storage.requests import IS_PAUSED, delete_reservations
from bot.storage.schedules import (
    FREE_NAME_STATES,
    Occurrence,
    StoredSchedule,
    Work,
    run_id,
)
from bot.storage.tables import issues, schedule_runs, schedules
from config.schedules import Schedule
from scopes.label import TRUSTED_LABEL, Label

log = logging.getLogger(__name__)

CAUGHT_UP = "caught up by the run of {at:%Y-%m-%d %H:%M:%S} UTC"
TOO_LATE = "nothing served for so long that it was not caught up (missed_hours)"
STILL_AT_WORK = "the run before was still at work; its messages are in the next report"
COVERED_REASON = "the report of {at:%Y-%m-%d %H:%M} UTC covers it"
PAUSED_REASON = "the schedule was paused"
DELETED_REASON = "the schedule was deleted"
REPLACED_REASON = (
    "A schedule of the same name that had been set in chat was replaced by the settings."
)
REQUESTED_EXTRA = {"asked": True}
"""`extra` of a requested occurrence: it is never too late, and waits for the run before it."""
SETTINGS_LOCK = 7_004
"""Advisory lock of Postgres that a replica holds while it loads the settings into the table."""

DUE, WAITS = schedule_runs.c.state == "due", schedule_runs.c.delivery == "waiting"

OnDelivery = Callable[[sa.Connection], object]
"""Records the results of a delivery, in the same transaction. It may be called again."""


class ScheduleError(SetupError):
    """A schedule is missing or cannot be set; the text is for the person who asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("schedule", message, hint)


@dataclass(frozen=True, slots=True)
class OccurrenceResult:
    """The stored facts of an occurrence that ran."""

    cost: float | None
    oldest: datetime | None
    latest: datetime | None
    extra: Mapping[str, Any] | None = None
    """Data to record on delivery."""
    figures: Mapping[str, int] | None = None


@dataclass(frozen=True)
class ScheduleStore:
    """The schedules of one database, with occurrences and deliveries. Methods raise StoreError.

    Methods that end an occurrence or a delivery take effect once, even if several callers call them
    several times: they return whether this call took effect. The same transaction releases the
    schedule for its next work. Calls for a finished attempt change nothing.
    """

    database: Database
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    async def all(self, *, done: bool = False) -> list[StoredSchedule]:
        """Return the schedules that were not deleted, by name; with `done` also finished ones."""
        hidden = ("deleted",) if done else FREE_NAME_STATES
        query = sa.select(schedules).where(schedules.c.state.not_in(hidden))
        rows = await self.database.read(query.order_by(schedules.c.id))
        return [StoredSchedule(**row._asdict()) for row in rows]

    async def get(self, id: str) -> StoredSchedule | None:
        """Return a schedule; None if it does not exist or was deleted."""
        query = sa.select(schedules).where(schedules.c.id == id, schedules.c.state != "deleted")
        rows = await self.database.read(query)
        return StoredSchedule(**rows[0]._asdict()) if rows else None

    @in_transaction
    def sync(
        self, connection: sa.Connection, config: Mapping[str, Schedule], now: datetime
    ) -> None:
        """Update the table from the settings; replace schedules set in chat with the same name."""
        if self.database.shared:  # two replicas must not start one schedule twice
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SETTINGS_LOCK)))
        rows = connection.execute(sa.select(schedules)).all()
        found = {row.id: StoredSchedule(**row._asdict()) for row in rows}
        for id, stored in found.items():
            if stored.origin == "config" and stored.state != "deleted" and id not in config:
                _end(connection, id, now)
        for id, spec in config.items():
            old = found.get(id)
            if old and old.origin == "config" and old.state != "deleted":
                self._change(connection, old, spec, now)
                continue
            new = StoredSchedule.new(id, "config", spec, now)
            self._insert(connection, new, replace=True)
            if old and old.origin == "chat" and old.state != "deleted":
                log.warning("the settings replaced the schedule %s of %s", id, old.spec.owner)
                _update(connection, id, why=REPLACED_REASON)

    async def create(
        self,
        id: str,
        spec: Schedule,
        origin: Literal["config", "chat"],
        now: datetime,
        label: Label = TRUSTED_LABEL,
    ) -> StoredSchedule:
        """Create a schedule with its first time after now. Raises ScheduleError for a taken name.

        `label` is the label of the context in which it was requested.
        """
        new = StoredSchedule.new(id, origin, spec, now, label)
        if not await self.database.change(partial(self._insert, new=new)):
            hint = "Choose another name, or delete that one first."
            raise ScheduleError(f"There is a schedule named {id!r} already.", hint)
        return await self.require(id)

    @in_transaction
    def pause(self, connection: sa.Connection, id: str, by: str) -> None:
        """Start no work for it until it is resumed; running work continues to its end.

        `by` is shown to users.
        """
        now = datetime.now(UTC)
        if _update(connection, id, ("active", "refused"), state="paused", why=by, changed=now):
            _skip(connection, _due(id), PAUSED_REASON, now)

    @in_transaction
    def resume(self, connection: sa.Connection, id: str, now: datetime) -> None:
        """Resume it; times during the pause are not caught up."""
        values = {"state": "active", "why": "", "changed": now, "watermark": now}
        _update(connection, id, ("paused",), **values)
        _finish(connection, id, now)

    @in_transaction
    def delete(self, connection: sa.Connection, id: str) -> None:
        """Delete a schedule set in chat. Raises ScheduleError if it is in the settings."""
        query = sa.select(schedules.c.origin).where(schedules.c.id == id)
        if connection.execute(query).scalar() == "config":
            what = f"The schedule {id!r} is set in assistant.yaml."
            raise ScheduleError(what, "Take it out there and start again, or pause it.")
        _end(connection, id, datetime.now(UTC))
        connection.execute(sa.delete(issues).where(issues.c.schedule == id))

    @in_transaction
    def refuse(self, connection: sa.Connection, id: str, why: str) -> bool:
        """Mark it as unable to run; return whether it was not before.

        Its times are caught up afterwards.
        """
        now = datetime.now(UTC)
        news = _update(connection, id, ("active",), state="refused", why=why, changed=now)
        return bool(news) or not _update(connection, id, ("refused",), why=why)

    @in_transaction
    def accept(self, connection: sa.Connection, id: str) -> bool:
        """Mark it as able to run again; return whether it was refused before."""
        values = {"state": "active", "why": "", "changed": datetime.now(UTC)}
        return bool(_update(connection, id, ("refused",), **values))

    async def require(self, id: str) -> StoredSchedule:
        """Return a schedule. Raises ScheduleError if there is none."""
        found = await self.get(id)
        if found is None:
            names = ", ".join(each.id for each in await self.all()) or "none"
            hint = f"There are: {names}. `assistant serve` takes up those of assistant.yaml."
            raise ScheduleError(f"There is no schedule {id[:40]!r}.", hint)
        return found

    async def occurrence(self, schedule: str, at: datetime) -> Occurrence | None:
        query = sa.select(schedule_runs).where(_row(schedule, at))
        rows = await self.database.read(query)
        return Occurrence(**rows[0]._asdict()) if rows else None

    async def occurrences(self, schedule: str, limit: int = 20) -> list[Occurrence]:
        """Return its occurrences, the latest first."""
        query = sa.select(schedule_runs).where(schedule_runs.c.schedule == schedule)
        rows = await self.database.read(query.order_by(schedule_runs.c.at.desc()).limit(limit))
        return [Occurrence(**row._asdict()) for row in rows]

    async def list_delivered(self, schedule: str, limit: int) -> list[Occurrence]:
        """Return the occurrences with a delivered or quiet report, the latest first.

        The next report continues from the latest.
        """
        query = sa.select(schedule_runs).where(_is_over(schedule))
        rows = await self.database.read(query.order_by(schedule_runs.c.at.desc()).limit(limit))
        return [Occurrence(**row._asdict()) for row in rows]

    async def reports(self, schedule: str) -> int:
        """Count the reports that were delivered or quiet."""
        count = sa.select(sa.func.count().label("n")).where(_is_over(schedule))
        return int((await self.database.read(count))[0].n)

    @in_transaction
    def create_due(self, connection: sa.Connection, schedule: str) -> None:
        """Create rows for all times up to now, even if the database was unavailable for long."""
        create_due(connection, self.database, schedule, self.now())

    async def ask_now(self, schedule: str, now: datetime) -> Occurrence:
        """Request an occurrence at the next free whole second.

        If one already waits, return that instead. It starts in its turn, even if that is late.
        """
        at = now.replace(microsecond=0)
        while True:
            row = {"schedule": schedule, "at": at, "state": "due", "extra": REQUESTED_EXTRA}
            is_ours = await self.database.write(self.database.upsert(schedule_runs).values(row))
            found = await self.occurrence(schedule, at)
            if found and (is_ours or found.state == "due"):  # it may start at once
                return found
            at += timedelta(seconds=1)

    @in_transaction
    def record_run(
        self,
        connection: sa.Connection,
        work: Work,
        result: OccurrenceResult,
    ) -> bool:
        """Store that its report is ready for delivery; drop older waiting ones."""
        values: dict[str, Any] = {"state": "ran", "why": "", "not_before": None}
        values |= {"oldest": result.oldest, "latest": result.latest, "extra": result.extra}
        values |= {"figures": result.figures, "delivery": "waiting"}
        if not self._end(connection, work, values, result.cost):
            return False
        older = sa.and_(schedule_runs.c.schedule == work.schedule, schedule_runs.c.at < work.at)
        _supersede(connection, older, COVERED_REASON.format(at=work.at))
        return True

    @in_transaction
    def record_failure(
        self,
        connection: sa.Connection,
        work: Work,
        why: str,
        *,
        cost: float | None = None,
        again: datetime | None = None,
    ) -> bool:
        """Mark it as failed, without a report; it is due again at `again`, if given."""
        values: dict[str, Any] = {"state": "failed", "why": why}
        if again:
            values |= {"state": "due", "not_before": again, "tries": work.attempt}
        return self._end(connection, work, values, cost)

    @in_transaction
    def record_skip(self, connection: sa.Connection, work: Work, why: str) -> bool:
        """Mark it as skipped."""
        return self._end(connection, work, {"state": "skipped", "why": why})

    def _end(
        self,
        connection: sa.Connection,
        work: Work,
        values: Mapping[str, Any],
        cost: float | None = None,
    ) -> bool:
        """End one attempt to run or to deliver, and add its cost; return whether this call did."""
        c, changes = schedule_runs.c, dict[str, Any](delivery_tries=work.attempt)
        is_attempt = sa.and_(c.delivery_tries == work.attempt - 1, WAITS)
        if work.kind == "occurrence":
            changes = {"ended": self.now()}
            changes |= (
                {} if cost is None else {"cost_usd": sa.func.coalesce(c.cost_usd, 0.0) + cost}
            )
            is_attempt = sa.and_(c.tries == work.attempt - 1, c.state.in_(("due", "running")))
        update = sa.update(schedule_runs).where(_row(work.schedule, work.at), is_attempt)
        ended = bool(connection.execute(update.values(**values, **changes)).rowcount)
        if ended and work.kind == "occurrence":
            delete_reservations(connection, run_id(work.schedule, work.at, work.attempt))
        is_claimed = sa.and_(schedules.c.id == work.schedule, schedules.c.at_work == work.id)
        connection.execute(sa.update(schedules).where(is_claimed).values(at_work=None))
        _finish(connection, work.schedule, self.now())
        return ended

    @in_transaction
    def record_delivery(
        self,
        connection: sa.Connection,
        work: Work,
        *,
        quiet: bool = False,
        place: Mapping[str, Any] | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> bool:
        """Mark the report as delivered or, with `quiet`, as one without news."""
        values: dict[str, Any] = {"delivery": "quiet" if quiet else "delivered", "why": ""}
        values |= {"place": place, "delivered": self.now()}
        if not self._end(connection, work, values):
            return False
        if on_delivery:
            on_delivery(connection)
        return True

    @in_transaction
    def record_undelivered(
        self, connection: sa.Connection, work: Work, why: str, again: datetime | None
    ) -> bool:
        """Mark one attempt as failed; the next one follows at `again`; None = give up."""
        values = {"why": why, "not_before": again, **({} if again else {"delivery": "failed"})}
        return self._end(connection, work, values)

    @in_transaction
    def take(self, connection: sa.Connection, now: datetime, most: int) -> list[Work]:
        """Claim due work of so many schedules, one item for each."""
        claimed = []
        for schedule in _idle(connection, now, most):
            if work := _next_work(connection, self.database, schedule, now):
                _update(connection, schedule.id, at_work=work.id)
                claimed.append(work)
            else:
                _finish(connection, schedule.id, now)
        return claimed

    async def at_work(self) -> list[Work]:
        """Return the work that was taken and has not ended."""
        query = sa.select(schedules.c.at_work).where(schedules.c.at_work.is_not(None))
        return [Work.parse(row.at_work) for row in await self.database.read(query)]

    def _insert(
        self, connection: sa.Connection, new: StoredSchedule, *, replace: bool = False
    ) -> bool:
        """Insert a row, replacing a finished one or, with `replace`, any; return whether it did."""
        row = {c.name: getattr(new, c.name) for c in schedules.c if c.name != "at_work"}
        insert = self.database.insert(schedules).values(row)
        upsert = insert.on_conflict_do_update(
            index_elements=["id"],
            set_=row,
            where=None if replace else schedules.c.state.in_(FREE_NAME_STATES),
        ).execution_options(preserve_rowcount=True)
        if not connection.execute(upsert).rowcount:
            return False
        for table in (schedule_runs, issues):
            connection.execute(sa.delete(table).where(table.c.schedule == new.id))
        return True

    def _change(
        self, connection: sa.Connection, old: StoredSchedule, spec: Schedule, now: datetime
    ) -> None:
        """Update a schedule from the settings, which may have changed."""
        if old.spec == spec:
            return
        new = StoredSchedule.new(old.id, "config", spec, now)
        state = "paused" if old.state == "paused" else new.state
        values: dict[str, Any] = {"spec": spec, "state": state, "changed": now}
        values |= {} if state == "paused" else {"why": ""}
        if old.spec.owner != spec.owner:  # the new owner was told of no failure
            values["trouble"] = None
        if old.spec.timetable != spec.timetable:
            if old.state == "active":  # catch up missed times of the old timetable
                create_due(connection, self.database, old.id, now)
            values["watermark"] = now
        _update(connection, old.id, **values)


def _finish(connection: sa.Connection, id: str, now: datetime) -> None:
    """Mark a schedule as done if it has no future time and no remaining work."""
    query = sa.select(schedules).where(schedules.c.id == id, schedules.c.state == "active")
    row = connection.execute(query).one_or_none()
    if row is None or not row.spec.at or row.spec.timetable.after(row.watermark):
        return
    is_unfinished = sa.or_(schedule_runs.c.state.in_(("due", "running")), WAITS)
    if not connection.execute(
        sa.select(sa.exists().where(schedule_runs.c.schedule == id, is_unfinished))
    ).scalar():
        _update(connection, id, state="done", changed=now)


def _end(connection: sa.Connection, id: str, now: datetime) -> None:
    """Delete a schedule; its row stays."""
    _update(connection, id, state="deleted", why="", changed=now, trouble=None)
    _skip(connection, _due(id), DELETED_REASON, now)
    _supersede(connection, schedule_runs.c.schedule == id, DELETED_REASON)


def _update(connection: sa.Connection, id: str, among: tuple[str, ...] = (), **values: Any) -> int:
    """Update a schedule, if its state is among these; return the number of rows."""
    update = sa.update(schedules).where(schedules.c.id == id).values(**values)
    update = update.where(schedules.c.state.in_(among)) if among else update
    return connection.execute(update).rowcount


def _skip(
    connection: sa.Connection, condition: sa.ColumnElement[bool], why: str, now: datetime
) -> None:
    values = {"state": "skipped", "why": why, "ended": now}
    connection.execute(sa.update(schedule_runs).where(condition).values(values))


def _supersede(connection: sa.Connection, condition: sa.ColumnElement[bool], why: str) -> None:
    values = {"delivery": "superseded", "why": why}
    connection.execute(sa.update(schedule_runs).where(condition, WAITS).values(values))


def create_due(connection: sa.Connection, database: Database, id: str, now: datetime) -> None:
    """Create a row for each time up to now.

    The first process that notices a time creates its row; the watermark never goes back.
    """
    query = sa.select(schedules).where(schedules.c.id == id, schedules.c.state == "active")
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        return
    times = list(row.spec.timetable.between(row.watermark, now))
    if times:
        rows = [{"schedule": id, "at": at, "state": "due"} for at in times]
        connection.execute(database.upsert(schedule_runs), rows)
        _update(connection, id, watermark=times[-1])


def _row(schedule: str, at: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(schedule_runs.c.schedule == schedule, schedule_runs.c.at == at)


def _due(schedule: str) -> sa.ColumnElement[bool]:
    return sa.and_(schedule_runs.c.schedule == schedule, DUE)


def _is_over(schedule: str) -> sa.ColumnElement[bool]:
    is_delivered = schedule_runs.c.delivery.in_(("delivered", "quiet"))
    return sa.and_(schedule_runs.c.schedule == schedule, is_delivered)


def _ready(
    schedule: str | sa.Column[str], state: sa.ColumnElement[bool], now: datetime
) -> sa.ColumnElement[bool]:
    """Match the rows of a schedule in this state that do not wait for a later time."""
    c = schedule_runs.c
    return sa.and_(
        c.schedule == schedule, state, sa.or_(c.not_before.is_(None), c.not_before <= now)
    )


def _idle(connection: sa.Connection, now: datetime, most: int) -> list[StoredSchedule]:
    """Lock the schedules with due work and no running work; none in a pause."""
    due = _ready(schedules.c.id, DUE, now)
    first = sa.select(sa.func.min(schedule_runs.c.at)).where(due).scalar_subquery()
    deliverable = _ready(schedules.c.id, WAITS, now)
    query = (
        sa.select(schedules)
        .where(
            schedules.c.state == "active",
            schedules.c.at_work.is_(None),
            ~IS_PAUSED,
            sa.or_(sa.exists().where(deliverable), sa.exists().where(due)),
        )
        .order_by(sa.nulls_first(first), schedules.c.id)
        .limit(most)
    )
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [StoredSchedule(**row._asdict()) for row in rows]


def _next_work(
    connection: sa.Connection, database: Database, schedule: StoredSchedule, now: datetime
) -> Work | None:
    """Return its next work: a due delivery, else the occurrence that its policies select."""
    for state in (WAITS, DUE):
        if state is DUE:
            create_due(connection, database, schedule.id, now)
            _apply_policies(connection, schedule, now)
        query = sa.select(schedule_runs).where(_ready(schedule.id, state, now))
        row = connection.execute(query.order_by(schedule_runs.c.at).limit(1)).one_or_none()
        if row is None:
            continue
        occurrence = Occurrence(**row._asdict())
        if state is DUE:
            changes = {"state": "running", "begun": now, "ended": None, "run": occurrence.run_id}
            update = sa.update(schedule_runs).where(_row(schedule.id, occurrence.at))
            connection.execute(update.values(changes))
        return occurrence.work
    return None


def _apply_policies(connection: sa.Connection, schedule: StoredSchedule, now: datetime) -> None:
    """Skip occurrences by the schedule's policies, and give up those that a later one covers."""
    runs, due = schedule_runs.c, _due(schedule.id)
    oldest = now - timedelta(hours=schedule.spec.missed_hours)
    other = schedule_runs.alias()
    same_schedule = other.c.schedule == schedule.id
    later = sa.exists().where(same_schedule, other.c.at > runs.at)
    failed = sa.and_(due, runs.tries > 0, sa.or_(later, runs.at < oldest))
    connection.execute(sa.update(schedule_runs).where(failed).values(state="failed"))
    unasked = sa.and_(due, runs.extra.is_(None))
    _skip(connection, sa.and_(unasked, runs.at < oldest), TOO_LATE, now)
    during = sa.and_(
        same_schedule, other.c.state == "ran", other.c.begun <= runs.at, other.c.ended > runs.at
    )
    _skip(connection, sa.and_(unasked, sa.exists().where(during)), STILL_AT_WORK, now)
    last = connection.execute(sa.select(sa.func.max(runs.at)).where(due)).scalar()
    if last:
        _skip(connection, sa.and_(due, runs.at < last), CAUGHT_UP.format(at=last), now)
