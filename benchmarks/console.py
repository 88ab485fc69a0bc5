"""The `console` table: how long its pages take with 100,000 stored runs, a year's number."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa
from pg_kit import database as own_database
from runs_kit import many_rows, store_rows, wide_run
from starlette.applications import Starlette
from yarl import URL

from benchmarks.table import Row
from bot.console.app import PATH, LoopbackAccess
from bot.console.pages import console_routes
from bot.policy.policy import PolicyFile
from bot.runs.store import Store
from bot.serving.web import serve_app
from bot.storage import tables
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from bot.storage.run_index import Names
from config.settings import load_settings

NUMBER = 100_000
BATCH = 2_000
EVERY = timedelta(days=365) / NUMBER
USERS, CHANNELS = 200, 40
CHILDREN = 3
"""Subagents of each run."""
RESULT_CHARS = 4_000
WIDE = "wide00000001"
"""Id of a run with fifty subagents."""
WARM, TIMES = 2, 15
BAR_MS = 300.0
PAGES = {
    "newest runs": "/runs",
    "of one person, failed": "/runs?who=U3&status=failed",
    "of one person by name": "/runs?who=ana",
    "of one channel, with costs": "/runs?where=C7&cost_from=0.02",
    "rated as bad": "/runs?rating=bad",
    "a word that one question has": "/runs?text=r%C3%A4re",
    "a word that no question has": "/runs?text=nowhere",
    "a run of 50 subagents": f"/runs/{WIDE}",
    "what grows of it": f"/runs/{WIDE}/live",
    "a trajectory": f"/runs/{WIDE}/contexts/s7",
    "costs of 30 days": "/costs?first={month}&last={today}",
    "costs of a year": "/costs?first={year}&last={today}",
}
NOTES = f"""\
Medians of {TIMES} requests over HTTP, in the process of the bot. {NUMBER:,} runs in 365 days, each
with a result of {RESULT_CHARS:,} characters and {CHILDREN} subagents."""


async def console() -> list[Row]:
    """Measure in a file, and in a Postgres database."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, place in (("SQLite", nullcontext(None)), ("Postgres", own_database())):
            with place as url:
                store = Store(await Database.open(Path(folder), url, Cipher.generate()))
                try:
                    rows += await _measured(kind, store)
                finally:
                    await store.aclose()
    return rows


async def _measured(kind: str, store: Store) -> list[Row]:
    newest = datetime.now(UTC)
    await _fill(store.database, newest)
    for number in range(USERS):
        await Names(store.database).save(f"U{number}", "Ana" if number == 3 else f"Ben {number}")
    await wide_run(store, WIDE)
    if store.database.shared:
        await store.database.change(lambda c: c.execute(sa.text("ANALYZE")))
    month, year = newest - timedelta(days=29), newest - timedelta(days=365)
    days = {"today": newest.date(), "month": month.date(), "year": year.date()}
    settings = load_settings()
    policy = PolicyFile(None, settings.policy)
    app = Starlette(routes=console_routes(store, settings, LoopbackAccess(), policy))
    rows = []
    async with serve_app(app, "127.0.0.1", 0) as here, aiohttp.ClientSession() as client:
        for name, path in PAGES.items():
            address = f"{here}{PATH}{path.format(**days)}"
            took, size = await _timed(client, address)
            rows.append(Row(f"{kind}: {name}", took, " ms", BAR_MS, f"{size / 1000:,.0f} KB"))
    return rows


async def _timed(client: aiohttp.ClientSession, address: str) -> tuple[float, int]:
    """Return the median in ms, and the bytes of the page."""
    took, size = [], 0
    for _ in range(WARM + TIMES):
        began = time.perf_counter()
        async with client.get(URL(address, encoded=True)) as page:
            assert page.status == 200, await page.text()
            size = len(await page.read())
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took[WARM:]), size


async def _fill(database: Database, newest: datetime) -> None:
    """Store the runs, oldest first, as in reality; one in a hundred requests is rated."""
    rows, chance = many_rows(NUMBER, newest, EVERY, USERS, CHANNELS)[::-1], random.Random(7)
    for start in range(0, NUMBER, BATCH):
        batch = rows[start : start + BATCH]
        for row in batch:
            row["result"] = {"answer": chance.randbytes(RESULT_CHARS // 2).hex()}
        await store_rows(database, batch)
        children = [_child(row["id"], k) for row in batch for k in range(1, CHILDREN + 1)]
        rated = {"user": "U1", "value": "bad", "at": newest}
        ratings = [{"request": row["request"], **rated} for row in batch[::100] if row["request"]]
        await database.write(sa.insert(tables.subagents).values(children))
        await database.write(sa.insert(tables.feedback).values(ratings))


def _child(run: str, number: int) -> dict[str, Any]:
    ended = {"status": "complete", "stopped_by": "none", "cost_usd": 0.001, "result": None}
    about = {"run": run, "id": f"s{number}", "position": number}
    return {**about, "brief": {}, "template": "slack/answer@1", **ended}
