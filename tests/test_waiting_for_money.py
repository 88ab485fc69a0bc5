"""Subagents that together could cost more than the cap wait for each other, and all come through.

The worst case of a call is several times what it costs, so few calls fit under a cap at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from engine_kit import (
    Json,
    brief,
    call,
    channel_id,
    child,
    engine,
    is_child,
    say,
    settings_for,
    turn,
    until,
    workspace,
)
from serve_kit import serving
from timing import waited_within

from bot.local.model.answer import Answer
from bot.local.model.faults import Fault, Faults
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
        ends = Counter(f"{s['status']} {s['stopped_by']}" for s in stored["subagents"])
        assert ends == {"complete none": count}, f"{ends} for ${stored['cost_usd']:.2f}"
        assert stored["status"] == "complete"
        assert stored["cost_usd"] <= SHIPPED.cost_usd


async def test_who_waits_for_money_takes_no_place_and_ends_when_it_is_stopped() -> None:
    """Two calls fit at a time, and room for one more; the others wait outside of the pace that all
    models share."""

    def choose(index: int, body: Json) -> Fault | None:
        return Fault("slow")

    settings = settings_for({"cost_usd": 0.6, "seconds": 60.0})
    async with engine(child, settings, faults=Faults(choose)) as e:
        briefs = [e.brief(f"Read {n}", 1, model_preference="main") for n in range(8)]
        task = asyncio.create_task(e.fanout().run_all(briefs))
        await until(lambda: len(e.requests) == 2)
        lane = e.run.rate_limiter.limit(e.settings.models.main)
        await asyncio.sleep(0.2)
        assert (len(e.requests), lane.in_flight) == (2, 2)
        with waited_within(2):
            e.run.stop.set()
            got = await task
        assert {r.status for r in got} == {"cancelled"}
        assert e.run.budget.reserved.nanousd == 0


async def test_who_waits_for_money_ends_when_the_time_is_up() -> None:
    settings = settings_for({"cost_usd": 0.6, "seconds": 3.0})
    faults = Faults(lambda index, body: Fault("slow"))
    async with engine(child, settings, faults=faults) as e:
        briefs = [e.brief(f"Read {n}", 1, model_preference="main") for n in range(4)]
        with waited_within(4):
            got = await e.fanout().run_all(briefs)
        assert {r.stopped_by for r in got} == {"time"}
        assert e.run.budget.spent.nanousd <= e.run.budget.caps.nanousd
        assert e.run.budget.reserved.nanousd == 0
