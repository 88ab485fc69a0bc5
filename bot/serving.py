"""The command `serve`: in a real workspace, or in the sample one with a page to try it on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
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
from bot.serve import working
from config.settings import Settings, load_settings, settings_file
from subagents.model import ModelClient

log = logging.getLogger(__name__)

YEAR_DAYS = 366


def run_serve(local: bool, model: str | None, port: int | None) -> int:
    """Serve until SIGTERM or Ctrl-C."""

    def run() -> int:
        settings = _with_port(load_settings(), port)
        with ExitStack() as stack:
            stack.enter_context(written(settings.serve, settings.secrets))
            path: Path | None = settings_file()
            page = ""
            if local:
                settings, page = stack.enter_context(local_workspace(settings))
            asyncio.run(_serve(settings, path, model or ("offline" if local else "claude"), page))
        return DONE

    return guarded(run, as_json=False)


async def serve(
    settings: Settings,
    policy_path: Path | None,
    model: ModelClient,
    name: str,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then end what was begun; the rest goes on at the next start.

    Raises SetupError where it cannot begin.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            _end_at_once()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with working(settings, policy_path, model, name) as bench:
        log.info("serving; health and metrics at %s", bench.url)
        ready()
        await stopping.wait()
        drain_s = settings.serve.drain_s
        log.info("ending what is begun, for at most %.0f s; once more ends at once", drain_s)
        if not await bench.dispatch.drained(settings.serve.drain_s):
            log.warning("%d requests go on after the next start", len(bench.dispatch.at_work))
            _end_at_once()


def _end_at_once() -> None:
    """A process that is killed loses nothing; closing under what is at work might."""
    logging.shutdown()
    os._exit(0)


async def _serve(settings: Settings, path: Path | None, name: str, page: str) -> None:
    def ready() -> None:
        if page:
            tell(f"A workspace to try it in: {page}  (Ctrl-C ends it)")

    with model_client(settings, name) as model:
        try:
            await serve(settings, path, model, name, ready)
        finally:
            await model.aclose()


@contextmanager
def local_workspace(settings: Settings) -> Iterator[tuple[Settings, str]]:
    """The settings to serve the sample workspace with, and the address of its page."""
    slack = LocalSlack(load_sample())
    slack.app.router.routes.extend(page_routes(slack))
    with LocalServer(slack.app, "slack") as server:
        yield _pointed_at(settings, server.url + API_PATH), f"{server.url}/"


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
