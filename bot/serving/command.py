"""The command `serve`: in a real workspace, or in the sample one with a page to try it on."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from bot.cli.outcome import DONE, guarded, tell
from bot.logs import written
from bot.models import model_client
from bot.serving.local import LocalWorkspace, local_workspace
from bot.serving.serve import Bench, working
from config.settings import Settings, load_settings, settings_file
from subagents.model import ModelClient

log = logging.getLogger(__name__)


def run_serve(local: bool, model: str | None, port: int | None) -> int:
    """Serve until SIGTERM or Ctrl-C."""

    def run() -> int:
        settings = _with_port(load_settings(), port)
        with ExitStack() as stack:
            stack.enter_context(written(settings.serve, settings.secrets))
            path: Path | None = settings_file()
            sample = stack.enter_context(local_workspace(settings)) if local else None
            settings = sample.settings if sample else settings
            name = model or ("offline" if local else "claude")
            asyncio.run(_serve(settings, path, name, sample))
        return DONE

    return guarded(run, as_json=False)


async def serve(
    settings: Settings,
    policy_path: Path | None,
    model: ModelClient,
    name: str,
    ready: Callable[[Bench], Awaitable[None]] | None = None,
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
        if ready:
            await ready(bench)
        await stopping.wait()
        drain_s = settings.serve.drain_s
        log.info("ending what is begun, for at most %.0f s; once more ends at once", drain_s)
        if not await bench.drained(settings.serve.drain_s):
            left = len(bench.dispatch.at_work) + len(bench.schedules.lanes.at_work)
            log.warning("%d requests and reports go on after the next start", left)
            _end_at_once()


def _end_at_once() -> None:
    """A process that is killed loses nothing; closing under what is at work might."""
    logging.shutdown()
    os._exit(0)


async def _serve(
    settings: Settings, path: Path | None, name: str, sample: LocalWorkspace | None
) -> None:
    async def ready(bench: Bench) -> None:
        if sample:
            await sample.connect(bench.dispatch.inbox.database)
            tell(f"A workspace to try it in: {sample.page}  (Ctrl-C ends it)")
            tell("As Helena Vasconcelos, write to the assistant: triage my inbox")

    with model_client(settings, name) as model:
        try:
            await serve(settings, path, model, name, ready)
        finally:
            await model.aclose()


def _with_port(settings: Settings, port: int | None) -> Settings:
    if port is None:
        return settings
    return settings.model_copy(update={"serve": settings.serve.model_copy(update={"port": port})})
