"""Cards through the whole bot: shown, clicked, executed once, and what becomes of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from card_kit import (
    BOSS,
    EVA,
    LUIS,
    TEXT,
    THERE,
    again,
    approving,
    asked,
    buttons,
    card,
    cards,
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
from engine_kit import Json, brief_answer, call, led_by, say, sentence, until
from fleet_kit import fleet
from serve_kit import ASKER, Served, serving

from bot.local.slack.faults import Fault
from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Workspace, micros

SECRET, HELD = sentence("q2.0"), "The widget is late"


async def test_what_was_approved_is_posted_once_as_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people(), mode="http") as bot:
        shown = await asked(bot)
        assert "Send a message to C00000002 (#support-2)" in shown.text.splitlines()[0]
        assert TEXT in shown.text
        assert posted(bot) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        (row,) = await reaches(bot, "done")
        assert posted(bot) == [TEXT]
        await until(lambda: not cards(bot))
        after = next(m for m in bot.slack.visible(bot.channel) if m.ts == shown.ts)
        assert f"Approved by <@{ASKER}>" in after.text
        assert row.decided_by == ASKER
        assert await verdicts(bot) == [("approved", "consequence")] * 2


async def test_what_was_denied_is_not_done(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_deny")
        await reaches(bot, "denied")
        await until(lambda: not cards(bot))
        bot.slack.put("interactive", payload(shown, channel=bot.channel))
        await until(bot.whispers)
        assert "has denied this" in bot.whispers()[0]
        assert posted(bot) == []


async def test_four_things_share_one_card_and_one_click(tmp_path: Path) -> None:
    texts = [f"Point {n} is done." for n in range(1, 5)]
    async with serving(tmp_path, posting(*texts), space=people()) as bot:
        shown = await asked(bot)
        assert set(buttons(shown)) == {"action_approve_all", "action_deny_all"}
        assert all(text in shown.text for text in texts)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve_all")
        await reaches(bot, "done")
        assert posted(bot) == texts
        await until(lambda: not cards(bot))


async def test_three_things_have_a_card_each(tmp_path: Path) -> None:
    texts = ["One thing.", "Another thing.", "A third thing."]
    async with serving(tmp_path, posting(*texts), space=people()) as bot:
        bot.ask()
        await until(lambda: len(cards(bot)) == 3, 20)
        first, second, third = cards(bot)
        bot.slack.people.click(ASKER, bot.channel, second.ts, "action_approve")
        bot.slack.people.click(ASKER, bot.channel, first.ts, "action_deny")
        await until(lambda: len(cards(bot)) == 1)
        await until(lambda: posted(bot) == ["Another thing."])
        assert cards(bot) == [third]


async def test_an_approver_decides_too_and_a_bystander_does_not(tmp_path: Path) -> None:
    change = approving(LUIS)
    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        for each in (LUIS, EVA):
            bot.slack.state.members[bot.channel][each] = None
        bot.slack.people.click(EVA, bot.channel, shown.ts, "action_approve")
        await until(lambda: bot.whispers(EVA))
        assert "Only the person who asked" in bot.whispers(EVA)[0]
        assert posted(bot) == []
        bot.slack.people.click(LUIS, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert posted(bot) == [TEXT]


async def test_an_edited_text_is_shown_again_and_only_that_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        before = buttons(shown)["action_approve"]
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_edit")
        view = await opened(bot)
        assert view.body["private_metadata"] == before
        bot.slack.people.submit(ASKER, view.id, {"text": "The login works again."})
        await until(lambda: buttons(again(bot, shown))["action_approve"] != before)
        assert "The login works again." in again(bot, shown).text
        assert TEXT not in again(bot, shown).text
        assert posted(bot) == []
        old = payload(shown, channel=bot.channel, value=before)
        bot.slack.put("interactive", old)
        await until(lambda: "changed the text" in " ".join(bot.whispers()))
        await settled_on(bot, "asked", "edited")
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done", "edited")
        assert posted(bot) == ["The login works again."]
        told = [verdict for verdict, _ in await verdicts(bot)]
        assert sorted(told) == ["approved", "approved", "edited", "refused"]


async def test_what_rests_on_private_text_is_shown_to_its_requester_alone(tmp_path: Path) -> None:
    """Eva reads where it was asked, and is no member of what it rests on."""
    space = inside(ASKER)
    here = replace(space.channels[0], is_private=True, members=(ASKER, EVA, BOT_USER))
    mind = led_by(
        call("read_channel_history", channel=THERE),
        call("post_message", channel=THERE, text=SECRET),
        say("It waits."),
    )
    how: Json = {"space": replace(space, channels=(here, *space.channels[1:]))}
    async with serving(tmp_path, mind, limits={"max_subagents": 0}, **how) as bot:
        bot.ask()
        direct = bot.slack.people.dm(ASKER)
        shown = await card(bot, direct)
        assert SECRET in shown.text
        assert SECRET not in str(bot.slack.visible(bot.channel))
        bot.slack.people.click(ASKER, direct, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert posted(bot) == [SECRET]


def inside(*members: str) -> Workspace:
    """The request reads, and the card writes, in a private channel of these people's."""
    space = people()
    private = replace(space.channels[1], is_private=True, members=(*members, BOT_USER))
    return replace(space, channels=(space.channels[0], private, *space.channels[2:]))


