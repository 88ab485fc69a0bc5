"""The server of the local stand-ins."""

import asyncio
import logging
import signal
import threading

import aiohttp
import pytest
from engine_kit import until
from standins.slack import API_PATH, APP_TOKEN, LocalSlack
from standins.slack_faults import Fault

from bot.local.server import LocalServer
from bot.local.workspace import Workspace


async def test_a_stop_ends_requests_and_sockets_without_a_word_and_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    handler = signal.getsignal(signal.SIGINT)
    slack = LocalSlack(Workspace())
    slack.faults.append(Fault("auth.test", "slow", 600))
    server = LocalServer(slack.app, "slack")
    api = server.start() + API_PATH
    assert signal.getsignal(signal.SIGINT) is handler
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {APP_TOKEN}"}) as session:
        async with session.post(api + "apps.connections.open") as answer:
            url = (await answer.json())["url"]
        sockets = [await session.ws_connect(url) for _ in range(3)]
        await until(lambda: slack.sockets.count == 3)
        slack.sockets.drop("silent", which=0)
        slack.sockets.drop("warning", which=1)
        waiting = asyncio.create_task(session.post(api + "auth.test"))
        await until(lambda: slack.calls["auth.test"])
        await asyncio.to_thread(server.stop)
        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.post(api + "auth.test")
        assert slack.sockets.count == 0
        for each in sockets:
            await each.close()
    server.stop()
    LocalServer(slack.app, "never started").stop()
    assert "local-slack" not in [thread.name for thread in threading.enumerate()]
    assert not caplog.records
