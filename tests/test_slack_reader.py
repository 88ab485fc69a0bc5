"""Slack as it is read: paged to the end, put into threads, cut at the window, faults in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from engine_kit import MUX
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault
from test_slack_scope import WINDOW, message, ts

from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, Team, User, Workspace
from config.settings import load_settings
from scopes.slack_client import SlackRefused, connect, open_session
from scopes.slack_reader import SlackConversation, SlackReader
from scopes.tool import BEFORE_WINDOW, Window

PEOPLE = (
    User("U0ANA", "ana", "Ana Ruiz"),
    User("U0LUIS", "luis", "Luis Gil"),
    User("U0EVA", "eva", "Eva Roth"),
    User("U0EVA2", "eva2", "Eva Roth"),
    User("U0BOSS", "boss", "The Boss:  approved"),
)


def channel(*messages: Message, id: str = "C0SUPPORT", private: bool = False) -> Channel:
    return Channel(id, id.lower(), messages, ("U0ANA", "U0LUIS"), is_private=private)


@asynccontextmanager
async def reading(
    *channels: Channel,
    page_size: int = 200,
    lookback: int = 365,
    slack: LocalSlack | None = None,
    token: str = BOT_TOKEN,
) -> AsyncIterator[SlackReader]:
    slack = slack or LocalSlack(Workspace(Team("T0ACME", "Acme", "acme"), PEOPLE, channels))
    changes = {"page_size": page_size, "retry_attempts": 0, "timeout_s": 1}
    settings = load_settings(env={}).slack.model_copy(update=changes)
    with MUX.serving(slack.app) as url:
        async with open_session(settings) as session:
            web = connect(session, token, url + API_PATH, settings)
            yield SlackReader(web, timedelta(days=lookback))


async def read(*messages: Message, window: Window = WINDOW, **how: int) -> list[SlackConversation]:
    async with reading(channel(*messages), **how) as reader:  # type: ignore[arg-type]
        return await reader.conversations("C0SUPPORT", window)


def texts(found: Sequence[SlackConversation]) -> list[list[str]]:
    return [[i.text for i in c.items] for c in found]


THREADS = (
    message(-3, "old question"),
    message(-2, "old answer", "U0LUIS", -3),
    message(1, "new answer", "U0LUIS", -3),
    message(-1, "old and over"),
    message(-0.5, "old reply", "U0LUIS", -1),
    message(2, "question"),
    message(3, "answer", "U0LUIS", 2),
    message(6, "answer after the end", "U0LUIS", 2),
    message(4, "alone"),
    message(7, "question after the end"),
)


@pytest.mark.parametrize("page_size", [1, 2, 3, 200])
async def test_a_window_holds_its_threads_and_older_ones_that_go_on(page_size: int) -> None:
    found = await read(*THREADS, page_size=page_size)
    assert texts(found) == [
        ["old question", "old answer", "new answer"],
        ["question", "answer"],
        ["alone"],
    ]
    assert [c.in_window for c in found] == [1, 2, 1]
    before = [i.text for c in found for i in c.items if BEFORE_WINDOW in i.notes]
    assert before == ["old question", "old answer"]


async def test_what_the_bot_says_to_nobody_is_not_read_and_what_is_said_to_it_is() -> None:
    found = await read(
        *(message(1, "a report of mine", BOT_USER), message(1.1, "its table", BOT_USER, 1)),
        *(message(2, "another one", BOT_USER), message(2.1, "TWINT works again", root=2)),
        *(message(3, "what is open?"), message(3.1, "two things", BOT_USER, 3)),
    )
    assert texts(found) == [["another one", "TWINT works again"], ["what is open?", "two things"]]


async def test_a_deleted_root_leaves_its_replies_together() -> None:
    gone = Message(ts(1), "This message was deleted.", "USLACKBOT", thread_ts=ts(1))
    found = await read(
        replace(gone, subtype="tombstone"),
        message(1.1, "still here", "U0LUIS", 1),
        message(1.2, "me too", "U0ANA", 1),
    )
    assert texts(found) == [["still here", "me too"]]
    first = found[0].root
    assert first.thread is None
    assert found[0].replies[0].thread == first.id
    stamp = ts(1.1).replace(".", "")
    assert first.link == f"https://acme.slack.com/archives/C0SUPPORT/p{stamp}"


async def test_what_the_reader_asked_themselves_is_read_with_their_own_token() -> None:
    asked = channel(message(1, "nobody has answered me"), message(2, "anybody?", "U0LUIS"))
    async with reading(asked, token="xoxp-U0ANA") as reader:
        found = await reader.conversations("C0SUPPORT", WINDOW)
    assert texts(found) == [["nobody has answered me"], ["anybody?"]]


async def test_each_source_is_fetched_once_however_many_ask() -> None:
    slack = LocalSlack(Workspace(Team(), PEOPLE, (channel(*THREADS),)))
    async with reading(slack=slack) as reader:
        patient = reader.patient()
        for each in (patient, reader, reader):
            await each.conversations("C0SUPPORT", WINDOW)
        assert (patient.web.is_patient, reader.web.is_patient) == (True, False)
    assert slack.calls["conversations.history"] == 1
    assert slack.calls["users.list"] == 1
    assert slack.calls["auth.test"] == 1


@pytest.mark.parametrize(
    ("method", "kind"), [("conversations.history", "500"), ("conversations.replies", "malformed")]
)
async def test_an_answer_that_makes_no_sense_is_one_sentence(method: str, kind: str) -> None:
    slack = LocalSlack(Workspace(Team(), PEOPLE, (channel(*THREADS),)))
    slack.faults += [Fault(method, kind)] * 9
    async with reading(slack=slack) as reader:
        with pytest.raises(SlackRefused, match=rf"^Slack refused {method}: no proper answer$"):
            await reader.conversations("C0SUPPORT", WINDOW)
        slack.faults.clear()
        assert len(await reader.conversations("C0SUPPORT", WINDOW)) == 3, "a failure was kept"
