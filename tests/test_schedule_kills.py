"""Replicas are killed and started again: each occurrence is done once or skipped aloud."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from engine_kit import until
from fork_server import Fork
from pg_kit import Kept, execute, postgres

from bot.schedules.store import ScheduleStore
from bot.storage.database import Database
from config.schedules import Schedule

pytestmark = pytest.mark.system

__all__ = ["postgres"]

REPLICA = Path(__file__).parent / "schedule_replica.py"
EACH_SECOND = Schedule(
    kind="sweep",
    cron="* * * * * *",
    zone="Europe/Madrid",
    channels=("support-*",),
    to="dm",
    owner="U0ANA",
)


class Replicas:
    """Two processes, of which one is killed every now and then, and at times both."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.kills = folder, url, 0
        self.alive: list[Fork] = []
        self.ready = 0
        """How many had started when one was killed last."""
        self.log = folder / "replicas.log"

    def start(self) -> None:
        words = (str(REPLICA), str(self.folder), self.url)
        self.alive.append(Fork(*words, env=os.environ, folder=self.folder, log=self.log))

    def kill(self, which: int) -> None:
        """As a machine does that loses its power."""
        process = self.alive.pop(which)
        assert process.poll() is None, self.log.read_text("utf-8")
        process.kill()
        self.kills += 1
        self.ready = self.log.read_bytes().count(b"ready")

    async def harass(self, seconds: float, chance: random.Random) -> None:
        """For that long, and on a busy machine until two processes have come to an occurrence."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(tried(self.url)) < 2 or self.kills < 2:
            if chance.random() < 0.75:  # the others are killed while they start
                await self.one_more_ready()
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            for _ in range(chance.choice([1, 1, 1, 2])):
                if self.alive:
                    self.kill(chance.randrange(len(self.alive)))
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            while len(self.alive) < 2:
                self.start()

    async def one_more_ready(self) -> None:
        """Wait until a further replica has started: on a busy machine that takes a while."""
        await until(lambda: self.log.read_bytes().count(b"ready") > self.ready, 60)


@contextmanager
def replicas(folder: Path, url: str) -> Iterator[Replicas]:
    made = Replicas(folder, url)
    made.start()
    made.start()
    try:
        yield made
    finally:
        for process in made.alive:
            process.kill()


async def set_up(folder: Path, url: str) -> datetime:
    """A schedule every second, from then on."""
    database = await Database.open(folder, url)
    execute("CREATE TABLE public.tries (at text, pid int)", url)
    execute("CREATE TABLE public.effects (at text PRIMARY KEY)", url)
    start = datetime.now(UTC)
    await ScheduleStore(database).create("each-second", EACH_SECOND, "config", start)
    await database.aclose()
    return start


def tried(url: str) -> list[tuple[int]]:
    """The processes that have come to an occurrence."""
    return [(row[0],) for row in execute("SELECT DISTINCT pid FROM public.tries", url)]


def open_until(url: str, end: datetime) -> list[tuple[str, str]]:
    """Ticks up to then that are not over, with their deliveries; the last one comes at its time."""
    found = execute("SELECT max(at) FROM assistant.schedule_runs", url)[0][0]
    if found is None or datetime.fromisoformat(found) < end:
        return [("the clock", f"has come to {found}")]
    query = (
        "SELECT at, state || ' ' || coalesce(delivery, '-') FROM assistant.schedule_runs "
        "WHERE at <= '{}' AND (state IN ('due', 'running') OR delivery = 'waiting')"
    )
    text = end.astimezone(UTC).isoformat(timespec="microseconds")
    return [(row[0], row[1]) for row in execute(query.replace("{}", text), url)]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.slow)])
async def test_each_occurrence_is_done_once_while_replicas_are_killed(
    postgres: Kept, tmp_path: Path, seconds: int
) -> None:
    assert postgres.url
    start = await set_up(tmp_path, postgres.url)
    with replicas(tmp_path, postgres.url) as made:
        await made.harass(seconds, random.Random())
        end = datetime.now(UTC).replace(microsecond=0)
        deadline = time.monotonic() + 300
        while left := open_until(postgres.url, end):
            assert time.monotonic() < deadline, (left[:5], made.log.read_text("utf-8")[-5_000:])
            await asyncio.sleep(0.2)

    wanted, at = [], start.replace(microsecond=0)
    while (at := at + timedelta(seconds=1)) <= end:
        wanted.append(at.isoformat(timespec="microseconds"))
    text = end.isoformat(timespec="microseconds")
    of_runs = execute(
        "SELECT at, state, why FROM assistant.schedule_runs ORDER BY at", postgres.url
    )
    effects = execute("SELECT at FROM public.effects ORDER BY at", postgres.url)
    assert [at for at, _, _ in of_runs if at <= text] == wanted
    ran = [at for at, state, _ in of_runs if at <= text and state == "ran"]
    assert [at for (at,) in effects if at <= text] == ran
    assert ran
    assert all(
        state == "ran" or (state == "skipped" and why) for at, state, why in of_runs if at <= text
    )
    assert made.kills >= 2
    assert len(tried(postgres.url)) >= 2
