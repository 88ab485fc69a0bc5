"""Clicks that are forged, replayed, late or odd: each counts for nothing, and is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pg_kit
import pytest
import sqlalchemy as sa
from card_kit import (
    BOSS,
    EVA,
    GUEST,
    LUIS,
    TEXT,
    THERE,
    again,
    approving,
    asked,
    buttons,
    opened,
    payload,
    people,
    posted,
    posting,
    reaches,
    said_in,
    settled_on,
    shown_in,
    stored,
    until_logged,
    verdicts,
)
from engine_kit import Json, until
from fleet_kit import fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve_kit import ASKER, serving

from bot.approvals.cards import FORM, CardClicked, card_click
from bot.approvals.service import CLICK_RULES, HOLDS_FOR, LATE
from bot.listeners.events import parse_event
from bot.local.slack.shown import Shown
from bot.slack.messages import Bot
from bot.storage.tables import actions

BOT = Bot("U0BOT", "B0BOT", "T0ACME")
OTHER = "1741564800.000100"


def forged(shown: Shown, channel: str) -> dict[str, tuple[Json, str]]:
    """What it is -> (the payload, the rule that it breaks)."""

    def made(**fields: Any) -> Json:
        return payload(shown, **{"channel": channel, **fields})

    id = buttons(shown)["action_approve"]
    place = {"type": "message", "message_ts": shown.ts, "channel_id": channel}
    return {
        "an unknown id": (made(value="0" * 32), "bound"),
        "no id": (made(value=""), "bound"),
        "an id and more": (made(value=f"{id} "), "bound"),
        "JSON in its place": (made(value='{"id": "' + id + '"}'), "bound"),
        "a list": (made(actions=[{"action_id": "action_approve", "value": [id]}]), "bound"),
        "another message": (made(container={**place, "message_ts": OTHER}), "bound"),
        "a copy in another channel": (
            made(channel="C00000003", container={**place, "channel_id": "C00000003"}),
            "bound",
        ),
        "two places at once": (made(message={"ts": OTHER}), "bound"),
        "no place": (made(container=None), "bound"),
        "an ephemeral copy": (made(container={**place, "is_ephemeral": True}), "bound"),
        "the button of a batch": (made(action="action_approve_all", value=id), "bound"),
        "a bystander": (made(user=EVA), "clicker"),
        "an admin who is no approver": (made(user=BOSS), "clicker"),
        "the requester's id of another workspace": (made(team="T0EVIL"), "clicker"),
        "no workspace": (made(user=ASKER, team=""), "clicker"),
        "an approver's id of another workspace": (made(user=LUIS, team="T0EVIL"), "clicker"),
        "a guest who is an approver": (made(user=GUEST), "clicker"),
        "somebody whom Slack does not know": (made(user="U0NOBODY"), "clicker"),
    }


async def test_no_forged_click_does_anything(tmp_path: Path) -> None:
    change = approving(LUIS, GUEST, "U0NOBODY", admins=(BOSS,))
    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        attempts = forged(shown, bot.channel)
        for number, (what, (body, _)) in enumerate(attempts.items()):
            bot.slack.put("interactive", body)
            await until_logged(bot, number + 1)
            (row,) = await stored(bot)
            assert row.state == "asked", what
        broken = sorted(rule for _, rule in await verdicts(bot))
        assert broken == sorted(rule for _, rule in attempts.values())
        assert posted(bot) == []
        bot.slack.put("interactive", payload(shown, channel=bot.channel))
        await reaches(bot, "done")
        assert posted(bot) == [TEXT]


async def test_a_click_that_is_sent_again_executes_nothing_twice(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        body = payload(shown, channel=bot.channel)
        for _ in range(5):
            bot.slack.put("interactive", body)
        await reaches(bot, "done")
        await until(lambda: len(bot.whispers()) == 4)
        assert all("has approved this" in said for said in bot.whispers())
        bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny"))
        await until(lambda: len(bot.whispers()) == 5)
        (row,) = await stored(bot)
        assert row.state == "done"
        assert posted(bot) == [TEXT]


async def test_of_two_people_at_one_time_one_decides_and_the_other_learns_who(
    tmp_path: Path,
) -> None:
    change = approving(LUIS)
    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        bot.slack.state.members[bot.channel][LUIS] = None
        for user in (ASKER, LUIS):
            bot.slack.put("interactive", payload(shown, user=user, channel=bot.channel))
        (row,) = await reaches(bot, "done")
        assert posted(bot) == [TEXT]
        other = LUIS if row.decided_by == ASKER else ASKER
        await until(lambda: bot.whispers(other))
        assert f"<@{row.decided_by}> has approved this" in bot.whispers(other)[0]


async def test_an_approval_that_is_a_day_old_is_not_executed(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        await asked(bot)
        (row,) = await stored(bot)
        at = datetime.now(UTC) - HOLDS_FOR - timedelta(seconds=1)
        told = {"state": "approved", "decided_by": ASKER, "decided_at": at}
        await bot.store.database.write(sa.update(actions).values(told))
        await bot.bench.approvals.execute(row.id)
        (row,) = await stored(bot)
        assert row.outcome == {"said": LATE}
        assert posted(bot) == []


async def test_one_of_a_batch_is_not_decided_alone(tmp_path: Path) -> None:
    mind = posting(*(f"Point {n} is done." for n in range(4)))
    async with serving(tmp_path, mind, space=people()) as bot:
        shown = await asked(bot)
        one = next(row for row in await stored(bot) if row.tool == "post_message")
        bot.slack.put("interactive", payload(shown, channel=bot.channel, value=one.id))
        await until_logged(bot, 1)
        assert await verdicts(bot) == [("refused", "bound")]
        bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny_all"))
        await reaches(bot, "denied")
        assert posted(bot) == []


# ---- forms


def sent_in(id: str, texts: Mapping[str, Any], **fields: Any) -> Json:
    values = {name: {FORM: {"type": "plain_text_input", "value": t}} for name, t in texts.items()}
    view = {"callback_id": FORM, "private_metadata": id, "state": {"values": values}}
    return {
        "type": "view_submission",
        "user": {"id": ASKER, "team_id": "T0ACME"},
        "view": view,
        **fields,
    }


async def test_a_form_changes_texts_only_and_only_for_who_may_decide(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        id = buttons(shown)["action_approve"]
        for number, body in enumerate(
            (
                sent_in(id, {"channel": "C00000003"}),
                sent_in(id, {"text": "Mine.", "thread": "1"}),
                sent_in(id, {"text": "Mine."}, user={"id": EVA, "team_id": "T0ACME"}),
                sent_in(id, {"text": "Mine."}, user={"id": ASKER, "team_id": "T0EVIL"}),
                sent_in("f" * 32, {"text": "Mine."}),
            )
        ):
            bot.slack.put("interactive", body)
            await until_logged(bot, number + 1)
        assert {verdict for verdict, _ in await verdicts(bot)} == {"refused"}
        assert [row.state for row in await stored(bot)] == ["asked"]
        bot.slack.put("interactive", sent_in(id, {"text": "Mine."}))
        await settled_on(bot, "asked", "edited")
        assert "Mine." in again(bot, shown).text
        bot.slack.put("interactive", sent_in(id, {"text": "Late."}))
        await until_logged(bot, 7)
        await settled_on(bot, "asked", "edited")
        assert posted(bot) == []


async def test_a_form_of_a_card_that_was_decided_on_meanwhile_changes_nothing(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_edit")
        view = await opened(bot)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        bot.slack.people.submit(ASKER, view.id, {"text": "Other words."})
        await until(bot.whispers)
        assert "has approved this" in bot.whispers()[0]
        assert posted(bot) == [TEXT]


# ---- each rule is needed


@pytest.mark.parametrize("rule", sorted(CLICK_RULES))
async def test_without_a_rule_something_gets_through(tmp_path: Path, rule: str) -> None:
    change = approving(expires_minutes=0.005) if rule == "expiry" else approving()
    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        place = "C00000003" if rule == "bound" else bot.channel
        click = card_click(payload(shown, user=EVA if rule == "clicker" else ASKER, channel=place))
        assert click
        if rule == "once":
            bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny"))
            await reaches(bot, "denied")
        elif rule == "recheck":
            await bot.inbox.pause("the test")
        elif rule == "expiry":
            await asyncio.sleep(0.35)
        for rules, done in ((CLICK_RULES, []), (CLICK_RULES - {rule}, [TEXT])):
            approvals = replace(bot.bench.approvals, rules=rules)
            after = await approvals.on_click(click)
            if done:
                after.close()  # it is executed below
            else:
                await after
            await approvals.execute(click.id)
            assert posted(bot) == done


# ---- replicas


@pytest.mark.system
async def test_two_replicas_execute_one_click_once(tmp_path: Path) -> None:
    with (
        pg_kit.database() as url,
        fleet(tmp_path, posting(), url=url, space=people()) as bots,
    ):
        await bots.started(2)
        bots.ask()
        await until(lambda: shown_in(bots.slack, bots.channel), 30)
        await asyncio.sleep(0.5)
        (shown,) = shown_in(bots.slack, bots.channel)
        bots.balancer.times = 2  # each replica hears each click twice
        bots.slack.people.click(ASKER, bots.channel, shown.ts, "action_approve")
        await until(lambda: not shown_in(bots.slack, bots.channel), 20)
        await until(lambda: said_in(bots.slack, THERE), 20)
        await asyncio.sleep(1)
        assert said_in(bots.slack, THERE) == [TEXT]


# ---- payloads of any shape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, JSON, JSON, JSON, JSON)
def test_no_payload_is_too_odd(user: Any, pressed: Any, place: Any, view: Any, value: Any) -> None:
    body = {
        "type": "block_actions",
        "user": user,
        "actions": [{"action_id": "action_approve", "value": value}],
        "container": place,
        "channel": place,
        "message": place,
    }
    for each in (body, {**body, "actions": pressed}, {**body, "user": {"id": ASKER}}):
        found = parse_event(each, BOT)
        assert not isinstance(found, CardClicked) or found.id == "" or len(found.id) == 32
    for each in (view, {"callback_id": FORM, "state": view, "private_metadata": value}):
        parse_event({"type": "view_submission", "user": {"id": ASKER}, "view": each}, BOT)
