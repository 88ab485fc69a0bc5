"""Sockets to Slack: kept up, watched, replaced one at a time, and closed without a trace."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from engine_kit import until
from slack_bolt.response import BoltResponse
from standins.slack import API_PATH, LocalSlack
from standins.slack_faults import Fault
from timing import patient

from bot.listeners import socket_mode
from bot.listeners.socket_mode import Sockets
from bot.local.server import LocalServer
from bot.local.workspace import Channel, Team, User, Workspace
from config.settings import load_settings

WORKSPACE = Workspace(
    Team("T0ACME", "Acme", "acme"),
    (User("U0ANA", "ana", "Ana Ruiz"),),
    (Channel("C0SUPPORT", "support", (), ("U0ANA",)),),
)


@pytest.fixture(autouse=True)
def _without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "STAGGER_S", 0.02)


@dataclass
class Line:
    """Sockets at work against a local Slack."""

    slack: LocalSlack
    sockets: Sockets
    heard: list[Any] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    delay: float = 0.0

    async def hear(self, payload: Any) -> BoltResponse:
        self.heard.append(payload)
        await asyncio.sleep(self.delay)
        return BoltResponse(status=200, body="")

    def texts(self) -> list[str]:
        events = [p["event"] for p in self.heard if isinstance(p.get("event"), dict)]
        return [str(e.get("text")) for e in events if e.get("type") == "message"]


@asynccontextmanager
async def line(count: int = 2, deaf_after_s: float = 40.0, **how: Any) -> AsyncIterator[Line]:
    slack = LocalSlack(WORKSPACE, **{"retries_s": (0.2, 0.2, 0.2), "ack_s": 0.5, **how})
    settings = load_settings(env={}).slack.model_copy(
        update={"sockets": count, "deaf_after_s": deaf_after_s, "timeout_s": 2}
    )
    with LocalServer(slack.app, "slack") as server:
        made: Line

        async def hear(payload: Any) -> BoltResponse:
            return await made.hear(payload)

        sockets = Sockets(
            hear,
            "xapp-local",
            settings,
            base_url=server.url + API_PATH,
            on_gap=lambda: made.gaps.append(time.monotonic()),
        )
        made = Line(slack, sockets)
        before = asyncio.all_tasks()
        task = asyncio.create_task(sockets.run())
        try:
            yield made
        finally:
            sockets.close()
            async with patient(30):
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
    slack.close()


def end_reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why each socket that ended did."""
    told = "a socket to Slack ended: "
    lines = (record.message for record in caplog.records)
    return [line.removeprefix(told) for line in lines if line.startswith(told)]


async def test_configured_number_of_sockets_receives_each_event_once() -> None:
    async with line(count=3) as on:
        assert on.sockets.alive == 0
        await until(lambda: on.sockets.alive == 3)
        assert on.sockets.connected.is_set()
        for number in range(30):
            on.slack.people.say("U0ANA", "C0SUPPORT", f"hello {number}")
        await until(lambda: len(on.texts()) == 30)
        await until(lambda: all(d.acked_at for d in on.slack.deliveries))
        assert sorted(on.texts()) == sorted(f"hello {n}" for n in range(30))
        assert {d.attempt for d in on.slack.deliveries} == {0}
        assert on.slack.sockets.count == 3
    await until(lambda: on.slack.sockets.count == 0)


@pytest.mark.parametrize("how", ["refresh_requested", "warning", "link_disabled", "abort"])
async def test_closed_socket_is_replaced_and_its_gap_is_reported(
    how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with line() as on:
        on.slack.sockets.warning_s = 1.0
        await until(lambda: on.sockets.alive == 2 and len(on.gaps) == 1)
        on.slack.sockets.drop(how)
        await until(lambda: len(on.gaps) == 3)
        await until(lambda: on.sockets.alive == 2 and on.slack.sockets.count == 2)
        assert end_reasons(caplog) == ["lost" if how == "abort" else how] * 2
        on.slack.people.say("U0ANA", "C0SUPPORT", "still there?")
        await until(lambda: on.texts() == ["still there?"])


async def test_expiring_socket_stays_open_until_its_replacement_is_connected() -> None:
    async with line() as on:
        on.slack.sockets.warning_s = 5.0
        await until(lambda: on.sockets.alive == 2)
        lowest = 2
        on.slack.sockets.drop("warning")
        while len(on.gaps) < 3:
            lowest = min(lowest, on.slack.sockets.count)
            await asyncio.sleep(0.001)
        assert lowest == 2


async def test_malformed_connection_response_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async with line(count=1) as on:
        on.slack.faults.append(Fault("apps.connections.open", "malformed"))
        await until(lambda: on.sockets.alive == 1)
        assert [r.message[:18] for r in caplog.records] == ["no socket to Slack"]


async def test_received_event_is_acknowledged_before_the_close() -> None:
    async with line(count=1) as on:
        await until(lambda: on.sockets.alive == 1)
        on.delay = 0.3
        on.slack.people.say("U0ANA", "C0SUPPORT", "hello")
        await until(lambda: bool(on.heard))
        on.sockets.close()
        await until(lambda: bool(on.slack.deliveries[-1].acked_at))


async def test_configured_number_of_sockets_is_restored_after_many_drops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with line() as on:
        for number in range(20):
            await until(lambda: on.sockets.alive and on.slack.sockets.count >= 1)
            on.slack.sockets.drop("abort" if number % 3 else "refresh_requested", number % 2)
            await asyncio.sleep(0.02)
        await until(lambda: on.sockets.alive == 2)
        await until(lambda: on.slack.sockets.count == 2)
        # the second to begin with misses nothing
        await until(lambda: len(on.gaps) == len(end_reasons(caplog)) + 1)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