async def test_an_expired_card_does_nothing_and_says_so(tmp_path: Path) -> None:
    change = approving(expires_minutes=0.005)
    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        await asyncio.sleep(0.35)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await until(bot.whispers)
        assert "has expired" in bot.whispers()[0]
        await bot.bench.approvals.tidy()
        assert "has expired" in again(bot, shown).text
        assert not buttons(again(bot, shown))
        assert posted(bot) == []
        assert ("refused", "expiry") in await verdicts(bot)


async def test_nothing_is_begun_while_all_work_is_paused(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        await bot.inbox.pause("the test")
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await until(bot.whispers)
        assert "paused by the test" in bot.whispers()[0]
        await bot.inbox.resume()
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        assert posted(bot) == [TEXT]


async def test_who_lost_the_right_to_see_the_place_writes_nothing_there(tmp_path: Path) -> None:
    slack = LocalSlack(inside(ASKER, LUIS))
    async with serving(tmp_path, posting(), slack=slack) as bot:
        shown = await asked(bot)
        bot.slack.people.leave(ASKER, THERE)
    async with serving(tmp_path, posting(), slack=slack) as bot:  # nothing is remembered
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        (row,) = await reaches(bot, "failed", "done")
        assert row.state == "failed"
        assert posted(bot) == []
        await until(lambda: "Not done" in again(bot, shown).text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"deleted": True}, "Only full members"),
        ({"is_restricted": True}, "Only full members"),
        ({}, "could not check"),
    ],
)
async def test_who_changed_between_asking_and_clicking_is_seen(
    tmp_path: Path, change: dict[str, bool], said: str
) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        users = bot.slack.state.users
        users[ASKER] = replace(users[ASKER], **change)
        if not change:
            bot.slack.faults += [Fault("users.info", "error:internal_error")] * 5
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await until(bot.whispers)
        assert said in bot.whispers()[0]
        assert [row.state for row in await stored(bot)] == ["asked"]
        assert posted(bot) == []


async def test_a_place_that_was_archived_meanwhile_gets_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        channels = bot.slack.state.channels
        channels[THERE] = replace(channels[THERE], is_archived=True)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "failed")
        await until(lambda: "Not done" in again(bot, shown).text)
        assert posted(bot) == []


