"""Files as tables: no row is lost without a word, and what cannot be read says why."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import data_kit
import pytest

from scopes.databases.tables import TableInfo

NUMBERED = [f"{n},a,{n}" for n in range(200)]
TABLE = ["id,name,v", *NUMBERED]


async def listed(place: Path) -> dict[str, TableInfo]:
    async with data_kit.duck(place) as database:
        return {table.name: table for table in await database.tables()}


async def only(place: Path) -> tuple[list[str], int | None, str]:
    """The columns, the number of rows and the note of the one table there."""
    ((_, table),) = (await listed(place)).items()
    return (
        [c.name for c in table.columns],
        table.rows,
        table.note.rpartition("from ")[0].strip("; "),
    )


@pytest.mark.parametrize(
    ("lines", "columns", "count"),
    [
        (["Sales", "", "As of March", "", *TABLE], "Sales column1 column2", 202),
        (["id,name", *[f"{n},a" for n in range(100)], *NUMBERED[:100]], "id name column2", 200),
        (["a,b", "1,2", "3,4,5"], "a b column2", 2),
        ([*TABLE, "Total: 200 rows"], "id name v", 201),
        ([*TABLE, "200,Smith, John,9"], "id name v column3", 201),
        (["id;name;v", "1;a;1,5", "#2;b", '3;"c\nd";2'], "id name v", 3),
        (["", *TABLE], "id name v", 201),
    ],
)
async def test_no_line_is_lost(tmp_path: Path, lines: list[str], columns: str, count: int) -> None:
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert await only(tmp_path) == (columns.split(), count, "")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
async def test_a_csv_is_read_in_the_encoding_that_it_has(tmp_path: Path, encoding: str) -> None:
    rows = "Zoë,5 €\n" * 50_000
    (tmp_path / "a.csv").write_bytes(f"name,price\n{rows}".encode(encoding))
    async with data_kit.duck(tmp_path) as database:
        found = await database.query("SELECT name, price, count(*) FROM a GROUP BY ALL", 5)
        assert found.rows == (("Zoë", "5 €", 50_000),)


def book(path: Path, rows: list[list[Any]]) -> None:
    made = import_module("openpyxl").Workbook()
    for row in rows:
        made.active.append(row)
    made.create_chartsheet("Chart")  # is no table
    made.save(path)


def sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as made:
        for statement in statements:
            made.execute(statement)
        made.commit()


async def test_sqlite_files_in_the_mode_wal_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    logged = "PRAGMA journal_mode = WAL"
    sqlite(folder / "done.db", logged, "CREATE TABLE done AS SELECT 1 AS a")
    with closing(sqlite3.connect(folder / "open.db")) as writer:
        for sql in (logged, "CREATE TABLE opened (a)", "INSERT INTO opened VALUES (1), (2)"):
            writer.execute(sql)
        writer.commit()
        (folder / "left.db").write_bytes((folder / "open.db").read_bytes())
        (folder / "left.db-wal").write_bytes((folder / "open.db-wal").read_bytes())
        tables = await listed(folder)
    assert {name: (t.rows, t.note) for name, t in tables.items()} == {
        "done": (1, "from done.db"),
        "opened": (2, "from open.db"),
        "left.db": (None, "not readable: another program writes to it, or has ended while it did"),
    }


async def test_a_broken_view_hides_no_table_behind_it(tmp_path: Path) -> None:
    made = ["CREATE TABLE z (a)", "CREATE TABLE gone (a)"]
    made += [f"CREATE VIEW m{n:02} AS SELECT * FROM gone" for n in range(3)]
    sqlite(tmp_path / "a.db", *made, "CREATE VIEW n AS SELECT * FROM z", "DROP TABLE gone")
    tables = await listed(tmp_path)
    assert [name for name, table in tables.items() if table.rows == 0] == ["n", "z"]
    assert tables["a.db: m00"].note == "not readable: no such table: main.gone"
    assert len(tables) == 2 + 3


async def test_a_table_too_large_for_the_memory_is_told_as_one(tmp_path: Path) -> None:
    many = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 70000)"
    sqlite(tmp_path / "a.db", f"CREATE TABLE t AS {many} SELECT hex(randomblob(500)) FROM r")
    (tmp_path / "b.csv").write_text("a\n1\n")
    async with data_kit.duck(tmp_path, memory_mb=320) as database:
        tables = {table.name: table for table in await database.tables()}
    assert tables["b"].rows == 1
    assert "more memory than data.memory_mb allows" in tables["a.db"].note


async def test_the_first_row_of_a_sheet_below_its_title_names_the_columns(tmp_path: Path) -> None:
    rows: list[list[Any]] = [
        ["Sales 2026"],
        [],
        ["shop", None, 2025],
        ["Rome", "x", 1],
        ["Oslo", None, 2.5],
    ]
    book(tmp_path / "a.xlsx", [*rows, *[["Bonn", None, 3]] * 100, ["Bern", 1, 2, "far"]])
    told = "rows left out above it: 1; rows with more cells than it has columns: 1"
    assert await only(tmp_path) == (["shop", "column2", "2025"], 103, told)
