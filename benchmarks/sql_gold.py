"""The `sql_gold` table: real questions to a real database, against answers that are known.

Each gold statement runs through the gate and `execute_query`, in a process of its own, as a
subagent's would. `assistant eval sql` asks the questions.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

import scopes
from benchmarks.table import Row
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.tables import Databases, Rows, SourceDatabase, TableInfo
from scopes.effects import Handles
from scopes.label import TRUSTED, WORKSPACE, Label
from scopes.tool import ToolContext, ToolResult
from subagents.directory import Operator
from subagents.gate import Gate

DATA = Path("../shared/data/dev")
HANDLE = "data:business"
MEMORY_MB, RESULT_BYTES, QUERY_S = 512, 5_000_000, 30
DIGITS = 6
"""To which figures are compared: a sum of floats depends on the order of its parts."""
NOTES = """\
Right: the rows of the gold answer, in the order of what the statement sorts by; rows that tie may
come in any. Cold: the first query of a new process, the median of 5. Warm: the median of all of
them through the gate and the tool, less the same in this process on an open connection. Memory: the
most that one process held (VmHWM)."""


@dataclass
class Seen:
    """A database that keeps what it gave last, exact."""

    database: SourceDatabase
    rows: list[Rows] = field(default_factory=list)

    @property
    def dialect(self) -> str:
        return self.database.dialect

    async def tables(self) -> Sequence[TableInfo]:
        return await self.database.tables()

    async def describe(self, table: str) -> TableInfo | None:
        return await self.database.describe(table)

    async def query(self, sql: str, max_rows: int) -> Rows:
        self.rows.append(await self.database.query(sql, max_rows))
        return self.rows[-1]

    async def aclose(self) -> None:
        await self.database.aclose()


def sql_gold() -> tuple[list[Row], str]:
    """The figures, and in words what was wrong or could not be measured."""
    path, labels = DATA / "business.duckdb", DATA / "labels" / "sql_gold.json"
    if not (path.exists() and labels.exists()):
        return [], f"Not measured: {path} and {labels} are not here."
    entries = json.loads(labels.read_text("utf-8"))
    rows, wrong = asyncio.run(_run(path, entries))
    return rows, "\n".join(wrong)


async def _run(path: Path, entries: Sequence[Mapping[str, Any]]) -> tuple[list[Row], list[str]]:
    cold = [await _cold(path) for _ in range(5)]
    pool = DuckPool(MEMORY_MB)
    wrong, took = list[str](), list[float]()
    shown = 0
    for n, entry in enumerate(entries):
        source = Seen(Duck(path, entry["db"], pool, QUERY_S, RESULT_BYTES))
        began = time.perf_counter()
        result = await _called(source, str(n), entry["gold_sql_run"])
        took.append(time.perf_counter() - began)
        shown += len(result.items) - 1 == len(source.rows[0].rows)
        if not same(source.rows[0], entry):
            wrong.append(f"wrong: {entry['question']}\n  {entry['gold_sql_run']}")
    memory = max(_peak(worker.pid) for _, worker in pool._idle if worker.pid)
    await pool.aclose()
    inside = _inside(path, entries)
    over = 1000 * (statistics.median(took) - statistics.median(inside))
    return [
        Row("gold statements that are wrong", len(wrong), "", 0, f"of {len(entries)}"),
        Row("results that the model does not see whole", len(entries) - shown, ""),
        Row("cold", 1000 * statistics.median(cold), " ms", 400),
        Row("warm, over DuckDB itself", over, " ms", 20),
        Row("memory of a process", memory, " MB", MEMORY_MB),
    ], wrong


async def _cold(path: Path) -> float:
    pool = DuckPool(MEMORY_MB)
    began = time.perf_counter()
    await Duck(path, None, pool, QUERY_S, RESULT_BYTES).query("SELECT 1", 5)
    took = time.perf_counter() - began
    await pool.aclose()
    return took


async def _called(source: SourceDatabase, key: str, sql: str) -> ToolResult:
    """The statement through the gate, as a subagent's call."""
    label = Label(True, WORKSPACE, frozenset({HANDLE}))
    clients: dict[type, object] = {Databases: Databases({HANDLE: source}, {HANDLE: label})}
    held = Handles({HANDLE: "business"})
    ctx = ToolContext("r1", None, held, TRUSTED, None, clients, 8_000, key=key, scope="data")
    tool = next(t for t in scopes.scope("data").tools if t.name == "execute_query")
    gate = Gate(lambda _: None, Operator(), lambda _: None)
    result = await gate.call("s1", ctx, tool, {"sql": sql})
    if not isinstance(result, ToolResult):
        raise AssertionError(f"the gate refuses it: {result.rule}: {sql}")
    return result


def same(found: Rows, entry: Mapping[str, Any]) -> bool:
    """Whether the rows are those of the gold answer, in the order of the columns it sorts by."""
    got = [tuple(map(_plain, row)) for row in found.rows]
    gold = [tuple(map(_plain, row)) for row in entry["answer"]]
    ending = re.search(r"\border\s+by\b([^()]*)$", entry["gold_sql_run"].lower())
    keys = re.findall(r"\w+", ending[1]) if ending else []
    sorted_by = [n for n, column in enumerate(entry["columns"]) if column.lower() in keys]
    in_order = all(g[n] == w[n] for g, w in zip(got, gold, strict=False) for n in sorted_by)
    return in_order and sorted(got, key=repr) == sorted(gold, key=repr)


def _plain(cell: Any) -> Any:
    if isinstance(cell, float | Decimal):
        return round(float(cell), DIGITS)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return float(cell)
    return str(cell) if isinstance(cell, date) else cell


def _peak(pid: int) -> float:
    """Megabytes."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    found = re.search(r"VmHWM:\s*(\d+)", status)
    return int(found[1]) / 1024 if found else 0.0


def _inside(path: Path, entries: Sequence[Mapping[str, Any]]) -> list[float]:
    took = []
    with duckdb.connect(str(path), read_only=True) as connection:
        for entry in entries:
            connection.execute(f"USE {entry['db']}")
            began = time.perf_counter()
            connection.execute(entry["gold_sql_run"]).fetchall()
            took.append(time.perf_counter() - began)
    return took
