"""Delivery of reports: once, after a check of who may read them now, with an alert if it fails."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from card_kit import buttons
from digest_kit import CATEGORIES, verdict
from digest_kit import triage as triage_document
from document_kit import sweep_report, triage_report
from engine_kit import Json, come, is_child, until, workspace
from mail_kit import ME, letters
from report_kit import finding, section, swept
from schedule_kit import ScheduledBot, scheduled_bot, sweep
from serve_kit import ASKER, change_settings
from standins.google import LocalGoogle
from standins.google_faults import Fault as MailFault
from standins.slack import LocalSlack
from standins.slack_faults import Fault, LastingFaults
from standins.slack_shown import Shown
from test_inbox_triage import with_mail

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, Workspace
from bot.reports.markdown import report_markdown
from bot.schedules.delivery import page_of
from bot.storage.requests import try_now
from bot.storage.schedules import Occurrence
from bot.storage.tables import reservations, schedule_runs
from config.schedules import Schedule
from config.settings import Settings

REPORTS, BOARD, ADMIN = "C0REPORTS", "G0BOARD", "U0EVA"
QUICK = (timedelta(seconds=0.2),)
FAILED, AGAIN = "has not delivered", "delivers again"


def space() -> Workspace:
    base = workspace(0)
    markets = [
        Channel(
            f"C0MARKET{n}",
            f"support-{n}",
            (
                Message(f"174000360{n}.000100", f"URGENT: {shop} cannot pay, error 500.", ASKER),
                Message(f"174000460{n}.000100", f"{shop} asks for a refund, any news?", "U0LUIS"),
            ),
            (ASKER, "U0LUIS"),
        )
        for n, shop in enumerate(("Nordlicht GmbH", "Casa Sol", "Petit Bateau"))
    ]
    reports = Channel(REPORTS, "reports", members=(ASKER, "U0LUIS"))
    message = Message("1740003600.000100", "Our refund is late, who can help?", "U0LUIS")
    board = Channel(BOARD, "board", (message,), (ASKER, BOT_USER), is_private=True)
    return replace(base, channels=(*markets, reports, board))


def to_reports(**more: Any) -> Schedule:
    return sweep(to="#reports", **more)


def once_read(action: Callable[[], object]) -> Responder:
    """The offline model; `action` happens once, when all is read and nothing is delivered."""
    calls: list[bool] = []

    def responder(body: Json) -> Answer:
        if not is_child(body) and not calls:
            calls.append(True)
            action()
        return offline(body)

    return responder


@asynccontextmanager
async def office(
    tmp_path: Path,
    spec: Schedule | None = None,
    responder: Responder = offline,
    slack: LocalSlack | None = None,
    **more: Any,
) -> AsyncIterator[ScheduledBot]:
    """A bot with the schedule `markets`, which tries again at once."""
    slack = slack or LocalSlack(space())
    schedules = {"markets": spec or to_reports()}
    async with scheduled_bot(
        tmp_path, schedules, responder, slack=slack, change=impatient, **more
    ) as s:
        s.schedules.delivery.backoff = QUICK
        s.schedules.alerts.look_s = 0.1
        yield s


def impatient(settings: Settings) -> Settings:
    """One try of each call, and an administrator."""
    return change_settings(settings, slack={"retry_attempts": 0}, policy={"admins": (ADMIN,)})


def top_level_posts(s: ScheduledBot, channel: str = REPORTS) -> list[Shown]:
    """The bot's messages in a channel outside of threads."""
    return [m for m in s.bot.slack.visible(channel) if m.user == BOT_USER and not m.thread_ts]


def count_alerts(s: ScheduledBot, user: str = ASKER) -> tuple[int, int]:
    """The number of alerts, and of notes that delivery works again."""
    texts = s.private_texts(user)
    return sum(FAILED in text for text in texts), sum(AGAIN in text for text in texts)


async def over(s: ScheduledBot, occurrence: Occurrence) -> None:
    """Wait until it is delivered and its alert is over."""
    await s.wait_for_delivery(occurrence)

    async def resolved() -> bool | None:
        stored = await s.schedules.store.get("markets")
        return True if stored and not stored.trouble else None

    await come(resolved)


