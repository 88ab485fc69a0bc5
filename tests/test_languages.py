"""A reply in one language: with every text of German marked, nothing is shown without a mark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from card_kit import EVA, TEXT, THERE, again, asked, opened, people, posting, reaches
from digest_kit import triage, verdict
from engine_kit import led_by, say, until, use
from language_kit import german, marked, unmarked
from schedule_kit import Scheduled
from serve_kit import ASKER, serving
from test_home import FULL
from test_schedule_chat import bot_with, in_madrid
from test_scheduled_requests import ANA, creating, local, reminding, said

from bot.listeners.home import HomeFacts, view
from bot.local.model.answer import Answer
from bot.mailbox.oauth import MailAccess
from bot.reports.documents import TriageReport, parse_document
from bot.reports.frame import DETAILS
from bot.reports.slack import report_parts
from bot.slack.blocks import FEEDBACK
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


@pytest.mark.parametrize("mail", MAIL, ids=[each.state for each in MAIL])
def test_home_is_in_one_language(mail: MailAccess) -> None:
    facts = replace(FULL, admin=True, mail=mail, scopes=("all",), handles={OPEN_MAIL: ""})
    facts = replace(facts, preferences=(Preference(1, "Short"),), paused=f"<@{ASKER}>")
    with in_language("de"):
        shown = [
            view(facts),
            view(replace(facts, paused=None, runs=(), places=())),
            view(HomeFacts()),
        ]
    asked = ("which questions are open? @here", "slow one", "In direct messages.", "Short")
    marks = (
        "double_vertical_bar",
        "U0BOT",
        "ana@acme.example",
        "here",
        "which *questions* are open?",
    )
    assert unmarked(shown, *asked, *marks) == []


async def test_home_of_a_german_is_german(tmp_path: Path) -> None:
    async with serving(tmp_path, space=german(people(), ASKER)) as bot:
        bot.slack.people.open_home(ASKER)
        bot.slack.people.open_home(EVA)
        await until(lambda: len(bot.slack.state.views) == 2)
        mine, hers = (
            next(v.body for v in bot.slack.state.views.values() if v.user == user)
            for user in (ASKER, EVA)
        )
        assert unmarked(mine) == []
        assert "What I can do here" in str(hers)
        assert "⟦" not in str(hers)


async def test_a_card_its_form_and_its_end_are_in_the_language_of_who_asked(tmp_path: Path) -> None:
    async with serving(tmp_path, posting(), space=german(people(), ASKER)) as bot:
        shown = await asked(bot, IN_GERMAN)
        content = (TEXT, THERE, "support", "#")
        assert unmarked(shown.blocks, *content) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_edit")
        assert unmarked((await opened(bot)).body, TEXT) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        await until(lambda: "⟦Approved by" in again(bot, shown).text)
        assert unmarked(again(bot, shown).blocks, *content) == []


async def test_a_question_back_is_in_the_language_of_who_is_asked(tmp_path: Path) -> None:
    asks = use("ask_user", question="Which one?", options=["Sales", "Stock"])
    mind = led_by(Answer([asks]), say("I ask."))
    async with serving(tmp_path, mind, space=german(people(), ASKER)) as bot:
        shown = await asked(bot, IN_GERMAN)
        assert unmarked(shown.blocks, "Which one?", "Sales", "Stock") == []


async def test_a_channel_has_one_language_whoever_asks(tmp_path: Path) -> None:
    channel = people().channels[0].id

    def change(settings: Settings) -> Settings:
        slack = settings.slack.model_copy(update={"languages": {channel: "de"}})
        return settings.model_copy(update={"slack": slack})

    async with serving(tmp_path, posting(), space=people(), change=change) as bot:
        shown = await asked(bot)
        assert unmarked(shown.blocks, TEXT, THERE, "support") == []
        assert "LANGUAGE: German" in str(bot.parents()[0]["messages"])


@pytest.mark.parametrize(
    ("asks", "profile", "language"),
    [
        (IN_GERMAN, "en-US", "de"),
        ("What is open in #support-2?", "de-DE", "en"),
        ("#support-2?", "de-DE", "de"),
        (IN_GERMAN, "nl-NL", "en"),
    ],
)
async def test_clear_words_of_a_request_decide_before_the_profile(
    tmp_path: Path, asks: str, profile: str, language: str
) -> None:
    space = people()
    space = replace(space, users=tuple(replace(each, locale=profile) for each in space.users))
    async with serving(tmp_path, posting(), space=space) as bot:
        shown = await asked(bot, asks)
        assert ("⟦" in str(shown.blocks)) == (language == "de")
        told = profile if profile == "nl-NL" else language
        assert f"LANGUAGE: {language_name(told)}" in str(bot.parents()[0]["messages"])
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_deny")
        await reaches(bot, "denied")
        await until(lambda: again(bot, shown).text != shown.text)
        assert ("⟦" in again(bot, shown).text) == (language == "de")


async def test_a_schedule_is_set_up_and_told_in_one_language(tmp_path: Path) -> None:
    mind = creating("reminder", cron="0 9 * * mon")
    async with bot_with(tmp_path, mind, space=german(in_madrid())) as bot:
        shown = await asked(bot, "Erinnere uns jeden Montag um 9 Uhr.")
        content = (ANA, "Europe/Madrid", "support", "orders")
        # cron-descriptor writes the times, and CLDR the days
        assert unmarked(shown.blocks, *content, "Um", "nur am Montag") == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, "action_approve")
        await reaches(bot, "done")
        schedules = Scheduled(bot)
        await schedules.delivered(await schedules.fire("orders"))
        told = [m for m in said(bot.slack, bot.channel) if "Reminder:" in m.text]
        assert [unmarked(m.blocks or m.text, *content) for m in told] == [[]]


async def test_a_late_reminder_is_in_the_language_of_who_set_it(tmp_path: Path) -> None:
    mind = reminding(at=local(timedelta(days=1), "Europe/Madrid"))
    async with bot_with(tmp_path, mind, space=german(in_madrid())) as bot:
        await bot.answers(bot.ask("Remind me tomorrow to: Call Ana about the offer"))
        assert "⟦" not in str(bot.parents()[0]["messages"][0])


async def test_an_answer_its_details_and_the_form_of_a_rating_are_in_one_language(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, space=german(people(), ASKER)) as bot:
        root = bot.ask(IN_GERMAN)
        shown = await bot.answer(root)
        (run,) = await bot.store.runs()
        content = ("It is", "open", "Channel", "Sek", run.id, *_found(run.result), "support", ASKER)
        assert unmarked(shown.blocks, *content) == []
        assert unmarked([{"text": row.title} for row in shown.plan], *content) == []
        assert unmarked([{"text": shown.plan_title}]) == []
        bot.slack.people.click(ASKER, bot.channel, shown.ts, DETAILS)
        await until(lambda: bot.slack.state.views)
        (details,) = bot.slack.state.views.values()
        assert unmarked(details.body, *content) == []
        bot.slack.state.views.clear()
        value = f"bad:T0ACME/{bot.channel}/{root}"
        bot.slack.people.click(ASKER, bot.channel, shown.ts, FEEDBACK, value)
        await until(lambda: bot.slack.state.views)
        (form,) = bot.slack.state.views.values()
        assert unmarked(form.body) == []


def _found(document: Any) -> list[str]:
    """What the model and people said."""
    subagents = (document or {})["subagents"]
    findings = [finding for each in subagents for finding in each["findings"]]
    briefs = [each.get("description") or "" for each in subagents]
    return [*(f["claim"] for f in findings), *filter(None, briefs)]


def test_a_digest_is_in_the_language_of_its_reader() -> None:
    gone = [{"thread_id": "u1", "subject": "Plan", "reason": "⟦not judged⟧"}]
    document = triage(
        verdict("a1", asked_of_me=True, deadline="2025-03-14", draft_reply="Yes", status="partial"),
        *(verdict(f"b{n}") for n in range(9)),
        unreadable=gone,
        language="de",
    )
    report = parse_document(document)
    assert isinstance(report, TriageReport)
    shown = [block for part in report_parts(report, ("question",)) for block in part.blocks]
    content = [text for each in document["verdicts"] for text in _texts(list(each.values()))]
    content += ["Lena Brandt", "nordlicht.example"]
    months = ("März", "Do", "Fr", "Sa", "So", "Mo", "Di", "Mi", "Tagen", "vor", "Tg", "Std", "Min")
    assert unmarked(shown, *content, "Plan", document["mailbox"], *months) == []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
        yield value[:1].upper() + value[1:]
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
