"""New mail is known between triages: none is lost, none is asked for or handled twice."""

from __future__ import annotations

import asyncio
import random
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from gmail_kit import id_of, mail, stored
from pg_kit import Kept, place, postgres
from poll_kit import ANA, EVA, EVERY, Post, post

from bot.accounts.connected import GOOGLE
from bot.erasure.mail import forget_mail
from bot.erasure.targets import Target
from bot.local.google.mbox import Mailbox
from bot.local.google.server import TOKEN, Fault
from bot.local.slack.faults import Fault as SlackFault
from bot.mail.polls import TAKEN_FOR
from bot.mail.sync import OTHER, TOO_OLD
from scopes.mail import Changes

__all__ = ["place", "postgres"]

OLD = (stored(1, mail(1), 1), stored(2, mail(2), 2))
MINUTE = timedelta(minutes=1)


async def test_a_triage_goes_on_from_what_a_look_has_stored(place: Kept) -> None:
    store = await place.store()
    async with post(store, *OLD) as at:
        await at.triage()
        first, second = at.come(3).thread, at.come(4, answers=1).thread
        await at.look()
        assert (await at.noticed()).incoming == {first, second}
        await at.look()  # nothing is due
        third = at.come(5).thread
        asked = at.asked("history.list")
        made = await at.triage()

    assert asked == 1
    assert made.new.keys() == {first, second, third}
    assert (await at.noticed()).threads == frozenset()
    await store.aclose()


async def test_what_a_look_has_asked_for_is_not_asked_for_again(tmp_path: Path) -> None:
    """Each change comes in one answer of history.list, whoever asked for it."""
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        starts = []
        for number in range(3, 7):
            at.come(number)
            await at.look(EVERY)
            starts.append((await at.poll()).history)
        await at.triage()
        await at.look(EVERY)

        assert starts == [str(int(starts[0]) + n) for n in range(4)]
        assert at.asked("history.list") == 5, "four looks, one triage; the last look saw no change"
        assert at.asked("threads.get") == 2 + 4


