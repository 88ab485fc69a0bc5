"""Schedules under attack: what must not be lost, doubled, shown or paid, whatever comes between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import workspace
from forget_kit import holding
from schedule_kit import scheduled, sweep
from serve_kit import ASKER, ruled
from test_delivering import once_read
from test_delivery_mail import OTHER, sent
from test_delivery_mail import office as post_office
from test_schedule_alerts import AGAIN, NAME, office
from test_schedule_forget import told as told_twice

from bot.local.google.faults import Fault
from bot.local.google.server import LocalGoogle
from bot.local.offline.model import answer as offline
from bot.local.slack.server import LocalSlack
from bot.memory import NoteStore
from bot.privacy.forget import Forget
from bot.runs.store import Store
from bot.schedules.store import Occurrences, ScheduleStore
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.requests import try_now
from bot.storage.tables import issues, quoted, runs, schedules
from scopes.label import Label


def slack() -> LocalSlack:
    return LocalSlack(workspace(3, 1), retries_s=(0.0, 0.3, 1.0))


# ---- who is told


async def test_what_is_refused_after_its_last_occurrence_is_over_when_that_report_is_delivered(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as made:
        database = Occurrences(made.databases[0])
        occurrence = await database.ask_now(NAME, datetime.now(UTC) - timedelta(minutes=5))
        await database.take("r1", datetime.now(UTC), 1)
        await made.fails(at=occurrence.at)
        await made.tell()
        await made.tellers[0].fails(NAME, "I am not in #reports: invite me there.")
        await made.tell()
        await made.works(at=occurrence.at)
        await made.tell()
        assert [AGAIN in each for each in made.told()] == [False, True]
        assert await made.record() is None, "the next failure is told again"


# ---- what is paid


async def test_schedules_that_come_at_once_share_what_is_left_of_the_day(tmp_path: Path) -> None:
    given = {name: sweep(budget_usd=1.0) for name in ("one", "two", "three")}
    most = ruled(policy={"daily_usd": 1.0})
    async with scheduled(tmp_path, given, offline, slack=slack(), change=most) as s:
        begun = [await s.begin(name) for name in given]
        over = [await s.over(occurrence) for occurrence in begun]
        ran = [await s.bot.store.run(occurrence.run or "") for occurrence in over]
    assert [occurrence.state for occurrence in over] == ["ran"] * 3, [
        occurrence.why for occurrence in over
    ]
    caps = sorted(run.args["limits"]["cost_usd"] for run in ran)
    assert caps[-1] == pytest.approx(1.0)
    assert sum(run.cost_usd or 0.0 for run in ran) <= 1.0
    assert caps[-2] < 1.0, "no two of them may each spend all of it"


# ---- what is kept


async def test_a_schedule_that_is_deleted_takes_what_it_told_with_it(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        await told_twice(s)
        database = s.bot.store.database
        await s.schedules.store.delete("markets")
        assert await database.read(sa.select(issues)) == []


async def test_who_is_forgotten_is_in_no_schedule_that_was_deleted(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline, slack=slack()) as s:
        database = s.bot.store.database
        await s.set("mine", sweep())
        await s.schedules.store.delete("mine")
        await Forget(database)(ForgetTarget("user", ASKER))
        assert await database.read(sa.select(schedules.c.id)) == []
        assert "schedules" not in await holding(database, [ASKER])


# ---- whose rights are used


async def test_nothing_is_mailed_from_the_mailbox_of_who_owned_it_before(tmp_path: Path) -> None:
    holder: list[LocalGoogle] = []

    def refuse() -> None:
        holder[0].faults += [Fault("gmail.users.messages.send", "403") for _ in range(3)]

    spec = sweep(to=OTHER)
    async with post_office(tmp_path, spec, mind=once_read(refuse)) as (s, google):
        holder.append(google)
        s.schedules.delivery.backoff = (timedelta(hours=1),)
        occurrence = await s.fire("markets")
        refused = await s.tried(occurrence)
        assert refused.state == "waiting"
        now = {"markets": spec.model_copy(update={"owner": "U0LUIS"})}
        await s.schedules.store.sync(now, datetime.now(UTC))
        google.faults.clear()
        assert await try_now(s.bot.store.database, occurrence.run or "")
        again = await s.tried(occurrence, 2)
        assert sent(google) == []
        assert again.why == (
            "It was made while <@U0ANA> owned it, and it is mailed from nobody's mailbox but its "
            "owner's. The next report is of <@U0LUIS>."
        )


# ---- rows that nobody can read


async def test_rows_that_cannot_be_read_hold_up_no_other_schedule(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, None)
    store, times, now = ScheduleStore(database), Occurrences(database), datetime.now(UTC)
    for name in ("a", "b", "c", "good"):
        await store.create(name, sweep(), "chat", now)
        await times.ask_now(name, now - timedelta(minutes=name != "good"))
    bad = schedules.c.id != "good"
    await database.write(sa.update(schedules).where(bad).values(body="{}"))
    taken = await times.take("p", datetime.now(UTC), 2)
    assert [work.schedule for work in taken] == ["good"]
    await database.aclose()


# ---- what anybody may write


async def test_who_is_forgotten_is_in_no_note_though_the_first_try_died(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, None)
    shelf, sales = NoteStore(database), Label(True, sources=frozenset({"C0SALES"}))
    for run in ("r1", "r2"):
        await Store(database).start_run(run, "mention", "What?", "offline", {})
        row = {"item": "C0SALES/1.000100", "run": run, "channel": "C0SALES", "author": "U0EVE"}
        await database.write(quoted.insert().values(row))
    await database.write(runs.update().values(status="complete"))
    await shelf.save(ASKER, "k1", "From her", "about pricing", sales, "r1")
    dies = "CREATE TRIGGER dies BEFORE DELETE ON quoted WHEN old.run = 'r2' BEGIN {} END"
    dies = dies.format("SELECT RAISE(ABORT, 'the power is gone');")
    await database.change(lambda connection: connection.execute(sa.text(dies)).rowcount)
    with pytest.raises(Exception, match="the power is gone"):
        await Forget(database)(ForgetTarget("author", "U0EVE"))
    await database.change(lambda c: c.execute(sa.text("DROP TRIGGER dies")).rowcount)
    await Forget(database)(ForgetTarget("author", "U0EVE"))
    assert await shelf.search([ASKER], "", 9) == []
    await database.aclose()
