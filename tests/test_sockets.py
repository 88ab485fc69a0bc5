"""Sockets to Slack: connection, replacement one at a time, and shutdown."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from engine_kit import scripted_parent, until, workspace
from serve_kit import ASKER, Served, echo, mention, serve, with_sections
from standins.slack import LocalSlack
from standins.slack_faults import Fault

from bot.listeners import socket_mode


@pytest.fixture(autouse=True)
def _without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_mode, "STAGGER_S", 0.02)


async def wait_for_sockets(bot: Served, count: int) -> None:
    sockets = bot.bench.sockets
    assert sockets
    await until(lambda: sockets.alive == bot.slack.sockets.count == count)


def end_reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why each closed socket ended."""
    prefix = "a socket to Slack ended: "
    lines = (record.message for record in caplog.records)
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


async def test_configured_number_of_sockets_receives_each_event_once(tmp_path: Path) -> None:
    three = with_sections(slack={"sockets": 3})
    async with serve(tmp_path, scripted_parent(echo), change=three) as bot:
        await wait_for_sockets(bot, 3)
        for thread in [bot.ask(f"Hello {number}?") for number in range(6)]:
            await bot.answer(thread)
        await bot.quiet()
        assert {d.attempt for d in bot.slack.deliveries} == {0}
        assert bot.slack.sockets.count == 3
    await until(lambda: bot.slack.sockets.count == 0)


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "link_disabled", "abort"])
async def test_closed_sockets_are_replaced(
    tmp_path: Path, reason: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        bot.slack.sockets.warning_s = 1.0
        await wait_for_sockets(bot, 2)
        bot.slack.sockets.drop(reason)
        await until(lambda: len(end_reasons(caplog)) == 2)
        await wait_for_sockets(bot, 2)
        assert end_reasons(caplog) == ["lost" if reason == "abort" else reason] * 2
        await bot.answer(bot.ask("Still there?"))


async def test_expiring_socket_stays_open_until_its_replacement_is_connected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serve(tmp_path, scripted_parent(echo)) as bot:
        bot.slack.sockets.warning_s = 5.0
        await wait_for_sockets(bot, 2)
        lowest = 2
        bot.slack.sockets.drop("warning")
        while len(end_reasons(caplog)) < 2:
            lowest = min(lowest, bot.slack.sockets.count)
            await asyncio.sleep(0.001)
        assert lowest == 2


async def test_first_connection_is_retried_and_finds_what_was_lost_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slack = LocalSlack(workspace(1), retries_s=())
    channel = next(iter(slack.state.channels))
    thread = slack.people.say(ASKER, channel, mention("Anybody there?"))
    await until(lambda: all(d.reason for d in slack.deliveries))
    slack.faults += [Fault("apps.connections.open", kind) for kind in ("malformed", "500")]
    async with serve(tmp_path, scripted_parent(echo), slack=slack) as bot:
        await bot.answer(thread)
    assert slack.faults == []
    lines = [r.message for r in caplog.records if r.message.startswith("no socket to Slack")]
    assert all("(no proper answer)" in line for line in lines)
    assert lines
