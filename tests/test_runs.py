"""A run goes on in any process: stored steps, restored briefs, and no run that stays open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from engine_kit import (
    WINDOW,
    call,
    engine,
    look,
    run_agent,
    say,
    settings_for,
    submission,
    turns,
    use,
)
from pg_kit import StorePlace
from runs_kit import StoredFanout
from test_store import result

from bot.local.model.answer import Answer
from bot.metrics import Metrics
from bot.runs.checkpoint import RunLog
from bot.runs.durable import Durable, WorkflowLost
from bot.runs.run import ActiveRun, Runs, WorkflowSpawner
from bot.runs.store import Store
from bot.storage.tables import budgets
from scopes.effects import Access
from scopes.label import Label
from scopes.tool import Item, ToolContext, ToolResult, Window, tool
from subagents.brief import brief_of
from subagents.directory import Operator
from subagents.events import Event, SubagentFinished
from subagents.run import Checkpoint

# ---- steps


async def test_replay_returns_the_stored_result_of_a_step(place: StorePlace) -> None:
    body = {"text": "日本 ¿sí? \u202e", "n": [1, 2.5, None, True], "deep": {"a": [{"b": ""}]}}
    store = await place.store("r1", "r2")
    await RunLog(store, "r1").keep("r1/p1/0/model", json.dumps(body))
    await store.aclose()
    store = await place.store()  # a later process
    later, other = RunLog(store, "r1"), RunLog(store, "r2")
    await later.load()
    await other.load()

    assert json.dumps(later.find_step("r1/p1/0/model")) == json.dumps(body)
    assert later.find_step("r1/p1/1/model") is None
    assert other.find_step("r1/p1/0/model") is None, "that is another run's step"
    await store.aclose()


async def test_deferred_step_is_stored_with_the_next_kept_one(place: StorePlace) -> None:
    async with place.stores(1, "r1") as (store,):
        log = RunLog(store, "r1")
        log.defer("r1/s1/1/tools", '{"read": true}')
        assert await store.steps("r1") == {}
        await log.keep("r1/s2/0/model", '{"paid": true}')

        assert await store.steps("r1") == {
            "r1/s1/1/tools": {"read": True},
            "r1/s2/0/model": {"paid": True},
        }


@tool(Access.WRITE)
async def jot(ctx: ToolContext) -> ToolResult:
    """Keep a note."""
    return ToolResult()


class Order(Checkpoint):
    """Notes which steps are stored at once, and which later."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    async def keep(self, key: str, body: str) -> None:
        self.steps.append(("kept", key.rpartition("/")[2]))

    def defer(self, key: str, body: str) -> None:
        self.steps.append(("deferred", key.rpartition("/")[2]))


async def test_only_reading_steps_are_stored_later() -> None:
    both = Answer([use("look", word="a"), use("jot")])
    async with engine(turns(call("look", word="a"), both, submission())) as e:
        order = e.run.checkpoint = Order()
        await run_agent(e.agent(tools=[look, jot]))

    model, read, write = ("kept", "model"), ("deferred", "tools"), ("kept", "tools")
    assert order.steps == [model, read, model, write, model]


# ---- frozen briefs


async def test_frozen_brief_is_restored_unchanged_from_the_database(in_file: StorePlace) -> None:
    label = Label(True, frozenset({"U1", "U2"}), frozenset({"C1"}))
    whole = Window(WINDOW.oldest, WINDOW.latest, WINDOW.oldest, WINDOW.latest)
    async with in_file.stores(1, "r1") as (store,), engine(turns(submission())) as e:
        plain = e.brief("Find it out\n\nAll of it: \u202e日本", 1, questions=("one?", "two?"))
        full = replace(
            e.brief("Again", 2, contract="issues", effort="high"),
            window=whole,
            label=label,
            language="pt-BR",
            findings=("[F1.2] a finding",),
            material=(Item("C1/2.0", "more", "https://x/y", label, at=WINDOW.latest),),
            expects={"C1": ("1.0", "2.0")},
            requester="U1",
        )
        frozen = await e.fanout().freeze([plain, replace(full, window=None), full])
        live = cast(ActiveRun, LiveRun(store))
        await WorkflowSpawner(cast(Durable, None), store, live, "w").ready(frozen)
        for each in frozen:
            row = await store.subagent("r1", each.id)
            assert row.status == "waiting"
            assert brief_of(row.brief, await store.template(row.template)) == each


class LiveRun:
    """A run with only its id, its stored results and its events."""

    def __init__(self, store: Store) -> None:
        self.run = RunId()
        self.record = RunLog(store, "r1")
        self.results: dict[str, Any] = {}
        self.ended: set[str] = set()
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


class RunId:
    id = "r1"


# ---- lost workflows


def lossy_spawner(why: str, store: Store, live: LiveRun) -> WorkflowSpawner:
    """The spawner of a run whose workflows are all lost."""

    class Lossy:
        async def join(self, handle: object) -> None:
            raise WorkflowLost(why)

    return WorkflowSpawner(cast(Durable, Lossy()), store, cast(ActiveRun, live), "w")


async def test_stored_result_is_used_after_its_workflow_is_lost(in_file: StorePlace) -> None:
    stored = result("s1")
    async with in_file.stores(1, "r1") as (store,):
        live, brief = LiveRun(store), StoredFanout(store, "r1", datetime.now(UTC)).brief(1)
        await store.save_subagent("r1", brief, stored)
        spawner = lossy_spawner("the end of it could not be stored", store, live)

        found = await spawner.result(brief, cast(Any, None))
        assert found == stored
        assert live.events == [SubagentFinished("s1", "complete", "none", 0, 0.25)]


# ---- runs


@asynccontextmanager
async def silent_runs(store: Store, *ids: str, **fields: Any) -> AsyncIterator[Runs]:
    """Runs whose model says nothing and whose Slack is a small one."""
    settings = settings_for()
    args = {"limits": settings.limits.model_dump(mode="json"), **fields}
    for id in ids:
        await store.start_run(id, "mention", "?", "m", args)
    async with engine(turns(say("nothing"))) as e:
        yield Runs(store, e.run.model, e.run.rate_limiter, e.reader, "me", Metrics(), Operator())


async def test_run_is_shared_by_its_users_and_closed_after_the_last_one(
    in_file: StorePlace,
) -> None:
    async with in_file.stores(1) as (store,), silent_runs(store, "r1", "r2") as runs:
        async with runs.at_work("r1") as one, runs.at_work("r1") as two:
            async with runs.at_work("r2") as other:
                assert sorted(runs.ids) == ["r1", "r2"]
            assert one is two
            assert other is not one
            assert runs.ids == ["r1"]
        assert runs.ids == []
        seen: set[int] = set()

        async def use() -> None:
            async with runs.at_work("r1") as live:
                seen.add(id(live.budget))
                await asyncio.sleep(0.01)

        await asyncio.gather(*(use() for _ in range(50)))
        assert len(seen) == 1
        assert len(await store.database.read(sa.select(budgets))) == 2
