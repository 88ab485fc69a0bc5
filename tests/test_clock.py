"""The clock: each time is noted when it comes, and late rather than never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pg_kit import Kept
from test_occurrences import HOUR, MINUTE, START, spec
from timing import Patience

from bot.errors import StoreError
from bot.schedules.scheduler import Scheduler, TimetableTrigger
from bot.schedules.store import Occurrences, ScheduleStore
from bot.storage.database import Database
from config.schedules import Timetable


@dataclass
class Wall:
    """A clock over a database that does not run: the test sets the time, and rings."""

    database: Database
    now: datetime = START
    clock: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self.store, self.occurrences = (
            ScheduleStore(self.database),
            Occurrences(self.database, lambda: self.now),
        )
        self.clock = Scheduler(self.store, self.occurrences, lambda: None)

    async def starts(self, now: datetime) -> None:
        """A process begins with it, or looks for changes."""
        self.now = now
        await self.clock.reconcile()

    async def rings(self, now: datetime, schedule: str = "markets") -> None:
        self.now = now
        await self.clock.create_due(schedule)

    def next_times(self) -> dict[str, str]:
        """Schedule -> the hour and minute at which it rings next."""
        jobs = self.clock.jobs.get_jobs()
        return {job.id: f"{job.trigger.get_next_fire_time(None, self.now):%H:%M}" for job in jobs}

    async def shown(self, schedule: str = "markets") -> list[str]:
        found = await self.occurrences.of(schedule, 1_000)
        return [f"{each.at:%H:%M}" for each in reversed(found)]


@asynccontextmanager
async def wall(tmp_path: Path) -> AsyncIterator[Wall]:
    """With a schedule every ten minutes, set at 8:00."""
    async with Kept(tmp_path, None).stores(1) as (store,):
        made = Wall(store.database)
        await made.store.create("markets", spec(), "chat", START)
        yield made


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    patience = Patience(30)
    while not await condition():
        assert not patience.over
        await asyncio.sleep(0.02)


async def test_a_start_catches_up_from_the_watermark_and_a_ring_notes_its_time(
    tmp_path: Path,
) -> None:
    async with wall(tmp_path) as made:
        await made.starts(START + 9 * MINUTE)
        assert (await made.shown(), made.next_times()) == ([], {"markets": "08:10"})
        await made.rings(START + 10 * MINUTE)
        assert (await made.shown(), made.next_times()) == (["08:10"], {"markets": "08:20"})
        await made.rings(START + 31 * MINUTE)  # the machine slept
        assert await made.shown() == ["08:10", "08:20", "08:30"]
        again = Wall(made.database)  # the next process
        await again.starts(START + 45 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30", "08:40"]


async def test_a_clock_that_is_set_back_repeats_nothing_and_goes_on(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.starts(START + 31 * MINUTE)
        for each in (made, Wall(made.database)):
            await each.starts(START - HOUR)
            await each.rings(START + 15 * MINUTE)
            await each.rings(START + 39 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30"]
        await made.rings(START + 40 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30", "08:40"]


async def test_changes_by_others_are_seen(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.starts(START + MINUTE)
        await made.store.create("new", spec(cron="5 * * * *"), "chat", START)
        await made.starts(START + 6 * MINUTE)
        assert made.next_times() == {"markets": "08:10", "new": "09:05"}
        assert await made.shown("new") == ["08:05"]

        await made.store.pause("markets", "U0ANA")
        await made.starts(START + 25 * MINUTE)
        assert made.next_times() == {"new": "09:05"}
        assert await made.shown() == []
        await made.store.resume("markets", START + 25 * MINUTE)
        await made.store.delete("new")
        await made.starts(START + 25 * MINUTE)
        assert made.next_times() == {"markets": "08:30"}
        await made.rings(START + 51 * MINUTE)
        assert await made.shown() == ["08:30", "08:40", "08:50"]
        assert await made.shown("new") == ["08:05"]


async def test_a_time_that_the_database_was_away_for_is_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(schedule: str) -> None:
        raise StoreError("write", "The database is away.", "Wait.")

    async with wall(tmp_path) as made:
        await made.starts(START)
        with monkeypatch.context() as patch:
            patch.setattr(made.occurrences, "create_due", away)
            with pytest.raises(StoreError):
                await made.rings(START + 10 * MINUTE)
        await made.starts(START + 11 * MINUTE)
        assert (await made.shown(), made.next_times()) == (["08:10"], {"markets": "08:20"})


async def test_a_schedule_set_while_it_runs_is_heard_of_and_rings_at_the_time_itself(
    tmp_path: Path,
) -> None:
    async with Kept(tmp_path, None).stores(1) as (store,):
        rows, occurrences = ScheduleStore(store.database), Occurrences(store.database)
        rung = asyncio.Event()
        await rows.create("other", spec(cron="* * * * * *"), "chat", datetime.now(UTC))
        running = asyncio.create_task(Scheduler(rows, occurrences, rung.set).run())
        await asyncio.wait_for(rung.wait(), 30)
        start = datetime.now(UTC)
        await rows.create("each-second", spec(cron="* * * * * *"), "chat", start)
        await eventually(lambda: at_least(3, occurrences))
        found = [each.at for each in reversed(await occurrences.of("each-second"))]
        first = start.replace(microsecond=0) + timedelta(seconds=1)
        assert found == [first + timedelta(seconds=n) for n in range(len(found))]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def at_least(count: int, occurrences: Occurrences) -> bool:
    return len(await occurrences.of("each-second")) >= count


def test_after_a_long_sleep_of_the_machine_it_rings_once_and_not_for_each_time() -> None:
    trigger = TimetableTrigger(Timetable.of("* * * * * *", "UTC"))
    assert trigger.get_next_fire_time(START, START + 5 * HOUR) == START + 5 * HOUR + timedelta(
        seconds=1
    )
    assert trigger.get_next_fire_time(START + HOUR, START) == START + HOUR + timedelta(seconds=1)
