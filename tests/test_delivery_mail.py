"""Reports by mail: to whom they may go, what they hold, and that each is sent once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, Literal

import pytest
from digest_kit import CATEGORIES, verdict
from digest_kit import triage as triage_document
from document_kit import sweep_report, triage_report
from engine_kit import until
from mail_kit import ME, letters
from report_kit import finding, section, swept
from schedule_kit import Scheduled, sweep, triage
from serve_kit import ASKER, ruled
from test_delivering import FAILED, impatient, once_read, space
from test_inbox_triage import with_mail

from bot.local.google.faults import Fault
from bot.local.google.server import LocalGoogle
from bot.local.offline.model import answer as offline
from bot.local.slack.server import LocalSlack
from bot.reports.markdown import report_markdown
from bot.schedules.delivery import page_of
from bot.storage.requests import try_now
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
        s.schedules.delivery.backoff = (timedelta(seconds=0.2),)
        s.schedules.alerts.look_s = 0.1
        await s.schedules.store.create("markets", spec, origin, datetime.now(UTC))
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


@pytest.mark.parametrize("kind", ["500", "lost"])
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
        occurrence = await s.fire("markets")
        await until(lambda: sum(FAILED in each for each in s.told()) == 1)
        google.faults.clear()
        await s.delivered(occurrence)
        assert len(sent(google)) == 1


HOSTILE = '<img src="https://evil.example/x.png"><script>x</script> & "quoted" [x](javascript:a)'


def test_nothing_in_a_letter_acts_or_is_fetched() -> None:
    line = {"text": HOSTILE, "findings": ["F1.1"]}
    found = finding("F1.1", claim=HOSTILE, owner=HOSTILE, quotes=[HOSTILE], next_step=HOSTILE)
    told = verdict("18c0", priority="high", subject=HOSTILE, key_facts=[HOSTILE], sender=HOSTILE)
    filtered = [
        {"thread_id": "18c1", "subject": HOSTILE, "sender": "a@b.example", "reason": "spam"}
    ]
    sweep_page = page_of(
        report_markdown(sweep_report(swept(section("csm-es", found), top_lines=[line])))
    )
    triage_page = page_of(
        report_markdown(triage_report(triage_document(told, filtered=filtered)), CATEGORIES)
    )
    for page in (sweep_page, triage_page):
        assert "<img" not in page
        assert "<script" not in page
        assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', page))
        assert "evil.example/x.png" not in page.replace("evil[.]example/x[.]png", "")
        assert "&quot;quoted&quot;" in page
    assert f'<a href="{found["links"][0]}">' in sweep_page
    assert f'<a href="{told["link"]}">open</a>' in triage_page


def test_only_an_address_of_the_web_is_a_link_in_a_letter() -> None:
    assert "href" not in page_of("[x](javascript:alert) [y](data:text/html,z) <mailto:a@b.example>")
    assert '<a href="https://acme.slack.com/x">x</a>' in page_of("[x](https://acme.slack.com/x)")
    assert "<img" not in page_of("![x](https://acme.slack.com/x.png)") + page_of("<img src=x>")


async def test_nothing_is_mailed_from_the_mailbox_of_who_owned_it_before(tmp_path: Path) -> None:
    holder: list[LocalGoogle] = []

    def refuse() -> None:
        holder[0].faults += [Fault("gmail.users.messages.send", "403") for _ in range(3)]

    spec = sweep(to=OTHER)
    async with office(tmp_path, spec, mind=once_read(refuse)) as (s, google):
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
