"""What schedules keep of messages and people goes with them: issues, reports, what was set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import channel_id, workspace
from forget_kit import Told, holding, item
from pg_kit import with_store
from schedule_kit import Scheduled, scheduled, sweep
from serve_kit import ASKER
from standins.slack import LocalSlack

from bot.local.offline.model import answer as offline
from bot.memory import NoteStore
from bot.privacy import Forget, tidy
from bot.reports.issues import Issue
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.schedules import Occurrence
from bot.storage.tables import issues, quoted, runs, schedule_runs
from config.sections import RetentionSettings
from scopes.label import Label
from scopes.notes import NewNote

WORDS = "the purple zebra invoice never arrives"
SAID = f"Hello, {WORDS}, who can help me with that? It is urgent."


async def told(s: Scheduled) -> tuple[str, list[Occurrence]]:
    """Id of a message that a first report tells, and that a second one tells again; both runs."""
    ts = s.bot.slack.people.say("U0LUIS", channel_id(1), SAID)
    await s.set("markets", sweep(channels=("support-1", "support-2")))
    made = []
    after = datetime.fromtimestamp(float(ts), UTC) + timedelta(seconds=1)
    for at in (after, after + timedelta(seconds=2)):  # Slack's clock may be ahead of ours
        made.append(await s.fire("markets", at))
        assert (await s.delivered(made[-1])).delivery == "delivered"
    again = await s.document(made[1])
    assert any(WORDS in each["claim"] for each in again["still_open"])
    return f"{channel_id(1)}/{ts}", made


def slack() -> LocalSlack:
    return LocalSlack(workspace(3, 1), retries_s=(0.0, 0.3, 1.0))


@pytest.mark.parametrize("kind", ["item", "channel", "author"])
async def test_no_table_holds_what_was_forgotten(tmp_path: Path, kind: str) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        message, _ = await told(s)
        database = s.bot.store.database
        assert "issues" in await holding(database, [WORDS])
        id = {"item": message, "channel": channel_id(1), "author": "U0LUIS"}[kind]
        dry = await Forget(database, dry_run=True)(ForgetTarget(kind, id))
        assert dry.issues
        assert dry.runs == 2
        assert "issues" in await holding(database, [WORDS])
        assert await Forget(database)(ForgetTarget(kind, id)) == dry
        assert await holding(database, [WORDS]) == []
        left = await database.read(sa.select(issues))
        assert left == [], "all that was known came from the deleted runs alone"
        third = await s.fire("markets", datetime.now(UTC) + timedelta(seconds=2))
        assert third.state == "ran", "the schedule goes on"


async def test_an_issue_stays_that_another_run_told_too(tmp_path: Path) -> None:
    first, second, third = (item(f"C1/{n}.000100", f"Message {n}") for n in (1, 2, 3))
    with_store(tmp_path)
    store = await Store.open(tmp_path)
    await Told("r1", [first, second, third]).store(store)
    await Told("r2", [third]).store(store)
    now = datetime.now(UTC)
    for each in (first, second, third):
        issue = Issue(
            id=each.text,
            state="unsolved",
            first=now,
            last=now,
            channel="C1",
            claim=each.text,
            severity="high",
            threads=[],
            messages=[each.id],
        )
        await store.database.write(sa.insert(issues).values(issue.row("markets")))
    done = await Forget(store.database)(ForgetTarget("item", first.id))
    assert (done.issues, done.runs) == (2, 1)
    left = await store.database.read(sa.select(issues.c.id))
    assert [row.id for row in left] == ["Message 3"]
    await store.aclose()


async def test_a_report_is_delivered_before_its_run_is_deleted(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        message, made = await told(s)
        database, run = s.bot.store.database, made[1].run or ""
        mine = sa.and_(schedule_runs.c.schedule == "markets", schedule_runs.c.at == made[1].at)
        await database.write(sa.update(schedule_runs).where(mine).values(delivery="waiting"))
        assert (await Forget(database)(ForgetTarget("item", message))).later == 1
        assert (await s.bot.store.run(run)).result
        await database.write(sa.update(schedule_runs).where(mine).values(delivery="delivered"))
        assert (await Forget(database)(ForgetTarget("item", message))).later == 0
        assert (await s.bot.store.run(run)).result is None


async def test_a_user_takes_their_schedules_with_them(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"other": sweep(owner="U0EVA")}, offline, slack=slack()) as s:
        await told(s)
        database = s.bot.store.database
        done = await Forget(database)(ForgetTarget("user", ASKER))
        assert done.schedules == 1
        assert [each.id for each in await s.schedules.store.all()] == ["other"]
        assert await s.schedules.store.occurrences("markets") == []
        assert await database.read(sa.select(issues)) == []


async def test_old_reports_go_and_where_the_last_one_ended_stays(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        _, made = await told(s)
        database = s.bot.store.database
        years = timedelta(days=800)
        c = schedule_runs.c
        for occurrence in made:
            mine = sa.and_(c.schedule == "markets", c.at == occurrence.at)
            moved = sa.update(schedule_runs).where(mine).values(at=occurrence.at - years)
            await database.write(moved)
        await database.write(sa.update(issues).values(last=datetime.now(UTC) - years))
        kept = RetentionSettings(
            workflows_days=14,
            trajectories_days=None,
            results_days=365,
            actions_days=None,
            notes_days=None,
        )
        await tidy(database, kept)
        left = await s.schedules.store.occurrences("markets")
        assert [each.at for each in left] == [made[1].at - years]
        assert await s.schedules.store.delivered("markets", 1)
        assert await database.read(sa.select(issues)) == []


async def test_who_is_forgotten_is_in_no_note_though_the_first_try_died(tmp_path: Path) -> None:
    with_store(tmp_path)
    database = await Database.open(tmp_path, None)
    shelf, sales = NoteStore(database), Label(True, sources=frozenset({"C0SALES"}))
    for run in ("r1", "r2"):
        await Store(database).start_run(run, "mention", "What?", "offline", {})
        row = {"item": "C0SALES/1.000100", "run": run, "channel": "C0SALES", "author": "U0EVE"}
        await database.write(quoted.insert().values(row))
    await database.write(runs.update().values(status="complete"))
    await shelf.save(NewNote(ASKER, "k1", "From her", "about pricing", sales, "r1"))
    dies = "CREATE TRIGGER dies BEFORE DELETE ON quoted WHEN old.run = 'r2' BEGIN {} END"
    dies = dies.format("SELECT RAISE(ABORT, 'the power is gone');")
    await database.change(lambda connection: connection.execute(sa.text(dies)).rowcount)
    with pytest.raises(Exception, match="the power is gone"):
        await Forget(database)(ForgetTarget("author", "U0EVE"))
    await database.change(lambda c: c.execute(sa.text("DROP TRIGGER dies")).rowcount)
    await Forget(database)(ForgetTarget("author", "U0EVE"))
    assert await shelf.search([ASKER], "", 9) == []
    await database.aclose()
