"""A bot that dies while a schedule runs: the run goes on, pays nothing twice, posts one report."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from engine_kit import until
from fleet_kit import Fleet, fleet
from schedule_kit import LONG_AGO
from serve_kit import ASKER
from standins.slack_shown import Shown

from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER

pytestmark = pytest.mark.system

AT_ONCE = 2
"""Subagents at work together: so many calls of the model are under way at a kill."""


def tomorrow() -> str:
    """A crontab that comes up in a day, and then in a year."""
    at = datetime.now(UTC) + timedelta(days=1)
    return f"{at.minute} {at.hour} {at.day} {at.month} *"


def reports(bots: Fleet) -> list[Shown]:
    """First messages of reports in the owner's direct message."""
    shown = bots.slack.visible(bots.slack.people.dm(ASKER))
    own = [m for m in shown if m.user == BOT_USER]
    return [m for m in own if m.thread_ts in (None, "", m.ts)]


def asked(bots: Fleet, count: int) -> bool:
    return len(bots.model.recorded) >= count


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param((1,), marks=pytest.mark.slow),
        (5,),
        pytest.param((2, 4, 6), marks=pytest.mark.slow),
    ],
)
async def test_a_killed_run_of_a_schedule_goes_on(tmp_path: Path, calls: tuple[int, ...]) -> None:
    spec = {
        "kind": "sweep",
        "cron": tomorrow(),
        "channels": ["support-*"],
        "to": "dm",
        "owner": ASKER,
        "since_days": LONG_AGO,
    }
    named, few = {"markets": spec}, {"max_concurrency": AT_ONCE}
    with fleet(tmp_path, offline, latency_s=0.3, schedules=named, limits=few) as bots:
        (bot,) = await bots.started()
        await asyncio.to_thread(bots.run, "schedules", "run", "markets")
        for count in calls:
            await until(partial(asked, bots, count), 60)
            bot.kill()
            bots.balancer.targets.clear()
            (bot,) = await bots.started()
        await until(lambda: reports(bots), 60)
        await asyncio.sleep(1.5)  # another one would have come by now
        assert len(reports(bots)) == 1
        assert bots.repeated() <= (AT_ONCE + 1) * len(calls)
        assert not bot.tracebacks()
