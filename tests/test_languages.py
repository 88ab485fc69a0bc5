"""Replies are in one language: with all German texts marked, no unmarked text is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from card_kit import (
    LUIS,
    QUESTION,
    TEXT,
    THERE,
    again,
    ask_for_card,
    people,
    posting_model,
    reaches,
)
from digest_kit import triage, verdict
from engine_kit import channel_id, until
from language_kit import marked, unmarked_words
from schedule_kit import scheduled_bot, sweep
from serve_kit import ASKER, change_settings, serve
from standins.slack import LocalSlack
from test_home import FULL
from test_schedule_chat import schedule_model, schedules

from bot.listeners.home import HomeFacts, view
from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Workspace
from bot.mailbox.oauth import MailAccess
from bot.reports.documents import TriageReport, parse_document
from bot.reports.slack import report_parts
from config.schedules import Schedule
from config.settings import Settings
from config.words import in_language, language_name
from scopes.effects import OPEN_MAIL
from scopes.preferences import Preference

__all__ = ["marked"]

pytestmark = pytest.mark.usefixtures("marked")

IN_GERMAN = "Was ist in #support-2 noch offen?"
MAIL = [
    MailAccess("off"),
    MailAccess("absent"),
    MailAccess("delegated"),
    MailAccess("offered", link="https://bot.example/go"),
    MailAccess("waiting", "ana@acme.example"),
    MailAccess("connected", "ana@acme.example"),
]


def people_with_locale(locale: str) -> Workspace:
    space = people()
    return replace(space, users=tuple(replace(each, locale=locale) for each in space.users))


@pytest.mark.parametrize("mail", MAIL, ids=[each.state for each in MAIL])
def test_home_is_in_one_language(mail: MailAccess) -> None:
    facts = replace(FULL, admin=True, mail=mail, scopes=("all",), handles={OPEN_MAIL: ""})
    facts = replace(facts, preferences=(Preference(1, "Short"),), paused=f"<@{ASKER}>")
    with in_language("de"):
        views = [
            view(facts),
            view(replace(facts, paused=None, runs=(), places=())),
            view(HomeFacts()),
        ]
    user_texts = ("which questions are open? @here", "slow one", "In direct messages.", "Short")
    marks = (
        "double_vertical_bar",
        "U0BOT",
        "ana@acme.example",
        "here",
        "which *questions* are open?",
    )
    assert unmarked_words(views, *user_texts, *marks) == []


@pytest.mark.parametrize(
    ("user", "question", "profile"),
    [(ASKER, QUESTION, ""), (LUIS, "¿Qué sigue sin respuesta en #support-2?", "es-ES")],
)
async def test_configured_channel_language_is_used_for_replies(
    tmp_path: Path, user: str, question: str, profile: str
) -> None:
    space = people_with_locale(profile)
    channel = space.channels[0].id

    def change(settings: Settings) -> Settings:
        return change_settings(settings, slack={"languages": {channel: "de"}})

    async with serve(tmp_path, posting_model(), space=space, change=change) as bot:
        card = await ask_for_card(bot, question, user=user)
        assert unmarked_words(card.blocks, TEXT, THERE, "support") == []
        assert "LANGUAGE: German" in str(bot.parents()[0]["messages"])


@pytest.mark.parametrize(
    ("question", "profile", "language"),
    [
        (IN_GERMAN, "en-US", "de"),
        ("What is open in #support-2?", "de-DE", "en"),
        (IN_GERMAN, "nl-NL", "en"),
    ],
)
async def test_clear_request_language_takes_precedence_over_the_profile(
    tmp_path: Path, question: str, profile: str, language: str
) -> None:
    space = people_with_locale(profile)
    async with serve(tmp_path, posting_model(), space=space) as bot:
        card = await ask_for_card(bot, question)
        assert ("⟦" in str(card.blocks)) == (language == "de")
        expected = profile if profile == "nl-NL" else language
        assert f"LANGUAGE: {language_name(expected)}" in str(bot.parents()[0]["messages"])
        bot.slack.people.click(ASKER, bot.channel, card.ts, "action_deny")
        await reaches(bot, "denied")
        await until(lambda: again(bot, card).text != card.text)
        assert ("⟦" in again(bot, card).text) == (language == "de")


async def test_card_is_in_one_language_if_the_name_of_its_schedule_is_taken(tmp_path: Path) -> None:
    space = people_with_locale("de-DE")
    async with serve(tmp_path, schedule_model(), space=space) as bot:
        card = await ask_for_card(bot, IN_GERMAN)
        await schedules(bot).create("daily", sweep(), "chat", datetime.now(UTC))
        bot.slack.people.click(ASKER, bot.channel, card.ts, "action_approve")
        await reaches(bot, "failed")
        await until(lambda: "already" in again(bot, card).text)
        assert unmarked_words(again(bot, card).blocks) == []


async def test_alert_is_in_one_language_if_its_schedule_sets_one(tmp_path: Path) -> None:
    spec = sweep(cron="", at="2999-01-01T09:00", to="#support-2", language="de")
    slack = LocalSlack(people_with_locale("es-ES"))
    slack.people.leave(BOT_USER, channel_id(2))
    async with scheduled_bot(tmp_path, {"markets": spec}, offline, slack=slack) as s:
        await until(s.private_texts)
        (alert,) = slack.visible(slack.people.dm(ASKER))
    assert unmarked_words(alert.blocks) == []


async def test_scheduled_question_is_answered_in_its_own_language(tmp_path: Path) -> None:
    when = "2999-01-01T09:00"
    spec = Schedule(kind="ask", request=IN_GERMAN, at=when, to="dm", owner=ASKER)
    slack = LocalSlack(people_with_locale("en-US"))
    async with scheduled_bot(tmp_path, {"open": spec}, slack=slack) as s:
        await s.wait_for_delivery(await s.fire("open"))
        (answer,) = slack.visible(slack.people.dm(ASKER))
        assert "LANGUAGE: German" in str(s.bot.parents()[0]["messages"])
    assert "⟦Schedule open of" in answer.text


def test_a_digest_is_in_the_language_of_its_reader() -> None:
    unreadable = [{"thread_id": "u1", "subject": "Plan", "reason": "⟦not judged⟧"}]
    document = triage(
        verdict("a1", asked_of_me=True, deadline="2025-03-14", draft_reply="Yes", status="partial"),
        *(verdict(f"b{n}") for n in range(9)),
        unreadable=unreadable,
        language="de",
    )
    report = parse_document(document)
    assert isinstance(report, TriageReport)
    blocks = [block for part in report_parts(report, ("question",)) for block in part.blocks]
    content = [text for each in document["verdicts"] for text in _texts(list(each.values()))]
    content += ["Lena Brandt", "nordlicht.example"]
    months = ("März", "Do", "Fr", "Sa", "So", "Mo", "Di", "Mi", "Tagen", "vor", "Tg", "Std", "Min")
    assert unmarked_words(blocks, *content, "Plan", document["mailbox"], *months) == []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
        yield value[:1].upper() + value[1:]
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
