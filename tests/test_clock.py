"""The clock: each time is noted when it comes, and late rather than never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from operator import sub
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from pg_kit import Kept
from test_ticks import HOUR, MINUTE, START, spec
from timing import Patience

from bot.schedule.book import ScheduleBook
from bot.schedule.clock import LOOK_EVERY_S, AsTimetabled, Clock
from bot.schedule.ticks import Ticks
from config.timetable import Timetable

ZONES = ("Europe/Madrid", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


@dataclass
class Wall:
    """A clock over a database, whose time the test sets."""

    book: ScheduleBook
    ticks: Ticks
    now: datetime = START
    woken: int = 0
    """How often it said that something is due."""
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.book, self.ticks, self._wake, lambda: self.now)

    def _wake(self) -> None:
        self.woken += 1

    async def look(self, now: datetime) -> None:
        self.now = now
        await self.clock.look()

    async def shown(self, schedule: str = "markets") -> list[str]:
        found = await self.ticks.of(schedule, 1_000)
        return [f"{each.at:%H:%M}" for each in reversed(found)]


@asynccontextmanager
async def wall(tmp_path: Path) -> AsyncIterator[Wall]:
    """With a schedule every ten minutes, set at 8:00."""
    async with Kept(tmp_path, None).stores(1) as (store,):
        made = Wall(ScheduleBook(store.database), Ticks(store.database))
        await made.book.create("markets", spec(), "chat", START)
        yield made


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    patience = Patience(30)
    while not await condition():
        assert not patience.over
        await asyncio.sleep(0.02)


async def test_times_are_noted_as_they_come(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.look(START + 9 * MINUTE)
        assert (await made.shown(), made.woken) == ([], 0)
        await made.look(START + 10 * MINUTE)
        assert (await made.shown(), made.woken) == (["08:10"], 1)
        await made.look(START + 11 * MINUTE)
        assert made.woken == 1


async def test_what_came_while_nobody_looked_is_noted_late(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.look(START)
        await made.look(START + 31 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30"]
        again = Wall(made.book, made.ticks)  # the next process
        await again.look(START + 45 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30", "08:40"]


async def test_a_clock_that_is_set_back_repeats_nothing_and_goes_on(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.look(START + 31 * MINUTE)
        for each in (made, Wall(made.book, made.ticks)):
            await each.look(START - HOUR)
            await each.look(START + 15 * MINUTE)
            await each.look(START + 39 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30"]
        await made.look(START + 40 * MINUTE)
        assert await made.shown() == ["08:10", "08:20", "08:30", "08:40"]


async def test_changes_by_others_are_seen(tmp_path: Path) -> None:
    async with wall(tmp_path) as made:
        await made.look(START + MINUTE)
        await made.book.create("new", spec(cron="5 * * * *"), "chat", START)
        await made.look(START + 5 * MINUTE)
        assert await made.shown("new") == ["08:05"]

        await made.book.pause("markets", "U0ANA")
        await made.look(START + 25 * MINUTE)
        assert await made.shown() == []
        await made.book.resume("markets", START + 25 * MINUTE)
        await made.book.delete("new")
        await made.look(START + 70 * MINUTE)
        assert await made.shown() == ["08:30", "08:40", "08:50", "09:00", "09:10"]
        assert await made.shown("new") == ["08:05"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("days", "zones"),
    [(20, ZONES[-1:]), pytest.param(2.1, ZONES, marks=pytest.mark.slow)],
)
async def test_a_year_of_schedules_has_each_day_once_and_each_hour_once(
    tmp_path: Path, days: float, zones: tuple[str, ...]
) -> None:
    crons = {"daily": "30 2 * * *", "nightly": "45 1 * * *", "hourly": "0 * * * *"}
    start, end = datetime(2025, 12, 30, tzinfo=UTC), datetime(2027, 1, 3, tzinfo=UTC)
    async with Kept(tmp_path, None).stores(1) as (store,):
        made = Wall(ScheduleBook(store.database), Ticks(store.database), start)
        for place in zones:
            for name, cron in crons.items():
                id = f"{name}-{place.lower().replace('/', '-').replace('_', '-')}"
                await made.book.create(id, spec(cron=cron, zone=place), "chat", start)
        while made.now < end:
            made = Wall(made.book, made.ticks, made.now)  # each time another process
            await made.look(min(end, made.now + days * 24 * HOUR))

        for schedule in await made.book.all():
            info = ZoneInfo(schedule.spec.zone)
            found = [each.at for each in reversed(await made.ticks.of(schedule.id, 10_000))]
            local = [at.astimezone(info) for at in found if at.astimezone(info).year == 2026]
            if schedule.id.startswith("hourly"):
                walls = {at.replace(fold=0, tzinfo=None) for at in local}
                assert len(walls) >= 365 * 24 - 1
                assert set(map(sub, found[1:], found)) <= {HOUR, 90 * MINUTE, 30 * MINUTE}
            else:
                first = date(2026, 1, 1)
                assert [at.date() for at in local] == [first + n * 24 * HOUR for n in range(365)]


async def test_it_rings_at_the_time_itself(tmp_path: Path) -> None:
    async with Kept(tmp_path, None).stores(1) as (store,):
        book, ticks = ScheduleBook(store.database), Ticks(store.database)
        rung = asyncio.Event()
        start = datetime.now(UTC)
        await book.create("each-second", spec(cron="* * * * * *"), "chat", start)
        running = asyncio.create_task(Clock(book, ticks, rung.set).run())

        async def three() -> bool:
            return len(await ticks.of("each-second")) >= 3

        await eventually(three)
        found = [each.at for each in reversed(await ticks.of("each-second"))]
        first = start.replace(microsecond=0) + timedelta(seconds=1)
        assert found == [first + timedelta(seconds=n) for n in range(len(found))]
        assert rung.is_set()
        # It waits for the time itself and not for its next look.
        assert datetime.now(UTC) - found[-1] < timedelta(seconds=LOOK_EVERY_S + 25)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_schedule_set_while_it_runs_is_heard_of_when_it_is_woken(tmp_path: Path) -> None:
    async with Kept(tmp_path, None).stores(1) as (store,):
        book, ticks = ScheduleBook(store.database), Ticks(store.database)
        clock = Clock(book, ticks, lambda: None)
        running = asyncio.create_task(clock.run())
        await asyncio.sleep(0)
        await book.create("each-second", spec(cron="* * * * * *"), "chat", datetime.now(UTC))
        clock.wake()

        async def some() -> bool:
            return bool(await ticks.of("each-second"))

        await eventually(some)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_time_that_is_far_away_keeps_nothing_busy() -> None:
    asked = 0

    class Counting(AsTimetabled):
        def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
            nonlocal asked
            asked += 1
            return super().get_next_fire_time(previous, now)

    async def ring() -> None:
        raise AssertionError("it rang years too early")

    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.start()
    scheduler.add_job(ring, Counting(Timetable.of("0 9 29 2 *", "Europe/Madrid")))
    for _ in range(20):
        await asyncio.sleep(0.01)
    scheduler.shutdown(wait=False)
    assert asked == 1


def test_after_a_long_sleep_of_the_machine_it_rings_once_and_not_for_each_time() -> None:
    trigger = AsTimetabled(Timetable.of("* * * * * *", "UTC"))
    assert trigger.get_next_fire_time(START, START + 5 * HOUR) == START + 5 * HOUR + timedelta(
        seconds=1
    )
    assert trigger.get_next_fire_time(START + HOUR, START) == START + HOUR + timedelta(seconds=1)
