"""The stored budget: its caps hold across processes and crashes, and calls are paid once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pg_kit import StorePlace
from timing import patient

from bot.storage.budget import StoredBudget, settle_dead_calls
from bot.storage.database import Database
from bot.storage.tables import budgets, reservations
from subagents.budget import Amount, Caps
from subagents.errors import BudgetExceeded

FIELDS = [f.name for f in fields(Amount)]
CAPS = Caps(100, 100, 100, 60.0)


def all_of(number: int) -> Amount:
    return Amount(number, number, number)


async def budget(
    database: Database, owner: str = "me", caps: Caps = CAPS, run: str = "r1"
) -> StoredBudget:
    clock = asyncio.get_running_loop().time
    return await StoredBudget.open(database, run, caps, clock, owner)


@asynccontextmanager
async def shared_budgets(place: StorePlace, count: int = 2) -> AsyncIterator[list[StoredBudget]]:
    """One budget as several processes open it; a file has one process at a time."""
    async with place.stores(count, "r1") as stores:
        shared = [await budget(store.database, f"p{n}") for n, store in enumerate(stores)]
        yield shared
        for each in shared:
            await each.aclose()


async def balance(database: Database, run: str = "r1") -> tuple[Amount, Amount]:
    """Return what is spent and what is reserved; check both against the caps and the rows."""

    def read_rows(connection: sa.Connection) -> tuple[sa.RowMapping, list[sa.RowMapping]]:
        total = sa.select(budgets).where(budgets.c.run == run).with_for_update()
        row = connection.execute(total).mappings().one()
        each = sa.select(reservations).where(reservations.c.run == run)
        return row, list(connection.execute(each).mappings())

    row, calls = await database.change(read_rows)
    spent, reserved = (
        Amount(*(row[f"{kind}_{name}"] for name in FIELDS)) for kind in ("spent", "reserved")
    )
    for name in FIELDS:
        assert getattr(reserved, name) >= 0
        assert getattr(spent, name) + getattr(reserved, name) <= row[f"cap_{name}"]
    for settled, total in ((True, spent), (False, reserved)):
        rows = [r for r in calls if (r["state"] == "settled") == settled]
        assert total == Amount(*(sum(r[name] for r in rows) for name in FIELDS))
    return spent, reserved


async def die(database: Database, owner: str) -> None:
    await database.change(lambda connection: settle_dead_calls(connection, owner))


# ---- one budget


async def test_reopened_budget_keeps_its_original_caps(in_file: StorePlace) -> None:
    async with in_file.stores(1, "r1") as (store,):
        await (await budget(store.database)).keep("a", all_of(10))
        later = await budget(store.database, caps=Caps(10**9, 10**9, 10**9, 60.0))

        with pytest.raises(BudgetExceeded):
            await later.reserve("b", all_of(91))
        await later.reserve("b", all_of(90))


# ---- after a crash


async def test_after_a_crash_held_amounts_are_released_and_sent_calls_are_charged(
    place: StorePlace,
) -> None:
    async with shared_budgets(place) as shared:
        database = shared[0]._database
        dead, alive = shared[0], shared[-1]
        await dead.hold({"final": all_of(30)})
        await dead.reserve("sent", all_of(20))
        await dead.reserve("done", all_of(9))
        await dead.settle("done", all_of(4))
        if place.shared:
            await alive.reserve("other", all_of(10))
        await die(database, "p0")

        spent, reserved = await balance(database)
        assert spent == all_of(24)
        assert reserved == (all_of(10) if place.shared else Amount())
        await die(database, "p0")
        assert await balance(database) == (spent, reserved)


async def test_call_of_a_dead_process_is_charged_when_another_repeats_it_before_adoption(
    place: StorePlace,
) -> None:
    async with shared_budgets(place) as shared:
        database, dead = shared[0]._database, shared[0]
        await dead.reserve("call", all_of(20))
        await dead.hold({"next": all_of(30)})
        successor = shared[-1] if place.shared else await budget(database, "p1")
        await successor.reserve("call", all_of(15))
        assert await balance(database) == (all_of(20), all_of(45))
        await successor.settle("call", all_of(5))
        await die(database, "p0")

        assert await balance(database) == (all_of(25), Amount())


async def test_repeated_call_is_charged_again(in_file: StorePlace) -> None:
    async with in_file.stores(1, "r1") as (store,):
        mine = await budget(store.database)
        await mine.reserve("a", all_of(20))
        await mine.settle("a", all_of(8))  # paid, but its reply was lost
        await mine.reserve("b", all_of(20))  # under way
        await die(store.database, "me")
        again = await budget(store.database, "later")
        for key in ("a", "b"):
            await again.reserve(key, all_of(20))
        assert await balance(store.database) == (all_of(28), all_of(40))
        for key in ("a", "b"):
            await again.settle(key, all_of(8))

        assert await balance(store.database) == (all_of(44), Amount())


# ---- at any interleaving


async def worker(
    mine: StoredBudget, name: str, seed: int, exceeded: list[str], alive: list[bool]
) -> None:
    """One context: hold a final call, pay for calls, and release the rest, or die."""
    rng = random.Random(seed)

    def some(maximum: int) -> Amount:
        return Amount(rng.randint(0, maximum), rng.randint(0, maximum), rng.randint(0, 3))

    final = f"{name}/final"
    for step in range(rng.randint(1, 4)):
        key, worst = f"{name}/{step}/1", some(40)
        try:
            await mine.reserve(key, worst, later={final: some(25)}, own_keys=[final])
        except BudgetExceeded as error:
            exceeded.append(error.what)
            break
        if not alive[0]:
            return
        await asyncio.sleep(rng.choice((0, 0, 0.002)))
        await mine.settle(key, Amount(*(rng.randint(0, getattr(worst, n)) for n in FIELDS)))
    await mine.settle(final, Amount())


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**30))
async def test_no_cap_is_exceeded_at_any_interleaving(tmp_path: Path, seed: int) -> None:
    """Three contexts at one budget, whose process may die in the middle."""
    rng, run, owner = random.Random(seed), f"run{seed}", f"p0/{seed}"
    alive, exceeded, done = [True], list[str](), asyncio.Event()

    def start_workers(mine: StoredBudget, alive: list[bool]) -> list[asyncio.Task[None]]:
        seeds = [rng.getrandbits(30) for _ in range(3)]
        coroutines = (worker(mine, f"c{k}", each, exceeded, alive) for k, each in enumerate(seeds))
        return [asyncio.create_task(each) for each in coroutines]

    async def watch(database: Database) -> None:
        while not done.is_set():
            await balance(database, run)
            await asyncio.sleep(0.001)

    async with StorePlace(tmp_path, None).stores(1) as (store,):
        await store.start_run(run, "mention", "?", "m", {})
        mine = await budget(store.database, owner, run=run)
        watcher = asyncio.create_task(watch(store.database))
        workers = start_workers(mine, alive)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.005)))
            alive[0] = False
            for task in workers:
                task.cancel()  # it may wait for a dead one
            await asyncio.gather(*workers, return_exceptions=True)
            await mine.aclose()
            await die(store.database, owner)
            mine = await budget(store.database, f"p9/{seed}", run=run)
            workers = start_workers(mine, [True])
        await asyncio.gather(*workers)
        await mine.aclose()
        done.set()
        await watcher
        spent, reserved = await balance(store.database, run)
        assert reserved == Amount()
        assert exceeded or spent.tokens <= 100


# ---- waiting


async def test_reservation_waits_until_another_process_settles(place: StorePlace) -> None:
    async with shared_budgets(place) as shared:
        mine, other = shared[0], shared[-1]
        await other.hold({"s1/final": all_of(30)})
        await other.reserve("s1/0/1", all_of(50), own_keys=["s1/final"])
        task = asyncio.create_task(mine.hold({"s2/0/1": all_of(60)}))
        await asyncio.sleep(0.1)
        assert not task.done()
        await other.settle("s1/0/1", all_of(10))
        await other.settle("s1/final", Amount())
        async with patient():
            await task
        assert await balance(mine._database) == (all_of(10), all_of(60))
