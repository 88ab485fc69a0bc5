"""Scheduled questions and reminders, through the whole bot: requested, run, delivered once."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from card_kit import EVA, LUIS, card, cards, reaches
from engine_kit import (
    Json,
    brief,
    brief_answer,
    channel_id,
    come,
    is_child,
    line,
    opening,
    say,
    scripted_parent,
    turn,
    turns,
    until,
    use,
)
from schedule_kit import NEVER, ScheduledBot, scheduled_bot
from serve_kit import ASKER
from standins.slack import LocalSlack
from standins.slack_shown import Shown
from test_preferences import read_home, store_of
from test_schedule_chat import (
    ChangingModel,
    approve_card,
    bot_with,
    in_madrid,
    only,
    plain,
    private,
    tool_call_model,
    tool_texts,
)

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER
from bot.local.slack.views import home
from bot.schedules.description import moment, when
from bot.storage.schedules import StoredSchedule
from bot.tasks.ask import IN_ORDER
from config.schedules import Schedule
from scopes.preferences import Authorship

HERE = channel_id(1)
ANA = "Call Ana about the offer"
ORDERS = "Tell me what is open in #support-2"
WEEKLY = "0 9 * * mon"


def local(ahead: timedelta) -> str:
    """Return a time in UTC, `ahead` of now."""
    return f"{datetime.now(UTC) + ahead:%Y-%m-%dT%H:%M}"


TOMORROW = local(timedelta(days=1))


def reminder_model(**changes: Any) -> Responder:
    call = use("remind_me", **{"name": "call-ana", "text": ANA, "at": TOMORROW, **changes})
    return scripted_parent(Answer([call]), say("I will."))


def schedule_model(kind: str, **changes: Any) -> Responder:
    """A parent that creates this schedule at any request."""
    content = {"text": ANA} if kind == "reminder" else {"request": ORDERS}
    call = use("schedule_create", **{"name": "orders", "kind": kind, **content, **changes})
    return scripted_parent(Answer([call]), say("It waits for your approval."))


def reminder(**more: Any) -> Schedule:
    fields = {"kind": "reminder", "text": ANA, "to": "dm", "owner": ASKER}
    return Schedule(**{**fields, **({} if "at" in more else {"cron": NEVER}), **more})


def question(**more: Any) -> Schedule:
    fields: Json = {"kind": "ask", "request": ORDERS, "to": "dm", "owner": ASKER, "cron": NEVER}
    return Schedule(**{**fields, **more})


def bot_posts(slack: LocalSlack, channel: str) -> list[Shown]:
    """Return the messages of the bot in the channel, without those in threads."""
    return [m for m in slack.visible(channel) if m.user == BOT_USER and not m.thread_ts]


def reminders(slack: LocalSlack, channel: str) -> list[str]:
    return [m.text for m in bot_posts(slack, channel) if "Reminder: " in m.text]


answer_model = scripted_parent(brief_answer(2), say("It is **open** [F1.1]."))


# ---- a reminder


async def test_reminder_to_oneself_needs_no_approval_and_is_delivered_without_a_model(
    tmp_path: Path,
) -> None:
    async with bot_with(tmp_path, reminder_model()) as bot:
        await bot.answer_directly(f"Remind me tomorrow: {ANA}")
        dm = bot.slack.people.dm(ASKER)
        assert cards(bot, dm) == []
        spec = (await only(bot)).spec
        assert (spec.kind, spec.to, spec.zone) == ("reminder", "dm", "Europe/Madrid")
        assert f"The reminder call-ana is set: {when(spec)}." in tool_texts(bot)[-1]
        calls = len(bot.model.recorded)
        s = ScheduledBot(bot)
        delivery = await s.wait_for_delivery(await s.fire("call-ana"))
        assert delivery.delivery == "delivered"
        assert reminders(bot.slack, dm) == [f"Reminder: {ANA}"]
        assert len(bot.model.recorded) == calls
        assert (await only(bot)).state == "active", "its only occurrence is not due yet"


async def test_one_time_reminder_is_posted_once_and_frees_its_name(tmp_path: Path) -> None:
    """The bot is down when it is due, and starts five minutes later."""
    spec = reminder(at=local(-timedelta(minutes=5)))
    async with scheduled_bot(tmp_path, {}, say) as s:
        dm = s.bot.slack.people.dm(ASKER)
        await s.schedules.store.create(
            "call-ana", spec, "chat", datetime.now(UTC) - timedelta(hours=1)
        )
        await s.schedules.scheduler.reconcile()
        await is_done(s, "call-ana")
        assert reminders(s.bot.slack, dm) == [f"Reminder: {ANA}"]
        assert await s.schedules.store.all() == []
        (stored,) = await s.schedules.store.all(done=True)
        assert stored.id == "call-ana"
        await s.schedules.scheduler.reconcile()
        await s.schedules.worker.look()
        assert len(await s.schedules.store.occurrences("call-ana")) == 1
        again = reminder(at=TOMORROW)
        await s.schedules.store.create("call-ana", again, "chat", datetime.now(UTC))
        assert [row.spec for row in await s.schedules.store.all()] == [again], "its name is free"


async def is_done(s: ScheduledBot, name: str) -> StoredSchedule:
    async def done_schedule() -> StoredSchedule | None:
        row = await s.schedules.store.get(name)
        return row if row and row.state == "done" else None

    return await come(done_schedule)


async def test_missed_reminder_is_posted_late_with_its_due_time_or_skipped(tmp_path: Path) -> None:
    async with scheduled_bot(tmp_path, {}, say) as s:
        dm, now = s.bot.slack.people.dm(ASKER), datetime.now(UTC)
        for name, hours in (("late", 5), ("lost", 60)):
            spec = reminder(at=local(-timedelta(hours=hours)), text=f"{name}: {ANA}")
            await s.schedules.store.create(name, spec, "chat", now - timedelta(hours=61))
        daily = reminder(cron="0 0 * * *", text="daily")
        await s.schedules.store.create("daily", daily, "chat", now - timedelta(days=4))
        await s.schedules.scheduler.reconcile()
        await is_done(s, "late")
        await is_done(s, "lost")
        (lost,) = await s.schedules.store.occurrences("lost")
        assert (lost.state, "missed_hours" in lost.why) == ("skipped", True)
        await until(lambda: len(reminders(s.bot.slack, dm)) == 2)
        latest, *missed = await s.schedules.store.occurrences("daily")
        assert (latest.state, {o.state for o in missed}) == ("ran", {"skipped"})
        (late,) = [each for each in reminders(s.bot.slack, dm) if "late" in each]
        (occurrence,) = await s.schedules.store.occurrences("late")
        assert f"It was due on {moment(occurrence.at)} (UTC)." in late


async def test_reminder_from_a_thread_of_others_needs_approval_and_its_text_is_inert(
    tmp_path: Path,
) -> None:
    """Its text notifies nobody, and no address in it is a link."""
    text = "<!channel> @everyone pay at https://evil.example/x <@U0EVA>"
    async with bot_with(tmp_path, reminder_model(text=text)) as bot:
        root = bot.slack.people.say(EVA, bot.channel, text)
        bot.ask("Remind me of this tomorrow.", thread_ts=root)
        (row,) = await reaches(bot, "asked")
        assert await bot.bench.schedules.store.all() == []
        (shown,) = cards(bot)
        assert f"Says: {text}\n" in plain(shown.text)
        assert row.requester == ASKER
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        s = ScheduledBot(bot)
        await s.wait_for_delivery(await s.fire("call-ana"))
        (message,) = [
            m for m in bot_posts(bot.slack, bot.slack.people.dm(ASKER)) if "Remin" in m.text
        ]
        assert "pay at evil[.]example/x" in message.text
        assert not re.search(r"'type': '(broadcast|user|usergroup|link)'", str(message.blocks))


async def test_reminder_for_others_or_a_channel_needs_approval_and_names_its_author(
    tmp_path: Path,
) -> None:
    turning = ChangingModel(schedule_model("reminder", cron=WEEKLY, to=LUIS))
    async with bot_with(tmp_path, turning) as bot:
        text = await approve_card(bot, "Remind Luis every Monday at 9.")
        assert f"Goes to: {LUIS} (@" in text
        assert "When: Every Monday at 09:00 (Europe/Madrid); next: Mon, " in text
        assert "* *" not in text
        s = ScheduledBot(bot)
        await s.wait_for_delivery(await s.fire("orders"))
        (message,) = reminders(bot.slack, bot.slack.people.dm(LUIS))
        assert message == f"Reminder: {ANA}\nFor <@{ASKER}>"
        turning.responder = schedule_model("reminder", name="here", cron=WEEKLY)
        await until(lambda: not cards(bot))
        await approve_card(bot, "Remind us here every Monday at 9.")
        await s.wait_for_delivery(await s.fire("here"))
        assert reminders(bot.slack, HERE) == [f"Reminder: {ANA}\nFor <@{ASKER}>"]


# ---- a question


async def test_scheduled_question_runs_as_its_owner_and_is_posted_with_sources(
    tmp_path: Path,
) -> None:
    setup = schedule_model("ask", cron=WEEKLY, to="here")

    def model(body: Json) -> Answer:
        is_setup = not is_child(body) and "every Monday" in opening(body)
        return (setup if is_setup else answer_model)(body)

    async with bot_with(tmp_path, model) as bot:
        text = await approve_card(bot, f"{ORDERS}, every Monday at 9, here.")
        assert f"Asks: {ORDERS}\n" in text
        assert f"Goes to: {HERE} (#support-1); an answer that not everyone" in text
        await store_of(bot.store.database).add("Answer in Portuguese", Authorship(ASKER))
        s = ScheduledBot(bot)
        occurrence = await s.fire("orders")
        assert occurrence.state == "ran", occurrence
        await s.wait_for_delivery(occurrence)
        (message,) = [m for m in bot_posts(bot.slack, HERE) if "It is **open**" in m.text]
        assert "1 source · " in message.text
        assert "[1](http" in message.text
        foot = f'<@{ASKER}>: Every Monday at 09:00 (Europe/Madrid): "{ORDERS}"'
        assert f"Schedule orders of {foot}" in message.text
        run = await bot.store.run(occurrence.run or "")
        assert (run.requester, run.question, run.status) == (ASKER, ORDERS, "complete")
        (parent,) = [b for b in bot.parents() if "every Monday" not in opening(b) and not turn(b)]
        assert f"REQUEST: {ORDERS}" in opening(parent)
        assert f"PREFERENCES: {IN_ORDER}\n- Answer in Portuguese" in opening(parent)
        assert line(parent, "ASKED IN") == f"{HERE} (#support-1)"
        offered = {tool["name"] for tool in parent["tools"]}
        assert not {"schedule_create", "remind_me", "post_message"} & offered
        assert await bot.leaks() == []


async def test_scheduled_question_respects_the_access_of_its_owner_and_of_the_channel(
    tmp_path: Path,
) -> None:
    """Only Luis may read #support-2; for Ana it does not exist."""
    space = private(2, members=(LUIS,))
    slack = LocalSlack(space)
    schedules = {"hers": question(), "his": question(owner=LUIS, to="#support-1")}
    async with scheduled_bot(tmp_path, schedules, answer_model, slack=slack) as s:
        hers = await s.fire("hers")
        await s.wait_for_delivery(hers)
        assert "not covered: " in s.private_texts()[-1]
        assert (await s.document(hers))["coverage"]["complete"] == 0
        his = await s.fire("his")
        assert (await s.document(his))["coverage"]["complete"] == 1
        delivery = await s.wait_for_tries(his)
        assert (delivery.delivery, delivery.delivery_tries) == ("waiting", 1)
        assert "Not everyone in #support-1 may read its sources" in delivery.why
        assert [m for m in bot_posts(slack, HERE) if "open" in m.text] == []


