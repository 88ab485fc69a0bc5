"""A sweep's channels are read ahead of their subagents, no more at once than are worked on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine_kit import WINDOW, Engine, Json, engine, workspace

from bot.local.model.answer import Answer
from bot.local.slack.server import LocalSlack
from bot.tasks.sources import SweepSource
from bot.tasks.sweep import SweepPlanner
from config.settings import load_settings
from subagents.events import SourcesRead

HISTORY = "conversations.history"


def never(request: Json) -> Answer:
    raise AssertionError("planning asks no model")


async def sources_of(e: Engine) -> list[SweepSource]:
    return [SweepSource(each, WINDOW) for each in await e.reader.channels()]


async def planned(planning: SweepPlanner, sources: Sequence[SweepSource]) -> SweepSource:
    plan = await asyncio.wait_for(planning.next(), 10)
    source = next(s for s in sources if s.channel.id == plan.channel)
    source.plan = plan
    assert plan.shares, "there is something to read"
    return source


async def test_the_next_channel_is_read_when_one_is_done_and_let_go_of() -> None:
    limits = load_settings(env={}).limits.model_copy(update={"max_concurrency": 2})
    slack = LocalSlack(workspace(5))
    async with engine(never, slack=slack) as e, asyncio.TaskGroup() as group:
        e.run.limits = limits
        sources = await sources_of(e)
        planning = SweepPlanner(e.run, sources, 40, group)
        first, second = [await planned(planning, sources) for _ in range(2)]
        assert slack.calls[HISTORY] == 2, "the others wait for room"
        calls = slack.calls.total()
        await e.reader.conversations(first.channel.id, WINDOW)
        assert slack.calls.total() == calls, "its subagent reads what was read for the plan"
        planning.read(first)
        third = await planned(planning, sources)
        assert slack.calls[HISTORY] == 3
        await e.reader.conversations(first.channel.id, WINDOW)
        assert slack.calls[HISTORY] == 4, "what was read of the first was let go of"
        for source in (second, third):
            planning.read(source)
        for _ in range(2):
            planning.read(await planned(planning, sources))
        assert {s.channel.id for s in sources if s.plan} == {s.channel.id for s in sources}


async def test_how_far_the_reading_is_is_told_from_its_beginning_to_its_end() -> None:
    async with engine(never, slack=LocalSlack(workspace(3))) as e, asyncio.TaskGroup() as group:
        sources = await sources_of(e)
        planning = SweepPlanner(e.run, sources, 40, group)
        for _ in sources:
            planning.read(await planned(planning, sources))
        told = [event for event in e.events if isinstance(event, SourcesRead)]
        assert told[0] == SourcesRead(0, 3)
        assert told[-1] == SourcesRead(3, 3)