async def test_a_mailbox_that_nobody_triaged_is_left_alone(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.look()
        assert at.google.requests == []
        assert await at.polling.polls.all() == []


async def test_own_mail_and_what_is_filed_away_are_not_new_to_a_reader(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        at.come(3, "SENT")
        at.come(4, "DRAFT")
        at.come(5, "SPAM")
        mine = at.come(6, "INBOX").thread
        await at.look()
        assert (await at.noticed()).incoming == {mine}
        assert len((await at.noticed()).threads) == 4, "a triage looks at all that changed"


async def test_a_look_costs_one_unit_where_nothing_came(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        before = at.google.units()
        await at.look()
        assert at.google.units() - before == 1
        quota = at.polling.mailboxes._quotas[ANA]
        assert quota._used >= at.google.units(), "what a look takes counts as the mailbox's"


async def test_a_triage_that_was_not_delivered_loses_nothing_of_it(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        thread = at.come(3).thread
        await at.look()
        dead = await at.triage(delivered=False)
        at.come(4)
        await at.look(EVERY)
        again = await at.triage()
    assert dead.new.keys() == {thread}
    assert again.new.keys() > {thread}


async def test_a_history_that_is_too_old_is_known_before_and_mended_by_a_listing(
    tmp_path: Path,
) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        await at.look()
        missed = at.come(3).thread
        at.google.gmail.forget_history()
        await at.look(EVERY)
        later = at.come(4).thread
        await at.look(EVERY)
        assert (await at.noticed()).lost
        made = await at.triage()
        after = at.come(5).thread
        await at.look(EVERY)
        again = await at.triage()

    assert (made.sync.why, set(made.new)) == (TOO_OLD, {missed, later})
    assert (again.sync.full, set(again.new)) == (False, {after})


async def test_looks_keep_a_history_from_getting_too_old(tmp_path: Path) -> None:
    """The cursor of a triage long ago is of no use to Gmail; what was stored since then is."""
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        first = at.come(3).thread
        await at.look(EVERY)
        state = at.google.gmail
        state.oldest_history = state.history_id  # a week has passed
        last = at.come(4).thread
        made = await at.triage()
    assert (made.sync.full, set(made.new)) == (False, {first, last})


@pytest.mark.parametrize("kind", ["429", "500", "503", "drop", "malformed", "quotaExceeded"])
async def test_a_fault_is_tried_again_after_a_pause_that_grows(tmp_path: Path, kind: str) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        thread = at.come(3).thread
        at.google.faults.append(Fault("history.list", kind, times=2))
        await at.look()
        await at.look(MINUTE / 2)
        assert (await at.poll()).failures == 1
        await at.look(MINUTE)
        await at.look(MINUTE)
        assert (await at.poll()).failures == 2, "the second pause is longer"
        await at.look(2 * MINUTE)
        assert ((await at.poll()).failures, set((await at.noticed()).threads)) == (0, {thread})
        assert (await at.triage()).new.keys() == {thread}


async def test_who_dies_between_the_answer_and_the_store_has_lost_nothing(tmp_path: Path) -> None:
    """What was asked for is asked for again, by whoever takes the mailbox when it is free."""
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        thread = at.come(3).thread
        await at.polling.polls.begin()
        dead = await at.polling.polls.take(ANA, at.clock())
        assert dead
        await at.look(MINUTE)
        assert (await at.poll()).history == "", "it belongs to the one that died"
        await at.look(TAKEN_FOR)
        assert (await at.noticed()).threads == {thread}
        cursor = await at.state.cursor(ANA)
        assert cursor
        late = await _changes(at)
        args = (late, False, at.clock(), at.clock())
        assert not await at.polling.polls.noted(dead, cursor, *args), (
            "who wakes up late is too late"
        )
        assert (await at.noticed()).threads == {thread}
        assert (await at.triage()).new.keys() == {thread}


async def _changes(at: Post) -> Changes:
    opened = await at.polling.mailboxes.open(ANA)
    assert opened
    try:
        return await opened.gmail.changes(str(at.google.gmail.oldest_history))
    finally:
        await opened.aclose()


async def test_of_several_processes_one_looks_into_a_mailbox(postgres: Kept) -> None:
    async with postgres.stores(1) as (store,), post(store, *OLD) as at:
        await at.triage()
        at.come(3)
        others = [at.process() for _ in range(4)]
        await asyncio.gather(*(each.look() for each in others))
        assert at.asked("history.list") == 1


async def test_a_withdrawn_access_is_told_once_and_tried_once_a_day(
    tmp_path: Path,
) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        thread = at.come(3).thread
        at.revoke()
        for _ in range(4):
            await at.look(EVERY)
        assert len(at.told()) == 1
        assert "Google no longer lets the assistant into this mailbox" in at.told()[0]
        assert "Connect Gmail" in at.told()[0]
        asked = len(at.google.requests)
        await at.look(EVERY)
        assert len(at.google.requests) == asked, "it is not tried every ten minutes"
        at.allow()
        await at.look(timedelta(days=2))
        assert (await at.poll()).revoked is None
        assert (await at.triage()).new.keys() == {thread}
        assert len(at.told()) == 1


async def test_who_connects_again_is_looked_into_at_once(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        at.come(3)
        at.revoke()
        await at.look()
        assert (await at.poll()).revoked
        at.allow()
        await at.look(MINUTE)
        assert (await at.poll()).revoked, "nobody has connected it"
        at.clock.moved = timedelta(0)
        await at.connect(ANA)
        await at.look()
        assert (await at.poll()).revoked is None
        assert len((await at.noticed()).threads) == 1


async def test_a_user_who_cannot_be_reached_is_told_later_and_once(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        at.revoke()
        at.slack.faults.append(SlackFault("conversations.open", "error:user_disabled"))
        await at.look()
        await at.look(MINUTE)
        assert at.told() == []
        for _ in range(3):
            await at.look(timedelta(hours=1))
        assert len(at.told()) == 1


async def test_a_disconnected_mailbox_is_left_alone(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        await at.credentials.delete(GOOGLE, ANA)
        asked = len(at.google.requests)
        await at.look()
        assert len(at.google.requests) == asked
        assert ((await at.poll()).failures, at.told()) == (0, [])


async def test_another_mailbox_is_left_to_the_next_triage(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        at.come(3)
        await at.look()
        at.google.join(Mailbox("eva@acme.example", (stored(9, mail(9), 9),)), TOKEN)
        await at.look(EVERY)
        assert at.asked("history.list") == 1
        made = await at.triage()
    assert (made.sync.why, set(made.new)) == (OTHER, {id_of(9)})


async def test_two_who_share_a_mailbox_are_told_apart(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD, users=(ANA, EVA)) as at:
        await at.triage(ANA)
        thread = at.come(3).thread
        await at.triage(EVA)
        await at.look()
        assert (await at.noticed(ANA)).threads == {thread}
        assert (await at.noticed(EVA)).threads == frozenset()


async def test_what_is_noticed_goes_with_the_user(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        await at.triage()
        at.come(3)
        await at.look()
        await forget_mail(at.store.database, Target("user", ANA), dry_run=False)
        assert await at.polling.polls.all() == []
        assert await at.state.cursor(ANA) is None


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_a_triage_with_looks_finds_what_one_without_finds(
    tmp_path: Path, seed: int
) -> None:
    """Ana's mailbox is looked into in between, Eva's is not: it is the same mailbox."""
    await _compared(tmp_path, seed, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
async def test_it_holds_over_many_days(tmp_path: Path, seed: int) -> None:
    await _compared(tmp_path, seed, steps=80)


async def _compared(path: Path, seed: int, steps: int) -> None:
    dice = random.Random(seed)
    async with post(path / uuid.uuid4().hex, *OLD, users=(ANA, EVA)) as at:
        await _both(at, delivered=True)
        number = 10
        for _ in range(steps):
            number += 1
            await _happens(at, dice, number)
        at.google.faults.clear()
        await _both(at, delivered=True)
        assert (await _both(at, delivered=True)) == {}


async def _happens(at: Post, dice: random.Random, number: int) -> None:
    state = at.google.gmail
    match dice.choice(
        ["mail"] * 4 + ["own", "label", "gone", "look", "look", "fault", "old", "triage"]
    ):
        case "mail":
            at.come(number, dice.choice(["INBOX", "INBOX", "SPAM"]), dice.choice([0, 1, 2]))
        case "own":
            at.come(number, dice.choice(["SENT", "DRAFT", "SENT INBOX"]), 1)
        case "label" if state.messages:
            state.relabel(dice.sample(sorted(state.messages), 1), ["STARRED"], ["UNREAD"])
        case "gone" if state.messages:
            state.remove(dice.choice(sorted(state.messages)))
        case "look":
            await _only_ana(at)
        case "fault":
            kind = dice.choice(["429", "500", "drop", "lost", "malformed"])
            at.google.faults.append(Fault("history.list", kind))
            await _only_ana(at)
            at.google.faults.clear()
        case "old":
            if dice.random() < 0.3:
                state.forget_history()
        case "triage":
            await _both(at, delivered=dice.random() < 0.8)


async def _only_ana(at: Post) -> None:
    at.clock.moved = timedelta(0)
    await at.polling.polls.begin(but=(EVA,))
    await at.polling.polls.put_off(ANA, at.clock())
    await at.polling.poll(ANA)


async def _both(at: Post, *, delivered: bool) -> dict[str, list[str]]:
    ana, eva = await at.triage(ANA, delivered=delivered), await at.triage(EVA, delivered=delivered)
    assert ana.new == eva.new
    return ana.new
