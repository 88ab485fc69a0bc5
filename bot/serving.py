"""The command `serve`: in a real workspace, or in the sample one with a page to try it on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bot.local.page import page_routes
from bot.local.sample_workspace import SAMPLE_AS_OF, load_sample
from bot.local.server import LocalServer
from bot.local.slack import API_PATH, APP_TOKEN, BOT_TOKEN, LocalSlack
from bot.logs import written
from bot.models import model_client
from bot.outcome import DONE, guarded, tell
from bot.serve import serve
from config.settings import Settings, load_settings, settings_file

YEAR_DAYS = 366


def run_serve(local: bool, model: str | None, port: int | None) -> int:
    """Serve until SIGTERM or Ctrl-C."""

    def run() -> int:
        settings = _with_port(load_settings(), port)
        with ExitStack() as stack:
            stack.enter_context(written(settings.serve, settings.secrets))
            path: Path | None = settings_file()
            if local:
                settings = stack.enter_context(local_workspace(settings))
            asyncio.run(_serve(settings, path, model or ("offline" if local else "claude")))
        return DONE

    return guarded(run, as_json=False)


async def _serve(settings: Settings, path: Path | None, name: str) -> None:
    with model_client(settings, name) as model:
        try:
            await serve(settings, path, model, name)
        finally:
            await model.aclose()


@contextmanager
def local_workspace(settings: Settings) -> Iterator[Settings]:
    """The sample workspace, served with its page, and the settings to serve it with."""
    slack = LocalSlack(load_sample())
    slack.app.router.routes.extend(page_routes(slack))
    with LocalServer(slack.app, "slack") as server:
        tell(f"A workspace to try it in: {server.url}/  (Ctrl-C ends it)")
        yield _pointed_at(settings, server.url + API_PATH)


def _pointed_at(settings: Settings, url: str) -> Settings:
    age = (datetime.now(UTC) - SAMPLE_AS_OF) + timedelta(days=YEAR_DAYS)
    tokens = {
        "slack_bot_token": SecretStr(BOT_TOKEN),
        "slack_app_token": SecretStr(APP_TOKEN),
        "slack_user_token": None,
        "database_url": None,
    }
    changed: dict[str, Any] = {
        "slack": settings.slack.model_copy(update={"mode": "socket"}),
        "reply": settings.reply.model_copy(update={"since_days": age.days}),
        "secrets": settings.secrets.model_copy(update=tokens),
        "endpoints": settings.endpoints.model_copy(update={"slack_api_url": url}),
        "data_dir": settings.data_dir / "local",  # never the requests of a real workspace
    }
    return settings.model_copy(update=changed)


def _with_port(settings: Settings, port: int | None) -> Settings:
    if port is None:
        return settings
    return settings.model_copy(update={"serve": settings.serve.model_copy(update={"port": port})})
