"""A report is in the language that most of its readers have set in Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from schedule_kit import sweep

from bot.local.server import LocalServer
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Team, User, Workspace
from bot.schedule.readers import MOST, language_of
from config.settings import Slack, load_settings
from scopes.slack_client import connect, open_session
from scopes.slack_reader import SlackReader

ANA = "U0ANA"


@asynccontextmanager
async def reading(locales: dict[str, str]) -> AsyncIterator[SlackReader]:
    """A workspace with a channel `C0TEAM`, called `#team`, of these people and the bot."""
    people = tuple(User(id, id.lower(), locale=locale) for id, locale in locales.items())
    channel = Channel("C0TEAM", "team", members=(*locales, BOT_USER))
    slack: Slack = load_settings(None, {}).slack
    with LocalServer(LocalSlack(Workspace(Team("T0"), people, (channel,))).app, "slack") as server:
        async with open_session(slack) as session:
            client = connect(session, BOT_TOKEN, server.url + API_PATH, slack)
            yield SlackReader(client, timedelta(days=1))


@pytest.mark.parametrize("to", ["#team", "C0TEAM"])
async def test_most_of_a_channels_members_decide(to: str) -> None:
    people = {ANA: "en-GB", "U0B": "es-ES", "U0C": "es-LA", "U0D": "de-DE"}
    async with reading(people) as reader:
        assert await language_of(sweep(to=to, owner=ANA), reader) == "es"


@pytest.mark.parametrize("to", ["dm", "ana@example.com"])
async def test_what_goes_to_its_owner_alone_is_in_their_language(to: str) -> None:
    async with reading({ANA: "it-IT", "U0B": "es-ES", "U0C": "es-ES"}) as reader:
        assert await language_of(sweep(to=to, owner=ANA), reader) == "it"


async def test_of_many_members_some_are_asked() -> None:
    people = {f"U{k:04}": "fr-FR" if k % 3 else "en-US" for k in range(3 * MOST)}
    async with reading(people) as reader:
        assert await language_of(sweep(to="#team", owner="U0000"), reader) == "fr"


async def test_where_slack_does_not_say_it_is_not_known() -> None:
    async with reading({ANA: ""}) as reader:
        assert await language_of(sweep(to="dm", owner=ANA), reader) is None
        assert await language_of(sweep(to="dm", owner="U0GONE"), reader) is None
