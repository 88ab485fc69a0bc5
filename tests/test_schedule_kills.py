"""Replicas are killed and started anew: each tick of a schedule is done once, none is missed."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fleet_kit import ROOT
from pg_kit import Kept, execute, postgres

from bot.schedule.book import ScheduleBook
from bot.storage.database import Database
from config.schedules import Schedule

__all__ = ["postgres"]

REPLICA = Path(__file__).parent / "ticking.py"
EACH_SECOND = Schedule(
    kind="sweep",
    cron="* * * * * *",
    zone="Europe/Madrid",
    channels=("support-*",),
    to="dm",
    owner="U0ANA",
    missed="all",
    overlap="wait",
)


class Replicas:
    """Two processes, of which one is killed every now and then, and at times both."""

    def __init__(self, folder: Path, url: str, *more: str) -> None:
        self.folder, self.url, self.kills, self.more = folder, url, 0, more
        self.alive: list[subprocess.Popen[bytes]] = []
        self.log = folder / "replicas.log"

    def start(self) -> None:
        with self.log.open("ab") as said:
            self.alive.append(
                subprocess.Popen(
                    [sys.executable, str(REPLICA), str(self.folder), self.url, *self.more],
                    env=environment(),
                    cwd=self.folder,
                    stdout=said,
                    stderr=said,
                )
            )

    def kill(self, which: int) -> None:
        """As a machine does that loses its power."""
        process = self.alive.pop(which)
        assert process.poll() is None, self.log.read_text("utf-8")
        process.kill()
        process.wait()
        self.kills += 1

    async def harass(self, seconds: float, chance: random.Random) -> None:
        """For that long, and on a busy machine until two processes have come to a tick."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(tried(self.url)) < 2:
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            for _ in range(chance.choice([1, 1, 1, 2])):
                if self.alive:
                    self.kill(chance.randrange(len(self.alive)))
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            while len(self.alive) < 2:
                self.start()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


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
            process.wait()


async def set_up(folder: Path, url: str) -> datetime:
    """A schedule every second, from then on."""
    database = await Database.open(folder, url)
    execute("CREATE TABLE public.tries (at text, pid int)", url)
    execute("CREATE TABLE public.effects (at text PRIMARY KEY)", url)
    start = datetime.now(UTC)
    await ScheduleBook(database).create("each-second", EACH_SECOND, "config", start)
    await database.aclose()
    return start


def tried(url: str) -> list[tuple[int]]:
    """The processes that have come to a tick."""
    return [(row[0],) for row in execute("SELECT DISTINCT pid FROM public.tries", url)]


def open_until(url: str, end: datetime) -> list[tuple[str, str]]:
    """Ticks up to then that are not over, with their deliveries; the last one comes at its time."""
    found = execute("SELECT max(at) FROM assistant.ticks", url)[0][0]
    if found is None or datetime.fromisoformat(found) < end:
        return [("the clock", f"has come to {found}")]
    query = (
        "SELECT t.at, t.state || ' ' || coalesce(d.state, '-') FROM assistant.ticks t "
        "LEFT JOIN assistant.deliveries d ON d.schedule = t.schedule AND d.at = t.at "
        "WHERE t.at <= '{}' AND coalesce(d.state, '-') <> 'delivered'"
    )
    text = end.astimezone(UTC).isoformat(timespec="microseconds")
    return [(row[0], row[1]) for row in execute(query.replace("{}", text), url)]


@pytest.mark.timeout(420)
@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.slow)])
async def test_each_tick_is_done_once_while_replicas_are_killed(
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
    of_ticks = execute("SELECT at, state FROM assistant.ticks ORDER BY at", postgres.url)
    effects = execute("SELECT at FROM public.effects ORDER BY at", postgres.url)
    assert [at for at, _ in of_ticks if at <= text] == wanted
    assert {state for at, state in of_ticks if at <= text} == {"ran"}
    assert [at for (at,) in effects if at <= text] == wanted
    assert made.kills >= 2
    assert len(tried(postgres.url)) >= 2


@pytest.mark.timeout(240)
async def test_a_tick_that_takes_its_process_down_is_given_up_and_its_schedule_goes_on(
    postgres: Kept, tmp_path: Path
) -> None:
    assert postgres.url
    start = await set_up(tmp_path, postgres.url)
    poison = iso_of(start.replace(microsecond=0) + timedelta(seconds=2))
    wanted = [(poison, "failed", f"{CRASHES} tries"), ("the next one", "ran", "")]
    made = Replicas(tmp_path, postgres.url, poison, str(CRASHES))
    deadline, begun = time.monotonic() + 200, 0
    try:
        while after(postgres.url, poison) != wanted:
            if not [each for each in made.alive if each.poll() is None]:
                made.start()
                begun += 1
            assert time.monotonic() < deadline, made.log.read_text("utf-8")[-5_000:]
            await asyncio.sleep(0.1)
    finally:
        for process in made.alive:
            process.kill()
            process.wait()
    assert begun == CRASHES + 1


CRASHES = 2
"""Times that a tick may take its process down."""


def iso_of(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def after(url: str, poison: str) -> list[tuple[str, str, str]]:
    """What became of that tick, and of the one that comes next."""
    tries = execute(f"SELECT count(*) FROM public.tries WHERE at = '{poison}'", url)[0][0]
    query = "SELECT state FROM assistant.ticks WHERE at >= '{}' ORDER BY at LIMIT 2"
    states = [state for (state,) in execute(query.replace("{}", poison), url)]
    told = [(poison, f"{tries} tries"), ("the next one", "")]
    return [(name, state, more) for (name, more), state in zip(told, states, strict=False)]
