"""Work that has begun ends: by the next process, by another replica, or with an apology."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import Json, brief, child, is_child, say, scripted_parent, turn, until
from fleet_kit import Fleet, fleet
from pg_kit import StorePlace, execute
from serve_kit import serve
from test_store import drop_connections

import bot.runs.durable
from bot.errors import StoreError
from bot.local.model.answer import Answer
from bot.runs.durable import APPLICATION, QUEUE, Durable, LockLost, Workflows
from bot.runs.store import Store
from config.words import phrase

pytestmark = pytest.mark.system


@asynccontextmanager
async def durable(place: StorePlace, executor: str = "me", **fields: Any) -> AsyncIterator[Durable]:
    """Open it with `echo`, `fail`, and `family`, which starts three children and one that fails."""
    bodies = fields.pop("bodies", {})
    names = ("echo", "fail", "family", *bodies)
    workflows = Workflows(executor, place.path / "w.sqlite", place.url, 4, 3, names=names, **fields)
    opened = Durable(workflows)

    async def echo(*args: Any) -> dict[str, Any]:
        return {"args": list(args)}

    async def fail(is_lost: bool) -> dict[str, Any]:
        if not is_lost:
            raise LookupError("oops")
        return {"lost": True}

    async def family(id: str, _: bool) -> dict[str, Any]:
        handles = [await opened.spawn("echo", f"{id}/s{n}", n) for n in range(3)]
        failing = await opened.spawn("fail", f"{id}/lost")
        return {"results": [await opened.join(handle) for handle in (*handles, failing)]}

    opened.bodies |= {"echo": echo, "fail": fail, "family": family, **bodies}
    await workflows.open()
    await opened.open()
    try:
        yield opened
    finally:
        await opened.aclose()
        await workflows.aclose()


def rows(place: StorePlace, table: str) -> list[dict[str, Any]]:
    """All rows of a table of the workflow database."""
    if place.url:
        result = execute(f"SELECT to_jsonb(t) FROM dbos.{table} t", place.url)
        return [row[0] for row in result]
    engine = sa.create_engine(f"sqlite:///{place.path / 'w.sqlite'}")
    with engine.connect() as connection:
        found = [dict(r) for r in connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()]
    engine.dispose()
    return found


def statuses(place: StorePlace) -> Counter[str]:
    return Counter(row["status"] for row in rows(place, "workflow_status"))


async def wait_until_ended(place: StorePlace, number: int) -> None:
    await until(lambda: statuses(place)["SUCCESS"] >= number, 20)


# ---- workflows


async def test_children_are_joined_and_a_failed_one_ends_as_lost(
    place: StorePlace, caplog: pytest.LogCaptureFixture
) -> None:
    async with durable(place) as mine:
        await mine.begin("family", "f/1", "f/1")
        await wait_until_ended(place, 5)
    outputs = {
        r["workflow_uuid"]: json.loads(r["output"])
        for r in rows(place, "workflow_output")
        if r["output"]
    }

    assert outputs["f/1"]["results"] == [*({"args": [n, False]} for n in range(3)), {"lost": True}]
    assert "oops" in caplog.text
    stored = rows(place, "workflow_status")
    assert {row["serialization"] for row in stored} == {"portable_json"}
    assert {row["application_version"] for row in stored} == {APPLICATION}


async def test_failed_work_ends_when_the_database_is_back(
    place: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bot.runs.durable, "STORE_AWAY_S", 0.01)
    tried: list[bool] = []

    async def work(is_lost: bool) -> dict[str, Any]:
        tried.append(is_lost)
        if len(tried) < 4:
            raise StoreError("the database", "is away", "Wait.")
        return {}

    async with durable(place, bodies={"work": work}) as mine:
        await mine.begin("work", "w/1")
        await wait_until_ended(place, 1)
    assert tried == [False, True, True, True]


def waiting_workflow(event: asyncio.Event) -> Callable[[bool], Awaitable[dict[str, Any]]]:
    async def wait(_: bool) -> dict[str, Any]:
        await event.wait()
        return {}

    return wait


async def test_old_ended_workflows_are_deleted_and_running_ones_kept(place: StorePlace) -> None:
    never, now = asyncio.Event(), datetime.now(UTC)
    async with durable(place, bodies={"wait": waiting_workflow(never)}) as mine:
        await mine.begin("family", "f/1", "f/1")
        await mine.begin("wait", "w/1")
        await wait_until_ended(place, 5)
        assert await mine.workflows.forget(now - timedelta(days=7)) == 0
        assert await mine.workflows.forget(now + timedelta(days=1)) == 5
        assert [r["workflow_uuid"] for r in rows(place, "workflow_status")] == ["w/1"]
        never.set()
        await wait_until_ended(place, 1)


async def test_cancel_children_ends_only_the_children_of_that_parent(place: StorePlace) -> None:
    never = asyncio.Event()
    async with durable(place, bodies={"wait": waiting_workflow(never)}) as mine:
        for id in ("p/1/s1", "p/1/s2", "p/10/s1"):
            await mine.begin("wait", id)
        await mine.cancel_children("p/1")
        await until(lambda: statuses(place)["CANCELLED"] == 2)
        never.set()
        await wait_until_ended(place, 1)


async def test_children_start_no_faster_than_the_rate_limit(postgres: StorePlace) -> None:
    """The limit also counts children that another replica started."""
    for replica, number in (("a", 5), ("b", 10)):
        async with durable(postgres, replica, per_minute=3, period_s=2.0) as mine:
            await mine.begin("family", f"f/{replica}", f"f/{replica}")
            await wait_until_ended(postgres, number)
    children = [row for row in rows(postgres, "workflow_status") if row["queue_name"] == QUEUE]
    claims = sorted(row["started_at_epoch_ms"] / 1000 for row in children)
    assert len(claims) == 8
    assert all(b - a > 1.9 for a, b in zip(claims, claims[3:], strict=False))


async def test_second_replica_with_the_same_name_is_refused(postgres: StorePlace) -> None:
    async with durable(postgres, "a"):
        with pytest.raises(LockLost, match="Another replica is called a"):
            async with durable(postgres, "a"):
                pass


# ---- requests that crash the bot


async def test_request_that_crashes_the_bot_twice_ends_with_an_apology(
    place: StorePlace, tmp_path: Path
) -> None:
    """Each model call crashes it: of the parent, or of the subagent if the place is shared."""
    bots: Fleet
    poisoned = place.shared

    def responder(body: Json) -> Answer:
        if not is_child(body) and "poison" not in json.dumps(body["messages"]):
            return say("Fine.")
        if poisoned == is_child(body):
            bots.bots[-1].process.kill()
        if is_child(body):
            return child(body)
        return Answer([brief(2)]) if turn(body) == 0 else say("Never said.")

    with fleet(tmp_path, responder, url=place.url, serve={"max_crashes": 2}) as bots:
        await bots.start_bots()
        thread = bots.ask("What is open in #support-2, poison?")
        for life in range(2):
            await until(lambda: bots.bots[-1].process.poll() is not None, 30)
            assert bots.bots[-1].process.poll() == -signal.SIGKILL
            bots.balancer.targets = []
            if life == 0:
                bots.start()
        await bots.start_bots()
        shown = await bots.answer(thread)
        other = bots.ask("Is all well?")
        assert "Fine." in (await bots.answer(other)).text

        store = await Store.open(tmp_path / "data", place.url)
        (run,) = [r for r in await store.runs() if "poison" in r.question]
        await store.aclose()
        assert run.id in str(shown.blocks)
        if phrase("reply.crashed") in shown.text:
            assert run.status == "failed"
        else:  # the subagent was started once more than its parent, and is lost
            assert poisoned
            assert phrase("ended.tool_error") in shown.text
        await until(lambda: bots.bots[-1].at_work() == 0)


async def test_bot_exits_when_postgres_connections_drop_and_the_next_one_answers(
    postgres: StorePlace, tmp_path: Path
) -> None:
    assert postgres.url
    responder = scripted_parent(Answer([brief(2)]), say("It is **open** [F1.1]."))
    with fleet(tmp_path, responder, url=postgres.url, latency_s=0.5) as bots:
        (first,) = await bots.start_bots()
        thread = bots.ask()
        await until(lambda: len(bots.model.recorded) >= 2, 20)
        drop_connections(postgres.url)
        assert await asyncio.to_thread(first.process.wait) == 2
        assert "The lock of this replica was lost" in first.log.read_text("utf-8")
        bots.balancer.targets = []
        await bots.start_bots()

        assert "It is **open**" in (await bots.answer(thread)).text


async def test_dropped_database_connections_do_not_lose_an_answer(
    postgres: StorePlace, tmp_path: Path
) -> None:
    """All connections but the lock's drop, as idle ones do behind a pooler or a firewall."""
    assert postgres.url
    responder = scripted_parent(Answer([brief(2)]), say("It is **open** [F1.1]."))
    async with serve(tmp_path, responder, url=postgres.url, latency_s=0.3) as bot:
        thread = bot.ask("What is open in #support-2?")
        for _ in range(3):
            await asyncio.sleep(0.3)
            execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')",
                postgres.url,
            )

        assert "It is **open**" in (await bot.answer(thread)).text


async def test_full_disk_stops_no_running_request_and_loses_no_new_one(tmp_path: Path) -> None:
    responder = scripted_parent(Answer([brief(2), brief(3)]), say("It is **open** [F1.1]."))
    with fleet(tmp_path, responder, latency_s=0.5) as bots:
        (bot,) = await bots.start_bots()
        running = bots.ask("What is open in #support-2 and #support-3?")
        await until(lambda: len(bots.model.recorded) >= 2, 20)
        free = resource.prlimit(bot.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(bot.process.pid, resource.RLIMIT_FSIZE, (60_000, free[1]))
        await until(lambda: "the disk is full" in bot.log.read_text("utf-8"))
        new = bots.ask("And in #support-3?")
        await until(lambda: 503 in bots.balancer.acks)
        assert bot.process.poll() is None
        resource.prlimit(bot.process.pid, resource.RLIMIT_FSIZE, free)
        for thread in (running, new):  # Slack sends the second one again
            assert "It is **open**" in (await bots.answer(thread, 60)).text
        assert bots.count_repeated_calls() == 0
        assert bot.tracebacks() == []
