"""Serve the sample workspace: a Slack with a page, and the mailbox of one of its members."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import time_machine
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from bot.context import SAMPLE_LISTS
from bot.errors import SetupError
from bot.local.google.server import TOKEN, LocalGoogle
from bot.local.page import page_routes
from bot.local.sample_workspace import load_sample, load_sample_mailbox, read_data
from bot.local.samples import SALES, SAMPLE_AS_OF, SAMPLE_OWNER
from bot.local.server import LocalServer
from bot.local.slack.server import API_PATH, APP_TOKEN, BOT_TOKEN, LocalSlack
from bot.mailbox.accounts import Credentials
from bot.storage.database import LOCK, Database, only_process
from config.sections import DatabaseSettings
from config.settings import Settings
from scopes.google.auth import MailboxTokens

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
        """Connect the mailbox, as its owner would do from App Home."""
        values = {"access_token": TOKEN, "refresh_token": "local", "address": self.address}
        tokens = MailboxTokens.model_validate(values)
        await Credentials(database).put(self.owner, tokens)


@contextmanager
def local_workspace(settings: Settings, port: int) -> Iterator[LocalWorkspace]:
    """Run the sample workspace inside the context, at the time of the samples.

    `port` is the page's; 0 takes a free one. Data of an earlier start is deleted. Raises
    SetupError if the port is taken.
    """
    slack, mailbox = LocalSlack(load_sample()), load_sample_mailbox()
    slack.app.router.routes.extend(page_routes(slack, read_data("prompts")))
    google = LocalGoogle(mailbox)
    services = Starlette(
        routes=[
            Route(f"{OAUTH}/{{step}}", _answer_nothing, methods=["GET", "POST"]),
            Mount("/", google.app),
        ]
    )
    with ExitStack() as stack:
        at_slack = stack.enter_context(_page_server(slack, port))
        at_google = stack.enter_context(LocalServer(services, "google"))
        pointed = _with_addresses(settings, at_slack.url + API_PATH, at_google.url)
        _empty(pointed.data_dir)
        stack.enter_context(time_machine.travel(SAMPLE_AS_OF, tick=True))
        yield LocalWorkspace(pointed, f"{at_slack.url}/", SAMPLE_OWNER, mailbox.address)


async def _answer_nothing(request: Request) -> Response:
    """`LocalWorkspace.connect` connects the one mailbox, with a token that never expires."""
    why = "The sample workspace has one mailbox. There is nothing more to connect or to revoke."
    return JSONResponse({"error": "invalid_token", "error_description": why}, 400)


def _empty(data_dir: Path) -> None:
    """Delete the data of an earlier start. Raises SetupError if it still runs."""
    with only_process(data_dir):
        for path in data_dir.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()


def _page_server(slack: LocalSlack, port: int) -> LocalServer:
    try:
        return LocalServer(slack.app, "slack", port)
    except OSError as error:
        why = f"The page cannot use port {port} ({error.strerror})."
        raise SetupError(
            "port", why, "Name another with --page-port; 0 takes a free one."
        ) from error


def _with_addresses(settings: Settings, slack: str, google: str) -> Settings:
    tokens = {
        "slack_bot_token": SecretStr(BOT_TOKEN),
        "slack_app_token": SecretStr(APP_TOKEN),
        "slack_user_token": None,
        "database_url": None,
        "google_client_secret": SecretStr("local"),
    }
    endpoints = {
        "slack_api_url": slack,
        "gmail_api_endpoint": google,
        "google_oauth_endpoint": google + OAUTH,
    }
    sales = {"sales": DatabaseSettings(path=SALES, readers=("members",))}
    changed: dict[str, Any] = {
        "slack": settings.slack.model_copy(
            update={"mode": "socket", "client_id": None, "lists": dict(SAMPLE_LISTS)}
        ),
        "data": settings.data.model_copy(update={"databases": settings.data.databases | sales}),
        "google": settings.google.model_copy(
            update={"client_id": "local", "service_account": None}
        ),
        "secrets": settings.secrets.model_copy(update=tokens),
        "endpoints": settings.endpoints.model_copy(update=endpoints),
        "data_dir": settings.local_data_dir,  # never the requests of a real workspace
    }
    return settings.model_copy(update=changed)
