"""Cards through the whole bot: shown, clicked and executed once, and no forged click counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pg_kit
import pytest
import pytest_asyncio
import sqlalchemy as sa
from card_kit import (
    BOSS,
    EVA,
    GUEST,
    LUIS,
    TEXT,
    THERE,
    again,
    ask_for_card,
    bot_texts,
    buttons,
    card,
    cards,
    cards_in,
    payload,
    people,
    posted_texts,
    posting_model,
    reaches,
    stored_actions,
    until_logged,
    verdicts,
    wait_for_form,
    wait_for_states,
    with_approvers,
)
from engine_kit import Json, brief_answer, come, say, scripted_parent, until
from fleet_kit import Fleet, fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve_kit import ASKER, Served, serve
from standins.slack import LocalSlack
from standins.slack_faults import Fault
from standins.slack_shown import Shown

from bot.approvals.cards import FORM, CardClicked, card_click
from bot.approvals.service import CLICK_RULES, HOLDS_FOR
from bot.approvals.store import CardDecision
from bot.listeners.events import parse_event
from bot.local.slack.state import BOT_USER
from bot.local.workspace import User, Workspace
from bot.runs.store import Store
from bot.slack.messages import Bot
from bot.storage.tables import actions
from config.words import phrase


@pytest_asyncio.fixture
async def bot(tmp_path: Path) -> AsyncIterator[Served]:
    """A bot whose model wants to post a text in another channel."""
    async with serve(tmp_path, posting_model(), space=people()) as bot:
        yield bot


async def test_approved_text_is_posted_once_as_shown(tmp_path: Path) -> None:
    async with serve(tmp_path, posting_model(), space=people(), mode="http") as bot:
        shown = await ask_for_card(bot)
        assert "Send a message to C00000002 (#support-2)" in shown.text.splitlines()[0]
        assert TEXT in shown.text
        assert posted_texts(bot) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        (row,) = await reaches(bot, "done")
        assert posted_texts(bot) == [TEXT]
        await until(lambda: not cards(bot))
        assert f"Approved by <@{ASKER}>" in again(bot, shown).text
        assert row.decided_by == ASKER
        assert await verdicts(bot) == [("approved", "consequence")] * 2
        await bot.bench.approvals.actions.finish(row.id, "failed", "It was given up.")
        (row,) = await stored_actions(bot)
        assert row.state == "done", "what is done stays done"


async def test_an_edited_text_is_shown_again_and_only_that_is_sent(bot: Served) -> None:
    shown = await ask_for_card(bot)
    before = buttons(shown)["action_approve"]
    bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_edit")
    view = await wait_for_form(bot)
    assert view.body["private_metadata"] == before
    bot.slack.people.submit(ASKER, view.id, {"text": "The login works again."})
    await until(lambda: buttons(again(bot, shown))["action_approve"] != before)
    assert "The login works again." in again(bot, shown).text
    assert TEXT not in again(bot, shown).text
    assert posted_texts(bot) == []
    old = payload(shown, channel=bot.channel, value=before)
    bot.slack.put("interactive", old)
    await until(lambda: "changed the text" in " ".join(bot.whispers()))
    await wait_for_states(bot, "asked", "edited")
    bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
    await reaches(bot, "done", "edited")
    assert posted_texts(bot) == ["The login works again."]
    outcomes = [verdict for verdict, _ in await verdicts(bot)]
    assert sorted(outcomes) == ["approved", "approved", "edited", "refused"]


def inside(*members: str) -> Workspace:
    """The request reads, and the card writes, in a private channel of these people."""
    space = people()
    private = replace(space.channels[1], is_private=True, members=(*members, BOT_USER))
    return replace(space, channels=(space.channels[0], private, *space.channels[2:]))


def leave(bot: Served) -> None:
    bot.slack.people.leave(ASKER, THERE)


def archive(bot: Served) -> None:
    channels = bot.slack.state.channels
    channels[THERE] = replace(channels[THERE], is_archived=True)


@pytest.mark.parametrize("change", [leave, archive])
async def test_approved_message_is_not_posted_after_its_channel_was_left_or_archived(
    tmp_path: Path, change: Callable[[Served], None]
) -> None:
    slack = LocalSlack(inside(ASKER, LUIS))
    async with serve(tmp_path, posting_model(), slack=slack) as bot:
        shown = await ask_for_card(bot)
        change(bot)
    async with serve(tmp_path, posting_model(), slack=slack) as bot:  # with empty caches
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "failed")
        await until(lambda: "Not done" in again(bot, shown).text)
        assert posted_texts(bot) == []


async def test_card_says_that_the_bot_may_not_post_in_a_restricted_channel(bot: Served) -> None:
    shown = await ask_for_card(bot)
    bot.slack.faults.append(Fault("chat.postMessage", "error:restricted_action"))
    bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
    await reaches(bot, "failed")
    await until(lambda: "It was not written: I may not post there." in again(bot, shown).text)


async def test_click_by_a_user_who_is_no_longer_a_full_member_is_refused(bot: Served) -> None:
    shown = await ask_for_card(bot)
    users = bot.slack.state.users
    member = users[ASKER]

    async def approve_as(user: User) -> str:
        users[ASKER], before = user, len(bot.whispers())
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await until(lambda: len(bot.whispers()) > before)
        return bot.whispers()[-1]

    assert "Only full members" in await approve_as(replace(member, deleted=True))
    bot.slack.faults += [Fault("users.info", "error:internal_error")] * 5
    assert "could not check" in await approve_as(member)
    assert [row.state for row in await stored_actions(bot)] == ["asked"]
    assert posted_texts(bot) == []


async def test_answer_is_shown_after_an_admin_approves_the_grant(tmp_path: Path) -> None:
    """Another administrator has left the company."""
    change = with_approvers(EVA, admins=(LUIS, BOSS))
    model = scripted_parent(brief_answer(2), say("The widget is late [F1.1]."))
    slack = LocalSlack(inside(ASKER))
    slack.state.users[LUIS] = replace(slack.state.users[LUIS], deleted=True)
    async with serve(tmp_path, model, slack=slack, change=change) as bot:
        thread = bot.ask()
        direct = bot.slack.people.dm(BOSS)
        shown = await card(bot, direct)
        assert "widget" not in str([bot.slack.visible(bot.channel), bot.slack.visible(direct)])
        bot.slack.put("interactive", payload(shown, user=EVA, channel=direct))
        bot.slack.put("interactive", payload(shown, user=ASKER, channel=direct))
        await until_logged(bot, 2)
        assert {row.state for row in await stored_actions(bot)} == {"asked"}
        bot.slack.people.click(BOSS, direct, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert "widget" in str([m.blocks for m in bot.replies(thread)])
        (grant,) = await bot.bench.approvals.grants.all()
        assert (grant.sources, grant.destination, grant.by) == ((THERE,), bot.channel, BOSS)


# ---- cards that cannot be shown


async def test_card_rejected_by_slack_is_dropped_and_reported(bot: Served) -> None:
    """A card that Slack would accept shows only a part of the text."""
    await ask_for_card(bot)
    (row,) = await stored_actions(bot)
    (key,) = [r.request for r in await bot.store.runs() if r.id == row.run]
    request = await bot.inbox.request(key or "")
    assert request
    proposals = bot.bench.approvals.cards
    new = replace(row.action.with_arguments({"text": "Another."}), made=datetime.now(UTC))
    await proposals.actions.add(new)
    bot.slack.faults.append(Fault("chat.postMessage", "error:msg_blocks_too_long"))
    assert await proposals.show(row.run, request) == 1
    assert [each.id for each in await stored_actions(bot, "denied")] == [new.id]
    assert ["cannot show it to you" in text for text in bot.whispers()] == [True]
    assert len(cards(bot)) == 1
    assert "For your approval" not in str(bot.slack.visible(bot.channel))


# ---- crashes


async def test_next_process_executes_an_action_approved_before_a_crash(tmp_path: Path) -> None:
    """The first one dies after it has stored the click, before it goes on."""
    slack = LocalSlack(people())
    async with serve(tmp_path, posting_model(), slack=slack) as bot:
        shown = await ask_for_card(bot)
        (row,) = await stored_actions(bot, "asked")
        decision = CardDecision("approved", ASKER)
        assert await bot.bench.approvals.actions.decide(row, decision)
        assert posted_texts(bot) == []
    async with serve(tmp_path, posting_model(), slack=slack) as bot:
        await reaches(bot, "done")
        assert posted_texts(bot) == [TEXT]
        await until(lambda: "Approved by" in again(bot, shown).text)


async def becomes(bots: Fleet, state: str, url: str | None = None) -> None:
    """Wait until the one action is stored in this state: its card is shown earlier."""
    store = await Store.open(bots.folder / "data", url)

    async def is_in_state() -> bool:
        return [row.state for row in await store.database.read(sa.select(actions.c.state))] == [
            state
        ]

    try:
        await come(is_in_state)
    finally:
        await store.aclose()


@pytest.mark.system
@pytest.mark.parametrize("when", ["before it is posted", "after it was posted"])
async def test_approved_message_is_posted_once_if_the_process_is_killed(
    tmp_path: Path, when: str
) -> None:
    with fleet(tmp_path, posting_model(), space=people()) as bots:
        (first,) = await bots.start_bots()
        bots.ask()
        await becomes(bots, "asked")
        (shown,) = cards_in(bots.slack, bots.channel)
        kind = Fault("chat.postMessage", "drop" if when.startswith("before") else "lost")
        bots.slack.faults += [kind] + [Fault("chat.postMessage", "drop")] * 50
        calls = bots.slack.calls["chat.postMessage"]
        bots.slack.people.click(ASKER, bots.channel, shown.ts, "action_approve")
        await until(lambda: bots.slack.calls["chat.postMessage"] > calls, 20)
        first.kill()
        bots.slack.faults.clear()
        await bots.start_bots()
        await until(lambda: bot_texts(bots.slack, THERE), 30)
        await until(lambda: not cards_in(bots.slack, bots.channel), 30)
        assert bot_texts(bots.slack, THERE) == [TEXT]


BOT = Bot("U0BOT", "B0BOT", "T0ACME")
OTHER = "1741564800.000100"


def forged_clicks(shown: Shown, channel: str) -> dict[str, tuple[Json, str]]:
    """Name -> (the payload, the rule that it breaks)."""

    def click_payload(**fields: Any) -> Json:
        return payload(shown, **{"channel": channel, **fields})

    id = buttons(shown)["action_approve"]
    place = {"type": "message", "message_ts": shown.ts, "channel_id": channel}
    elsewhere = {**place, "channel_id": "C0X"}
    return {
        "an unknown id": (click_payload(value="0" * 32), "bound"),
        "no id": (click_payload(value=""), "bound"),
        "an id and more": (click_payload(value=f"{id} "), "bound"),
        "a list": (click_payload(value=[id]), "bound"),
        "another message": (click_payload(container={**place, "message_ts": OTHER}), "bound"),
        "a copy elsewhere": (click_payload(channel="C0X", container=elsewhere), "bound"),
        "two places at once": (click_payload(message={"ts": OTHER}), "bound"),
        "no place": (click_payload(container=None), "bound"),
        "an ephemeral copy": (click_payload(container={**place, "is_ephemeral": True}), "bound"),
        "the button of a batch": (click_payload(action="action_approve_all", value=id), "bound"),
        "a bystander": (click_payload(user=EVA), "clicker"),
        "an admin who is no approver": (click_payload(user=BOSS), "clicker"),
        "the requester's id of another workspace": (click_payload(team="T0EVIL"), "clicker"),
        "no workspace": (click_payload(user=ASKER, team=""), "clicker"),
        "an approver of another workspace": (click_payload(user=LUIS, team="T0EVIL"), "clicker"),
        "a guest who is an approver": (click_payload(user=GUEST), "clicker"),
        "somebody whom Slack does not know": (click_payload(user="U0NOBODY"), "clicker"),
    }


async def test_no_forged_click_does_anything(tmp_path: Path) -> None:
    change = with_approvers(LUIS, GUEST, "U0NOBODY", admins=(BOSS,))
    async with serve(tmp_path, posting_model(), space=people(), change=change) as bot:
        shown = await ask_for_card(bot)
        attempts = forged_clicks(shown, bot.channel)
        for number, (what, (body, _)) in enumerate(attempts.items()):
            bot.slack.put("interactive", body)
            await until_logged(bot, number + 1)
            (row,) = await stored_actions(bot)
            assert row.state == "asked", what
        broken = sorted(rule for _, rule in await verdicts(bot))
        assert broken == sorted(rule for _, rule in attempts.values())
        assert posted_texts(bot) == []
        bot.slack.put("interactive", payload(shown, channel=bot.channel))
        await reaches(bot, "done")
        assert posted_texts(bot) == [TEXT]


async def test_one_of_several_clicks_decides_and_the_rest_see_who_decided(tmp_path: Path) -> None:
    change = with_approvers(LUIS)
    async with serve(tmp_path, posting_model(), space=people(), change=change) as bot:
        shown = await ask_for_card(bot)
        bot.slack.state.members[bot.channel][LUIS] = None
        for user in (ASKER, LUIS, ASKER, LUIS):
            bot.slack.put("interactive", payload(shown, user=user, channel=bot.channel))
        (row,) = await reaches(bot, "done")

        def all_whispers() -> list[str]:
            return [*bot.whispers(), *bot.whispers(LUIS)]

        await until(lambda: len(all_whispers()) == 3)
        assert all(f"<@{row.decided_by}> has approved this" in text for text in all_whispers())
        bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny"))
        await until(lambda: len(all_whispers()) == 4)
        assert [row.state for row in await stored_actions(bot)] == ["done"]
        assert posted_texts(bot) == [TEXT]


async def test_card_can_be_denied_while_all_work_is_paused(bot: Served) -> None:
    shown = await ask_for_card(bot)
    await bot.inbox.pause("Ida")
    bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny"))
    await reaches(bot, "denied")


async def test_approval_older_than_a_day_is_not_executed(bot: Served) -> None:
    await ask_for_card(bot)
    (row,) = await stored_actions(bot)
    at = datetime.now(UTC) - HOLDS_FOR - timedelta(seconds=1)
    decision = {"state": "approved", "decided_by": ASKER, "decided_at": at}
    await bot.store.database.write(sa.update(actions).values(decision))
    await bot.bench.approvals.execute(row.id)
    (row,) = await stored_actions(bot)
    assert row.outcome == {"said": phrase("action.late")}
    assert posted_texts(bot) == []


# ---- forms


def form_submission(id: str, texts: Mapping[str, Any], **fields: Any) -> Json:
    values = {name: {FORM: {"type": "plain_text_input", "value": t}} for name, t in texts.items()}
    view = {"callback_id": FORM, "private_metadata": id, "state": {"values": values}}
    return {
        "type": "view_submission",
        "user": {"id": ASKER, "team_id": "T0ACME"},
        "view": view,
        **fields,
    }


async def test_form_changes_only_texts_and_only_for_people_who_may_decide(bot: Served) -> None:
    shown = await ask_for_card(bot)
    id = buttons(shown)["action_approve"]
    for number, body in enumerate(
        (
            form_submission(id, {"channel": "C00000003"}),
            form_submission(id, {"text": "Mine.", "thread": "1"}),
            form_submission(id, {"text": "Mine."}, user={"id": EVA, "team_id": "T0ACME"}),
            form_submission(id, {"text": "Mine."}, user={"id": ASKER, "team_id": "T0EVIL"}),
            form_submission("f" * 32, {"text": "Mine."}),
        )
    ):
        bot.slack.put("interactive", body)
        await until_logged(bot, number + 1)
    assert {verdict for verdict, _ in await verdicts(bot)} == {"refused"}
    assert [row.state for row in await stored_actions(bot)] == ["asked"]
    bot.slack.put("interactive", form_submission(id, {"text": "Mine."}))
    await wait_for_states(bot, "asked", "edited")
    assert "Mine." in again(bot, shown).text
    bot.slack.put("interactive", form_submission(id, {"text": "Late."}))
    await until_logged(bot, 7)
    await wait_for_states(bot, "asked", "edited")
    assert posted_texts(bot) == []


# ---- each rule is needed


@pytest.mark.parametrize("rule", sorted(CLICK_RULES))
async def test_each_click_rule_blocks_an_otherwise_accepted_click(bot: Served, rule: str) -> None:
    shown = await ask_for_card(bot)
    place = "C00000003" if rule == "bound" else bot.channel
    click = card_click(payload(shown, user=EVA if rule == "clicker" else ASKER, channel=place))
    assert click
    if rule == "once":
        bot.slack.put("interactive", payload(shown, channel=bot.channel, action="action_deny"))
        await reaches(bot, "denied")
    elif rule == "recheck":
        await bot.inbox.pause("the test")
    elif rule == "expiry":
        past = datetime.now(UTC) - timedelta(seconds=1)
        await bot.store.database.write(sa.update(actions).values(expires=past))
    for rules, done in ((CLICK_RULES, []), (CLICK_RULES - {rule}, [TEXT])):
        approvals = replace(bot.bench.approvals, rules=rules)
        after = await approvals.on_click(click)
        if done:
            after.close()  # it is executed below
        else:
            await after
        await approvals.execute(click.id)
        assert posted_texts(bot) == done


# ---- replicas


@pytest.mark.system
async def test_two_replicas_execute_one_click_once(tmp_path: Path) -> None:
    with (
        pg_kit.database() as url,
        fleet(tmp_path, posting_model(), url=url, space=people()) as bots,
    ):
        await bots.start_bots(2)
        bots.ask()
        await becomes(bots, "asked", url)
        (shown,) = cards_in(bots.slack, bots.channel)
        bots.balancer.times = 2  # each replica gets each click twice
        bots.slack.people.click(ASKER, bots.channel, shown.ts, "action_approve")
        await until(lambda: not cards_in(bots.slack, bots.channel), 20)
        await becomes(bots, "done", url)
        await until(lambda: all(d.acked_at or d.reason for d in bots.slack.deliveries))
        assert bot_texts(bots.slack, THERE) == [TEXT]


# ---- payloads of any shape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, JSON, JSON, JSON, JSON)
def test_payloads_of_any_shape_are_parsed_without_an_error(
    user: Any, pressed: Any, place: Any, view: Any, value: Any
) -> None:
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
