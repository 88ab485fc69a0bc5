"""Who is told of a schedule that fails: once, and once more when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa
from engine_kit import MUX
from pg_kit import Kept, postgres, with_store
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack

from bot.local.workspace import User, Workspace
from bot.policy.policy import PolicyFile
from bot.schedules.alerts import FailureAlerts, record_failure, record_success
from bot.schedules.store import ScheduleStore
from bot.slack.client import RateLimit, WriteTimes
from bot.slack.people import People
from bot.slack.writer import MessageWriter
from bot.storage.database import Database
from bot.storage.tables import schedules
from config.schedules import Schedule
from config.settings import load_settings
from scopes.slack_client import connect

__all__ = ["postgres"]

OWNER, ADMIN, NAME = "U0ANA", "U0EVA", "markets"
WHY = "#reports is archived. Unarchive it, or let its reports go elsewhere."
FAILED, AGAIN = "was not delivered", "is delivered again"
SPEC = Schedule(kind="sweep", cron="0 9 * * *", channels=("csm-*",), to="#reports", owner=OWNER)


@dataclass
class Office:
    """A schedule in a database, and replicas that tell of it."""

    slack: LocalSlack
    databases: Sequence[Database]
    tellers: Sequence[FailureAlerts]

    async def fails(self, why: str = WHY, at: datetime | None = None) -> None:
        now = at or datetime.now(UTC)
        await self.databases[0].change(lambda c: record_failure(c, NAME, why, now, now))

    async def works(self, at: datetime | None = None) -> None:
        now = at or datetime.now(UTC)
        await self.databases[0].change(
            lambda c: record_success(c, NAME, now, "It stands in #reports now.")
        )

    async def tell(self) -> None:
        """All replicas look at the same time."""
        await asyncio.gather(*(each.send() for each in self.tellers))

    async def record(self) -> Any:
        stored = await ScheduleStore(self.databases[0]).get(NAME)
        assert stored
        return stored.trouble

    async def change(self, **told: Any) -> None:
        """As where a process died before it noted what it did."""
        record = {**(await self.record()).model_dump(mode="json"), **told}
        update = sa.update(schedules).where(schedules.c.id == NAME)
        await self.databases[0].write(update.values(trouble=record))

    def told(self, user: str = OWNER) -> list[str]:
        return [m.text for m in self.slack.visible(self.slack.people.dm(user))]


@asynccontextmanager
async def office(path: Path, url: str | None = None, replicas: int = 1) -> AsyncIterator[Office]:
    people = (User(OWNER, "ana", "Ana"), User(ADMIN, "eva", "Eva"))
    slack, base = LocalSlack(Workspace(users=people)), load_settings(env={})
    settings = base.slack.model_copy(update={"retry_attempts": 0})
    rules = base.policy.model_copy(update={"admins": (ADMIN,)})
    with MUX.serving(slack.app) as at:
        async with aiohttp.ClientSession() as session:
            databases, tellers = [], []
            for number in range(replicas):
                if not url:
                    with_store(path)
                database = await Database.open(path, url)
                web = AsyncWebClient(token=BOT_TOKEN, base_url=at + API_PATH, session=session)
                times = WriteTimes(backoff_s=0.001, settle_s=0.002)
                writer = MessageWriter(web, settings, RateLimit(None), times)
                known = People(connect(session, BOT_TOKEN, at + API_PATH, settings))
                policy = PolicyFile(None, rules)
                told = (database, writer, known, policy, "T0LOCAL", f"replica-{number}")
                databases.append(database)
                tellers.append(FailureAlerts(*told))
            await ScheduleStore(databases[0]).create(NAME, SPEC, "chat", datetime.now(UTC))
            yield Office(slack, databases, tellers)
            for database in databases:
                await database.aclose()


async def test_the_owner_is_told_once_and_once_more_when_it_is_over(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        for _ in range(3):
            await made.fails()
            await made.tell()
        (alert,) = made.told()
        assert FAILED in alert
        assert WHY in alert
        assert NAME in alert
        for _ in range(2):
            await made.works()
            await made.tell()
        note = made.told()[1:]
        assert len(note) == 1
        assert AGAIN in note[0]
        assert "It stands in #reports now." in note[0]
        assert await made.record() is None
        await made.fails("Another reason.")
        await made.tell()
        assert "Another reason." in made.told()[2]


async def test_what_was_posted_and_not_noted_is_not_posted_again(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        await made.fails()
        await made.tell()
        await made.change(told=None)
        await made.tell()
        assert len(made.told()) == 1
        await made.works()
        over = await made.record()
        await made.tell()
        update = sa.update(schedules).where(schedules.c.id == NAME)
        await made.databases[0].write(update.values(trouble=over.model_dump(mode="json")))
        await made.tell()
        assert len(made.told()) == 2


async def test_nothing_in_a_reason_acts_on_its_reader(tmp_path: Path) -> None:
    async with office(tmp_path) as made:
        await made.fails("<!channel> see https://evil.example *now* <@U0EVA>")
        await made.tell()
        channel = made.slack.people.dm(OWNER)
        (alert,) = made.slack.visible(channel)
    kinds = {e["type"] for b in alert.blocks for s in b["elements"] for e in s["elements"]}
    assert kinds == {"text", "date", "user"}
    assert "<!channel>" in alert.text


async def test_of_two_replicas_on_postgres_one_tells_it(tmp_path: Path, postgres: Kept) -> None:
    async with office(tmp_path, postgres.url, replicas=2) as made:
        for _ in range(3):
            await made.fails()
            await made.tell()
        assert len(made.told()) == 1
        await made.works()
        await made.tell()
        assert len(made.told()) == 2
