"""Reports by mail: to whom they may go, what they hold, and that each is sent once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, Literal

import pytest
from engine_kit import until
from mail_kit import ME, letters
from schedule_kit import Scheduled, sweep, triage
from serve_kit import ASKER, ruled
from test_delivering import FAILED, impatient, once_read, space
from test_inbox_triage import with_mail

from bot.local.google.server import Fault, LocalGoogle
from bot.local.mind.mind import answer as offline
from bot.local.slack.server import LocalSlack
from bot.replies.render import Part
from bot.schedule.letter import page_of, text_of
from config.schedules import Schedule
from config.settings import Settings

OTHER = "head.of.support@acme.example"


def own_admin(settings: Settings) -> Settings:
    return ruled(policy={"admins": (ASKER,)})(impatient(settings))


@asynccontextmanager
async def office(
    tmp_path: Path, spec: Schedule, origin: Literal["config", "chat"] = "config", **more: Any
) -> AsyncIterator[tuple[Scheduled, LocalGoogle]]:
    """A bot with the schedule `markets`, whose owner has connected a mailbox."""
    await asyncio.to_thread(tmp_path.mkdir, exist_ok=True)
    more = {"mind": offline, "more": impatient, "slack": LocalSlack(space()), **more}
    async with with_mail(tmp_path, *letters(1), **more) as (bot, google):
        s = Scheduled(bot)
        s.schedules.delivering.backoff = (timedelta(seconds=0.2),)
        s.schedules.trouble.look_s = 0.1
        await s.schedules.book.create("markets", spec, origin, datetime.now(UTC))
        yield s, google


def sent(google: LocalGoogle) -> list[EmailMessage]:
    held = [google.gmail.messages[id].raw for id in google.gmail.sent]
    return [message_from_bytes(raw, EmailMessage, policy=default) for raw in held]


async def test_a_report_is_mailed_to_its_owner_as_text_and_page_with_its_table(
    tmp_path: Path,
) -> None:
    async with office(tmp_path, sweep(to=ME, channels=("support-*", "board"))) as (s, google):
        delivery = await s.delivered(await s.fire("markets"))
        (mail,) = sent(google)
        text, page = (mail.get_body((kind,)) for kind in ("plain", "html"))
        assert text
        assert page
        said, shown = text.get_content(), page.get_content()
        (table,) = mail.iter_attachments()
    assert delivery.state == "delivered"
    assert delivery.place == {"mail": ME, "id": google.gmail.sent[0]}
    assert mail["To"] == ME
    assert "markets" in mail["Subject"]
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "Nordlicht" in said
    assert "Nordlicht" in shown
    assert "<script" not in shown
    assert "<img" not in shown
    assert (table.get_filename(), table.get_content_type()) == ("findings.csv", "text/csv")
    assert s.told() == []


@pytest.mark.parametrize("kind", ["500", "drop", "lost", "429"])
async def test_a_mail_whose_answer_is_lost_is_sent_once(tmp_path: Path, kind: str) -> None:
    async with office(tmp_path, sweep(to=ME)) as (s, google):
        google.faults.append(Fault("gmail.users.messages.send", kind))
        delivery = await s.delivered(await s.fire("markets"))
        assert delivery.state == "delivered"
        assert len(sent(google)) == 1


async def test_only_what_everybody_may_read_is_mailed_to_anybody_else(tmp_path: Path) -> None:
    spec = sweep(to=OTHER, channels=("support-*", "board"))
    async with office(tmp_path, spec) as (s, google):
        delivery = await s.tried(await s.fire("markets"))
        assert "mailed to nobody but its owner" in delivery.why
        await until(lambda: sum(FAILED in each for each in s.told()) == 1)
        assert sent(google) == []
    async with office(tmp_path / "public", sweep(to=OTHER)) as (s, google):
        await s.delivered(await s.fire("markets"))
        assert [mail["To"] for mail in sent(google)] == [OTHER]


async def test_set_in_chat_it_goes_to_others_only_for_an_administrator(tmp_path: Path) -> None:
    async with office(tmp_path, sweep(to=OTHER), "chat") as (s, google):
        delivery = await s.tried(await s.fire("markets"))
        assert "only where an administrator" in delivery.why
        assert sent(google) == []
    other = tmp_path / "admin"
    async with office(other, sweep(to=OTHER), "chat", more=own_admin) as (s, google):
        await s.delivered(await s.fire("markets"))
        assert len(sent(google)) == 1


async def test_a_digest_goes_to_nobody_else_by_mail(tmp_path: Path) -> None:
    async with office(tmp_path, triage(to=OTHER)) as (s, google):
        delivery = await s.tried(await s.fire("markets"))
        assert "mailed to nobody but its owner" in delivery.why
        assert sent(google) == []


async def test_a_mailbox_that_is_gone_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    holder: list[LocalGoogle] = []

    def refuse() -> None:
        holder[0].faults += [Fault("gmail.users.messages.send", "403") for _ in range(3)]

    mind = once_read(refuse)
    async with office(tmp_path, sweep(to=ME), mind=mind) as (s, google):
        holder.append(google)
        tick = await s.fire("markets")
        await until(lambda: sum(FAILED in each for each in s.told()) == 1)
        google.faults.clear()
        await s.delivered(tick)
        assert len(sent(google)) == 1


def test_nothing_in_a_letter_acts_or_is_fetched() -> None:
    hostile = '<img src="https://evil.example/x.png"><script>x</script> & "quoted"'
    section = {
        "type": "rich_text_section",
        "elements": [
            {"type": "text", "text": hostile, "style": {"bold": True}},
            {"type": "link", "url": "javascript:alert(1)", "text": "open"},
            {"type": "link", "url": "https://acme.slack.com/archives/C1/p1", "text": "thread"},
            {"type": "user", "user_id": "U0ANA"},
        ],
    }
    items = {"type": "rich_text_list", "style": "ordered", "offset": 2, "elements": [section]}
    blocks = (
        {"type": "header", "text": {"type": "plain_text", "text": hostile}},
        {"type": "rich_text", "elements": [section, items]},
        {"type": "actions", "elements": [{"type": "button", "text": {"text": "Press me"}}]},
        {"type": "context", "elements": [{"type": "plain_text", "text": "3 channels"}]},
    )
    page, text = page_of([Part("x", blocks)]), text_of([Part("x", blocks)])
    assert "<img" not in page
    assert "<script" not in page
    assert "javascript:" not in page
    assert '<a href="https://acme.slack.com/archives/C1/p1">thread</a>' in page
    assert '<ol start="3">' in page
    assert "Press me" not in page + text
    assert "3. " in text
    assert "thread (https://acme.slack.com/archives/C1/p1)" in text
    assert "3 channels" in text
