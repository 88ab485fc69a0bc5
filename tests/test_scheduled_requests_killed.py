"""Bots that die while a reminder or an answer is delivered: it comes once, over replicas too."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Json, brief_answer, channel_id, led_by, say, until
from fleet_kit import Fleet, fleet
from pg_kit import Kept, execute, postgres
from serve_kit import ASKER
from standins.slack_faults import Fault
from test_schedule_runs_killed import tomorrow

from bot.local.slack.state import BOT_USER

pytestmark = pytest.mark.system

__all__ = ["postgres"]

HERE = channel_id(1)
OPEN = led_by(brief_answer(2), say("It is **open** [F1.1]."))
REMINDER: Json = {"kind": "reminder", "text": "Call Ana", "to": "#support-1", "owner": ASKER}
QUESTION: Json = {
    "kind": "ask",
    "request": "What is open in #support-2?",
    "to": "#support-1",
    "owner": ASKER,
}


def said(bots: Fleet, text: str) -> int:
    """How often the bot has posted this, in a thread or not."""
    return sum(m.user == BOT_USER and text in m.text for m in bots.slack.visible(HERE))


def has_called(bots: Fleet, text: str, fault: str) -> bool:
    """Whether the post of it has come so far: asked for, or done."""
    return not bots.slack.faults if fault == "slow" else said(bots, text) > 0


@pytest.mark.parametrize(
    ("spec", "text", "fault"),
    [
        (REMINDER, "Call Ana", "slow"),
        (QUESTION, "It is **open**", "lost"),
        (QUESTION, "It is **open**", ""),
    ],
)
async def test_what_is_killed_while_it_is_posted_is_posted_once(
    tmp_path: Path, spec: Json, text: str, fault: str
) -> None:
    """`slow`: before the post has its effect; `lost`: after it, without an answer."""
    schedules: dict[str, Any] = {"one": {**spec, "cron": tomorrow()}}
    with fleet(tmp_path, OPEN, schedules=schedules) as bots:
        (bot,) = await bots.started()
        if fault:
            bots.slack.faults.append(Fault("chat.postMessage", fault, 1.0))
        await asyncio.to_thread(bots.run, "schedules", "run", "one")
        await until(partial(has_called, bots, text, fault), 60)
        bot.kill()
        bots.balancer.targets.clear()
        calls = len(bots.model.recorded)
        (bot,) = await bots.started()
        await until(partial(shown, bots, "one"), 90)
        assert said(bots, text) == 1
        assert len(bots.model.recorded) == calls, "the answer was made before"
        assert not bot.tracebacks()


def shown(bots: Fleet, name: str) -> bool:
    """Whether the delivery of its one occurrence is stored."""
    with closing(sqlite3.connect(bots.folder / "data" / "assistant.sqlite")) as connection:
        query = "SELECT delivery FROM schedule_runs WHERE schedule = ?"
        return connection.execute(query, (name,)).fetchall() == [("delivered",)]


@pytest.mark.timeout(600)
async def test_over_two_replicas_each_time_comes_once_though_one_is_killed(
    postgres: Kept, tmp_path: Path
) -> None:
    assert postgres.url
    at = (datetime.now(UTC) + timedelta(seconds=75)).replace(second=0)
    schedules: dict[str, Any] = {
        "often": {**REMINDER, "cron": "*/3 * * * * *", "text": "Often"},
        "asked": {**QUESTION, "cron": "*/10 * * * * *"},
        "once": {**REMINDER, "at": f"{at:%Y-%m-%dT%H:%M}", "text": "Just once"},
    }
    with fleet(tmp_path, OPEN, url=postgres.url, schedules=schedules) as bots:
        first, _ = await bots.started(2)
        await until(lambda: said(bots, "Often") >= 2 and said(bots, "open") >= 1, 90)
        first.kill()
        bots.balancer.targets = [b.url for b in bots.bots if b is not first]
        await bots.started()
        await until(lambda: state(postgres.url, "once") == "done", 200)
        for name in ("often", "asked"):
            await asyncio.to_thread(bots.run, "schedules", "pause", name)
        await until(lambda: not at_work(postgres.url), 60)
        assert said(bots, "Just once") == 1
        assert said(bots, "Often") == delivered(postgres.url, "often")
        assert said(bots, "It is **open**") == delivered(postgres.url, "asked")
        assert not [line for bot in bots.bots for line in bot.tracebacks()]


def state(url: str | None, name: str) -> str:
    assert url
    return str(execute(f"SELECT state FROM assistant.schedules WHERE id = '{name}'", url)[0][0])


def delivered(url: str | None, name: str) -> int:
    assert url
    query = f"FROM assistant.schedule_runs WHERE schedule = '{name}' AND delivery = 'delivered'"
    return int(execute(f"SELECT count(*) {query}", url)[0][0])


def at_work(url: str | None) -> bool:
    assert url
    busy = "SELECT id FROM assistant.schedules WHERE at_work IS NOT NULL"
    return bool(execute(busy, url))
