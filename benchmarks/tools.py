"""The `tools` table: the time of the tools of the scopes, compared with the bare libraries.

Each call goes through the gate, with the clients that `bot.tooling` opens for a run; in turns with
it, the same is done without our code.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import psycopg
import pytest
import yaml
from pg_kit import database as own_database

from benchmarks.table import Row
from benchmarks.tool_calls import Caller, in_turns, over, took
from benchmarks.tool_pages import page_rows
from bot.runs.store import Store
from bot.storage.encryption import Cipher
from bot.tooling.provider import Toolkit, toolkit_of
from config.settings import load_settings
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.postgres import Postgres

ORDERS = 100_000
TIMES, COLD = 40, 7
MAKE = f"""CREATE TABLE orders AS SELECT n AS id, 'customer ' || n % 500 AS customer,
n * 7 % 1000 / 10.0 AS price, date '2024-01-01' + (n % 700)::integer AS day
FROM generate_series(1, {ORDERS}) AS made(n)"""
SQL = """SELECT customer, sum(price) AS total, count(*) AS orders FROM orders
WHERE day >= date '2024-06-01' GROUP BY customer ORDER BY total DESC, customer LIMIT 20"""
NOTES = """\
A query is a sum over 100,000 orders in 500 groups, 20 rows of it shown; bare is the same statement
on a connection that it opens, in this process. Cold: a process is started for it; so it is for the
bare one, which only imports the library. Beside a figure stand median and best of ours and of the
bare library's, turn by turn; the figure is the median of the differences, as other work meets both
alike."""


async def tools() -> list[Row]:
    """Measure queries and pages; notes have the table `notes`."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        with duckdb.connect(str(root / "shop.duckdb")) as connection:
            connection.execute(MAKE)
        async with _toolkit(root) as toolkit:
            rows = await _duck(root, Caller(await toolkit.open("bench", None)))
        return [*rows, *await _postgres(), *await page_rows()]


@asynccontextmanager
async def _toolkit(root: Path) -> AsyncIterator[Toolkit]:
    """Open a toolkit like `serve`."""
    told = {
        "data_dir": str(root / "data"),
        "data": {"databases": {"shop": {"path": str(root / "shop.duckdb")}}},
    }
    (root / "assistant.yaml").write_text(yaml.safe_dump(told))
    settings = load_settings(root / "assistant.yaml", {})
    store = await Store.open(settings.data_dir, None, Cipher.generate())
    try:
        toolkit = toolkit_of(settings, store.database)
        try:
            yield toolkit
        finally:
            await toolkit.aclose()
    finally:
        await store.aclose()


async def _duck(root: Path, caller: Caller) -> list[Row]:
    path = root / "shop.duckdb"
    query = partial(caller.call, "data", "execute_query", sql=SQL)
    cold, loaded = await in_turns(COLD, partial(_cold, path), partial(_library, path), warm=1)

    async def bare() -> None:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.execute(SQL).fetchall()

    warm, note = over(*await in_turns(TIMES, query, bare))
    return [
        Row("DuckDB: cold", statistics.median(cold), " ms", 400, over(cold, loaded)[1]),
        Row("DuckDB: warm, over the library that opens the file", warm, " ms", 20, note),
    ]


async def _cold(path: Path) -> None:
    pool = DuckPool(512)
    try:
        await Duck(path, None, pool, 30, 5_000_000).query("SELECT 1", 5)
    finally:
        await pool.aclose()


async def _library(path: Path) -> None:
    """Do the same in a process that does nothing else."""
    program = "import sys, duckdb; duckdb.connect(sys.argv[1], True).execute('SELECT 1').fetchall()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(path))
    await process.wait()


async def _postgres() -> list[Row]:
    try:
        with own_database() as url:
            return await _served(url)
    except pytest.skip.Exception as why:
        return [Row("PostgreSQL: warm, over the driver", 0, "", None, f"not run: {why}")]


async def _served(url: str) -> list[Row]:
    source = Postgres(url, None, None, 30, 5_000_000)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(MAKE.replace("n * 7 % 1000 / 10.0", "(n * 7 % 1000 / 10.0)::float8"))
        connection.execute("ANALYZE orders")

        async def bare() -> None:
            connection.execute(SQL).fetchall()

        cold = await took(lambda: source.query("SELECT 1", 5))
        warm, note = over(*await in_turns(TIMES, partial(source.query, SQL, 1_000), bare))
    await source.aclose()
    return [
        Row("PostgreSQL: cold, which connects", cold, " ms", 400),
        Row("PostgreSQL: warm, over the driver", warm, " ms", 20, note),
    ]
