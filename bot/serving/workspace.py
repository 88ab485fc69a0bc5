"""The Slack workspace that is served: its clients, who we are there, and the lock on our state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SetupError
from bot.hearing.heard import Bot
from bot.replies.pace import KEPT, ReadTurns
from bot.storage.complaints import explaining
from config.settings import Settings
from scopes.slack_client import SlackClient, SlackRefused, connect, web_client

LOCK = "serve.lock"


def clients(
    settings: Settings, session: aiohttp.ClientSession
) -> tuple[SlackClient, AsyncWebClient]:
    """The client that reads, and the one that writes, whose calls are never repeated blindly."""
    secret = settings.secrets.slack_bot_token
    if not secret:
        hint = "Set SLACK_BOT_TOKEN (xoxb-...); `assistant setup` helps. Or try `serve --local`."
        raise SetupError("no_slack_token", "There is no Slack workspace to serve.", hint)
    token, url = secret.get_secret_value(), settings.endpoints.slack_api_url
    web = web_client(
        url, token=token, timeout=settings.slack.timeout_s, session=session, retry_handlers=[]
    )
    turns = ReadTurns(settings.slack, KEPT)
    return connect(session, token, url, settings.slack, turns), web


async def who_am_i(client: SlackClient) -> tuple[Bot, str]:
    """Who we are in this workspace, and its address. Raises SetupError."""
    try:
        told = await client.call("auth.test")
    except SlackRefused as error:
        raise SetupError("slack", f"{error}.", "`assistant doctor` tells what to mend.") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        why = f"Slack cannot be reached ({type(error).__name__})."
        raise SetupError("slack", why, "Check the network and SLACK_API_URL.") from error
    bot = Bot(str(told["user_id"]), str(told.get("bot_id") or ""), str(told["team_id"]))
    return bot, str(told.get("url") or "")


@contextmanager
def only_process(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the data directory. Raises SetupError where another process has it."""
    with explaining(data_dir):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / LOCK).touch(mode=0o600)
        file = (data_dir / LOCK).open("a+")
    with closing(file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            why = f"Another `assistant serve` (pid {file.read().strip() or '?'}) uses {data_dir}."
            hint = "Stop that one, or set DATABASE_URL to a Postgres that replicas may share."
            raise SetupError("locked", why, hint) from None
        with explaining(data_dir):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield
