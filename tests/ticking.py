"""A replica that does nothing but schedules: started by tests as a process, to be killed.

Each try of a tick is a row of `tries`; what is noted with a delivery, one of `effects`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from bot.durable import Durable
from bot.requests.inbox import Inbox
from bot.runs.patient import Patient
from bot.schedule.book import ScheduleBook
from bot.schedule.clock import Clock
from bot.schedule.lanes import Lanes
from bot.schedule.ticks import Ticks
from bot.storage.database import Database

LONGEST_S = 0.2
"""That a tick takes."""


async def replica(folder: Path, url: str, poison: str, crashes: int) -> None:
    """`poison`: the time of the tick that takes its process down each time."""
    database = await Database.open(folder, url)
    book, ticks = ScheduleBook(database), Ticks(Patient(database))
    executor = f"replica-{uuid.uuid4().hex[:8]}"
    durable = Durable(
        executor, {}, folder / "w.sqlite", url, max_concurrency=4, max_crashes=crashes
    )
    lanes = Lanes(book, ticks, durable, Inbox(database), executor)

    async def tick(schedule: str, at: str) -> None:
        tried = sa.text("INSERT INTO public.tries VALUES (:at, :pid)")
        await database.change(lambda c: c.execute(tried, {"at": at, "pid": os.getpid()}).rowcount)
        if at == poison:
            os._exit(1)
        await asyncio.sleep(random.uniform(0, LONGEST_S))
        when = datetime.fromisoformat(at)
        since = when - timedelta(seconds=1)
        await ticks.ran(schedule, when, cost=0.01, oldest=since, latest=when, extra={"of": at})

    async def delivery(schedule: str, at: str) -> None:
        effect = sa.text("INSERT INTO public.effects VALUES (:at)")
        await asyncio.sleep(random.uniform(0, LONGEST_S / 2))
        when = datetime.fromisoformat(at)
        await ticks.delivered(schedule, when, noted=lambda c: c.execute(effect, {"at": at}))

    durable.bodies |= lanes.bodies(tick, delivery)
    durable.on_dead, durable.owners, durable.on_adopted = lanes.adopt, lanes.owners, lanes.recover
    await durable.open()
    await lanes.recover()
    async with asyncio.TaskGroup() as tasks:
        for each in (lanes.run(), Clock(book, ticks, lanes.wake).run(), durable.reap()):
            tasks.create_task(each)
        print("ready", flush=True)


if __name__ == "__main__":
    _, where, address, *more = sys.argv
    asyncio.run(replica(Path(where), address, *(more[0], int(more[1])) if more else ("", 1_000)))
