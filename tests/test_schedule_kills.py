"""Bots that die while schedules are at work: each run and each delivery is done once."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Json, brief_answer, channel_id, say, scripted_parent, until
from fleet_kit import Fleet, fleet
from fork_server import Fork
from pg_kit import StorePlace, execute
from schedule_kit import LONG_AGO, NEVER, sweep
from serve_kit import ASKER
from standins.slack_faults import Fault
from standins.slack_shown import Shown

from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER
from bot.schedules.store import ScheduleStore
from bot.storage.database import Database

pytestmark = pytest.mark.system

REPLICA = Path(__file__).parent / "schedule_replica.py"
EACH_SECOND = sweep(cron="* * * * * *", zone="Europe/Madrid")


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
        """Kill a process without notice, as a power failure does."""
        process = self.alive.pop(which)
        assert process.poll() is None, self.log.read_text("utf-8")
        process.kill()
        self.kills += 1
        self.ready = self.log.read_bytes().count(b"ready")

    async def harass(self, seconds: float, chance: random.Random) -> None:
        """Kill for that long, and on a busy machine until two have tried an occurrence."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(tried_pids(self.url)) < 2 or self.kills < 2:
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
    pair = Replicas(folder, url)
    pair.start()
    pair.start()
    try:
        yield pair
    finally:
        for process in pair.alive:
            process.kill()


async def set_up(folder: Path, url: str) -> datetime:
    """Create a schedule that is due every second; return its start."""
    database = await Database.open(folder, url)
    execute("CREATE TABLE public.tries (at text, pid int)", url)
    execute("CREATE TABLE public.effects (at text PRIMARY KEY)", url)
    start = datetime.now(UTC)
    await ScheduleStore(database).create("each-second", EACH_SECOND, "config", start)
    await database.aclose()
    return start


def tried_pids(url: str) -> list[tuple[int]]:
    """Processes that have tried an occurrence."""
    return [(row[0],) for row in execute("SELECT DISTINCT pid FROM public.tries", url)]


def open_until(url: str, end: datetime) -> list[tuple[str, str]]:
    """Occurrences up to `end` that are not over, or the latest one if it is before `end`."""
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
    postgres: StorePlace, tmp_path: Path, seconds: int
) -> None:
    assert postgres.url
    start = await set_up(tmp_path, postgres.url)
    with replicas(tmp_path, postgres.url) as pair:
        await pair.harass(seconds, random.Random())
        end = datetime.now(UTC).replace(microsecond=0)
        deadline = time.monotonic() + 300
        while rows := open_until(postgres.url, end):
            assert time.monotonic() < deadline, (rows[:5], pair.log.read_text("utf-8")[-5_000:])
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
    assert pair.kills >= 2
    assert len(tried_pids(postgres.url)) >= 2


# ---- a run goes on, pays nothing twice, and posts one report


AT_ONCE = 2
"""Subagents at work together: so many calls of the model are under way at a kill."""


def reports(bots: Fleet) -> list[Shown]:
    """First messages of reports in the owner's direct message."""
    shown = bots.slack.visible(bots.slack.people.dm(ASKER))
    own = [m for m in shown if m.user == BOT_USER]
    return [m for m in own if m.thread_ts in (None, "", m.ts)]


def has_model_calls(bots: Fleet, count: int) -> bool:
    return len(bots.model.recorded) >= count


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param((1,), marks=pytest.mark.slow),
        (5,),
        pytest.param((2, 4, 6), marks=pytest.mark.slow),
    ],
)
async def test_killed_schedule_run_resumes_and_posts_one_report(
    tmp_path: Path, calls: tuple[int, ...]
) -> None:
    spec = {
        "kind": "sweep",
        "cron": NEVER,
        "channels": ["support-*"],
        "to": "dm",
        "owner": ASKER,
        "since_days": LONG_AGO,
    }
    schedules, limits = {"markets": spec}, {"max_concurrency": AT_ONCE}
    with fleet(tmp_path, offline, latency_s=0.3, schedules=schedules, limits=limits) as bots:
        (bot,) = await bots.start_bots()
        await asyncio.to_thread(bots.run, "schedules", "run", "markets")
        for count in calls:
            await until(partial(has_model_calls, bots, count), 60)
            bot.kill()
            bots.balancer.targets.clear()
            (bot,) = await bots.start_bots()
        await until(lambda: reports(bots), 60)
        await asyncio.sleep(1.5)  # another one would have come by now
        assert len(reports(bots)) == 1
        assert bots.count_repeated_calls() <= (AT_ONCE + 1) * len(calls)
        assert not bot.tracebacks()


# ---- a reminder or an answer comes once, over replicas too


