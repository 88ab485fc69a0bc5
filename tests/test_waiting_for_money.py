"""Subagents that together could cost more than the cap wait for each other, and all come through.

The worst case of a call is several times what it costs, so few calls fit under a cap at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import (
    Json,
    brief,
    call,
    channel_id,
    child,
    is_child,
    say,
    turn,
    workspace,
)
from serve_kit import serving

from bot.local.model.server import Answer
from config.settings import load_settings

SHIPPED = load_settings(env={}).limits


def led(count: int) -> Answer:
    """A turn that starts so many subagents on the model `main`."""
    if count <= SHIPPED.max_subagents:
        return Answer([brief(n, model_preference="main") for n in range(1, count + 1)])
    template = {
        "task": "Find out what is open in {item}",
        "description": "Read {item}",
        "scope": "slack",
        "model_preference": "main",
    }
    items = [channel_id(n) for n in range(1, count + 1)]
    return call("run_subagents", items=items, template=template)


@pytest.mark.parametrize("count", [8, 24, 64])
async def test_subagents_on_main_all_complete_within_the_shipped_cap(
    tmp_path: Path, count: int
) -> None:
    def mind(body: Json) -> Answer:
        if is_child(body):
            return child(body)
        script = (call("list_channels"), led(count), say("All of them are read [F1.1]."))
        return script[turn(body)]

    limits = {"cost_usd": SHIPPED.cost_usd, "seconds": SHIPPED.seconds}
    async with serving(tmp_path, mind, space=workspace(count), limits=limits) as bot:
        await bot.answer(bot.ask("What is open?"), seconds=120)
        (run,) = await bot.store.runs(10)
        stored = (await bot.store.run(run.id)).result
        assert stored
        ends = [(s["status"], s["stopped_by"]) for s in stored["subagents"]]
        assert ends == [("complete", "none")] * count
        assert stored["status"] == "complete"
        assert stored["cost_usd"] <= SHIPPED.cost_usd
        print(stored["cost_usd"])
