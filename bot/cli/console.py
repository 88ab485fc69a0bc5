"""Implement `assistant console`: the console of the stored state, on this machine alone."""

from __future__ import annotations

import asyncio
import signal

from starlette.applications import Starlette

from bot.cli.output import CommandContext, on_database
from bot.console.app import PATH, LoopbackAccess
from bot.console.pages import console_routes
from bot.policy.policy import PolicyFile
from bot.runs.store import Store
from bot.serving.web import serve_app
from bot.terminal import say, tell
from config.settings import settings_file


@on_database
async def run_console(context: CommandContext, port: int) -> None:
    """Serve the console until Ctrl-C or SIGTERM, and print its address."""
    settings, policy = context.settings, PolicyFile.of(context.settings, settings_file())
    store, access = Store(context.database), LoopbackAccess()
    app = Starlette(routes=console_routes(store, settings, access, policy))
    async with serve_app(app, "127.0.0.1", port, "Give --port another one.") as here:
        say(f"{here}{PATH}")
        tell("The console is at this address. Ctrl-C ends it.")
        await _stopped()


async def _stopped() -> None:
    """Return when the process is asked to end."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await stopping.wait()
