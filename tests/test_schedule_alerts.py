"""Who is told of a schedule that fails: once, and once more when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from engine_kit import come
from schedule_kit import Scheduled, scheduled, sweep
from serve_kit import ASKER

from bot.local.offline.model import answer as offline
from bot.schedules.alerts import FailureAlerts, record_failure, record_success
from bot.storage.schedules import Failure
from bot.storage.tables import schedules

NAME = "markets"
WHY = "#reports is archived. Unarchive it, or let its reports go elsewhere."
FAILED, AGAIN = "was not delivered", "is delivered again"


@dataclass
class Office(Scheduled):
    """A bot with a schedule, and what another replica has to tell of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.other: FailureAlerts = replace(
            self.schedules.alerts, executor="other", _woken=asyncio.Event()
        )

    async def fails(self, why: str = WHY) -> None:
        now, database = datetime.now(UTC), self.bot.store.database
        await database.change(lambda c: record_failure(c, NAME, why, now, now))
        await self.tell()

    async def works(self) -> None:
        now, database = datetime.now(UTC), self.bot.store.database
        said = "It stands in #reports now."
        await database.change(lambda c: record_success(c, NAME, now, said))
        await self.tell()

    async def tell(self) -> None:
        """Both look at the same time; return when neither has anything to tell."""

        async def settled() -> bool:
            found = await self.record()
            return found is None or bool(found.told and not found.over and not found.held)

        self.schedules.alerts.wake()
        await self.other.send()
        await come(settled)

    async def record(self) -> Failure | None:
        stored = await self.schedules.store.get(NAME)
        assert stored
        return stored.trouble

    async def put_back(self, record: Failure | None) -> None:
        """As where a process died before it noted what it did."""
        assert record
        update = sa.update(schedules).where(schedules.c.id == NAME)
        await self.bot.store.database.write(update.values(trouble=record.model_dump(mode="json")))


@asynccontextmanager
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with scheduled(tmp_path, {}, offline) as s:
        await s.set(NAME, sweep(to="#reports"))
        yield Office(s.bot)


async def test_the_owner_is_told_once_and_once_more_when_it_is_over(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        for _ in range(3):
            await made.fails()
        (alert,) = made.told()
        assert FAILED in alert
        assert WHY in alert
        assert NAME in alert
        for _ in range(2):
            await made.works()
        (note,) = made.told()[1:]
        assert AGAIN in note
        assert "It stands in #reports now." in note
        assert await made.record() is None
        await made.fails("Another reason.")
        assert "Another reason." in made.told()[2]


async def test_what_was_posted_and_not_noted_is_not_posted_again(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        await made.fails()
        told = await made.record()
        assert told
        await made.put_back(told.model_copy(update={"told": None}))
        await made.tell()
        assert len(made.told()) == 1
        await made.works()
        await made.put_back(told)
        await made.works()
        assert len(made.told()) == 2


async def test_nothing_in_a_reason_acts_on_its_reader(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        await made.fails("<!channel> see https://evil.example *now* <@U0EVA>")
        people = made.bot.slack.people
        (alert,) = made.bot.slack.visible(people.dm(ASKER))
    kinds = {e["type"] for b in alert.blocks for s in b["elements"] for e in s["elements"]}
    assert kinds == {"text", "date", "user"}
    assert "<!channel>" in alert.text
