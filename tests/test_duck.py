"""DuckDB files and folders of tables: exact, up to date, in processes that leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import data_kit
import duckdb
import office_kit
import pytest
from engine_kit import until
from process_kit import is_alive

from scopes.data import format_cell
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.table_files import load
from scopes.databases.tables import TableInfo


def sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def list_tables(place: Path) -> dict[str, TableInfo]:
    async with data_kit.duck(place) as database:
        return {table.name: table for table in await database.tables()}


async def test_query_result_is_truncated_by_rows_and_bytes_and_marked(tmp_path: Path) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        few = await database.query("SELECT * FROM range(1000000000000)", 7)
        assert (len(few.rows), few.total, few.cut) == (7, None, True)
        wide = await database.query("SELECT repeat('x', 30000) FROM range(10000)", 10_000)
        assert wide.cut
        assert 100 < len(wide.rows) < 200
        long = await database.query("SELECT repeat('x', 100000)", 5)
        assert str(long.rows[0][0]).endswith("x... [cut]")
        assert format_cell(long.rows[0][0]).endswith("x... [cut]")


async def test_changed_file_is_read_again_and_can_be_written_between_queries(
    tmp_path: Path,
) -> None:
    path = data_kit.duck_file(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    async with data_kit.duck(path) as database:
        assert (await database.query("SELECT a FROM t", 5)).rows == ((1,),)
        data_kit.duck_file(tmp_path / "b.duckdb", "CREATE TABLE t AS SELECT 2 AS a").rename(path)
        assert (await database.query("SELECT a FROM t", 5)).rows == ((2,),)
        with duckdb.connect(str(path)) as writer:
            writer.execute("UPDATE t SET a = 3")
        assert (await database.query("SELECT a FROM t", 5)).rows == ((3,),)


async def test_cancelled_query_leaves_no_process(tmp_path: Path) -> None:
    pool = DuckPool(512)
    database = Duck(data_kit.duck_file(tmp_path / "a.duckdb"), None, pool, 600, 5_000_000)
    await database.query("SELECT 1", 5)
    ((_, worker),) = pool._idle
    pid = worker.pid
    assert pid
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    query = asyncio.create_task(database.query(endless, 5))
    await until(lambda: worker._requests == 4)  # a query is two: one opens the file
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    await until(lambda: not is_alive(pid))
    assert (await database.query("SELECT 2", 5)).rows == ((2,),)
    await pool.aclose()


async def test_links_and_special_files_are_listed_as_unreadable(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("key\nhunter2\n")
    (folder / "evil.csv").symlink_to("../outside/secret")
    sqlite(outside / "own.sqlite", "CREATE TABLE own (a)")
    (folder / "own.sqlite").symlink_to(outside / "own.sqlite")
    (folder / "more.csv").symlink_to(outside)
    (folder / "inside.csv").symlink_to("ok.csv")
    (folder / "ok.csv").write_text("a\n1\n")
    os.mkfifo(folder / "pipe.csv")
    tables = await list_tables(folder)
    link = "not readable: it is a link, and links are not followed"
    links = ("evil.csv", "inside.csv", "more.csv", "own.sqlite")
    assert {name: (t.rows, t.note) for name, t in tables.items()} == {
        "ok": (1, "from ok.csv"),
        "pipe.csv": (None, "not readable: it is no file"),
        **dict.fromkeys(links, (None, link)),
    }
    (tmp_path / "named").symlink_to(folder)  # what the settings name may be a link itself
    assert await list_tables(tmp_path / "named") == tables


COUNTING = """WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)
  SELECT x FROM r WHERE x < 0"""


def test_endless_view_does_not_prevent_other_tables_from_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopes.databases.table_files.FOLDER_S", 2.0)
    sqlite(tmp_path / "b.db", "CREATE TABLE b_t AS SELECT 1 AS a", f"CREATE VIEW b_a AS {COUNTING}")
    for name in ("a", "d"):
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")
    with duckdb.connect() as connection:
        loaded = load(connection, tmp_path)
    assert [*loaded.tables] == ["a", "b_t", "d"]
    assert "not all of it could be read in time" in loaded.unreadable["b.db"]


# ---- files as tables: no row is lost, and what cannot be read says why


NUMBERED = [f"{n},a,{n}" for n in range(200)]
TABLE = ["id,name,v", *NUMBERED]


async def only(place: Path) -> tuple[list[str], int | None, str]:
    """The columns, the number of rows and the note of the one table there."""
    ((_, table),) = (await list_tables(place)).items()
    return (
        [c.name for c in table.columns],
        table.rows,
        table.note.rpartition("from ")[0].strip("; "),
    )


@pytest.mark.parametrize(
    ("lines", "columns", "count"),
    [
        (["Sales", "", "As of March", "", *TABLE], "Sales column1 column2", 202),
        (["a,b", "1,2", "3,4,5"], "a b column2", 2),
        ([*TABLE, "200,Smith, John,9"], "id name v column3", 201),
        (["id;name;v", "1;a;1,5", "#2;b", '3;"c\nd";2'], "id name v", 3),
        (["sep=;", "id;name", "1;a", "2;b"], "id name", 2),
    ],
)
async def test_irregular_csv_loses_no_lines(
    tmp_path: Path, lines: list[str], columns: str, count: int
) -> None:
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert await only(tmp_path) == (columns.split(), count, "")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
async def test_csv_encoding_is_detected(tmp_path: Path, encoding: str) -> None:
    rows = "Zoë,5 €\n" * 50_000
    (tmp_path / "a.csv").write_bytes(f"name,price\n{rows}".encode(encoding))
    async with data_kit.duck(tmp_path) as database:
        found = await database.query("SELECT name, price, count(*) FROM a GROUP BY ALL", 5)
        assert found.rows == (("Zoë", "5 €", 50_000),)


@pytest.mark.parametrize(
    ("dates", "note"),
    [
        ("01/02/2024 03/04/2024", "dates such as 01/02/2024 are read as day/month; "),
        ("01/02/2024 03/14/2024", ""),
        ("2024-02-01 2024-04-03", ""),
        ("01.02.2024 03.04.2024", ""),
    ],
)
async def test_dates_that_may_be_read_in_two_ways_are_noted(
    tmp_path: Path, dates: str, note: str
) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["day,n", *(f"{day},1" for day in dates.split())]))
    tables = await list_tables(tmp_path)
    assert tables["a"].note == f"{note}from a.csv"


@pytest.mark.parametrize("day", ["31.01.24", "01/02/24", "24-01-31"])
async def test_years_of_two_digits_are_no_guess(tmp_path: Path, day: str) -> None:
    (tmp_path / "a.csv").write_text(f"day;n;amount\n{day};1;2.5\n")
    async with data_kit.duck(tmp_path) as database:
        assert (await database.query("FROM a", 5)).rows == ((day, 1, 2.5),)


async def test_csv_of_lines_in_two_encodings_is_read_line_by_line(tmp_path: Path) -> None:
    lines = "name\nZoë\n".encode(), "Jürgen\n".encode("cp1252"), "España\n".encode()
    (tmp_path / "a.csv").write_bytes(b"".join(lines))
    async with data_kit.duck(tmp_path) as database:
        assert (await database.query("FROM a", 5)).rows == (("Zoë",), ("Jürgen",), ("España",))


async def test_sqlite_files_in_wal_mode_are_read(tmp_path: Path) -> None:
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
        tables = await list_tables(folder)
    assert {name: (t.rows, t.note) for name, t in tables.items()} == {
        "done": (1, "from done.db"),
        "opened": (2, "from open.db"),
        "left.db": (None, "not readable: another program writes to it, or has ended while it did"),
    }


async def test_broken_view_does_not_hide_other_tables(tmp_path: Path) -> None:
    statements = ["CREATE TABLE z (a)", "CREATE TABLE gone (a)"]
    statements += [f"CREATE VIEW m{n:02} AS SELECT * FROM gone" for n in range(3)]
    sqlite(tmp_path / "a.db", *statements, "CREATE VIEW n AS SELECT * FROM z", "DROP TABLE gone")
    tables = await list_tables(tmp_path)
    assert [name for name, table in tables.items() if table.rows == 0] == ["n", "z"]
    assert tables["a.db: m00"].note == "not readable: no such table: main.gone"
    assert len(tables) == 2 + 3


async def test_a_table_of_many_columns_needs_little_memory(tmp_path: Path) -> None:
    many = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2000)"
    columns = ", ".join(f"n * {n} AS c{n}" for n in range(400))
    sqlite(tmp_path / "a.db", f"CREATE TABLE t AS {many} SELECT {columns} FROM r")
    async with data_kit.duck(tmp_path) as database:
        found = await database.query("SELECT count(*), sum(c399) FROM t", 5)
    assert found.rows == ((2_000, 399 * 2_001_000),)


async def test_table_too_large_for_memory_is_reported(tmp_path: Path) -> None:
    many = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 70000)"
    sqlite(tmp_path / "a.db", f"CREATE TABLE t AS {many} SELECT hex(randomblob(500)) FROM r")
    (tmp_path / "b.csv").write_text("a\n1\n")
    async with data_kit.duck(tmp_path, memory_mb=320) as database:
        tables = {table.name: table for table in await database.tables()}
    assert tables["b"].rows == 1
    assert "more memory than data.memory_mb allows" in tables["a.db"].note


async def test_header_below_a_sheet_title_names_the_columns(tmp_path: Path) -> None:
    rows: list[list[Any]] = [
        ["Sales 2026"],
        [],
        ["shop", None, 2025],
        ["Rome", "x", 1],
        ["Oslo", None, "=5/2"],
    ]
    workbook = office_kit.book({"A": [*rows, *[["Bonn", None, 3]] * 100, ["Bern", 1, 2, "far"]]})
    workbook.create_chartsheet("Chart")  # is no table
    workbook.save(tmp_path / "a.xlsx")
    note = (
        "rows left out above it: 1; rows with more cells than it has columns: 1; "
        "formulas of the file without a stored value: 1"
    )
    assert await only(tmp_path) == (["shop", "column2", "2025"], 103, note)
