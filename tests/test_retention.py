"""Each class of data goes in its time; of a run what it cost and when stays."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from forget_kit import spawned
from pg_kit import Kept
from test_store import decision, record, result

from bot.privacy import tidy
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.storage import tables
from bot.storage.run_index import Names
from bot.storage.tables import actions, quoted
from config.sections import RetentionSettings

KINDS = ("trajectories", "results", "actions", "notes")
NEVER: dict[str, Any] = dict.fromkeys([f"{kind}_days" for kind in KINDS])


def kept(**days: int) -> RetentionSettings:
    return RetentionSettings(workflows_days=14, **NEVER | days)


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def begun(store: Store, run: str, days: float) -> None:
    """A run of then, with all that can be stored of it."""
    await store.start_run(run, "ask", f"What of {run}?", "offline", {"since": "30d"})
    sink = RunLog(store, "r1")
    record(sink, run, words=run)
    record(sink, run, words="shared")
    await sink.flush()
    await store.save_subagent(run, spawned("s1"), result("s1"))
    await store.finish_run(run, "complete", result={"answer": run}, cost_usd=0.5)
    await store.database.write(sa.insert(quoted).values(item=f"i-{run}", run=run, channel="C1"))
    ids = ("tool", "requester", "digest", "body")
    row = {"id": f"a-{run}", "run": run, "state": "done", "made": ago(days)}
    await store.database.write(sa.insert(actions).values(row | dict.fromkeys(ids, "x")))
    change = sa.update(tables.runs).where(tables.runs.c.id == run)
    await store.database.write(change.values(started=ago(days)))


async def count(store: Store, table: sa.Table) -> int:
    (row,) = await store.database.read(sa.select(sa.func.count().label("n")).select_from(table))
    return int(row.n)


async def test_old_trajectories_go_and_their_results_stay(in_file: Kept) -> None:
    store = await in_file.store()
    await begun(store, "old", 31)
    await begun(store, "new", 29)
    await tidy(store.database, kept(trajectories_days=30))
    await tidy(store.database, kept(trajectories_days=30))

    assert not (await store.trajectory("old")).entries
    blocks = (await store.trajectory("new")).blocks.values()
    said = {json.loads(body).get("text") for body in blocks}
    assert {"new", "shared"} <= said
    assert "old" not in said
    assert (await store.run("old")).result == {"answer": "old"}
    assert len(await store.subagents("old")) == 1
    assert await count(store, actions) == 2
    await store.aclose()


async def test_old_results_go_and_cost_and_times_stay(in_file: Kept) -> None:
    store = await in_file.store()
    for number in range(45):  # more than go in one transaction
        await begun(store, f"old{number}", 366)
    await begun(store, "new", 364)
    before = await store.run("old7")
    await tidy(store.database, kept(trajectories_days=30, results_days=365))

    old, new = await store.run("old7"), await store.run("new")
    assert (old.question, old.result, old.error) == ("", None, None)
    same = ("id", "kind", "status", "model", "started", "finished", "cost_usd", "requester")
    assert [getattr(old, n) for n in same] == [getattr(before, n) for n in same]
    assert (new.question, new.result) == ("What of new?", {"answer": "new"})
    assert await store.subagents("old7") == []
    assert len(await store.subagents("new")) == 1
    assert await count(store, quoted) == 1
    assert await count(store, tables.runs) == 46
    await tidy(store.database, kept(results_days=365))  # what was emptied is not met again
    assert (await store.run("old7")).question == ""
    await store.aclose()


async def test_old_actions_go_and_the_log_of_decisions_stays(in_file: Kept) -> None:
    store = await in_file.store()
    await begun(store, "r1", 400)
    await begun(store, "r2", 29)
    sink = RunLog(store, "r1")
    sink.log_decision(decision())
    await sink.flush()
    everything = kept(trajectories_days=1, results_days=7, actions_days=30)
    await tidy(store.database, everything)

    left = await store.database.read(sa.select(actions.c.id))
    assert [row.id for row in left] == ["a-r2"]
    assert await store.decisions("r1") == [decision()]
    await store.aclose()


async def test_a_name_goes_that_was_long_not_looked_up(in_file: Kept) -> None:
    store = await in_file.store()
    for id in ("U1", "U2"):
        await Names(store.database).save(id, f"Name of {id}")
    old = sa.update(tables.names).where(tables.names.c.id == "U1").values(at=ago(366))
    await store.database.write(old)
    await tidy(store.database, kept(results_days=365))
    assert await Names(store.database).known(["U1", "U2"]) == {"U2": "Name of U2"}
    await store.aclose()
