"""The triage of a schedule: told in private, once, and the next time only what is new."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mail_kit import ME, judging, letters
from schedule_kit import Scheduled, come, scheduled, triage
from serve_kit import ASKER
from test_inbox_triage import with_mail

from bot.mailbox.sync import MailState
from bot.runs.worker import LOOK_EVERY_S
from bot.storage.schedules import StoredSchedule


async def test_a_digest_is_sent_to_its_owner_alone(tmp_path: Path) -> None:
    async with with_mail(tmp_path, *letters(3)) as (bot, _):
        s = Scheduled(bot)
        await s.set("inbox", triage())
        occurrence = await s.fire("inbox")
        assert occurrence.state == "ran", occurrence.why
        assert (await s.delivered(occurrence)).state == "delivered"
        document, told = await s.document(occurrence), s.told()
    assert len(document["verdicts"]) == 3
    assert document["mailbox"] == ME
    assert document["title"] == "inbox"
    assert any("is late" in each for each in told)


async def test_the_second_digest_says_only_what_is_new(tmp_path: Path) -> None:
    async with with_mail(tmp_path, *letters(3)) as (bot, google):
        s = Scheduled(bot)
        await s.set("inbox", triage(quiet=True))
        await s.delivered(await s.fire("inbox"))
        before = len(s.told())
        second = await s.fire("inbox")
        quiet = await s.delivered(second)
        document, told = await s.document(second), s.told()
        gets = [made for made in google.requests if made.method == "gmail.users.threads.get"]
    assert quiet.state == "quiet"
    assert document["verdicts"] == []
    assert len(told) == before
    assert len(gets) == 3, "nothing is read twice"


async def test_what_was_not_delivered_is_told_in_the_next_digest(tmp_path: Path) -> None:
    async with with_mail(tmp_path, *letters(2)) as (bot, _):
        s = Scheduled(bot)
        await s.set("inbox", triage(to="#support-1"))
        first = await s.fire("inbox")
        held = await s.tried(first)
        second = await s.fire("inbox")
        documents = [await s.document(first), await s.document(second)]
        state = MailState(bot.store.database)
        cursor = await state.cursor(ASKER)
    assert held.state == "waiting"
    assert [len(each["verdicts"]) for each in documents] == [2, 2]
    assert cursor is None, "nothing is noted before it is delivered"


async def test_without_a_mailbox_it_is_refused_and_says_how_to_connect_one(tmp_path: Path) -> None:
    async with scheduled(tmp_path, {"inbox": triage()}, judging) as s:

        async def refused() -> StoredSchedule | None:
            found = await s.schedules.store.get("inbox")
            return found if found and found.state == "refused" else None

        why = (await come(refused, 20)).why
        occurrence = await s.begin("inbox")
        await asyncio.sleep(LOOK_EVERY_S + 0.2)
        assert (await s.schedules.occurrences.get("inbox", occurrence.at)) == occurrence, (
            "it waits to be mended"
        )
    assert why.endswith("none is connected. Press Connect Gmail in my App Home.")
