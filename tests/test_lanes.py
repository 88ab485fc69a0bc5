"""What is due is done: one thing a schedule, by the next process if need be, or given up aloud."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pg_kit import Kept, place, postgres
from serve_kit import serving
from test_ticks import spec
from timing import Patience

from bot.durable import Durable
from bot.errors import SetupError
from bot.requests.inbox import Inbox
from bot.schedule.book import ScheduleBook
from bot.schedule.due import Work
from bot.schedule.lanes import CRASHED, FELL_OVER, Lanes
from bot.schedule.records import Tick
from bot.schedule.ticks import Ticks
from bot.serving.serve import working
from bot.storage.database import Database
from subagents.model import ModelClient

__all__ = ["place", "postgres"]

YEARLY = "0 0 1 1 *"
"""So that nothing is due but what a test asks for."""


Look = Callable[[], Awaitable[None]]


@dataclass
class Bench:
    """Lanes over workflows that do what the test says."""

    lanes: Lanes
    database: Database
    failed: list[tuple[str, str]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Kind and schedule of what was done, in order."""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Ticks wait for it."""
    crash: bool = False
    idle: bool = False
    """Ticks end without a word."""
    fail: bool = False
    """Ticks fail for a reason that passes."""

    @property
    def ticks(self) -> Ticks:
        return self.lanes.ticks

    async def tick(self, schedule: str, at: str) -> None:
        self.done.append(f"tick {schedule}")
        await self.gate.wait()
        if self.crash:
            raise LookupError("oops")
        when = datetime.fromisoformat(at)
        tick = await self.ticks.get(schedule, when)
        assert tick
        own: dict[str, Any] = {"cost": 0.1, "attempt": tick.attempt}
        if self.fail:
            await self.ticks.again(schedule, when, "Away.", datetime.now(UTC), **own)
        elif not self.idle:
            await self.ticks.ran(schedule, when, oldest=None, latest=when, **own)

    async def delivery(self, schedule: str, at: str) -> None:
        self.done.append(f"delivery {schedule}")
        if self.crash:
            raise LookupError("oops")
        await self.ticks.delivered(schedule, datetime.fromisoformat(at))

    async def note(self, work: Work, why: str, again: datetime | None) -> None:
        self.failed.append((work.schedule, why))

    async def due(self, *names: str) -> list[Tick]:
        for name in names:
            if await self.lanes.book.get(name) is None:
                made = spec(cron=YEARLY, missed="all")
                await self.lanes.book.create(name, made, "chat", datetime.now(UTC))
        return [await self.ticks.ask_now(name, datetime.now(UTC)) for name in names]

    async def look_until(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Look as `run` does, until it holds."""
        await self.comes(condition, self.lanes.look)

    async def comes(
        self, condition: Callable[[], Awaitable[object]], look: Look | None = None
    ) -> None:
        """Wait until it holds; nothing new is taken up meanwhile, but by `look`."""
        patience = Patience(30)
        while not await condition():
            assert not patience.over, (self.done, self.failed)
            if look:
                await look()
            await asyncio.sleep(0.02)

    async def state(self, tick: Tick) -> str:
        found = await self.ticks.get(tick.schedule, tick.at)
        return found.state if found else "gone"

    async def waits(self, tick: Tick) -> bool:
        found = await self.ticks.get(tick.schedule, tick.at)
        return bool(found and found.state == "due" and found.tries)

    async def delivered(self, tick: Tick) -> bool:
        found = await self.ticks.delivery(tick.schedule, tick.at)
        return bool(found and found.state == "delivered")


@asynccontextmanager
async def bench(place: Kept, executor: str = "me", *, most: int = 8) -> AsyncIterator[Bench]:
    async with place.stores(1) as (store,):
        database = store.database
        durable = Durable(
            executor, {}, place.path / "w.sqlite", place.url, max_concurrency=4, max_crashes=3
        )
        book, ticks = ScheduleBook(database), Ticks(database)
        lanes = Lanes(book, ticks, durable, Inbox(database), executor, most)
        made = Bench(lanes, database)
        made.gate.set()
        lanes.on_failed = made.note
        durable.bodies |= lanes.bodies(made.tick, made.delivery)
        await durable.open()
        try:
            yield made
        finally:
            made.gate.set()
            await lanes.drained(20)
            await durable.aclose()


