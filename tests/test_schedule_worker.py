"""What is due is done: one thing a schedule, by the next process if need be, or given up aloud."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from pg_kit import Kept, with_files
from test_occurrences import spec
from timing import WAIT_S, Patience

from bot.runs.durable import Durable
from bot.runs.worker import adopt, owners
from bot.schedules.scheduler import ScheduleWorker
from bot.schedules.store import OccurrenceResult, ScheduleStore
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from bot.storage.schedules import Occurrence, Work
from config.words import Text, phrase

CRASHED, LOST = phrase("schedule.crashed"), phrase("schedule.lost")

YEARLY = "0 0 1 1 *"
"""So that nothing is due but what a test asks for."""


Look = Callable[[], Awaitable[None]]


@dataclass
class Bench:
    """A worker over workflows that do what the test says."""

    worker: ScheduleWorker
    database: Database
    failed: list[tuple[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Kind and schedule of what was done, in order."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Occurrences wait for it."""
    crash: bool = False
    fail: bool = False
    """Occurrences fail for a reason that passes."""

    @property
    def store(self) -> ScheduleStore:
        return self.worker.store

    async def occurrence(self, work: Work) -> None:
        self.done.append(f"occurrence {work.schedule}")
        await self.gate.wait()
        if self.crash:
            raise LookupError("oops")
        if self.fail:
            await self.store.record_failure(work, "Away.", again=datetime.now(UTC), cost=0.1)
        else:
            await self.store.record_run(work, OccurrenceResult(0.1, None, work.at))

    async def delivery(self, work: Work) -> None:
        self.done.append(f"delivery {work.schedule}")
        if self.crash:
            raise LookupError("oops")
        await self.store.record_delivery(work)

    async def note(self, work: Work, why: Text, again: datetime) -> None:
        self.failed.append((work.schedule, str(why)))

    async def due(self, *names: str) -> list[Occurrence]:
        for name in names:
            if await ScheduleStore(self.database).get(name) is None:
                made = spec(cron=YEARLY)
                await ScheduleStore(self.database).create(name, made, "chat", datetime.now(UTC))
        return [await self.store.ask_now(name, datetime.now(UTC)) for name in names]

    async def look_until(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Look as `run` does, until it holds."""
        await self.comes(condition, self.worker.look)

    async def comes(
        self, condition: Callable[[], Awaitable[object]], look: Look | None = None
    ) -> None:
        """Wait until it holds; nothing new is taken up meanwhile, but by `look`."""
        patience = Patience()
        while not await condition():
            assert not patience.over, (self.done, self.failed)
            if look:
                await look()
            await asyncio.sleep(0.02)

    async def state(self, occurrence: Occurrence) -> str:
        found = await self.store.occurrence(occurrence.schedule, occurrence.at)
        return found.state if found else "gone"

    async def has_failed(self, occurrence: Occurrence) -> bool:
        return await self.state(occurrence) == "failed"

    async def waits(self, occurrence: Occurrence) -> bool:
        found = await self.store.occurrence(occurrence.schedule, occurrence.at)
        return bool(found and found.state == "due" and found.tries)

    async def delivered(self, occurrence: Occurrence) -> bool:
        found = await self.store.occurrence(occurrence.schedule, occurrence.at)
        return bool(found and found.delivery == "delivered")


@asynccontextmanager
async def bench(place: Kept, *, most: int = 8) -> AsyncIterator[Bench]:
    with_files(place.path)
    async with place.stores(1) as (store,):
        database = store.database
        durable = Durable(
            "me",
            {},
            place.path / "workflows.sqlite",
            place.url,
            max_concurrency=4,
            max_crashes=3,
        )
        worker = ScheduleWorker(RequestQueue(database), durable, most, ScheduleStore(database))
        made = Bench(worker, database)
        made.gate.set()
        worker.on_failed = made.note
        durable.bodies |= {
            "occurrence": worker.body(made.occurrence),
            "delivery": worker.body(made.delivery),
        }
        await durable.open()
        try:
            yield made
        finally:
            made.gate.set()
            await worker.drain(WAIT_S)
            await durable.aclose()


async def test_a_schedule_has_one_thing_at_work_and_a_process_so_many_schedules(
    in_file: Kept,
) -> None:
    async with bench(in_file, most=2) as made:
        made.gate.clear()
        await made.due("one", "two", "three")
        await made.look_until(lambda: _holds(len(made.done) == 2))
        latest = await made.due("one", "two", "three")
        for _ in range(3):
            await made.worker.look()
        assert len(made.done) == len(await made.store.at_work("me")) == 2
        made.gate.set()
        for occurrence in latest:
            await made.look_until(lambda occurrence=occurrence: made.delivered(occurrence))  # type: ignore[misc]


async def test_nothing_is_begun_while_the_bot_is_paused_or_drains(in_file: Kept) -> None:
    async with bench(in_file) as made:
        inbox = RequestQueue(made.database)
        await inbox.pause("U0ANA")
        (occurrence,) = await made.due("one")
        await made.worker.look()
        assert await made.state(occurrence) == "due"
        await inbox.resume()
        assert await made.worker.drain(WAIT_S)
        await made.worker.look()
        assert await made.state(occurrence) == "due"
        made.worker.draining = False
        await made.look_until(lambda: made.delivered(occurrence))


async def test_an_occurrence_that_falls_over_fails_with_a_sentence_and_the_next_one_runs(
    in_file: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(in_file) as made:
        made.crash = True
        (occurrence,) = await made.due("one")
        await made.look_until(lambda: made.has_failed(occurrence))
        assert made.failed == [("one", CRASHED)]
        found = await made.store.occurrence("one", occurrence.at)
        assert found
        assert (found.state, found.why) == ("failed", CRASHED)
        assert "LookupError: oops" in caplog.text

        made.crash = False
        (second,) = await made.due("one")
        await made.look_until(lambda: made.delivered(second))


async def test_another_try_is_a_workflow_of_its_own_also_after_a_restart(place: Kept) -> None:
    async with bench(place) as made:
        made.fail = True
        made.gate.clear()  # else it may be due again, and be taken up again, before the last look
        (occurrence,) = await made.due("one")
        await made.look_until(lambda: _holds(made.done))
        made.gate.set()
        await made.comes(lambda: made.waits(occurrence))
    async with bench(place) as made:
        await made.worker.recover()
        await made.look_until(lambda: made.delivered(occurrence))
        found = await made.store.occurrence("one", occurrence.at)
        assert found
        assert (found.state, found.tries) == ("ran", 1)
        assert found.run == f"{occurrence.run_id}-2"
        assert made.done == ["occurrence one", "delivery one"]
        assert await made.store.at_work() == []


async def test_what_was_taken_up_but_not_begun_is_begun_after_a_restart(in_file: Kept) -> None:
    async with bench(in_file) as made:
        (occurrence,) = await made.due("one")
        await made.store.take("me", datetime.now(UTC), 5)  # and here the process ends
    async with bench(in_file) as made:
        assert await made.state(occurrence) == "running"
        await made.worker.recover()
        await made.look_until(lambda: made.delivered(occurrence))
        assert made.done == ["occurrence one", "delivery one"]


async def test_what_is_lost_for_good_fails_aloud_and_the_schedule_goes_on(in_file: Kept) -> None:
    async with bench(in_file) as made:
        (occurrence,) = await made.due("one")
        (work,) = await made.store.take("me", datetime.now(UTC), 5)
        made.crash = made.worker.draining = True  # so that its workflow ends, and tells nobody
        await made.worker.durable.begin("occurrence", work.id, work.id)
        await made.look_until(lambda: _holds(made.failed))
        assert made.failed == [("one", LOST)]
        found = await made.store.occurrence("one", occurrence.at)
        assert found
        assert (found.state, found.why) == ("failed", LOST)
        made.crash = made.worker.draining = False
        (second,) = await made.due("one")
        await made.look_until(lambda: made.delivered(second))


async def test_a_replica_goes_on_with_the_schedules_of_a_dead_one(postgres: Kept) -> None:
    async with bench(postgres) as made:
        (occurrence,) = await made.due("one")
        await made.store.take("dead", datetime.now(UTC), 5)
        assert await owners(made.store.database) == {"dead"}
        await made.worker.look()
        assert made.done == []
        await adopt(made.store.database, "me", "dead")
        await made.worker.recover()
        await made.look_until(lambda: made.delivered(occurrence))
        assert await owners(made.store.database) == set()


async def _holds(condition: Any) -> Any:
    return condition
