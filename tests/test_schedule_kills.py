"""Bots that die while schedules are at work: each run and each delivery is done once."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Json, brief_answer, channel_id, say, scripted_parent, until
from fleet_kit import Fleet, fleet
from pg_kit import StorePlace, execute
from schedule_kit import LONG_AGO, NEVER
from serve_kit import ASKER
from standins.slack_faults import Fault
from standins.slack_shown import Shown

from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER

pytestmark = pytest.mark.system

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
    [(5,), pytest.param((2, 4, 6), marks=pytest.mark.slow)],
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
        await until(partial(is_delivered, bots, "markets"), 90)
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
    [(REMINDER, "Call Ana", "slow"), (QUESTION, "It is **open**", "lost")],
)
async def test_scheduled_message_is_posted_once_after_a_kill_while_posting(
    tmp_path: Path, spec: Json, text: str, fault: str
) -> None:
    """`slow`: before the post has its effect; `lost`: after it, without an answer."""
    schedules: dict[str, Any] = {"one": {**spec, "cron": NEVER}}
    with fleet(tmp_path, OPEN, schedules=schedules) as bots:
        (bot,) = await bots.start_bots()
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


def has_posts(bots: Fleet, text: str, count: int) -> bool:
    return count_posts(bots, text) >= count


@pytest.mark.timeout(600)
async def test_each_due_time_is_posted_once_while_replicas_are_killed(
    postgres: StorePlace, tmp_path: Path
) -> None:
    """One of two replicas is killed, then both, while a question is at work."""
    assert postgres.url
    read, busy = partial(execute, url=postgres.url), "SELECT at_work FROM assistant.schedules"
    at = (datetime.now(UTC) + timedelta(seconds=105)).replace(second=0)  # once two have started
    schedules: dict[str, Any] = {
        "often": {**REMINDER, "cron": "*/3 * * * * *", "text": "Often"},
        "asked": {**QUESTION, "cron": "*/10 * * * * *"},
        "once": {**REMINDER, "at": f"{at:%Y-%m-%dT%H:%M}", "text": "Just once"},
    }
    with fleet(tmp_path, OPEN, url=postgres.url, latency_s=0.5, schedules=schedules) as bots:
        alive = await bots.start_bots(2)
        await until(partial(has_posts, bots, "It is **open**", 1), 90)
        for count in (1, 2):
            await until(partial(has_posts, bots, "Often", count_posts(bots, "Often") + 2), 90)
            await until(partial(read, f"{busy} WHERE id = 'asked' AND at_work <> ''"), 60)
            for bot in alive[:count]:
                bot.kill()
            alive = [*alive[count:], *await bots.start_bots(count)]
        done = "SELECT id FROM assistant.schedules WHERE id = 'once' AND state = 'done'"
        await until(lambda: read(done), 200)
        for name in ("often", "asked"):
            await asyncio.to_thread(bots.run, "schedules", "pause", name)
        await until(lambda: not read(f"{busy} WHERE at_work <> ''"), 60)
        assert count_posts(bots, "Just once") == 1
        for name, text, seconds in (("often", "Often", 3), ("asked", "It is **open**", 10)):
            where = f"FROM assistant.schedule_runs WHERE schedule = '{name}'"
            (delivered,) = read(f"SELECT count(*) {where} AND delivery = 'delivered'")
            assert count_posts(bots, text) == delivered[0]
            rows = read(f"SELECT at, state {where} ORDER BY at")
            times = [datetime.fromisoformat(row[0]) for row in rows]
            assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=seconds)}
            assert {row[1] for row in rows} <= {"ran", "skipped"}
        assert not [line for bot in bots.bots for line in bot.tracebacks()]