async def test_a_card_that_was_deleted_is_no_loss(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        with bot.slack.state.lock:
            bot.slack.state.timelines[bot.channel].remove(micros(shown.ts))
        bot.slack.put("interactive", payload(shown, channel=bot.channel))
        await reaches(bot, "done")
        assert posted(bot) == [TEXT]


HOLDING = led_by(brief_answer(2), say(f"{HELD} [F1.1]."))


async def test_a_grant_is_offered_to_admins_and_the_answer_follows(tmp_path: Path) -> None:
    change = approving(EVA, admins=(BOSS,))
    async with serving(tmp_path, HOLDING, space=inside(ASKER), change=change) as bot:
        threads = [bot.ask()]
        direct = bot.slack.people.dm(BOSS)
        shown = await card(bot, direct)
        threads.append(bot.ask("And what is open in #support-2 by now?"))
        await settled_on(bot, "asked", "asked")
        await until(lambda: not bot.bench.dispatch.at_work)
        assert len(cards(bot, direct)) == 1, "they are not asked for the same thing twice"
        assert HELD not in str(bot.slack.visible(bot.channel))
        assert HELD not in str(bot.slack.visible(direct))
        assert "#support-2" in shown.text
        bot.slack.put("interactive", payload(shown, user=EVA, channel=direct))
        bot.slack.put("interactive", payload(shown, user=ASKER, channel=direct))
        await until_logged(bot, 2)
        assert {row.state for row in await stored(bot)} == {"asked"}
        bot.slack.people.click(BOSS, direct, shown.ts, "action_approve")
        await reaches(bot, "done")
        for thread in threads:
            assert HELD in str([m.blocks for m in bot.replies(thread)])
        (grant,) = await bot.bench.approvals.grants.all()
        assert (grant.sources, grant.destination, grant.by) == ((THERE,), bot.channel, BOSS)
        await until(lambda: "The grant is in force" in again(bot, shown, direct).text)


async def test_a_grant_that_is_denied_leaves_the_answer_where_it_is(tmp_path: Path) -> None:
    change = approving(admins=(BOSS, EVA))
    async with serving(tmp_path, HOLDING, space=inside(ASKER), change=change) as bot:
        bot.ask()
        directs = [bot.slack.people.dm(user) for user in (BOSS, EVA)]
        shown = [await card(bot, direct) for direct in directs]
        bot.slack.people.click(EVA, directs[1], shown[1].ts, "action_deny")
        await reaches(bot, "denied")
        await until(lambda: not any(cards(bot, direct) for direct in directs))
        assert f"Denied by <@{EVA}>" in again(bot, shown[0], directs[0]).text
        assert HELD not in str(bot.slack.visible(bot.channel))
        assert await bot.bench.approvals.grants.all() == []


# ---- what cannot be shown


async def test_a_card_that_slack_does_not_take_is_dropped_and_told(tmp_path: Path) -> None:
    """Whatever else Slack would take shows less than all of it."""
    async with serving(tmp_path, posting(), space=people()) as bot:
        await asked(bot)
        (row,) = await stored(bot)
        (key,) = [r.request for r in await bot.store.runs() if r.id == row.run]
        request = await bot.inbox.request(key or "")
        assert request
        proposals = bot.bench.approvals.cards
        for text in ("Another text.", "A long text. " * 1_000):
            new = replace(row.action.with_arguments({"text": text}), made=datetime.now(UTC))
            await proposals.actions.add(new)
            bot.slack.faults.append(Fault("chat.postMessage", "error:msg_blocks_too_long"))
            assert await proposals.show(row.run, request) == 1
            dropped = await proposals.actions.get(new.id)
            assert dropped
            assert dropped.state == "denied"
            assert "cannot show it to you" in bot.whispers()[-1]
        assert len(bot.whispers()) == 2
        assert len(cards(bot)) == 1
        assert "For your approval" not in str(bot.slack.visible(bot.channel))


async def test_an_edit_that_slack_does_not_take_is_dropped_and_told(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        shown = await asked(bot)
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_edit")
        view = await opened(bot)
        bot.slack.faults.append(Fault("chat.update", "error:invalid_blocks"))
        bot.slack.people.submit(ASKER, view.id, {"text": "The login works again."})
        await until(bot.whispers)
        assert "cannot show it to you" in bot.whispers()[0]
        await settled_on(bot, "denied", "edited")
        await bot.bench.approvals.tidy()
        assert not buttons(again(bot, shown))
        assert posted(bot) == []


# ---- crashes


async def approved_by_nobody_alive(bot: Served) -> str:
    """Store what a click stores, as if the process had died before it went on."""
    (row,) = await stored(bot, "asked")
    assert await bot.bench.approvals.actions.decide(row, "approved", ASKER, (), owner="single")
    return row.id


async def test_what_was_approved_when_the_process_died_is_done_by_the_next(tmp_path: Path) -> None:
    slack = LocalSlack(people())
    async with serving(tmp_path, posting(), slack=slack) as bot:
        shown = await asked(bot)
        await approved_by_nobody_alive(bot)
        assert posted(bot) == []
    async with serving(tmp_path, posting(), slack=slack) as bot:
        await reaches(bot, "done")
        assert posted(bot) == [TEXT]
        await until(lambda: "Approved by" in again(bot, shown).text)
    async with serving(tmp_path, posting(), slack=slack) as bot:
        await asyncio.sleep(0.3)
        assert posted(bot) == [TEXT]


@pytest.mark.parametrize("lost", ["chat.postMessage", "conversations.replies"])
async def test_cards_are_put_up_once_whatever_is_lost(tmp_path: Path, lost: str) -> None:
    async with serving(tmp_path, posting(), space=people()) as bot:
        bot.slack.faults.append(Fault(lost, "lost"))
        await asked(bot)
        (row,) = await stored(bot, "asked")
        asked_in = await bot.store.find_run(row.run)
        assert asked_in
        assert asked_in.request
        request = await bot.inbox.request(asked_in.request)
        assert request
        assert await bot.bench.approvals.cards.show(row.run, request) == 1
        assert len(cards(bot)) == 1


@pytest.mark.system
@pytest.mark.parametrize("when", ["before it is posted", "after it was posted"])
async def test_a_killed_process_leaves_one_post(tmp_path: Path, when: str) -> None:
    with fleet(tmp_path, posting(), space=people()) as bots:
        (first,) = await bots.started()
        bots.ask()
        await until(lambda: shown_in(bots.slack, bots.channel), 30)
        await asyncio.sleep(0.5)
        (shown,) = shown_in(bots.slack, bots.channel)
        kind = Fault("chat.postMessage", "drop" if when.startswith("before") else "lost")
        bots.slack.faults += [kind] + [Fault("chat.postMessage", "drop")] * 50
        calls = bots.slack.calls["chat.postMessage"]
        bots.slack.people.click(ASKER, bots.channel, shown.ts, "action_approve")
        await until(lambda: bots.slack.calls["chat.postMessage"] > calls, 20)
        first.kill()
        bots.slack.faults.clear()
        await bots.started()
        await until(lambda: said_in(bots.slack, THERE), 30)
        await until(lambda: not shown_in(bots.slack, bots.channel), 30)
        assert said_in(bots.slack, THERE) == [TEXT]
