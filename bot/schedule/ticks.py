"""Ticks and deliveries: what was to run when, how it ended, and how it came to its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.schedule.due import ASKED, Work, idle, next_work, note, work_of
from bot.schedule.ending import end_delivery, end_try, free, row_of, try_of
from bot.schedule.records import Delivery, Tick, delivery_of, tick_of
from bot.schedule.tables import deliveries, schedules, ticks
from bot.storage.database import Database

Noted = Callable[[sa.Connection], object]
"""What is noted when a report is delivered, in the same transaction. It may be called again where
that fails."""


class Ticks:
    """Those of one database. All methods raise StoreError.

    What ends a tick or a delivery happens once, whoever tells it and however often: it returns
    whether it was this call. In the same transaction the schedule is free for what comes next.
    `attempt`: the try of a tick that is told of; of one that is over, nothing is changed.
    """

    def __init__(
        self, database: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.database, self.now = database, now

    # ---- reading

    async def get(self, schedule: str, at: datetime) -> Tick | None:
        rows = await self.database.read(sa.select(ticks).where(row_of(ticks, schedule, at)))
        return tick_of(rows[0]) if rows else None

    async def of(self, schedule: str, limit: int = 20) -> list[Tick]:
        """Its ticks, the latest first."""
        query = sa.select(ticks).where(ticks.c.schedule == schedule).order_by(ticks.c.at.desc())
        return [tick_of(row) for row in await self.database.read(query.limit(limit))]

    async def delivery(self, schedule: str, at: datetime) -> Delivery | None:
        """That of a tick; None until it ran."""
        rows = await self.database.read(
            sa.select(deliveries).where(row_of(deliveries, schedule, at))
        )
        return delivery_of(rows[0]) if rows else None

    async def deliveries(self, schedule: str, limit: int = 20) -> list[Delivery]:
        """Those of its ticks that ran, the latest first."""
        mine = sa.select(deliveries).where(deliveries.c.schedule == schedule)
        query = mine.order_by(deliveries.c.at.desc()).limit(limit)
        return [delivery_of(row) for row in await self.database.read(query)]

    async def delivered_to_readers(self, schedule: str, limit: int) -> list[Delivery]:
        """Deliveries that came to their end, quiet ones too, the latest first."""
        over = deliveries.c.state.in_(("delivered", "quiet"))
        mine = sa.select(deliveries).where(deliveries.c.schedule == schedule, over)
        query = mine.order_by(deliveries.c.at.desc()).limit(limit)
        return [delivery_of(row) for row in await self.database.read(query)]

    async def last_delivered(self, schedule: str) -> tuple[Tick, Delivery] | None:
        """The latest report that was delivered, or was quiet; the next one goes on from there."""
        found = await self.delivered_to_readers(schedule, 1)
        tick = await self.get(schedule, found[0].at) if found else None
        return (tick, found[0]) if tick else None

    async def reports(self, schedule: str) -> int:
        """How many reports were delivered, or were quiet."""
        over = deliveries.c.state.in_(("delivered", "quiet"))
        count = sa.select(sa.func.count().label("n")).select_from(deliveries)
        rows = await self.database.read(count.where(deliveries.c.schedule == schedule, over))
        return int(rows[0]["n"])

    async def cost(self, schedule: str, since: datetime) -> float:
        """US dollars of its ticks since then."""
        total = sa.select(sa.func.sum(ticks.c.cost_usd).label("usd"))
        mine = sa.and_(ticks.c.schedule == schedule, ticks.c.at >= since)
        return float((await self.database.read(total.where(mine)))[0]["usd"] or 0.0)

    # ---- a tick

    async def note_due(self, schedule: str, now: datetime) -> int:
        """Make rows of all times up to now; how many transactions it took beyond the first."""
        more = 0
        while await self.database.change(lambda c: note(c, self.database, schedule, now)):
            more += 1
        return more

    async def ask_now(self, schedule: str, now: datetime) -> Tick:
        """A tick that a person asks for, at the first whole second from now on that has none.

        One that waits already is the same. It is taken up in its turn, however late that is.
        """
        at = now.replace(microsecond=0)
        while True:
            row = {"schedule": schedule, "at": at, "state": "due", "extra": ASKED}
            insert = self.database.insert(ticks).values(row).on_conflict_do_nothing()
            is_ours = await self.database.write(insert)
            found = await self.get(schedule, at)
            if found and (is_ours or found.state == "due"):  # it may be taken up at once
                return found
            at += timedelta(seconds=1)

    async def begin(self, tick: Tick, run: str) -> bool:
        """It is at work, as this run; whether it is not over."""
        told = {"state": "running", "run": run}
        first = sa.func.coalesce(ticks.c.begun, sa.literal(self.now(), ticks.c.begun.type))
        mine = try_of(tick.schedule, tick.at, tick.attempt)
        update = sa.update(ticks).where(mine).values(**told, begun=first)
        return bool(await self.database.write(update))

    async def ran(
        self,
        schedule: str,
        at: datetime,
        *,
        cost: float | None,
        oldest: datetime | None,
        latest: datetime | None,
        extra: Mapping[str, Any] | None = None,
        figures: Mapping[str, int] | None = None,
        why: str = "",
        attempt: int = 1,
    ) -> bool:
        """Its report is there and is to be delivered; older ones that still wait no longer are.

        `extra` is what is to be noted on delivery; `why` a sentence where the run is partial.
        """
        told = {"cost_usd": cost, "oldest": oldest, "latest": latest, "extra": extra, "why": why}
        told |= {"state": "ran", "ended": self.now()}
        row = {"schedule": schedule, "at": at, "state": "waiting", "tries": 0, "figures": figures}

        def change(connection: sa.Connection) -> bool:
            if not end_try(connection, schedule, at, attempt, told):
                return False
            older = sa.and_(deliveries.c.schedule == schedule, deliveries.c.at < at)
            waiting = sa.and_(older, deliveries.c.state == "waiting")
            over = {
                "state": "superseded",
                "why": f"the report of {at:%Y-%m-%d %H:%M} UTC covers it",
            }
            connection.execute(sa.update(deliveries).where(waiting).values(over))
            connection.execute(self.database.insert(deliveries).values(row))
            return True

        return await self.database.change(change)

    async def failed(
        self, schedule: str, at: datetime, why: str, *, cost: float | None = None, attempt: int = 1
    ) -> bool:
        """It gave no report. What it cost counts."""
        told = {"why": why, "cost_usd": cost, "state": "failed", "ended": self.now()}
        return await self.database.change(lambda c: end_try(c, schedule, at, attempt, told))

    async def again(
        self,
        schedule: str,
        at: datetime,
        why: str,
        not_before: datetime,
        *,
        cost: float | None = None,
        attempt: int = 1,
    ) -> bool:
        """It gave no report, for a reason that passes: it is due once more from then on."""
        told = {"why": why, "cost_usd": cost, "state": "due", "ended": self.now()}
        told |= {"not_before": not_before, "tries": attempt}
        return await self.database.change(lambda c: end_try(c, schedule, at, attempt, told))

    async def skip(self, schedule: str, at: datetime, why: str, *, attempt: int = 1) -> bool:
        """It is not to run after all."""
        told = {"why": why, "state": "skipped", "ended": self.now()}
        return await self.database.change(lambda c: end_try(c, schedule, at, attempt, told))

    # ---- a delivery

    async def delivered(
        self,
        schedule: str,
        at: datetime,
        *,
        quiet: bool = False,
        place: Mapping[str, Any] | None = None,
        figures: Mapping[str, int] | None = None,
        noted: Noted | None = None,
    ) -> bool:
        """The report stands where it belongs or, `quiet`, had nothing new to say."""
        told: dict[str, Any] = {
            "state": "quiet" if quiet else "delivered",
            "why": "",
            "place": place,
        }
        told |= {"delivered": self.now()} | ({"figures": figures} if figures else {})

        def change(connection: sa.Connection) -> bool:
            if not end_delivery(connection, schedule, at, told):
                return False
            if noted:
                noted(connection)
            return True

        return await self.database.change(change)

    async def not_delivered(
        self,
        schedule: str,
        at: datetime,
        why: str,
        not_before: datetime,
        *,
        place: Mapping[str, Any] | None = None,
    ) -> bool:
        """One try failed; it is tried again from then on. `place`: what stands there already."""
        told: dict[str, Any] = {"why": why, "not_before": not_before}
        told |= {"place": place} if place else {}
        return await self.database.change(lambda c: end_delivery(c, schedule, at, told))

    # ---- who works on what

    async def take(self, worker: str, now: datetime, most: int) -> list[Work]:
        """Take up what is due, one thing a schedule, for so many schedules."""

        def take(connection: sa.Connection) -> list[Work]:
            taken = []
            for schedule in idle(connection, now, most):
                work = next_work(connection, self.database, schedule, now)
                if work:
                    mine = sa.update(schedules).where(schedules.c.id == schedule.id)
                    connection.execute(mine.values(at_work=work.id, worker=worker))
                    taken.append(work)
            return taken

        return await self.database.change(take) if most > 0 else []

    async def claim(self, id: str, worker: str) -> bool:
        """This process works on it; whether it is still to be done."""
        mine = sa.update(schedules).where(schedules.c.at_work == id).values(worker=worker)
        return bool(await self.database.write(mine))

    async def at_work(self, worker: str | None = None) -> list[Work]:
        """What is at work, or what one process works on."""
        query = sa.select(schedules.c.at_work).where(schedules.c.at_work.is_not(None))
        query = query.where(schedules.c.worker == worker) if worker else query
        return [work_of(row["at_work"]) for row in await self.database.read(query)]

    async def owners(self) -> set[str]:
        """The processes that have something at work."""
        rows = await self.database.read(
            sa.select(schedules.c.worker).where(schedules.c.at_work.is_not(None)).distinct()
        )
        return {row["worker"] for row in rows if row["worker"]}

    async def adopt(self, dead: str, worker: str) -> None:
        """Take over what a process that died worked on."""
        theirs = sa.and_(schedules.c.worker == dead, schedules.c.at_work.is_not(None))
        await self.database.write(sa.update(schedules).where(theirs).values(worker=worker))

    async def free(self, work: Work) -> None:
        """It is not at work, however it ended."""
        await self.database.change(lambda c: free(c, work.schedule, work.id))