async def test_report_is_posted_in_its_channel_with_details_and_table_in_the_thread(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as s:
        occurrence = await s.fire("markets")
        delivery = await s.wait_for_delivery(occurrence)
        (first,) = top_level_posts(s)
        thread = s.bot.slack.visible(REPORTS, first.ts)
        document = await s.document(occurrence)
        reserved = await s.bot.store.database.read(sa.select(reservations))
    assert reserved == [], "a finished run needs none"
    assert delivery.delivery == "delivered"
    assert delivery.place == {"channel": REPORTS, "ts": first.ts}
    assert delivery.cost_usd == document["cost_usd"]
    assert (delivery.extra or {})["covered"].keys() == {c["channel"] for c in document["sections"]}
    assert len(thread) > 2
    assert [f.name for m in thread for f in m.files] == ["findings.csv"]
    assert count_alerts(s) == (0, 0)


# ---- failures


def archive(slack: LocalSlack, closed: bool = True) -> None:
    slack.state.channels[REPORTS] = replace(slack.state.channels[REPORTS], is_archived=closed)


def expel(slack: LocalSlack) -> None:
    del slack.state.members[REPORTS][BOT_USER]


def invite(slack: LocalSlack) -> None:
    slack.state.members[REPORTS][BOT_USER] = None


@pytest.mark.parametrize(
    ("close", "reopen", "why"),
    [
        (archive, lambda slack: archive(slack, False), "#reports"),
        (expel, invite, "I am not in #reports: invite me there with /invite"),
    ],
)
async def test_closed_channel_alerts_the_owner_once_and_gets_one_report_when_reopened(
    tmp_path: Path,
    close: Callable[[LocalSlack], None],
    reopen: Callable[[LocalSlack], None],
    why: str,
) -> None:
    slack = LocalSlack(space())
    async with office(tmp_path, responder=once_read(lambda: close(slack)), slack=slack) as s:
        occurrence = await s.fire("markets")
        await until(lambda: count_alerts(s) == (1, 0))
        delivery = await s.wait_for_tries(occurrence, 3)
        assert (delivery.delivery, top_level_posts(s)) == ("waiting", [])
        assert why in delivery.why
        assert why in s.private_texts()[0]
        reopen(slack)
        await over(s, occurrence)
        assert len(top_level_posts(s)) == 1
        assert count_alerts(s) == (1, 1)
        alert, note = (m for m in s.bot.slack.visible(slack.people.dm(ASKER)))
        assert "markets" in alert.text
        assert "It was delivered to #reports." in note.text


async def test_alert_goes_to_administrators_if_its_owner_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    slack, now = LocalSlack(space()), datetime.now(UTC)
    async with office(tmp_path, slack=slack) as s:
        slack.faults = [Fault("conversations.open", "error:cannot_dm_bot")]
        why = "#reports is archived."
        await s.schedules.alerts.fails("markets", why, now)
        await until(lambda: s.private_texts(ADMIN))
        assert why in s.private_texts(ADMIN)[0]
        assert s.private_texts() == []


async def test_report_is_kept_during_a_slack_outage_and_delivered_once_afterwards(
    tmp_path: Path,
) -> None:
    slack = LocalSlack(space())

    def cut() -> None:
        slack.faults = LastingFaults([Fault("chat.postMessage", "drop")])

    async with office(tmp_path, responder=once_read(cut), slack=slack) as s:
        occurrence = await s.fire("markets")
        await s.wait_for_tries(occurrence, 2)
        assert top_level_posts(s) == []
        assert s.private_texts() == []  # no alert can be sent yet
        slack.faults = []
        await over(s, occurrence)
        assert len(top_level_posts(s)) == 1
        alerts, notes = count_alerts(s)
        assert alerts <= 1  # if it is over before an alert could be sent, one note says both
        assert notes == 1


async def test_posted_but_unrecorded_report_is_found_by_its_keys_and_not_posted_again(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as s:
        occurrence = await s.fire("markets")
        await s.wait_for_delivery(occurrence)
        before = s.bot.slack.visible(REPORTS)
        forget = sa.update(schedule_runs).values(delivery="waiting", delivered=None, place=None)
        await s.bot.store.database.write(forget)  # as if the process died before it was recorded
        again = await s.wait_for_delivery(occurrence)
        assert again.delivery_tries == 2
        assert s.bot.slack.visible(REPORTS) == before
        assert count_alerts(s) == (0, 0)


async def test_delivered_report_is_not_posted_again_after_its_deletion(tmp_path: Path) -> None:
    """Somebody deletes it, and the workflow that posted it runs again after a crash."""
    async with office(tmp_path) as s:
        delivery = await s.wait_for_delivery(await s.fire("markets"))
        for shown in top_level_posts(s):
            s.bot.slack.people.delete(BOT_USER, REPORTS, shown.ts)
        await s.schedules.delivery.work(delivery.work)
        assert top_level_posts(s) == []


# ---- who may read it


def remove_owner(slack: LocalSlack) -> None:
    slack.state.members[BOARD].pop(ASKER)


def deactivate_owner(slack: LocalSlack) -> None:
    slack.state.users[ASKER] = replace(slack.state.users[ASKER], deleted=True)


@pytest.mark.parametrize(
    ("lose", "why", "told"),
    [
        (remove_owner, "<@U0ANA> may no longer read all of its sources: #board", ASKER),
        (deactivate_owner, "Its owner <@U0ANA> is deactivated", ADMIN),
    ],
)
async def test_report_is_not_posted_after_its_owner_loses_access_to_a_source(
    tmp_path: Path, lose: Callable[[LocalSlack], None], why: str, told: str
) -> None:
    slack = LocalSlack(space())
    responder = once_read(lambda: lose(slack))
    async with office(tmp_path, sweep(channels=("board",)), responder, slack) as s:
        delivery = await s.wait_for_tries(await s.fire("markets"))
        await until(lambda: count_alerts(s, told) == (1, 0))
    assert why in delivery.why
    assert "refund" not in " ".join([*s.private_texts(), *s.private_texts(told)])


# ---- approval by an administrator


async def test_report_not_readable_by_all_in_the_channel_waits_for_admin_approval(
    tmp_path: Path,
) -> None:
    spec = to_reports(channels=("support-*", "board"))
    async with office(tmp_path, spec) as s:
        s.schedules.delivery.backoff = (timedelta(hours=1),)
        occurrence = await s.fire("markets")
        delivery = await s.wait_for_tries(occurrence)
        assert (delivery.delivery, top_level_posts(s)) == ("waiting", [])
        assert "#board (not everyone in #reports is a member)" in delivery.why
        assert "An administrator is asked" in delivery.why
        await until(lambda: count_alerts(s) == (1, 0))
        assert len(s.private_texts(ADMIN)) == 1
        people = s.bot.slack.people
        place = people.dm(ADMIN)
        (card,) = s.bot.slack.visible(place)
        approve = next(action for action in buttons(card) if "approve" in action)
        people.click(ADMIN, place, card.ts, approve, buttons(card)[approve])
        await over(s, occurrence)
        assert len(top_level_posts(s)) == 1
        assert count_alerts(s) == (1, 1)


# ---- by mail

OTHER = "head.of.support@acme.example"


def own_admin(settings: Settings) -> Settings:
    return change_settings(impatient(settings), policy={"admins": (ASKER,)})


@asynccontextmanager
async def post_office(
    tmp_path: Path, spec: Schedule, origin: Literal["config", "chat"] = "config", **more: Any
) -> AsyncIterator[tuple[ScheduledBot, LocalGoogle]]:
    """A bot with the schedule `markets`, whose owner has connected a mailbox."""
    more = {"responder": offline, "more": impatient, "slack": LocalSlack(space()), **more}
    async with with_mail(tmp_path, *letters(1), **more) as (bot, google):
        s = ScheduledBot(bot)
        s.schedules.delivery.backoff = (timedelta(seconds=0.2),)
        s.schedules.alerts.look_s = 0.1
        await s.schedules.store.create("markets", spec, origin, datetime.now(UTC))
        yield s, google


def sent_mails(google: LocalGoogle) -> list[EmailMessage]:
    raw_mails = [google.gmail.messages[id].raw for id in google.gmail.sent]
    return [message_from_bytes(raw, EmailMessage, policy=default) for raw in raw_mails]


async def test_report_is_mailed_to_its_owner_as_text_and_html_with_csv_attached(
    tmp_path: Path,
) -> None:
    async with post_office(tmp_path, sweep(to=ME, channels=("support-*", "board"))) as (s, google):
        delivery = await s.wait_for_delivery(await s.fire("markets"))
        (mail,) = sent_mails(google)
        (table,) = mail.iter_attachments()
    assert delivery.delivery == "delivered"
    assert delivery.place == {"mail": ME, "id": google.gmail.sent[0]}
    assert mail["To"] == ME
    assert "markets" in mail["Subject"]
    assert mail["Auto-Submitted"] == "auto-generated"
    for kind in ("plain", "html"):
        body = mail.get_body((kind,))
        assert body
        assert "Nordlicht" in body.get_content()
    assert (table.get_filename(), table.get_content_type()) == ("findings.csv", "text/csv")
    assert s.private_texts() == []


@pytest.mark.parametrize("kind", ["500", "lost"])
async def test_report_mail_is_sent_once_if_gmail_fails_or_its_response_is_lost(
    tmp_path: Path, kind: str
) -> None:
    async with post_office(tmp_path, sweep(to=ME)) as (s, google):
        google.faults.append(MailFault("gmail.users.messages.send", kind))
        delivery = await s.wait_for_delivery(await s.fire("markets"))
        assert delivery.delivery == "delivered"
        assert len(sent_mails(google)) == 1


PRIVATE = {"channels": ("support-*", "board")}


@pytest.mark.parametrize(
    ("fields", "origin", "change", "why"),
    [
        pytest.param(PRIVATE, "config", impatient, "mailed only to its owner", id="private"),
        pytest.param({}, "config", impatient, "", id="public"),
        pytest.param({}, "chat", impatient, "only where an administrator", id="from chat"),
        pytest.param({}, "chat", own_admin, "", id="from chat by an administrator"),
    ],
)
async def test_report_is_mailed_to_others_only_if_public_and_allowed_by_an_administrator(
    tmp_path: Path,
    fields: Json,
    origin: Literal["config", "chat"],
    change: Callable[[Settings], Settings],
    why: str,
) -> None:
    async with post_office(tmp_path, sweep(to=OTHER, **fields), origin, more=change) as (s, google):
        delivery = await s.wait_for_tries(await s.fire("markets"))
        assert why in delivery.why
        assert [mail["To"] for mail in sent_mails(google)] == ([] if why else [OTHER])


HOSTILE = '<img src="https://evil.example/x.png"><script>x</script> & "quoted" [x](javascript:a)'


def test_html_of_a_mailed_report_contains_no_active_or_remote_content() -> None:
    line = {"text": HOSTILE, "findings": ["F1.1"]}
    found = finding("F1.1", claim=HOSTILE, owner=HOSTILE, quotes=[HOSTILE], next_step=HOSTILE)
    entry = verdict("18c0", priority="high", subject=HOSTILE, key_facts=[HOSTILE], sender=HOSTILE)
    filtered = [
        {"thread_id": "18c1", "subject": HOSTILE, "sender": "a@b.example", "reason": "spam"}
    ]
    sweep_page = page_of(
        report_markdown(sweep_report(swept(section("csm-es", found), top_lines=[line])))
    )
    triage_page = page_of(
        report_markdown(triage_report(triage_document(entry, filtered=filtered)), CATEGORIES)
    )
    for page in (sweep_page, triage_page):
        assert "<img" not in page
        assert "<script" not in page
        assert "javascript:" not in "".join(re.findall(r'href="[^"]*"', page))
        assert "evil.example/x.png" not in page.replace("evil[.]example/x[.]png", "")
        assert "&quot;quoted&quot;" in page
    assert f'<a href="{found["links"][0]}">' in sweep_page
    assert f'<a href="{entry["link"]}">↗</a>' in triage_page


async def test_report_is_not_mailed_from_the_mailbox_of_a_former_owner(tmp_path: Path) -> None:
    spec = sweep(to=OTHER)
    async with post_office(tmp_path, spec) as (s, google):
        google.faults += [MailFault("gmail.users.messages.send", "403") for _ in range(3)]
        s.schedules.delivery.backoff = (timedelta(hours=1),)
        occurrence = await s.fire("markets")
        refused = await s.wait_for_tries(occurrence)
        assert refused.delivery == "waiting"
        schedules = {"markets": spec.model_copy(update={"owner": "U0LUIS"})}
        await s.schedules.store.sync(schedules, datetime.now(UTC))
        google.faults.clear()
        assert await try_now(s.bot.store.database, occurrence.run or "")
        again = await s.wait_for_tries(occurrence, 2)
        assert sent_mails(google) == []
        assert "it is mailed only from its owner's mailbox" in again.why
