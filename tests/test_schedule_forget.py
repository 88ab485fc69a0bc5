"""What schedules keep of messages and people goes with them: issues, reports, what was set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import channel_id, workspace
from forget_kit import holding
from schedule_kit import Scheduled, scheduled, sweep
from serve_kit import ASKER

from bot.erasure.forget import Forget
from bot.erasure.targets import Target
from bot.local.mind.mind import answer as offline
from bot.local.slack.server import LocalSlack
from bot.schedule.records import Tick
from bot.schedule.tables import deliveries, issues, ticks
from bot.storage.retention import tidy
from config.sections import Retention

WORDS = "the purple zebra invoice never arrives"
SAID = f"Hello, {WORDS}, who can help me with that? It is urgent."


async def told(s: Scheduled) -> tuple[str, list[Tick]]:
    """Id of a message that a first report tells, and that a second one tells again; its ticks."""
    ts = s.bot.slack.people.say("U0LUIS", channel_id(1), SAID)
    await s.set("markets", sweep(channels=("support-1", "support-2")))
    made = []
    after = datetime.fromtimestamp(float(ts), UTC) + timedelta(seconds=1)
    for at in (after, after + timedelta(seconds=2)):  # Slack's clock may be ahead of ours
        made.append(await s.fire("markets", at))
        assert (await s.delivered(made[-1])).state == "delivered"
    again = await s.document(made[1])
    assert any(WORDS in each["claim"] for each in again["still_open"])
    return f"{channel_id(1)}/{ts}", made


def slack() -> LocalSlack:
    return LocalSlack(workspace(3, 1), retries_s=(0.0, 0.3, 1.0))


@pytest.mark.parametrize("kind", ["item", "channel", "author"])
async def test_no_table_holds_what_was_forgotten(tmp_path: Path, kind: str) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        item, _ = await told(s)
        database = s.bot.store.database
        assert "issues" in await holding(database, [WORDS])
        id = {"item": item, "channel": channel_id(1), "author": "U0LUIS"}[kind]
        dry = await Forget(database, dry_run=True)(Target(kind, id))
        assert dry.schedules
        assert "issues" in await holding(database, [WORDS])
        await Forget(database)(Target(kind, id))
        assert await holding(database, [WORDS]) == []
        third = await s.fire("markets", datetime.now(UTC) + timedelta(seconds=2))
        assert third.state == "ran", "the schedule goes on"


async def test_a_user_takes_their_schedules_with_them(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"other": sweep(owner="U0EVA")}, offline, slack=slack()) as s:
        await told(s)
        database = s.bot.store.database
        done = await Forget(database)(Target("user", ASKER))
        assert done.schedules
        assert [each.id for each in await s.schedules.book.all()] == ["other"]
        assert await s.schedules.ticks.of("markets") == []
        assert await database.read(sa.select(issues)) == []


async def test_old_reports_go_and_where_the_last_one_ended_stays(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        _, made = await told(s)
        database = s.bot.store.database
        years = timedelta(days=800)
        for table in (ticks, deliveries):
            for tick in made:
                mine = sa.and_(table.c.schedule == "markets", table.c.at == tick.at)
                await database.write(sa.update(table).where(mine).values(at=tick.at - years))
        await database.write(sa.update(issues).values(last=datetime.now(UTC) - years))
        kept = Retention(
            workflows_days=14,
            trajectories_days=None,
            results_days=365,
            actions_days=None,
            notes_days=None,
        )
        await tidy(database, kept)
        left = await s.schedules.ticks.of("markets")
        assert [each.at for each in left] == [made[1].at - years]
        assert await s.schedules.ticks.last_delivered("markets")
        assert await database.read(sa.select(issues)) == []