async def test_what_is_due_runs_and_then_is_delivered(place: Kept) -> None:
    async with bench(place) as made:
        one, two = await made.due("one", "two")
        await made.look_until(lambda: made.delivered(one))
        await made.look_until(lambda: made.delivered(two))
        assert sorted(made.done) == ["delivery one", "delivery two", "tick one", "tick two"]
        assert made.failed == []
        assert await made.ticks.at_work() == []


async def test_a_schedule_has_one_thing_at_work_and_a_process_so_many_schedules(
    place: Kept,
) -> None:
    async with bench(place, most=2) as made:
        made.gate.clear()
        first = await made.due("one", "two", "three")
        await made.look_until(lambda: _holds(len(made.done) == 2))
        await made.due("one", "two", "three")
        for _ in range(3):
            await made.lanes.look()
        assert len(made.done) == len(await made.ticks.at_work("me")) == 2
        made.gate.set()
        for tick in first:
            await made.look_until(lambda tick=tick: made.delivered(tick))  # type: ignore[misc]


async def test_nothing_is_begun_while_the_bot_is_paused_or_drains(place: Kept) -> None:
    async with bench(place) as made:
        inbox = Inbox(made.database)
        await inbox.pause("U0ANA")
        (tick,) = await made.due("one")
        await made.lanes.look()
        assert await made.state(tick) == "due"
        await inbox.resume()
        assert await made.lanes.drained(5)
        await made.lanes.look()
        assert await made.state(tick) == "due"
        made.lanes.draining = False
        await made.look_until(lambda: made.delivered(tick))


async def test_draining_waits_for_what_is_at_work(place: Kept) -> None:
    async with bench(place) as made:
        made.gate.clear()
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.done))
        assert not await made.lanes.drained(0.2)
        made.gate.set()
        assert await made.lanes.drained(20)
        assert await made.state(tick) == "ran"


async def test_a_tick_that_falls_over_fails_with_a_sentence_and_the_next_one_runs(
    place: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench(place) as made:
        made.crash = True
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.failed))
        assert made.failed == [("one", FELL_OVER)]
        found = await made.ticks.get("one", tick.at)
        assert found
        assert (found.state, found.why) == ("failed", FELL_OVER)
        assert "LookupError: oops" in caplog.text

        made.crash = False
        (second,) = await made.due("one")
        await made.look_until(lambda: made.delivered(second))


async def test_a_body_that_ends_nothing_does_not_hold_its_schedule(place: Kept) -> None:
    async with bench(place) as made:
        made.idle = True
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.failed))
        assert await made.state(tick) == "failed"
        assert await made.ticks.at_work() == []


async def test_a_delivery_that_falls_over_is_tried_again_later(place: Kept) -> None:
    async with bench(place) as made:
        made.gate.clear()
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.done))
        await made.ticks.ran("one", tick.at, cost=None, oldest=None, latest=tick.at)
        made.crash = True
        await made.look_until(lambda: _holds(made.failed))
        found = await made.ticks.delivery("one", tick.at)
        assert found
        assert found.not_before
        assert (found.state, found.tries, found.why) == ("waiting", 1, FELL_OVER)
        assert found.not_before > datetime.now(UTC) + timedelta(minutes=1)
        made.crash = False
        made.gate.set()


async def test_another_try_is_a_workflow_of_its_own_also_after_a_restart(place: Kept) -> None:
    async with bench(place) as made:
        made.fail = True
        made.gate.clear()  # else it may be due again, and be taken up again, before the last look
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.done))
        made.gate.set()
        await made.comes(lambda: made.waits(tick))
    async with bench(place) as made:
        await made.lanes.recover()
        await made.look_until(lambda: made.delivered(tick))
        found = await made.ticks.get("one", tick.at)
        assert found
        assert (found.state, found.tries, found.key) == ("ran", 1, f"{tick.key}-2")
        assert made.done == ["tick one", "delivery one"]
        assert await made.ticks.at_work() == []


