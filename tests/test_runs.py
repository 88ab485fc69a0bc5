"""A run goes on in any process: restored briefs, and no run that stays open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import sqlalchemy as sa
from engine_kit import WINDOW, engine, say, settings_for, submission, turns
from pg_kit import StorePlace

from bot.metrics import Metrics
from bot.runs.durable import Durable
from bot.runs.run import ActiveRun, Runs, WorkflowSpawner
from bot.storage.tables import budgets
from scopes.label import Label
from scopes.tool import Item, Window
from subagents.brief import brief_of
from subagents.directory import Operator


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
        live = cast(ActiveRun, SimpleNamespace(run=SimpleNamespace(id="r1")))
        await WorkflowSpawner(cast(Durable, None), store, live, "w").ready(frozen)
        for each in frozen:
            row = await store.subagent("r1", each.id)
            assert row.status == "waiting"
            assert brief_of(row.brief, await store.template(row.template)) == each


async def test_run_is_shared_by_its_users_and_closed_after_the_last_one(
    in_file: StorePlace,
) -> None:
    args = {"limits": settings_for().limits.model_dump(mode="json")}
    async with in_file.stores(1) as (store,), engine(turns(say("nothing"))) as e:
        await store.start_run("r1", "mention", "?", "m", args)
        work = (e.run.model, e.run.rate_limiter, e.reader, "me", Metrics(), Operator())
        runs, seen = Runs(store, *work), set[int]()

        async def use() -> None:
            async with runs.at_work("r1") as live:
                seen.add(id(live.budget))
                assert runs.ids == ["r1"]
                await asyncio.sleep(0.01)

        await asyncio.gather(*(use() for _ in range(50)))
        assert len(seen) == 1
        assert runs.ids == []
        assert len(await store.database.read(sa.select(budgets))) == 1
