"""Rows of schedules: what is due, what is caught up, what happens once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import come
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pg_kit import StorePlace, store_place
from timing import WAIT_S

from bot.schedules.alerts import record_failure
from bot.schedules.scheduler import Scheduler
from bot.schedules.store import STILL_AT_WORK, OccurrenceResult, ScheduleError, ScheduleStore
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from bot.storage.schedules import Occurrence, StoredSchedule, Work
from config.schedules import Schedule

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def spec(**fields: Any) -> Schedule:
    defaults: dict[str, Any] = {"kind": "sweep", "cron": "*/10 * * * *", "zone": "Europe/Madrid"}
    defaults |= {"channels": ("support-*",), "to": "dm", "owner": "U0ANA"}
    return Schedule(**{**defaults, **fields})


@dataclass
class Rows:
    """One database, seen by a replica."""

    database: Database
    now: datetime = START
    """Set by the test."""

    @property
    def store(self) -> ScheduleStore:
        return ScheduleStore(self.database, lambda: self.now)

    async def create_due_at(self, now: datetime, schedule: str = "markets") -> None:
        self.now = now
        await self.store.create_due(schedule)

    async def take(self, now: datetime, most: int = 5) -> list[Work]:
        self.now = now
        return await self.store.take(now, most)

    async def take_one(self, now: datetime) -> Work:
        (work,) = await self.take(now)
        return work

    async def record_run(self, work: Work, **fields: Any) -> bool:
        result: dict[str, Any] = {"cost": 0.1, "oldest": None, "latest": work.at, **fields}
        return await self.store.record_run(work, OccurrenceResult(**result))

    async def mark_delivered(self, work: Work, **fields: Any) -> bool:
        return await self.store.record_delivery(work, **fields)

    async def occurrence_states(self, schedule: str = "markets") -> list[tuple[str, str]]:
        """Minute and state of its occurrences, the oldest first."""
        found = await self.store.occurrences(schedule, 1_000)
        return [(f"{each.at:%H:%M}", each.state) for each in reversed(found)]

    async def stored_schedule(self) -> StoredSchedule:
        found = await self.store.get("markets")
        assert found
        return found

    async def occurrence(self, at: datetime) -> Occurrence:
        found = await self.store.occurrence("markets", at)
        assert found
        return found


@asynccontextmanager
async def rows(place: StorePlace, **fields: Any) -> AsyncIterator[Rows]:
    """A database with one schedule, every ten minutes from 8:00 on."""
    async with place.stores(1) as (store,):
        replica = Rows(store.database)
        await replica.store.create("markets", spec(**fields), "chat", START)
        yield replica


# ---- scheduled times


async def test_concurrent_replicas_create_one_row_per_scheduled_time(place: StorePlace) -> None:
    async with rows(place) as replica, place.stores(2) as stores:
        later = START + 35 * MINUTE
        others = [ScheduleStore(store.database, lambda: later) for store in stores]
        await asyncio.gather(
            *(each.create_due("markets") for each in others), replica.create_due_at(later)
        )
        await replica.create_due_at(START + 25 * MINUTE)  # a clock that was set back
        assert await replica.occurrence_states() == [
            ("08:10", "due"),
            ("08:20", "due"),
            ("08:30", "due"),
        ]
        await replica.create_due_at(START + 40 * MINUTE)
        assert len(await replica.occurrence_states()) == 4


# ---- what is caught up


async def test_occurrence_due_while_the_previous_one_runs_is_skipped(in_file: StorePlace) -> None:
    async with rows(in_file, cron="*/30 * * * *") as replica:
        hour = START + HOUR
        await replica.create_due_at(hour)
        first = await replica.take_one(hour)
        await replica.create_due_at(hour + 30 * MINUTE)
        assert await replica.take(hour + 30 * MINUTE) == []
        replica.now = hour + 31 * MINUTE
        await replica.record_run(first)
        await replica.mark_delivered(await replica.take_one(hour + 31 * MINUTE))
        assert await replica.take(hour + 31 * MINUTE) == []
        assert (await replica.occurrence(hour + 30 * MINUTE)).why == STILL_AT_WORK


async def test_manually_requested_occurrence_waits_and_never_expires(in_file: StorePlace) -> None:
    async with rows(in_file, missed_hours=0.5, cron="0 0 1 1 *") as replica:
        requested = await replica.store.ask_now(
            "markets", START + timedelta(minutes=3, microseconds=7)
        )
        assert requested.at == START + 3 * MINUTE
        again = await replica.store.ask_now("markets", START + 3 * MINUTE)
        assert again == requested
        work = await replica.take_one(START + 2 * HOUR)
        assert work.at == requested.at
        while_at_work = await replica.store.ask_now("markets", START + 3 * MINUTE)
        assert while_at_work.at == requested.at + timedelta(seconds=1)
        await replica.record_run(work)
        await replica.mark_delivered(await replica.take_one(START + 2 * HOUR))
        assert (await replica.take_one(START + 2 * HOUR)).at == while_at_work.at


@given(
    st.lists(
        st.tuples(st.sampled_from(["note", "take", "end", "again"]), st.integers(0, 25)),
        max_size=25,
    ),
)
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_random_steps_lose_no_scheduled_time_and_repeat_no_work(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
) -> None:
    with store_place("sqlite", tmp_path_factory.mktemp("rows")) as file:
        async with rows(file) as replica:
            now, at_work, done = START, list[Work](), list[str]()
            for step, minutes in [*steps, ("note", 0)]:
                now += minutes * MINUTE
                if step == "note":
                    await replica.create_due_at(now)
                elif step == "take":
                    taken = await replica.take(now)
                    assert not (taken and at_work)
                    at_work += taken
                elif at_work:
                    work = at_work.pop()
                    done.append(work.id)
                    if work.kind == "delivery":
                        assert await replica.mark_delivered(work)
                    elif step == "end":
                        assert await replica.record_run(work)
                    else:
                        later = now + 3 * MINUTE
                        assert await replica.store.record_failure(work, "Away.", again=later)
            assert len(done) == len(set(done))
            found = await replica.store.occurrences("markets", 1_000)
            times = [each.at for each in reversed(found)]
            assert times == list(spec().timetable.between(START, now))


# ---- a run and its delivery


async def test_delivery_precedes_the_next_occurrence_and_is_recorded_once(
    in_file: StorePlace,
) -> None:
    async with rows(in_file) as replica:
        await replica.create_due_at(START + 10 * MINUTE)
        first = await replica.take_one(START + 10 * MINUTE)
        assert await replica.record_run(
            first, extra={"covered": {}}, figures={"open": 3}, cost=0.25
        )
        assert not await replica.record_run(first)
        await replica.create_due_at(START + 20 * MINUTE)
        work = await replica.take_one(START + 20 * MINUTE)
        assert (work.kind, work.at) == ("delivery", first.at)

        deliveries: list[str] = []
        place_ = {"channel": "C1", "ts": "1.2"}
        assert await replica.mark_delivered(
            work, place=place_, on_delivery=lambda _: deliveries.append("once")
        )
        assert not await replica.mark_delivered(
            work, on_delivery=lambda _: deliveries.append("twice")
        )
        assert deliveries == ["once"]
        (occurrence,) = await replica.store.list_delivered("markets", 9)
        assert (occurrence.extra, occurrence.cost_usd) == ({"covered": {}}, 0.25)
        assert (occurrence.place, occurrence.figures) == (place_, {"open": 3})
        assert occurrence.delivery_tries == 1
        assert await replica.store.reports("markets") == 1
        assert (await replica.take_one(START + 20 * MINUTE)).kind == "occurrence"


async def test_notes_of_a_delivery_are_saved_in_its_transaction(place: StorePlace) -> None:
    async with rows(place) as replica:
        await replica.create_due_at(START + 10 * MINUTE)
        await replica.record_run(await replica.take_one(START + 10 * MINUTE))
        work = await replica.take_one(START + 10 * MINUTE)

        def fail(_: sa.Connection) -> None:
            raise LookupError

        with pytest.raises(LookupError):
            await replica.mark_delivered(work, on_delivery=fail)
        found = await replica.store.occurrence("markets", work.at)
        assert found
        assert (found.delivery, found.delivery_tries) == ("waiting", 0)
        assert await replica.store.at_work() == [work]


async def test_later_report_supersedes_one_that_awaits_delivery(in_file: StorePlace) -> None:
    async with rows(in_file) as replica:
        await replica.create_due_at(START + 10 * MINUTE)
        await replica.record_run(await replica.take_one(START + 10 * MINUTE))
        delivery = await replica.take_one(START + 10 * MINUTE)
        await replica.store.record_undelivered(delivery, "Slack is away.", START + HOUR)
        await replica.create_due_at(START + 20 * MINUTE)
        await replica.record_run(await replica.take_one(START + 20 * MINUTE))
        states = [each.delivery for each in await replica.store.occurrences("markets")]
        assert states == ["waiting", "superseded"]
        retry = replace(delivery, attempt=2)
        assert not await replica.mark_delivered(delivery)
        assert not await replica.mark_delivered(retry)
        assert (await replica.take_one(START + 2 * HOUR)).at == START + 20 * MINUTE


async def test_each_due_occurrence_is_taken_by_exactly_one_replica(place: StorePlace) -> None:
    async with rows(place) as replica, place.stores(2) as stores:
        for name in ("a", "b", "c", "d"):
            await replica.store.create(name, spec(), "chat", START)
            await replica.create_due_at(START + 10 * MINUTE, name)
        now, requests = START + 10 * MINUTE, RequestQueue(replica.database)
        await requests.pause("U0ANA")
        assert await replica.take(now) == []
        await requests.resume()
        found = await asyncio.gather(
            *(ScheduleStore(store.database).take(now, 3) for store in stores for _ in range(4))
        )
        ids = [work.id for each in found for work in each]
        rest = [work.id for work in await replica.take(now)]
        assert len(ids + rest) == len(set(ids + rest)) == 4
        assert {work.id for work in await replica.store.at_work()} == set(ids + rest)


# ---- the store


async def test_resumed_schedule_skips_the_times_of_its_pause(in_file: StorePlace) -> None:
    async with rows(in_file) as replica:
        await replica.create_due_at(START + 10 * MINUTE)
        await replica.store.pause("markets", "U0BEN")
        await replica.create_due_at(START + 30 * MINUTE)
        assert await replica.take(START + 30 * MINUTE) == []
        assert await replica.occurrence_states() == [("08:10", "skipped")]
        await replica.store.resume("markets", START + 35 * MINUTE)
        await replica.create_due_at(START + 45 * MINUTE)
        assert await replica.occurrence_states() == [("08:10", "skipped"), ("08:40", "due")]


async def test_sync_applies_the_settings_and_keeps_chat_schedules(in_file: StorePlace) -> None:
    async with in_file.stores(1) as (store,):
        replica = Rows(store.database)
        await replica.store.create("mine", spec(), "chat", START)
        await replica.store.sync({"markets": spec(), "mail": spec()}, START)
        assert [each.id for each in await replica.store.all()] == ["mail", "markets", "mine"]
        await replica.store.pause("mail", "U0ANA")

        # `mail` is gone, and `markets` has kept its times, so its missed occurrences are kept.
        now = START + 15 * MINUTE
        await replica.store.sync({"markets": spec(quiet=True)}, now)
        assert [each.id for each in await replica.store.all()] == ["markets", "mine"]
        stored = await replica.stored_schedule()
        assert (stored.spec.quiet, stored.watermark) == (True, START)
        with pytest.raises(ScheduleError, match=r"is set in assistant\.yaml"):
            await replica.store.delete("markets")


async def test_changed_times_and_owner_apply_from_sync_on(in_file: StorePlace) -> None:
    """Earlier occurrences are kept, and a new owner is notified of a failure, too."""
    async with in_file.stores(1) as (store,):
        replica = Rows(store.database)
        await replica.store.sync({"markets": spec()}, START)
        failed = partial(record_failure, schedule="markets", why="Archived.", at=START)
        await replica.database.change(failed)
        await replica.store.sync({"markets": spec(cron="5 * * * *")}, START + 12 * MINUTE)
        assert (await replica.stored_schedule()).trouble
        await replica.create_due_at(START + 2 * HOUR)
        assert await replica.occurrence_states() == [("08:10", "due"), ("09:05", "due")]
        await replica.store.sync({"markets": spec(owner="U0BEN")}, START)
        assert (await replica.stored_schedule()).trouble is None


async def test_running_scheduler_picks_up_a_new_schedule_and_fires_on_time(
    in_file: StorePlace,
) -> None:
    async with in_file.stores(1) as (store,):
        schedules = ScheduleStore(store.database)
        due = asyncio.Event()
        await schedules.create("other", spec(cron="* * * * * *"), "chat", datetime.now(UTC))
        running = asyncio.create_task(Scheduler(schedules, due.set).run())
        await asyncio.wait_for(due.wait(), WAIT_S)
        start = datetime.now(UTC)
        await schedules.create("each-second", spec(cron="* * * * * *"), "chat", start)
        await come(lambda: at_least(3, schedules))
        found = [each.at for each in reversed(await schedules.occurrences("each-second"))]
        first = start.replace(microsecond=0) + timedelta(seconds=1)
        assert found == [first + timedelta(seconds=n) for n in range(len(found))]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def at_least(count: int, schedules: ScheduleStore) -> bool:
    return len(await schedules.occurrences("each-second")) >= count
