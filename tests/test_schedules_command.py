"""`assistant schedules`: the state of each schedule, a run by hand, and a dry run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from bot_kit import Shell, configure, refusal_text, slack_at
from card_kit import people
from standins.slack import LocalSlack

from bot.local.workspace import Timeline
from bot.schedules.store import OccurrenceResult, ScheduleStore
from bot.storage.database import Database, only_process
from bot.storage.schedules import Failure
from bot.storage.tables import schedules
from config.settings import load_settings

MARKETS = """
schedules:
  markets:
    kind: sweep
    cron: "30 9 * * mon-fri"
    zone: Europe/Madrid
    channels: ["support-*"]
    since_days: 36500
    to: "#support-1"
    owner: U0ANA
    budget_usd: 0.5
"""


@pytest.fixture(autouse=True)
def _configured(data_dir: Path) -> None:
    configure(MARKETS)


def on_state(work: Callable[[Database], Coroutine[Any, Any, Any]]) -> Any:
    """Run `work` on the database that the commands of this test use."""

    async def run() -> Any:
        database = await Database.open(load_settings().data_dir)
        try:
            return await work(database)
        finally:
            await database.aclose()

    return asyncio.run(run())


def sync_schedules() -> None:
    """Store the configured schedules, as `serve` does at its start."""
    settings = load_settings().schedules
    on_state(lambda database: ScheduleStore(database).sync(settings, datetime.now(UTC)))


def test_schedules_command_shows_the_last_run_its_delivery_and_cost(shell: Shell) -> None:
    sync_schedules()
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)

    async def work(database: Database) -> None:
        occurrences = ScheduleStore(database)
        occurrence = await occurrences.ask_now("markets", at)
        await occurrences.record_run(occurrence.work, OccurrenceResult(0.42, at, at))
        later = datetime.now(UTC)
        ran = await occurrences.occurrence("markets", occurrence.at)
        assert ran
        await occurrences.record_undelivered(ran.work, "#support-1 is archived.", later)
        await occurrences.ask_now("markets", later)

    on_state(work)
    shown = shell("schedules").out.splitlines()[1:]
    lines = {line[:16].strip(): line[16:].strip() for line in shown}
    assert lines["next run"].endswith("09:30 (Europe/Madrid); 1 due now")
    assert lines["last run"].endswith(", ran")
    assert "waiting after 1 try" in lines["last delivery"]
    assert "#support-1 is archived." in lines["last delivery"]
    assert lines["cost"] == "$0.42 the last run"
    (schedule,) = shell("schedules", "--json").json["schedules"]
    assert (schedule["name"], schedule["state"], schedule["last_run"]["state"]) == (
        "markets",
        "active",
        "ran",
    )
    assert schedule["last_delivery"]["tries"] == 1


def test_schedules_command_says_that_a_single_time_has_passed_and_since_when_one_is_refused(
    shell: Shell,
) -> None:
    spec = '{kind: reminder, at: "2020-11-30T15:00", text: Call, to: dm, owner: U0ANA}'
    configure(f"{MARKETS}  past: {spec}\n")
    over = "  next run       none: its one time has passed\n"
    assert over in shell("schedules").out
    sync_schedules()
    since, why = datetime(2026, 3, 16, 9, 30, 5, tzinfo=UTC), "Invite me to #support-1."

    async def refuse(database: Database) -> None:
        await ScheduleStore(database).refuse("markets", why)
        trouble = Failure(since=since, at=since, why=why)
        markets = sa.update(schedules).where(schedules.c.id == "markets")
        await database.write(markets.values(trouble=trouble))

    on_state(refuse)
    shown = shell("schedules").out
    assert shown.count(why.rstrip(".")) == 1
    assert "  trouble        since Mon, 16 Mar 2026 10:30:05\n" in shown
    assert over in shown


def test_schedules_run_queues_an_occurrence_for_the_serving_process(shell: Shell) -> None:
    assert "`assistant serve` takes up" in refusal_text(
        shell("schedules", "run", "markets"), "schedule"
    )
    sync_schedules()
    result = shell("schedules", "run", "markets")
    assert result.code == 0
    assert "`assistant serve` is not running: this is done as soon as" in result.out
    (occurrence,) = on_state(lambda database: ScheduleStore(database).occurrences("markets"))
    assert occurrence.state == "due"
    with only_process(load_settings().data_dir):
        assert "`assistant schedules` shows the result." in shell("schedules", "run", "markets").out
        assert shell("schedules", "run", "markets", "--json").json["served"] is True


def test_dry_run_shows_what_would_be_read_and_posted_without_effects(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = LocalSlack(people())
    with slack_at(monkeypatch, slack):
        result = shell("schedules", "run", "markets", "--dry-run")
        assert (result.code, result.err) == (0, "")
        assert "#support-1  since " in result.out
        assert "it would go to #support-1" in result.out
        assert "all readers there may read its sources" in result.out
        assert "estimated cost $" in result.out
        report = shell("schedules", "run", "markets", "--dry-run", "--json").json
    assert [each["name"] for each in report["channels"]] == ["support-1", "support-2", "support-3"]
    assert report["likely_usd"] > 0
    assert report["wrong"] is None
    assert slack.effects == []
    assert on_state(lambda database: ScheduleStore(database).all()) == []
    slack.state.timelines = dict.fromkeys(slack.state.timelines, Timeline(()))
    with slack_at(monkeypatch, slack):
        report = shell("schedules", "run", "markets", "--dry-run", "--json").json
    assert report["likely_usd"] == 0, "a channel without messages costs nothing"