async def test_schedule_of_a_deactivated_user_fails_without_a_model_call(tmp_path: Path) -> None:
    slack = LocalSlack(in_madrid())
    async with scheduled_bot(tmp_path, {}, say, slack=slack) as s:
        await s.set("hers", question())
        await s.set("call", reminder())
        user = slack.state.users[ASKER]
        slack.state.users[ASKER] = replace(user, deleted=True)
        s.schedules.validator.directory.people._facts.forget()
        for name in ("hers", "call"):
            occurrence = await s.fire(name)
            assert (occurrence.state, "is deactivated" in occurrence.why) == ("failed", True)
        assert s.bot.model.recorded == []


async def test_write_tools_are_denied_to_a_scheduled_question(tmp_path: Path) -> None:
    """Neither its parent nor a subagent may call them."""
    post = use("post_message", channel=HERE, text="Hello")
    direct = use("send_direct_message", person="me", text="Hello")

    children = turns(Answer([post, direct]), answer_model)
    model = scripted_parent(Answer([brief(2, writes=True), post]), say("Done."), children=children)
    async with scheduled_bot(tmp_path, {"orders": question()}, model) as s:
        occurrence = await s.fire("orders")
        await s.wait_for_delivery(occurrence)
        decisions = [d for d in await s.bot.store.decisions(occurrence.run or "") if "_m" in d.tool]
        assert {d.verdict for d in decisions} == {"deny"}
        assert not [m for m in bot_posts(s.bot.slack, HERE) if "Hello" in m.text]
        assert not [text for text in s.private_texts() if "Hello" in text]


# ---- lists, pauses, input


async def test_recipient_can_list_and_delete_a_reminder_but_others_cannot(tmp_path: Path) -> None:
    turning = ChangingModel(tool_call_model("schedule_list"))
    async with bot_with(tmp_path, turning) as bot:
        store, spec = bot.bench.schedules.store, reminder(to=LUIS)
        await store.create("call-ana", spec, "chat", datetime.now(UTC))
        for user, visible in ((LUIS, True), (EVA, False)):
            await bot.answer_directly("What comes to me?", user)
            assert ("schedule/call-ana" in tool_texts(bot)[-1]) is visible
            bot.slack.people.open_home(user)
            await until(lambda: home(bot.slack.state, user))  # noqa: B023
            assert ("call-ana" in read_home(bot, user)[0]) is visible
        turning.responder = tool_call_model("schedule_delete", name="call-ana")
        await bot.answer_directly("Stop call-ana.", EVA)
        assert "no schedule call-ana that the requester may change" in tool_texts(bot)[-1]
        dm = bot.slack.people.dm(LUIS)
        bot.slack.people.say(LUIS, dm, "Stop this reminder.")
        shown = await card(bot, dm)
        bot.slack.people.click(LUIS, dm, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert await store.all(done=True) == []
