"""A replica that runs only schedules, as a process that tests start and kill.

Each try of an occurrence adds a row to `tries`, each recorded delivery one to `effects`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from bot.runs.durable import Durable
from bot.runs.worker import adopt, owners
from bot.schedules.scheduler import Scheduler, ScheduleWorker
from bot.schedules.store import OccurrenceResult, ScheduleStore
from bot.storage.database import Database, RetryingDatabase
from bot.storage.requests import RequestQueue
from bot.storage.schedules import Work

LONGEST_S = 0.2
"""Longest duration of an occurrence."""


async def replica(folder: Path, url: str) -> None:
    database = await Database.open(folder, url)
    store = ScheduleStore(RetryingDatabase(database))
    executor = f"replica-{uuid.uuid4().hex[:8]}"
    durable = Durable(executor, {}, folder / "w.sqlite", url, max_concurrency=4, max_crashes=1_000)

    async def raise_lost(work: Work) -> None:
        raise AssertionError(f"{work.id} is lost")

    worker = ScheduleWorker(RequestQueue(database), durable, 8, store, raise_lost)

    async def occurrence(work: Work) -> None:
        at = work.at.isoformat(timespec="microseconds")
        insert = sa.text("INSERT INTO public.tries VALUES (:at, :pid)")
        await database.change(lambda c: c.execute(insert, {"at": at, "pid": os.getpid()}).rowcount)
        await asyncio.sleep(random.uniform(0, LONGEST_S))
        since = work.at - timedelta(seconds=1)
        result = OccurrenceResult(cost=0.01, oldest=since, latest=work.at, extra={"of": at})
        await store.record_run(work, result)

    async def delivery(work: Work) -> None:
        insert = sa.text("INSERT INTO public.effects VALUES (:at)")
        await asyncio.sleep(random.uniform(0, LONGEST_S / 2))
        row = {"at": work.at.isoformat(timespec="microseconds")}
        await store.record_delivery(work, on_delivery=lambda c: c.execute(insert, row))

    durable.bodies |= {"occurrence": worker.body(occurrence), "delivery": worker.body(delivery)}

    durable.owners, durable.on_adopted = partial(owners, database), worker.recover
    durable.on_dead = partial(adopt, database, executor)
    await durable.open()
    await worker.recover()
    async with asyncio.TaskGroup() as tasks:
        for each in (
            worker.run(),
            Scheduler(store, worker.wake).run(),
            durable.reap(),
        ):
            tasks.create_task(each)
        print("ready", flush=True)


if __name__ == "__main__":
    _, where, address = sys.argv
    asyncio.run(replica(Path(where), address))
