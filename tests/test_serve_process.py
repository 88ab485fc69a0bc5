"""`assistant serve` as a process: what SIGTERM ends, and what goes on after the next start."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from engine_kit import led_by, store_at, until
from fleet_kit import Bot, fleet
from serve_kit import echo
from standins.model_faults import Faults

from subagents.overlap import audit

pytestmark = pytest.mark.system


async def ended(bot: Bot) -> int | None:
    """Ask it to end; its exit code."""
    bot.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(bot.process.wait)


@pytest.mark.parametrize("mode", ["socket", "http"])
async def test_sigterm_lets_a_request_at_work_finish(tmp_path: Path, mode: str) -> None:
    with fleet(tmp_path, led_by(echo), mode=mode, latency_s=1.0) as bots:
        (bot,) = await bots.started()
        asked = bots.ask("Hello?")
        await until(lambda: bots.model.recorded)
        assert await ended(bot) == 0
        (shown,) = bots.finished(asked)
        assert "You asked: Hello?" in shown.text
        assert bots.slack.state.sessions[bots.channel, asked].status == "active"


async def test_what_takes_longer_than_the_drain_goes_on_after_the_next_start(
    tmp_path: Path,
) -> None:
    slow, short = Faults(["slow"]), {"drain_s": 0.5}
    with fleet(tmp_path, led_by(echo), mode="socket", faults=slow, serve=short) as bots:
        (bot,) = await bots.started()
        asked = bots.ask("Hello?")
        await until(lambda: bots.model.recorded)
        ending = asyncio.create_task(ended(bot))
        await asyncio.sleep(0.1)
        late = bots.ask("Are you going?")
        assert await ending == 0
        assert bots.finished(asked) == []
        away = bots.ask("Are you there?")
        (bot,) = await bots.started()
        for thread in (asked, late, away):
            await bots.answer(thread)
        assert await ended(bot) == 0
        assert len(bots.model.recorded) <= 4  # at most the call that was under way is made again
    async with store_at(tmp_path / "data") as store:
        runs = await store.runs()
        assert [run.status for run in runs] == ["complete"] * 3
        for run in runs:
            assert audit(await store.trajectory(run.id)).leaks == ()
