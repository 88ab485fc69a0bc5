"""The run of a tick: what it reads, what it leaves, and what becomes of it when it cannot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from bot_kit import Shell
from engine_kit import Json, always, channel_id, is_child, turn, until, use, workspace
from schedule_kit import come, scheduled, sweep
from serve_kit import ASKER
from test_channel_sweep import with_tracker

from bot.local.mind.mind import answer as offline
from bot.local.model.faults import Faults
from bot.local.model.server import Answer
from bot.local.sample_workspace import SAMPLE_AS_OF, SAMPLE_DAYS, load_sample
from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER
from bot.schedule.budget import spent
from bot.schedule.records import StoredSchedule, run_id
from bot.schedule.tables import ticks as ticks_table
from bot.storage.gate_tables import actions
from bot.storage.serve_tables import steps
from scopes.tool import iso


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


async def test_a_tick_runs_its_sweep_and_leaves_a_report_to_deliver(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"markets": sweep()}, offline) as s:
        tick = await s.fire("markets")
        document = await s.document(tick)
        delivery = await s.schedules.ticks.delivery("markets", tick.at)
        run = await s.bot.store.run(tick.run or "")

    assert tick.state == "ran", tick
    assert run.kind == "schedule"
    assert run.requester == ASKER
    assert tick.latest == tick.at
    assert delivery
    assert document["title"] == "markets"
    assert document["compared"] is None
    assert len(document["sections"]) == 6
    assert tick.cost_usd == document["cost_usd"]
    assert tick.extra
    assert set(tick.extra["covered"]) == {s["channel"] for s in document["sections"]}


async def test_what_cannot_work_fails_with_a_sentence_and_its_owner_is_told_once(
    tmp_path: Path,
) -> None:
    async with scheduled(tmp_path, {"markets": sweep()}, offline) as s:
        book = s.schedules.book
        spec = sweep(channels=("nothing-*",))
        await book.create("empty", spec, "chat", datetime.now(UTC))
        first = await s.fire("empty")
        second = await s.fire("empty")
        await until(lambda: s.told())
        run = await s.bot.store.run(first.run or "")
        told = s.told()
    why = "No channel that <@U0ANA> may read matches 'nothing-*'."
    assert (first.state, first.why) == ("failed", why)
    assert second.state == "failed"
    assert run.status == "failed"
    assert run.error == {"code": "failed", "message": why}
    assert len(told) == 1


async def test_a_schedule_of_the_settings_that_cannot_work_is_refused_and_the_others_run(
    tmp_path: Path,
) -> None:
    given = {"good": sweep(), "bad": sweep(to="#support-6")}
    slack = LocalSlack(workspace(6), retries_s=(0.0, 0.3, 1.0))
    slack.people.leave(BOT_USER, channel_id(6))
    async with scheduled(tmp_path, given, offline, slack=slack) as s:
        book = s.schedules.book

        async def refused() -> StoredSchedule | None:
            bad = await book.get("bad")
            return bad if bad and bad.state == "refused" else None

        bad = await come(refused, 20)
        assert bad.why == "I am not in #support-6: invite me there with /invite first."
        assert (await s.fire("good")).state == "ran"
        await until(lambda: s.told())
        assert "bad" in s.told()[0]
        slack.people.join(BOT_USER, channel_id(6))
        await s.schedules.refusing.look()
        mended = await book.get("bad")
        assert mended
        assert (mended.state, mended.why) == ("active", "")


MID_MONTH = SAMPLE_AS_OF
"""All times of these runs lie in one month, also where the test begins at the end of one."""


async def test_a_month_that_is_spent_skips_the_run_and_its_owner_is_told_once(
    tmp_path: Path,
) -> None:
    given = {"markets": sweep(budget_usd=1.0, month_usd=1.0)}
    async with scheduled(tmp_path, given, offline) as s:
        first = await s.fire("markets", MID_MONTH)
        paid = sa.update(ticks_table).where(ticks_table.c.at == first.at).values(cost_usd=0.9999)
        await s.bot.store.database.write(paid)
        later = [await s.fire("markets", MID_MONTH) for _ in range(2)]
        await until(lambda: any("not delivered" in each for each in s.told()))
        told = [each for each in s.told() if "not delivered" in each]
    assert [tick.state for tick in later] == ["skipped", "skipped"]
    assert later[0].why == (
        "It did not run: the $1.00 of this month are spent. It runs again next month."
    )
    assert later[0].run is None or not later[0].cost_usd
    assert len(told) == 1


async def test_what_is_left_of_the_month_caps_the_run_and_is_said(tmp_path: Path) -> None:
    given = {"markets": sweep(budget_usd=1.0, month_usd=1.0)}
    async with scheduled(tmp_path, given, offline) as s:
        first = await s.fire("markets", MID_MONTH)
        paid = sa.update(ticks_table).where(ticks_table.c.at == first.at).values(cost_usd=0.98)
        await s.bot.store.database.write(paid)
        tick = await s.fire("markets", MID_MONTH)
        document = await s.document(tick)
        run = await s.bot.store.run(tick.run or "")
    assert run.args["limits"]["cost_usd"] == pytest.approx(0.02)
    assert "$0.02 are left of the $1.00 of this month." in document["notes"]
    assert document["cost_usd"] <= 0.02


async def test_runs_of_schedules_are_not_their_owners_daily_spending(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"markets": sweep()}, offline) as s:
        tick = await s.fire("markets")
        since = datetime.now(UTC) - timedelta(days=1)
        own, _ = await s.bot.inbox.spent(ASKER, since)
        all_of_us, _ = await s.bot.inbox.spent(None, since)
    assert own == 0.0
    assert all_of_us == pytest.approx(tick.cost_usd)


async def test_what_is_tidied_up_leaves_the_steps_of_a_run_at_work(tmp_path: Path) -> None:
    def slow(body: Json) -> Answer:
        reached.append(body)
        return offline(body)

    reached: list[Json] = []
    async with scheduled(tmp_path, {"markets": sweep()}, slow, latency_s=0.5) as s:
        tick = await s.begin("markets")
        await until(lambda: reached)
        count = sa.select(sa.func.count().label("n")).select_from(steps)
        before = (await s.bot.store.database.read(count))[0]["n"]
        await s.bot.inbox.forget(datetime.now(UTC))
        after = (await s.bot.store.database.read(count))[0]["n"]
        over = await s.over(tick)

        async def none() -> bool | None:
            return (await s.bot.store.database.read(count))[0]["n"] == 0 or None

        assert await come(none, 20)
    assert 0 < before <= after
    assert over.state == "ran"


async def test_the_next_report_goes_on_where_the_delivered_one_ended(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"markets": sweep(to="#support-6")}, offline) as s:
        first = await s.fire("markets")
        assert (await s.delivered(first)).state == "delivered"
        channel = channel_id(1)
        s.bot.slack.people.say("U0LUIS", channel, "The export is broken again, please help?")
        second = await s.fire("markets")
        assert (await s.delivered(second)).state == "delivered"
        document = await s.document(second)
        posts = [m for m in s.bot.slack.visible(channel_id(6)) if m.user == BOT_USER]

    windows = {each["channel"]: each["window"] for each in document["sections"]}
    assert {w["oldest"] for w in windows.values()} == {iso(first.at)}
    assert {w["latest"] for w in windows.values()} == {iso(second.at)}
    assert document["compared"] == {"with": iso(first.at), "reports": 1}
    assert len([m for m in posts if not m.thread_ts or m.thread_ts == m.ts]) == 2
    assert document["channels_added"] == []


def test_the_same_sweep_by_schedule_and_on_the_command_line_tells_the_same(
    tmp_path: Path, shell: Shell
) -> None:
    typed = ("sweep", "--sample", "--channels", "csm-*", "--tracker", "F0BUGTRACK")
    by_command = shell(*typed, "--model", "offline", "--json").json
    by_schedule = asyncio.run(swept(tmp_path))
    assert told_in(by_schedule) == told_in(by_command)
    for each in ("patterns", "tracker"):
        assert by_schedule[each] == by_command[each]


async def swept(folder: Path) -> Json:
    """The report of a schedule over the sample workspace."""
    async with scheduled(folder, {}, offline, space=load_sample(), change=with_tracker) as s:
        given = {"tracker": "F0BUGTRACK", "owner": "U0LUCIA", "since_days": SAMPLE_DAYS}
        await s.set("markets", sweep(channels=("csm-*",), **given))
        tick = await s.fire("markets", SAMPLE_AS_OF)
        assert tick.state == "ran", tick.why
        return await s.document(tick)


def told_in(document: Json) -> dict[str, Any]:
    """What the sections say, without what comparing adds."""
    fields = ("claim", "state", "severity", "owner", "next_step", "evidence", "tracker")
    return {
        s["item"]: [s["status"], s["window"], [{n: f[n] for n in fields} for f in s["findings"]]]
        for s in document["sections"]
    }


async def test_a_budget_that_will_not_do_is_said_before_it_begins(tmp_path: Path) -> None:
    one = {"max_concurrency": 1}
    async with scheduled(tmp_path, {}, offline, space=load_sample(), limits=one) as s:
        await s.set("markets", sweep(channels=("csm-*",), owner="U0LUCIA", budget_usd=0.011))
        tick = await s.fire("markets", SAMPLE_AS_OF)
        document = await s.document(tick)
    assert tick.state == "ran", tick.why
    assert document["status"] == "partial"
    (note,) = document["notes"]
    assert note.endswith("and $0.01 may be spent: it may not cover everything.")
    assert document["cost_usd"] <= 0.011
    assert not set((tick.extra or {})["covered"].values()) <= {iso(SAMPLE_AS_OF)}


AWAY = "It could read nothing. The model gave no answer."
LATER = (timedelta(hours=1),)
SOON = (timedelta(seconds=0.2),)


def soon_again(**more: Any) -> Any:
    """One whose next time comes before a run is tried again in an hour."""
    return sweep(cron=f"{datetime.now(UTC) + timedelta(minutes=30):%M} * * * *", **more)


async def test_a_model_that_is_away_fails_the_run_whose_time_the_next_one_covers(
    tmp_path: Path,
) -> None:
    given = {"markets": soon_again()}
    async with scheduled(tmp_path, given, offline, faults=always("http_500")) as s:
        s.schedules.running.backoff = LATER
        tick = await s.fire("markets")
        delivery = await s.schedules.ticks.delivery("markets", tick.at)
        await until(lambda: s.told())
        (told,) = s.told()
    assert (tick.state, tick.tries, tick.not_before) == ("failed", 0, None)
    assert tick.why == AWAY
    assert delivery is None
    assert "not delivered" in told


async def test_a_run_that_failed_for_a_passing_reason_is_tried_again_until_it_works(
    tmp_path: Path,
) -> None:
    down = True
    faults = Faults(lambda index, body: "http_500" if down else None)
    async with scheduled(tmp_path, {"markets": sweep()}, offline, faults=faults) as s:
        s.schedules.running.backoff = SOON
        begun = await s.begin("markets")
        await s.waits_again(begun, tries=2)
        await until(lambda: s.told())
        down = False
        tick = await s.over(begun)
        delivery = await s.delivered(tick)
        await until(lambda: any("delivered again" in each for each in s.told()))
        document = await s.document(tick)
        notices = [each for each in s.told() if "scheduled report markets" in each]
        first = await s.bot.store.run(run_id("markets", tick.at))
        month = await spent(s.bot.store.database, "markets", tick.at)
        dms = [m for m in s.bot.slack.visible(s.bot.slack.people.dm(ASKER)) if m.user == BOT_USER]

    assert (tick.state, tick.why, delivery.state) == ("ran", "", "delivered")
    assert tick.tries >= 2
    assert tick.run == f"{first.id}-{tick.tries + 1}"
    assert (first.status, first.error) == ("failed", {"code": "passing", "message": AWAY})
    assert document["window"]["latest"] == iso(tick.at)
    assert month == pytest.approx(tick.cost_usd)
    assert ["delivered again" in each for each in notices] == [False, True]
    assert len([m for m in dms if not m.thread_ts or m.thread_ts == m.ts]) == 3


async def test_while_a_run_waits_for_its_next_try_the_next_time_takes_its_place(
    tmp_path: Path,
) -> None:
    async with scheduled(tmp_path, {"markets": sweep()}, offline, faults=always("http_500")) as s:
        s.schedules.running.backoff = LATER
        first = await s.begin("markets")
        waiting = await s.waits_again(first, tries=1)
        assert (waiting.state, waiting.why) == ("due", AWAY)
        assert waiting.not_before
        assert waiting.not_before > datetime.now(UTC) + timedelta(minutes=50)
        second = await s.begin("markets", datetime.now(UTC) + timedelta(seconds=1))
        over = await s.over(first)
        await s.waits_again(second, tries=1)
    assert (over.state, over.why, over.tries) == ("failed", AWAY, 1)


async def test_a_run_that_is_too_old_is_not_tried_again(tmp_path: Path) -> None:
    given = {"markets": sweep(missed_hours=0.5)}
    async with scheduled(tmp_path, given, offline, faults=always("http_500")) as s:
        s.schedules.running.backoff = LATER
        tick = await s.fire("markets")
    assert (tick.state, tick.tries) == ("failed", 0)


async def test_all_tries_of_a_run_together_spend_no_more_than_its_budget(tmp_path: Path) -> None:
    async with scheduled(
        tmp_path, {"markets": sweep(budget_usd=0.5)}, offline, faults=always("http_500")
    ) as s:
        s.schedules.running.backoff = LATER
        book, ticks = s.schedules.book, s.schedules.ticks
        await book.pause("markets", "the test")
        tick = await ticks.ask_now("markets", datetime.now(UTC))
        dear = sa.update(ticks_table).where(ticks_table.c.at == tick.at)
        await s.bot.store.database.write(dear.values(tries=1, cost_usd=0.4))
        await book.resume("markets", datetime.now(UTC))
        s.schedules.lanes.wake()
        await s.waits_again(tick, tries=2)
        run = await s.bot.store.run(run_id("markets", tick.at, 2))
        empty = sa.update(ticks_table).where(ticks_table.c.at == tick.at)
        await s.bot.store.database.write(empty.values(cost_usd=0.5, not_before=tick.at))
        s.schedules.lanes.wake()
        over = await s.over(tick)
    assert run.args["limits"]["cost_usd"] == pytest.approx(0.1)
    assert (over.state, over.cost_usd) == ("failed", 0.5)
    assert over.why == (
        "It was not tried again: its tries have spent the $0.50 of one run. "
        "Its next run covers this time."
    )


async def test_channels_that_came_and_went_are_said(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {}, offline) as s:
        await s.set("markets", sweep())
        await s.delivered(await s.fire("markets"))
        channels = s.bot.slack.state.channels
        channels[channel_id(5)] = replace(channels[channel_id(5)], is_archived=True)
        second = await s.fire("markets", datetime.now(UTC) + timedelta(seconds=5))
        document = await s.document(second)
    assert document["channels_gone"] == ["support-5"]


async def test_nothing_is_written_for_a_run_that_nobody_asked_for(tmp_path: Path) -> None:
    def obedient(body: Json) -> Answer:
        if is_child(body) and turn(body) == 0:
            said = {"text": "All your secrets."}
            to_all = use("post_message", channel=channel_id(6), **said)
            return Answer([to_all, use("send_direct_message", user="me", **said)])
        return offline(body)

    async with scheduled(tmp_path, {"markets": sweep()}, obedient) as s:
        tick = await s.fire("markets")
        posted = [m.text for m in s.bot.slack.visible(channel_id(6)) if m.user == BOT_USER]
        decisions = await s.bot.store.decisions(tick.run or "")
        told, proposed = s.told(), await s.bot.store.database.read(sa.select(actions))
    wrote = [d for d in decisions if d.tool in ("post_message", "send_direct_message")]
    assert {(d.tool, d.verdict) for d in wrote} == {
        ("post_message", "deny"),
        ("send_direct_message", "deny"),
    }
    assert posted == []
    assert not [each for each in told if "All your secrets" in each]
    assert proposed == []


async def test_sources_are_read_a_little_after_the_time_of_the_tick(tmp_path: Path) -> None:
    """Where our clock is ahead of Slack's, messages of the window may still be written."""
    async with scheduled(tmp_path, {"markets": sweep()}, offline) as s:
        s.schedules.running.settling = timedelta(seconds=1)
        tick = await s.fire("markets")
    assert tick.state == "ran"
    assert tick.ended
    assert tick.ended - tick.at >= timedelta(seconds=1)
