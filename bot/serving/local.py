"""Serve the sample workspace: a Slack with a page, and the mailbox of one of its people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.routing import Mount

from bot.local.google.oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from bot.local.google.server import TOKEN, LocalGoogle
from bot.local.page import page_routes
from bot.local.sample_mailbox import load_sample_mailbox
from bot.local.sample_workspace import load_sample
from bot.local.samples import OWNER, SAMPLE_AS_OF
from bot.local.server import LocalServer
from bot.local.slack.server import API_PATH, APP_TOKEN, BOT_TOKEN, LocalSlack
from bot.mailbox.accounts import GOOGLE
from bot.mailbox.credentials import Credentials, MailboxTokens
from bot.storage.database import Database
from config.settings import Settings

YEAR_DAYS = 366
OAUTH = "/oauth"


@dataclass(frozen=True, slots=True)
class LocalWorkspace:
    """The served workspace, and how to connect to it."""

    settings: Settings
    page: str
    """Address of the page where it can be used."""
    owner: str
    """Slack id of the mailbox's owner."""
    address: str
    """Address of the mailbox."""

    async def connect(self, database: Database) -> None:
        """Connect the mailbox, as its owner would from App Home."""
        values = {"access_token": TOKEN, "refresh_token": "local", "address": self.address}
        tokens = MailboxTokens.model_validate(values)
        await Credentials(database).put(GOOGLE, self.owner, tokens)


@contextmanager
def local_workspace(settings: Settings) -> Iterator[LocalWorkspace]:
    """Run the sample workspace inside the context."""
    slack, mailbox, accounts = LocalSlack(load_sample()), load_sample_mailbox(), LocalGoogleOauth()
    slack.app.router.routes.extend(page_routes(slack))
    google = LocalGoogle(mailbox, whose=accounts.whose)
    services = Starlette(routes=[*accounts.routes(OAUTH), Mount("/", google.app)])
    with ExitStack() as stack:
        at_slack = stack.enter_context(LocalServer(slack.app, "slack"))
        at_google = stack.enter_context(LocalServer(services, "google"))
        pointed = _pointed_at(settings, at_slack.url + API_PATH, at_google.url)
        owner = f"U0{OWNER.upper()}"
        yield LocalWorkspace(pointed, f"{at_slack.url}/", owner, mailbox.address)


def _pointed_at(settings: Settings, slack: str, google: str) -> Settings:
    age = (datetime.now(UTC) - SAMPLE_AS_OF) + timedelta(days=YEAR_DAYS)
    tokens = {
        "slack_bot_token": SecretStr(BOT_TOKEN),
        "slack_app_token": SecretStr(APP_TOKEN),
        "slack_user_token": None,
        "database_url": None,
        "google_client_secret": SecretStr(CLIENT_SECRET),
    }
    endpoints = {
        "slack_api_url": slack,
        "gmail_api_endpoint": google,
        "google_oauth_endpoint": google + OAUTH,
    }
    changed: dict[str, Any] = {
        "slack": settings.slack.model_copy(update={"mode": "socket"}),
        "reply": settings.reply.model_copy(update={"since_days": age.days}),
        "sweep": settings.sweep.model_copy(update={"since_days": age.days}),
        "triage": settings.triage.model_copy(update={"since_days": age.days}),
        "google": settings.google.model_copy(
            update={"client_id": CLIENT_ID, "service_account": None}
        ),
        "secrets": settings.secrets.model_copy(update=tokens),
        "endpoints": settings.endpoints.model_copy(update=endpoints),
        "data_dir": settings.data_dir / "local",  # never the requests of a real workspace
    }
    return settings.model_copy(update=changed)
