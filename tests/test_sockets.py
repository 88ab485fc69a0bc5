"""Sockets to Slack: connection, replacement one at a time, and shutdown."""

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
class Receiver:
    """Sockets connected to a local Slack, and what they received."""

    slack: LocalSlack
    sockets: Sockets
    payloads: list[Any] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    delay: float = 0.0

    async def receive(self, payload: Any) -> BoltResponse:
        self.payloads.append(payload)
        await asyncio.sleep(self.delay)
        return BoltResponse(status=200, body="")

    def texts(self) -> list[str]:
        events = [p["event"] for p in self.payloads if isinstance(p.get("event"), dict)]
        return [str(e.get("text")) for e in events if e.get("type") == "message"]


@asynccontextmanager
async def connected_receiver(
    count: int = 2, deaf_after_s: float = 40.0, **options: Any
) -> AsyncIterator[Receiver]:
    slack = LocalSlack(WORKSPACE, **{"retries_s": (0.2, 0.2, 0.2), "ack_s": 0.5, **options})
    settings = load_settings(env={}).slack.model_copy(
        update={"sockets": count, "deaf_after_s": deaf_after_s, "timeout_s": 2}
    )
    with LocalServer(slack.app, "slack") as server:
        receiver: Receiver

        async def receive(payload: Any) -> BoltResponse:
            return await receiver.receive(payload)

        sockets = Sockets(
            receive,
            "xapp-local",
            settings,
            base_url=server.url + API_PATH,
            on_gap=lambda: receiver.gaps.append(time.monotonic()),
        )
        receiver = Receiver(slack, sockets)
        before = asyncio.all_tasks()
        task = asyncio.create_task(sockets.run())
        try:
            yield receiver
        finally:
            sockets.close()
            async with patient(30):
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
    slack.close()


def end_reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why each closed socket ended."""
    prefix = "a socket to Slack ended: "
    lines = (record.message for record in caplog.records)
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


async def test_configured_number_of_sockets_receives_each_event_once() -> None:
    async with connected_receiver(count=3) as receiver:
        assert receiver.sockets.alive == 0
        await until(lambda: receiver.sockets.alive == 3)
        assert receiver.sockets.connected.is_set()
        for number in range(30):
            receiver.slack.people.say("U0ANA", "C0SUPPORT", f"hello {number}")
        await until(lambda: len(receiver.texts()) == 30)
        await until(lambda: all(d.acked_at for d in receiver.slack.deliveries))
        assert sorted(receiver.texts()) == sorted(f"hello {n}" for n in range(30))
        assert {d.attempt for d in receiver.slack.deliveries} == {0}
        assert receiver.slack.sockets.count == 3
    await until(lambda: receiver.slack.sockets.count == 0)


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "link_disabled", "abort"])
async def test_closed_socket_is_replaced_and_its_gap_is_reported(
    reason: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with connected_receiver() as receiver:
        receiver.slack.sockets.warning_s = 1.0
        await until(lambda: receiver.sockets.alive == 2 and len(receiver.gaps) == 1)
        receiver.slack.sockets.drop(reason)
        await until(lambda: len(receiver.gaps) == 3)
        await until(lambda: receiver.sockets.alive == 2 and receiver.slack.sockets.count == 2)
        assert end_reasons(caplog) == ["lost" if reason == "abort" else reason] * 2
        receiver.slack.people.say("U0ANA", "C0SUPPORT", "still there?")
        await until(lambda: receiver.texts() == ["still there?"])


async def test_expiring_socket_stays_open_until_its_replacement_is_connected() -> None:
    async with connected_receiver() as receiver:
        receiver.slack.sockets.warning_s = 5.0
        await until(lambda: receiver.sockets.alive == 2)
        lowest = 2
        receiver.slack.sockets.drop("warning")
        while len(receiver.gaps) < 3:
            lowest = min(lowest, receiver.slack.sockets.count)
            await asyncio.sleep(0.001)
        assert lowest == 2


async def test_malformed_connection_response_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async with connected_receiver(count=1) as receiver:
        receiver.slack.faults.append(Fault("apps.connections.open", "malformed"))
        await until(lambda: receiver.sockets.alive == 1)
        assert [r.message[:18] for r in caplog.records] == ["no socket to Slack"]


async def test_received_event_is_acknowledged_before_the_close() -> None:
    async with connected_receiver(count=1) as receiver:
        await until(lambda: receiver.sockets.alive == 1)
        receiver.delay = 0.3
        receiver.slack.people.say("U0ANA", "C0SUPPORT", "hello")
        await until(lambda: bool(receiver.payloads))
        receiver.sockets.close()
        await until(lambda: bool(receiver.slack.deliveries[-1].acked_at))