HERE = channel_id(1)
OPEN = scripted_parent(brief_answer(2), say("It is **open** [F1.1]."))
REMINDER: Json = {"kind": "reminder", "text": "Call Ana", "to": "#support-1", "owner": ASKER}
QUESTION: Json = {
    "kind": "ask",
    "request": "What is open in #support-2?",
    "to": "#support-1",
    "owner": ASKER,
}


def count_posts(bots: Fleet, text: str) -> int:
    """How often the bot has posted this, in a thread or not."""
    return sum(m.user == BOT_USER and text in m.text for m in bots.slack.visible(HERE))


def has_called(bots: Fleet, text: str, fault: str) -> bool:
    """Whether the post was called (`slow`), or has its effect."""
    return not bots.slack.faults if fault == "slow" else count_posts(bots, text) > 0


@pytest.mark.parametrize(
    ("spec", "text", "fault"),
    [
        (REMINDER, "Call Ana", "slow"),
        (QUESTION, "It is **open**", "lost"),
        (QUESTION, "It is **open**", ""),
    ],
)
async def test_scheduled_message_is_posted_once_after_a_kill_while_posting(
    tmp_path: Path, spec: Json, text: str, fault: str
) -> None:
    """`slow`: before the post has its effect; `lost`: after it, without an answer."""
    schedules: dict[str, Any] = {"one": {**spec, "cron": NEVER}}
    with fleet(tmp_path, OPEN, schedules=schedules) as bots:
        (bot,) = await bots.start_bots()
        if fault:
            bots.slack.faults.append(Fault("chat.postMessage", fault, 1.0))
        await asyncio.to_thread(bots.run, "schedules", "run", "one")
        await until(partial(has_called, bots, text, fault), 60)
        bot.kill()
        bots.balancer.targets.clear()
        calls = len(bots.model.recorded)
        (bot,) = await bots.start_bots()
        await until(partial(is_delivered, bots, "one"), 90)
        assert count_posts(bots, text) == 1
        assert len(bots.model.recorded) == calls, "the answer was made before"
        assert not bot.tracebacks()


def is_delivered(bots: Fleet, name: str) -> bool:
    """Whether the delivery of its one occurrence is stored."""
    with closing(sqlite3.connect(bots.folder / "data" / "assistant.sqlite")) as connection:
        query = "SELECT delivery FROM schedule_runs WHERE schedule = ?"
        return connection.execute(query, (name,)).fetchall() == [("delivered",)]


@pytest.mark.timeout(600)
async def test_each_due_time_is_posted_once_when_one_of_two_replicas_is_killed(
    postgres: StorePlace, tmp_path: Path
) -> None:
    assert postgres.url
    at = (datetime.now(UTC) + timedelta(seconds=105)).replace(second=0)  # once two have started
    schedules: dict[str, Any] = {
        "often": {**REMINDER, "cron": "*/3 * * * * *", "text": "Often"},
        "asked": {**QUESTION, "cron": "*/10 * * * * *"},
        "once": {**REMINDER, "at": f"{at:%Y-%m-%dT%H:%M}", "text": "Just once"},
    }
    with fleet(tmp_path, OPEN, url=postgres.url, schedules=schedules) as bots:
        first, _ = await bots.start_bots(2)
        await until(lambda: count_posts(bots, "Often") >= 2 and count_posts(bots, "open") >= 1, 90)
        first.kill()
        bots.balancer.targets = [b.url for b in bots.bots if b is not first]
        await bots.start_bots()
        await until(lambda: state(postgres.url, "once") == "done", 200)
        for name in ("often", "asked"):
            await asyncio.to_thread(bots.run, "schedules", "pause", name)
        await until(lambda: not at_work(postgres.url), 60)
        assert count_posts(bots, "Just once") == 1
        assert count_posts(bots, "Often") == count_delivered(postgres.url, "often")
        assert count_posts(bots, "It is **open**") == count_delivered(postgres.url, "asked")
        assert not [line for bot in bots.bots for line in bot.tracebacks()]


def state(url: str | None, name: str) -> str:
    assert url
    return str(execute(f"SELECT state FROM assistant.schedules WHERE id = '{name}'", url)[0][0])


def count_delivered(url: str | None, name: str) -> int:
    assert url
    query = f"FROM assistant.schedule_runs WHERE schedule = '{name}' AND delivery = 'delivered'"
    return int(execute(f"SELECT count(*) {query}", url)[0][0])


def at_work(url: str | None) -> bool:
    assert url
    busy = "SELECT id FROM assistant.schedules WHERE at_work IS NOT NULL"
    return bool(execute(busy, url))
