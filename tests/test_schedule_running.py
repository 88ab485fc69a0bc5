"""Runs of occurrences: windows, budgets, retries, alerts, and deletion of what they store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from document_kit import sweep_report
from engine_kit import always, channel_id, come, until, workspace
from forget_kit import RunToStore, item, tables_with
from hypothesis import given
from hypothesis import strategies as st
from mail_kit import ME, letters
from pg_kit import with_store
from schedule_kit import NEVER, ScheduledBot, scheduled_bot, sweep, triage
from serve_kit import ASKER, with_rules
from standins.model_faults import Faults
from standins.slack import LocalSlack
from test_inbox_triage import with_mail
from test_languages import people_with_locale

from bot.local.offline.model import answer as offline
from bot.local.sample_workspace import load_sample
from bot.local.samples import SAMPLE_AS_OF
from bot.local.slack.state import BOT_USER
from bot.memory import NoteStore
from bot.privacy import Forget, tidy
from bot.reports.issues import Issue
from bot.runs.store import Store
from bot.schedules.alerts import record_failure, record_success
from bot.schedules.run import find_covered, window_starts
from bot.schedules.validation import ScheduleValidator
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget
from bot.storage.schedules import Failure, Occurrence, StoredSchedule, run_id
from bot.storage.tables import issues, quoted, runs, schedule_runs, schedules
from config.schedules import Schedule
from config.sections import RetentionSettings
from scopes.label import Label
from scopes.notes import NewNote
from scopes.tool import iso


async def test_invalid_schedule_in_settings_is_refused_while_others_run(tmp_path: Path) -> None:
    specs = {"good": sweep(), "bad": sweep(to="#support-6")}
    slack = LocalSlack(workspace(6), retries_s=(0.0, 0.3, 1.0))
    slack.people.leave(BOT_USER, channel_id(6))
    async with scheduled_bot(tmp_path, specs, offline, slack=slack) as s:
        schedules = s.schedules.store

        async def refused_schedule() -> StoredSchedule | None:
            bad = await schedules.get("bad")
            return bad if bad and bad.state == "refused" else None

        bad = await come(refused_schedule)
        assert bad.why == "I am not in #support-6: invite me there with /invite first."
        assert (await s.fire("good")).state == "ran"
        await until(lambda: s.private_texts())
        assert "bad" in s.private_texts()[0]
        slack.people.join(BOT_USER, channel_id(6))
        await s.schedules.validate()
        fixed = await schedules.get("bad")
        assert fixed
        assert (fixed.state, fixed.why) == ("active", "")


async def test_models_are_told_the_day_in_the_zone_of_a_scheduled_sweep(tmp_path: Path) -> None:
    async with scheduled_bot(tmp_path, {}, offline) as s:
        await s.set("markets", sweep(zone="Pacific/Kiritimati"))  # 14 hours before UTC
        await s.fire("markets", datetime(2025, 3, 2, 20, 0, tzinfo=UTC))
        texts = [str(body["messages"]) for body in s.bot.model.recorded]
    assert any("TODAY: Monday 3 March 2025" in text for text in texts)
    assert all("2025-03-03 10:00" in text for text in texts)


async def test_report_notes_that_its_budget_may_not_cover_everything(tmp_path: Path) -> None:
    one = {"max_concurrency": 1}
    async with scheduled_bot(tmp_path, {}, offline, space=load_sample(), limits=one) as s:
        await s.set("markets", sweep(channels=("csm-*",), owner="U0LUCIA", budget_usd=0.011))
        occurrence = await s.fire("markets", SAMPLE_AS_OF)
        document = await s.document(occurrence)
    assert occurrence.state == "ran", occurrence.why
    assert document["status"] == "partial"
    (note,) = document["notes"]
    assert note.endswith("and $0.01 may be spent: it may not cover everything.")
    assert document["cost_usd"] <= 0.011
    assert not set((occurrence.extra or {})["covered"].values()) <= {iso(SAMPLE_AS_OF)}


AWAY = "It could read nothing: the language model failed"
LATER = (timedelta(hours=1),)
SOON = (timedelta(seconds=0.2),)


async def test_run_is_retried_after_a_transient_failure_until_it_works(tmp_path: Path) -> None:
    down = True
    faults = Faults(lambda index, body: "http_500" if down else None)
    async with scheduled_bot(tmp_path, {"markets": sweep()}, offline, faults=faults) as s:
        s.schedules.runner.backoff = SOON
        begun = await s.begin("markets")
        await s.waits_again(begun, tries=2)
        await until(lambda: s.private_texts())
        down = False
        occurrence = await s.over(begun)
        delivery = await s.wait_for_delivery(occurrence)
        await until(lambda: any("delivers again" in each for each in s.private_texts()))
        document = await s.document(occurrence)
        notices = [each for each in s.private_texts() if "The schedule markets" in each]
        first = await s.bot.store.run(run_id("markets", occurrence.at))
        dms = [m for m in s.bot.slack.visible(s.bot.slack.people.dm(ASKER)) if m.user == BOT_USER]

    assert (occurrence.state, occurrence.why, delivery.delivery) == ("ran", "", "delivered")
    assert occurrence.tries >= 2
    assert occurrence.run == f"{first.id}-{occurrence.tries + 1}"
    assert (first.status, first.error) == ("failed", {"code": "passing", "message": AWAY})
    assert document["window"]["latest"] == iso(occurrence.at)
    assert ["delivers again" in each for each in notices] == [False, True]
    assert len([m for m in dms if not m.thread_ts or m.thread_ts == m.ts]) == 3


async def test_run_is_retried_until_the_settings_file_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "assistant.yaml"
    path.write_text("policy: {admins: [U0EVA]}", "utf-8")
    async with scheduled_bot(tmp_path, {}, offline, policy_path=path) as s:
        s.schedules.runner.backoff = SOON

        async def is_invalid() -> bool:
            return not await s.schedules.validator.policy.admins()

        path.write_text("policy: {admins: [", "utf-8")
        await come(is_invalid)
        await s.set("markets", sweep())
        begun = await s.begin("markets")
        failed = await s.waits_again(begun, tries=1)
        assert "my rules cannot be read" in failed.why
        path.write_text("policy: {}", "utf-8")
        assert (await s.over(begun)).state == "ran"


async def test_crashed_occurrence_is_given_up_and_the_schedule_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crashes = [LookupError("oops")]

    async def language(_: ScheduleValidator, spec: Schedule) -> str:
        if crashes:
            raise crashes.pop()
        return "en"

    async with scheduled_bot(tmp_path, {}, offline) as s:
        monkeypatch.setattr(ScheduleValidator, "language", language)
        await s.set("markets", sweep())
        first = await s.fire("markets")
        assert (first.state, "Each try ended" in first.why) == ("failed", True)
        assert f"{first.work.id} has failed" in caplog.text
        assert (await s.fire("markets")).state == "ran"


async def test_retries_of_a_run_share_its_budget(tmp_path: Path) -> None:
    async with scheduled_bot(
        tmp_path, {"markets": sweep(budget_usd=0.5)}, offline, faults=always("http_500")
    ) as s:
        s.schedules.runner.backoff = LATER
        schedules = s.schedules.store
        await schedules.pause("markets", "the test")
        occurrence = await schedules.ask_now("markets", datetime.now(UTC))
        update = sa.update(schedule_runs).where(schedule_runs.c.at == occurrence.at)
        await s.bot.store.database.write(update.values(tries=1, cost_usd=0.4))
        await schedules.resume("markets", datetime.now(UTC))
        s.schedules.worker.wake()
        await s.waits_again(occurrence, tries=2)
        run = await s.bot.store.run(run_id("markets", occurrence.at, 2))
        await s.bot.store.database.write(update.values(cost_usd=0.5, not_before=occurrence.at))
        s.schedules.worker.wake()
        over = await s.over(occurrence)
    assert run.args["limits"]["cost_usd"] == pytest.approx(0.1)
    assert (over.state, over.cost_usd) == ("failed", 0.5)
    assert "its tries have spent the $0.50 of one run" in over.why


async def test_digest_goes_to_its_owner_alone_and_later_ones_have_only_new_mail(
    tmp_path: Path,
) -> None:
    space = people_with_locale("de-DE")
    async with with_mail(tmp_path, *letters(3), space=space) as (bot, google):
        s = ScheduledBot(bot)
        await s.set("inbox", triage(quiet=True))
        first = await s.fire("inbox")
        assert (await s.wait_for_delivery(first)).delivery == "delivered"
        before, document = s.private_texts(), await s.document(first)
        second = await s.fire("inbox")
        assert (await s.wait_for_delivery(second)).delivery == "quiet"
        assert (await s.document(second))["verdicts"] == []
        assert s.private_texts() == before
        google.gmail.add(letters(4)[3], frozenset({"INBOX"}))
        third = await s.fire("inbox")
        assert (await s.wait_for_delivery(third)).delivery == "delivered"
        assert [v["subject"] for v in (await s.document(third))["verdicts"]] == ["Order 1004"]
        assert s.private_texts()[:-1] == before
        gets = [call for call in google.requests if call.method == "gmail.users.threads.get"]
        spoken = {c for c in bot.slack.state.channels if bot.replies(channel=c)}
        assert spoken == {bot.slack.people.dm(ASKER)}
    assert len(gets) == len(document["verdicts"]) + 1 == 4, "nothing is read twice"
    assert (document["mailbox"], document["title"], document["language"]) == (ME, "inbox", "de")
    assert any("is late" in each for each in before)


NOW = datetime(2025, 4, 8, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@given(st.lists(st.tuples(st.integers(1, 72), st.booleans(), st.booleans()), max_size=12))
def test_report_window_starts_where_the_last_complete_delivered_one_ended(
    story: list[tuple[int, bool, bool]],
) -> None:
    """Hours between occurrences, whether the channel was read whole, whether it was delivered."""
    covered: dict[str, str] = {}
    reached: datetime | None = None
    at = NOW
    for hours, whole, delivered in story:
        at += timedelta(hours=hours)
        begin = window_starts(["C1"], covered, at, DAY)["C1"]
        if reached:
            assert begin == reached
        if delivered:
            window = {"oldest": iso(begin), "latest": iso(at)}
            status = "complete" if whole else "partial"
            section = {"channel": "C1", "status": status, "window": window}
            covered = find_covered(sweep_report({"sections": [section]}), covered)
            reached = at if whole else reached or begin


async def test_simultaneous_schedules_share_the_remaining_daily_budget(tmp_path: Path) -> None:
    specs = {name: sweep(budget_usd=1.0) for name in ("one", "two", "three")}
    most = with_rules(policy={"daily_usd": 1.0})
    async with scheduled_bot(
        tmp_path, specs, offline, slack=LocalSlack(workspace(3, 1)), change=most
    ) as s:
        s.schedules.runner.backoff = SOON
        begun = [await s.begin(name) for name in specs]
        over = [await s.over(occurrence) for occurrence in begun]
        stored = [await s.bot.store.run(occurrence.run or "") for occurrence in over]
    assert [(each.state, each.why) for each in over] == [("ran", "")] * 3
    caps = sorted(run.args["limits"]["cost_usd"] for run in stored)
    assert caps[-1] == pytest.approx(1.0)
    assert sum(run.cost_usd or 0.0 for run in stored) <= 1.0
    assert caps[-2] < 1.0, "no two of them may each spend all of it"


# ---- alerts: one for a failure, one when it is over


NAME = "markets"
WHY = "#reports is archived. Unarchive it, or let its reports go elsewhere."


async def send_alerts(s: ScheduledBot, change: Callable[[sa.Connection], object]) -> None:
    """Change the record of a failure, and let two replicas send its alert at the same time."""
    other = replace(s.schedules.alerts, _woken=asyncio.Event())

    async def is_settled() -> bool:
        found = await failure(s)
        return found is None or bool(found.told and not found.over and not found.held_until)

    await s.bot.store.database.change(change)
    s.schedules.alerts.wake()
    await other.send()
    await come(is_settled)


async def failure(s: ScheduledBot) -> Failure | None:
    stored = await s.schedules.store.get(NAME)
    assert stored
    return stored.trouble


def restored(record: Failure) -> sa.Update:
    """Restore an earlier record, as if a process died before it stored the next one."""
    update = sa.update(schedules).where(schedules.c.id == NAME)
    return update.values(trouble=record)


async def test_failure_alert_is_not_posted_again_when_its_record_was_lost(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with scheduled_bot(tmp_path, {}, offline) as s:
        await s.set(NAME, sweep(to="#reports"))
        await send_alerts(s, lambda c: record_failure(c, NAME, WHY, now, now))
        record = await failure(s)
        assert record
        lost = restored(record.model_copy(update={"told": None}))
        await send_alerts(s, lambda c: c.execute(lost))
        (alert,) = s.bot.slack.visible(dm := s.bot.slack.people.dm(ASKER))
        s.bot.slack.people.delete(BOT_USER, dm, alert.ts)
        await s.schedules.alerts.send()
        assert s.private_texts() == []
        for _ in range(2):
            await send_alerts(s, lambda c: c.execute(restored(record)))
            await send_alerts(s, lambda c: record_success(c, NAME, now, "It is in #reports now."))
        assert len(s.private_texts()) == 1


async def test_links_and_broadcasts_in_a_failure_reason_are_inert(tmp_path: Path) -> None:
    why, now = "<!channel> see https://evil.example *now* <@U0EVA>", datetime.now(UTC)
    async with scheduled_bot(tmp_path, {}, offline) as s:
        await s.set(NAME, sweep(to="#reports"))
        await send_alerts(s, lambda c: record_failure(c, NAME, why, now, now))
        (alert,) = s.bot.slack.visible(s.bot.slack.people.dm(ASKER))
    kinds = {e["type"] for b in alert.blocks for s in b["elements"] for e in s["elements"]}
    assert kinds == {"text", "date", "user"}
    assert "<!channel>" in alert.text


REMINDER = Schedule(kind="reminder", cron=NEVER, text="Call Ana", to="dm", owner=ASKER)


@pytest.mark.parametrize(("spec", "covers"), [(sweep(), True), (REMINDER, False)])
async def test_alert_promises_that_the_next_run_covers_the_time_only_of_a_report(
    tmp_path: Path, spec: Schedule, covers: bool
) -> None:
    async with scheduled_bot(tmp_path, {}, offline) as s:
        await s.set(NAME, spec)
        await send_alerts(s, lambda c: record_failure(c, NAME, WHY, datetime.now(UTC)))
        (alert,) = s.private_texts()
    assert ("covers this time" in alert) is covers
    assert "You will hear from me again" in alert


# ---- deletion of issues, reports and schedules with their messages and people


WORDS = "the purple zebra invoice never arrives"
SAID = f"Hello, {WORDS}, who can help me with that? It is urgent."


async def report_twice(s: ScheduledBot) -> tuple[str, list[Occurrence]]:
    """Report a message twice; return its id and both occurrences."""
    ts = s.bot.slack.people.say("U0LUIS", channel_id(1), SAID)
    await s.set("markets", sweep(channels=("support-1", "support-2")))
    occurrences = []
    after = datetime.fromtimestamp(float(ts), UTC) + timedelta(seconds=1)
    for at in (after, after + timedelta(seconds=2)):  # Slack's clock may be ahead of ours
        occurrences.append(await s.fire("markets", at))
        assert (await s.wait_for_delivery(occurrences[-1])).delivery == "delivered"
    again = await s.document(occurrences[1])
    assert any(WORDS in each["claim"] for each in again["still_open"])
    return f"{channel_id(1)}/{ts}", occurrences


def slack() -> LocalSlack:
    return LocalSlack(workspace(3, 1), retries_s=(0.0, 0.3, 1.0))


async def test_forgotten_message_and_user_leave_no_trace_once_reports_are_delivered(
    tmp_path: Path,
) -> None:
    specs = {"other": sweep(owner="U0EVA")}
    async with scheduled_bot(tmp_path, specs, offline, slack=slack()) as s:
        message, occurrences = await report_twice(s)
        database, run, c = s.bot.store.database, occurrences[1].run or "", schedule_runs.c
        second = sa.update(schedule_runs).where(c.schedule == "markets", c.at == occurrences[1].at)
        assert "issues" in await tables_with(database, [WORDS])
        await database.write(second.values(delivery="waiting"))
        assert (await Forget(database)(ForgetTarget("item", message))).later == 1
        assert (await s.bot.store.run(run)).result, "it is delivered first"
        await database.write(second.values(delivery="delivered"))
        done = await Forget(database)(ForgetTarget("item", message))
        assert (done.later, (await s.bot.store.run(run)).result) == (0, None)
        assert await tables_with(database, [WORDS]) == []
        assert await database.read(sa.select(issues)) == [], "all came from the deleted runs"
        third = await s.fire("markets", datetime.now(UTC) + timedelta(seconds=2))
        assert third.state == "ran", "the schedule goes on"
        await s.wait_for_delivery(third)
        assert (await Forget(database)(ForgetTarget("user", ASKER))).schedules == 1
        assert [each.id for each in await s.schedules.store.all()] == ["other"]
        assert await s.schedules.store.occurrences("markets") == []


async def test_issue_is_kept_when_another_run_reported_it_too(tmp_path: Path) -> None:
    messages = [item(f"C1/{n}.000100", f"Message {n}") for n in (1, 2, 3)]
    with_store(tmp_path)
    store = await Store.open(tmp_path)
    await RunToStore("r1", messages).store(store)
    await RunToStore("r2", messages[2:]).store(store)
    fields: dict[str, Any] = {"state": "unsolved", "severity": "high", "channel": "C1"}
    fields |= {"first": NOW, "last": NOW, "threads": []}
    for each in messages:
        issue = Issue(id=each.text, messages=[each.id], **fields)
        await store.database.write(sa.insert(issues).values(issue.row("markets")))
    done = await Forget(store.database)(ForgetTarget("item", messages[0].id))
    assert (done.issues, done.runs) == (2, 1)
    await Forget(store.database)(ForgetTarget("item", messages[1].id), datetime.now(UTC))
    rows = await store.database.read(sa.select(issues.c.id))
    assert [row.id for row in rows] == ["Message 3"]
    await store.aclose()


async def test_retention_deletes_old_reports_but_keeps_the_last_occurrence(tmp_path: Path) -> None:
    async with scheduled_bot(tmp_path, {}, offline, slack=slack()) as s:
        _, occurrences = await report_twice(s)
        database = s.bot.store.database
        years, at = timedelta(days=800), schedule_runs.c.at
        for each in occurrences:
            moved = sa.update(schedule_runs).where(at == each.at).values(at=each.at - years)
            await database.write(moved)
        await database.write(sa.update(issues).values(last=datetime.now(UTC) - years))
        never: dict[str, Any] = dict.fromkeys(("trajectories_days", "actions_days", "notes_days"))
        settings = RetentionSettings(workflows_days=14, results_days=365, **never)
        await tidy(database, settings)
        rest = await s.schedules.store.occurrences("markets")
        assert [each.at for each in rest] == [occurrences[1].at - years]
        assert await s.schedules.store.list_delivered("markets", 1)
        assert await database.read(sa.select(issues)) == []

        await s.schedules.store.delete("markets")
        await tidy(database, settings)
        assert await database.read(sa.select(schedules)) != []
        await database.write(sa.update(schedules).values(changed=datetime.now(UTC) - years))
        await tidy(database, settings)
        assert await database.read(sa.select(schedules)) == []
        assert await s.schedules.store.occurrences("markets") == []


async def test_notes_from_a_forgotten_author_are_deleted_by_a_retry_after_a_failure(
    tmp_path: Path,
) -> None:
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