async def test_another_try_of_a_dead_replica_goes_on_elsewhere(postgres: Kept) -> None:
    async with bench(postgres) as made:
        made.fail = True
        made.gate.clear()  # else it may be due again, and be taken up again, before the last look
        (tick,) = await made.due("one")
        await made.look_until(lambda: _holds(made.done))
        made.gate.set()
        await made.comes(lambda: made.waits(tick))
        made.fail = False
        (work,) = await made.ticks.take("dead", datetime.now(UTC), 5)
        assert work.attempt == 2
        await made.lanes.adopt("dead")
        await made.lanes.recover()
        await made.look_until(lambda: made.delivered(tick))
        assert made.done == ["tick one", "tick one", "delivery one"]


async def test_what_was_taken_up_but_not_begun_is_begun_after_a_restart(place: Kept) -> None:
    async with bench(place) as made:
        (tick,) = await made.due("one")
        await made.ticks.take("me", datetime.now(UTC), 5)  # and here the process ends
    async with bench(place) as made:
        assert await made.state(tick) == "running"
        await made.lanes.recover()
        await made.look_until(lambda: made.delivered(tick))
        assert made.done == ["tick one", "delivery one"]


async def test_an_earlier_life_that_had_ended_it_is_not_repeated(place: Kept) -> None:
    async with bench(place) as made:
        (tick,) = await made.due("one")
        (work,) = await made.ticks.take("me", datetime.now(UTC), 5)
        await made.ticks.ran("one", tick.at, cost=None, oldest=None, latest=tick.at)
        await made.lanes.durable.begin("tick", work.id, work.id)  # as dbos does after a crash
        await made.look_until(lambda: made.delivered(tick))
        assert made.done == ["delivery one"]


async def test_what_is_lost_for_good_fails_aloud_and_the_schedule_goes_on(place: Kept) -> None:
    async with bench(place) as made:
        (tick,) = await made.due("one")
        (work,) = await made.ticks.take("me", datetime.now(UTC), 5)
        made.crash = made.lanes.draining = True  # so that its workflow ends, and tells nobody
        await made.lanes.durable.begin("tick", work.id, work.id)
        await made.look_until(lambda: _holds(made.failed))
        assert made.failed == [("one", CRASHED)]
        found = await made.ticks.get("one", tick.at)
        assert found
        assert (found.state, found.why) == ("failed", CRASHED)
        made.crash = made.lanes.draining = False
        (second,) = await made.due("one")
        await made.look_until(lambda: made.delivered(second))


async def test_a_replica_goes_on_with_the_schedules_of_a_dead_one(postgres: Kept) -> None:
    async with bench(postgres) as made:
        (tick,) = await made.due("one")
        await made.ticks.take("dead", datetime.now(UTC), 5)
        assert await made.lanes.owners() == {"dead"}
        await made.lanes.look()
        assert made.done == []
        await made.lanes.adopt("dead")
        await made.lanes.recover()
        await made.look_until(lambda: made.delivered(tick))
        assert await made.lanes.owners() == set()


async def test_lanes_run_by_themselves_and_when_they_are_woken(tmp_path: Path) -> None:
    async with bench(Kept(tmp_path, None)) as made:
        running = asyncio.create_task(made.lanes.run())
        (tick,) = await made.due("one")
        made.lanes.wake()
        patience = Patience(30)
        while not await made.delivered(tick):
            assert not patience.over
            await asyncio.sleep(0.02)
        running.cancel()


async def test_a_second_process_on_one_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    schedules = {"markets": spec(cron="* * * * * *", owner="U0ANA")}
    change = operator.methodcaller("model_copy", update={"schedules": schedules})
    async with serving(tmp_path, change=change) as bot:
        model = ModelClient(bot.settings.models, "k", bot.settings.models.base_url)
        with pytest.raises(SetupError) as refused:
            async with working(bot.settings, None, model, "claude"):
                pass
        await model.aclose()
    assert refused.value.code == "locked"
    assert "Another `assistant serve` (pid" in str(refused.value)
    assert "DATABASE_URL" in refused.value.hint


async def _holds(condition: Any) -> Any:
    return condition
