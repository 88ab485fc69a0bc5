"""DuckDB files and folders of tables: exact, fresh, and in processes that leave nothing behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from threading import Event, Thread

import data_kit
import duckdb
import pytest
from engine_kit import until
from timing import Patience, patient

from scopes.data import shown
from scopes.databases.duck import MAX_IDLE, Duck, DuckPool
from scopes.databases.table_files import MAX_FILES, Late, load, within
from scopes.databases.tables import TableInfo
from scopes.tool import SourceFailed, ToolError


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def pids_of(pool: DuckPool) -> list[int]:
    return [worker.pid for _, worker in pool._idle if worker.pid and alive(worker.pid)]


def all_ended(pool: DuckPool) -> bool:
    """Whether the kernel has told this process so; the last of their threads may take a moment."""
    processes = [worker._process for _, worker in pool._idle]
    return all(process is None or process.poll() is not None for process in processes)


async def listed(place: Path) -> dict[str, TableInfo]:
    async with data_kit.duck(place) as database:
        return {table.name: table for table in await database.tables()}


async def test_all_tables_are_listed_by_the_name_that_a_query_uses(tmp_path: Path) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "shop.duckdb")) as shop:
        tables = {t.name: t for t in await shop.tables()}
        assert [*tables] == ['hr."group"', "hr.staff", "big", "orders"]
        assert (tables["orders"].rows, tables["big"].rows) == (3, None)
        assert tables["big"].note == "a view"
        for name in tables:
            assert await shop.query(f"SELECT * FROM {name}", 10)
        orders = await shop.describe("ORDERS")
        assert orders
        assert [(c.name, c.type, c.note) for c in orders.columns][2] == (
            *("amount", "DECIMAL(10,2)"),
            "in euros",
        )
        assert await shop.describe("nothing") is None


async def test_a_schema_of_the_settings_or_the_default_one_needs_no_prefix(tmp_path: Path) -> None:
    made = """CREATE TABLE t (y INT); CREATE SCHEMA a; CREATE TABLE a.t (x INT);
      CREATE TABLE a.u (z INT); CREATE SCHEMA shop.shop;
      CREATE TABLE shop.shop.v AS SELECT 1 AS w"""
    path = data_kit.duck_file(tmp_path / "shop.duckdb", made)
    columns = {"t": "y", "main.t": "y", "a.t": "x", "u": "z", '"T"': "y"}
    columns |= {"shop.shop.v": "w", "shop.v": "w", "SHOP.a.u": "z", '"shop"."main"."t"': "y"}
    async with data_kit.duck(path) as database:
        assert "shop.shop.v" in [table.name for table in await database.tables()]
        for name, column in columns.items():
            found = await database.describe(name)
            assert found
            assert found.columns[0].name == column
    for schema in ("shop", "shop.shop"):
        async with data_kit.duck(path, schema) as database:
            assert (await database.query("SELECT w FROM v", 5)).rows == ((1,),)
            assert "v" in [table.name for table in await database.tables()]
    async with data_kit.duck(path, "nothing") as database:
        with pytest.raises(SourceFailed, match="no schema of the name"):
            await database.tables()


VALUES = {
    "1.50::DECIMAL(9,2)": "1.50",
    "0::DECIMAL(18,8)": "0.00000000",
    "12345678901234567890123::HUGEINT": "12345678901234567890123",
    "19.99::FLOAT": "19.99",
    "'-inf'::FLOAT": "-inf",
    "true": "true",
    "NULL": "null",
    "DATE '29000-01-01'": "29000-01-01",
    "DATE '0044-03-15 (BC)'": "0044-03-15 (BC)",
    "'infinity'::TIMESTAMP": "infinity",
    "TIMESTAMP '2024-01-31 10:00:00.5'": "2024-01-31 10:00:00.5",
    "TIMESTAMPTZ '290000-01-01 00:00:00+02'": "289999-12-31 22:00:00+00",
    "TIMESTAMP_NS '2024-01-01 00:00:00.123456789'": "2024-01-01 00:00:00.123456789",
    "TIME '24:00:00'": "24:00:00",
    "INTERVAL '1 month'": "1 month",
    "BLOB '\\xAA'": "0xaa",
    "[1, NULL]": "[1, null]",
    "[0.00000001::DECIMAL(18,8)]": '["0.00000001"]',
    "['nan'::DOUBLE, '-inf'::DOUBLE]": "[NaN, -Infinity]",
    "[TIMESTAMPTZ '2024-01-31 10:00:00+02']": "['2024-01-31 08:00:00+00']",
    "{'a': 0.1::FLOAT}": "{'a': 0.1}",
    "{'a': 'infinity'::DATE}::VARIANT": "{'a': infinity}",
    "MAP {1.50::DECIMAL(4,2): 'a'}": "{1.50=a}",
    "'FLOAT'::ENUM('FLOAT', 'DATE')": "FLOAT",
    "union_value(a := 1.50::DECIMAL(3,2))": "1.50",
}


async def test_a_value_is_shown_exactly_and_as_the_database_writes_it(tmp_path: Path) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        for sql, text in VALUES.items():
            found = await database.query(f"SELECT {sql}", 5)
            assert [shown(cell) for cell in found.rows[0]] == [text], sql
        found = await database.query("SELECT 1.50::DECIMAL(9,2) AS a, 2::HUGEINT AS a", 5)
    assert found.rows == ((Decimal("1.50"), 2),)
    assert [c.type for c in found.columns] == ["DECIMAL(9,2)", "HUGEINT"]


async def test_columns_in_order_under_their_names_however_they_are_asked_for(
    tmp_path: Path,
) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        for sql, names, first in (
            ("WITH x AS (SELECT now() AS n) SELECT 1 AS n, n FROM x -- y", ["n", "n"], 1),
            ("(SELECT id, placed AS id FROM orders ORDER BY 1) LIMIT 1", ["id", "id"], 1),
            ("DESCRIBE orders", ["column_name", "column_type"], "id"),
            ("EXPLAIN SELECT now()", ["explain_key", "explain_value"], "physical_plan"),
        ):
            found = await database.query(sql, 5)
            assert [c.name for c in found.columns][:2] == names
            assert found.rows[0][0] == first


async def test_a_result_is_cut_by_rows_and_by_bytes_and_says_so(tmp_path: Path) -> None:
    async with data_kit.duck(data_kit.duck_file(tmp_path / "a.duckdb")) as database:
        few = await database.query("SELECT * FROM range(1000000000000)", 7)
        assert (len(few.rows), few.total, few.cut) == (7, None, True)
        wide = await database.query("SELECT repeat('x', 30000) FROM range(10000)", 10_000)
        assert wide.cut
        assert 100 < len(wide.rows) < 200
        script = await database.query("SELECT repeat('漢', 450) FROM range(10000)", 10_000)
        assert script.cut
        assert 3_000 < len(script.rows) < 4_000
        long = await database.query("SELECT repeat('x', 100000)", 5)
        assert str(long.rows[0][0]).endswith("x... [cut]")
        assert long.note == "Cells cut for their length: 1."


async def test_a_file_that_has_changed_is_read_anew_and_writers_are_let_in(tmp_path: Path) -> None:
    path = data_kit.duck_file(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    async with data_kit.duck(path) as database:
        assert (await database.query("SELECT a FROM t", 5)).rows == ((1,),)
        data_kit.duck_file(tmp_path / "b.duckdb", "CREATE TABLE t AS SELECT 2 AS a").rename(path)
        assert (await database.query("SELECT a FROM t", 5)).rows == ((2,),)
        async with patient(30):  # it is closed some seconds after the last query
            while True:
                try:
                    with duckdb.connect(str(path)) as writer:
                        writer.execute("UPDATE t SET a = 3")
                        break
                except duckdb.IOException:
                    await asyncio.sleep(0.1)
        assert (await database.query("SELECT a FROM t", 5)).rows == ((3,),)


async def test_a_file_in_use_by_a_writer_is_told_and_works_afterwards(tmp_path: Path) -> None:
    path = data_kit.duck_file(tmp_path / "a.duckdb")
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c"),
        f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('open', flush=True);"
        "sys.stdin.read()",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout
    async with data_kit.duck(path) as database:
        await writer.stdout.readline()
        with pytest.raises(ToolError, match="Another program is writing"):
            await database.tables()
        await writer.communicate(b"")
        assert await database.tables()


async def test_a_database_that_is_gone_or_broken_is_told_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "broken.duckdb").write_bytes(b"12345678DUCK" + b"x" * 5000)
    for name, why in (("gone.duckdb", "not there"), ("broken.duckdb", "cannot be opened")):
        async with data_kit.duck(tmp_path / name) as database:
            with pytest.raises(SourceFailed, match=why) as raised:
                await database.tables()
            assert str(tmp_path) not in str(raised.value)


async def test_queries_run_side_by_side_and_processes_are_used_again_while_they_live(
    tmp_path: Path,
) -> None:
    pool = DuckPool(512)
    database = Duck(data_kit.duck_file(tmp_path / "a.duckdb"), None, pool, 10, 5_000_000)
    for running in (1, 8):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(database.query(f"SELECT {n}", 5)) for n in range(running)]
        assert [task.result().rows for task in tasks] == [((n,),) for n in range(running)]
        for pid in pids_of(pool):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: all_ended(pool), 20)
    await database.query("SELECT 1", 5)
    pids = pids_of(pool)
    for _ in range(9):
        await database.query("SELECT 1", 5)
    assert 1 <= len(pids) <= MAX_IDLE
    assert pids_of(pool) == pids
    await pool.aclose()
    assert not any(alive(pid) for pid in pids)


async def test_one_that_is_given_up_leaves_no_process(tmp_path: Path) -> None:
    pool = DuckPool(512)
    database = Duck(data_kit.duck_file(tmp_path / "a.duckdb"), None, pool, 60, 5_000_000)
    await database.query("SELECT 1", 5)
    (pid,) = pids_of(pool)
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await database.query(endless, 5)
    await until(lambda: not alive(pid), 20)
    assert (await database.query("SELECT 2", 5)).rows == ((2,),)
    await pool.aclose()


async def test_a_folder_is_tables_named_after_its_files(tmp_path: Path) -> None:
    (tmp_path / "sales 2024.csv").write_text("id,placed,amount\n1,2024-01-01,12.5\n2,2024-01-02,\n")
    (tmp_path / "order.csv").write_bytes("id;städt\n1;Köln\n".encode("latin-1"))
    (tmp_path / "2024.tsv").write_text("a\tb\n1\t2\n", encoding="utf-16")
    (tmp_path / "notes.txt").write_text("no table")
    duckdb.execute(f"COPY (SELECT 1 AS a, DATE '2024-01-01' AS b) TO '{tmp_path}/items.parquet'")
    with closing(sqlite3.connect(tmp_path / "crm.sqlite")) as crm:
        crm.execute("CREATE TABLE people (id INT, name TEXT, score)")
        crm.executemany("INSERT INTO people VALUES (?, ?, ?)", [(1, "Ana", 2.5), (None, "Ben", 3)])
        crm.execute("CREATE TABLE items (a)")
        crm.execute("CREATE VIEW names AS SELECT name FROM people")
        crm.commit()
    tables = await listed(tmp_path)
    assert {name: (t.rows, t.note) for name, t in tables.items()} == {
        "sales_2024": (2, "from sales 2024.csv"),
        '"order"': (1, "from order.csv"),
        "t_2024": (1, "from 2024.tsv"),
        "people": (2, "from crm.sqlite"),
        "items": (0, "from crm.sqlite"),
        "names": (2, "from crm.sqlite"),
        "items_2": (1, "from items.parquet"),
    }
    kinds = {name: [c.type for c in t.columns] for name, t in tables.items()}
    assert kinds["sales_2024"] == ["BIGINT", "DATE", "DOUBLE"]
    assert kinds["people"] == ["BIGINT", "VARCHAR", "DOUBLE"]
    assert tables['"order"'].columns[1].name == "städt"


async def test_an_excel_file_is_a_table_for_each_sheet(tmp_path: Path) -> None:
    book = import_module("openpyxl").Workbook()
    first = book.active
    assert first
    first.title = "Q 1"
    day = datetime.combine(date(2024, 1, 1), datetime.min.time())
    for row in ([], ["Name", "Amount", "When", "Amount"], ["Ana", 12.5, day, 1]):
        first.append(row)
    first.append(["Ben", 3, None, None])
    book.create_sheet("empty")
    book.save(tmp_path / "book.xlsx")
    async with data_kit.duck(tmp_path / "book.xlsx") as database:  # a file alone, too
        (table,) = await database.tables()
        assert (table.name, table.rows) == ("book_Q_1", 2)
        assert [(c.name, c.type) for c in table.columns] == [
            *(("Name", "VARCHAR"), ("Amount", "DOUBLE"), ("When", "TIMESTAMP")),
            ("Amount_2", "BIGINT"),
        ]
        found = await database.query("SELECT Name, Amount FROM book_Q_1 ORDER BY 1", 5)
        assert found.rows == (("Ana", 12.5), ("Ben", 3.0))


async def test_files_that_are_no_tables_are_listed_with_the_reason(tmp_path: Path) -> None:
    for name, data in {
        "ok.csv": b"a\n1\n",
        "empty.csv": b"",
        "old.xls": b"x",
        "locked.xlsx": bytes.fromhex("d0cf11e0a1b11ae1") + b"x" * 600,
        "text.xlsx": b"no zip",
        "half.parquet": b"PAR1" + b"x" * 100 + b"PAR1",
        "half.sqlite": b"SQLite format 3\0" + b"x" * 100,
    }.items():
        (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w") as packed:
        packed.writestr("xl/worksheets/sheet1.xml", b"x")
        packed.infolist()[0].file_size = 310_000_000
    with closing(sqlite3.connect(tmp_path / "busy.db")) as writer:
        writer.execute("CREATE TABLE t (a)")
        writer.execute("BEGIN EXCLUSIVE")
        tables = await listed(tmp_path)
    assert tables.pop("ok").rows == 1
    assert all(table.note.startswith("not readable: ") for table in tables.values())
    for name, why in {
        "empty.csv": "",
        "old.xls": "save it as .xlsx",
        "locked.xlsx": "it has a password",
        "text.xlsx": "it is damaged",
        "half.parquet": "it is damaged",
        "half.sqlite": "",
        "bomb.xlsx": "unpacks to more than 300 MB",
        "busy.db": "another program writes to it",
    }.items():
        assert why in tables.pop(name).note
    assert tables == {}


async def test_what_is_a_link_or_no_file_is_listed_and_not_read(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("key\nhunter2\n")
    for name in ("evil.csv", "evil.tsv"):
        (folder / name).symlink_to("../outside/secret")
    with closing(sqlite3.connect(outside / "own.sqlite")) as own:
        own.execute("CREATE TABLE own (a)")
    (folder / "own.sqlite").symlink_to(outside / "own.sqlite")
    (folder / "more.csv").symlink_to(outside)
    (folder / "gone.csv").symlink_to("nowhere")
    (folder / "inside.csv").symlink_to("ok.csv")
    (folder / "ok.csv").write_text("a\n1\n")
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    tables = await listed(folder)
    link = "not readable: it is a link, and links are not followed"
    links = ("evil.csv", "evil.tsv", "gone.csv", "inside.csv", "more.csv", "own.sqlite")
    assert {name: (t.rows, t.note) for name, t in tables.items()} == {
        "ok": (1, "from ok.csv"),
        "pipe.csv": (None, "not readable: it is no file"),
        **dict.fromkeys(links, (None, link)),
    }
    (tmp_path / "named").symlink_to(folder)  # what the settings name may be a link itself
    (tmp_path / "named.csv").symlink_to(folder / "ok.csv")
    assert await listed(tmp_path / "named") == tables
    assert await listed(tmp_path / "named.csv") == {"ok": tables["ok"]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "sqlite"])
def test_no_race_with_a_link_makes_a_table_of_what_lies_outside(tmp_path: Path, kind: str) -> None:
    """`a` is a file and a link to the outside by turns, all the time."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, value in ((folder / f"a.{kind}", "inside"), (tmp_path / "secret", "outside")):
        if kind == "sqlite":
            with closing(sqlite3.connect(path)) as made:
                made.execute("CREATE TABLE a (a)")
                made.execute("INSERT INTO a VALUES (?)", [value])
                made.commit()
        else:
            duckdb.execute(f"COPY (SELECT '{value}' AS a) TO '{path}' (FORMAT {kind})")
    (folder / "link").symlink_to(tmp_path / "secret")
    names = -100, bytes(folder / f"a.{kind}"), -100, bytes(folder / "link"), 2  # RENAME_EXCHANGE
    exchange, stop = ctypes.CDLL(None).renameat2, Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(*names)

    swapper = Thread(target=swap)
    swapper.start()
    seen = set[str]()
    try:
        patience, rounds = Patience(), 0
        while (len(seen) < 2 or rounds < 50) and not patience.over:
            rounds += 1
            with duckdb.connect() as connection:
                if load(connection, folder).unreadable:
                    seen.add("link")
                else:
                    seen |= {a for (a,) in connection.execute("SELECT a FROM a").fetchall()}
    finally:
        stop.set()
        swapper.join()
    assert seen == {"link", "inside"}


async def test_of_very_many_files_the_rest_is_counted(tmp_path: Path) -> None:
    for n in range(MAX_FILES + 5):
        (tmp_path / f"{n:03}.csv").write_text(f"a\n{n}\n")
    tables = await listed(tmp_path)
    assert len(tables) == MAX_FILES + 1
    assert (
        tables["5 more files"].note == "not readable: only the first 100 files of a folder are read"
    )


async def test_files_of_one_size_and_time_are_not_taken_for_one_another(tmp_path: Path) -> None:
    for n in range(3):
        duckdb.execute(f"COPY (SELECT {n} AS a) TO '{tmp_path}/p{n}.parquet'")
        (tmp_path / f"c{n}.csv").write_text(f"a\n{n}\n")
        for kind in ("c{n}.csv", "p{n}.parquet"):
            os.utime(tmp_path / kind.format(n=n), (1, 1))
    async with data_kit.duck(tmp_path) as database:
        for n in range(3):
            found = await database.query(f"SELECT c.a, p.a FROM c{n} AS c, p{n} AS p", 5)
            assert found.rows == ((n, n),)


def endless_sqlite(path: Path, view: str) -> None:
    """An SQLite file with a table `<name>_t`, and a view that takes for ever."""
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"CREATE TABLE {path.stem}_t AS SELECT 1 AS a")
        made.execute(f"CREATE VIEW {path.stem}_a AS {view}")
        made.commit()


COUNTING = """WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)
  SELECT x FROM r WHERE x < 0"""
MATCHING = """WITH t AS (SELECT replace(hex(zeroblob(5000000)), '00', 'a') AS a)
  SELECT instr(a || a, a || 'b') AS x FROM t"""
"""One call of a function, which SQLite does not leave."""


async def test_a_file_without_an_end_takes_no_other_along(tmp_path: Path) -> None:
    for name, view in {"b": COUNTING, "c": MATCHING}.items():
        endless_sqlite(tmp_path / f"{name}.db", view)
    for name in ("a", "d"):
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n")
    pool = DuckPool(512)
    database = Duck(tmp_path, None, pool, 10, 5_000_000)
    tables = {table.name: table for table in await database.tables()}
    assert [name for name, table in tables.items() if table.rows == 1] == ["a", "b_t", "c_t", "d"]
    late = "not readable: not all of it could be read in time; make a DuckDB file of it"
    assert {name: t.note for name, t in tables.items() if t.rows != 1} == dict.fromkeys(
        ("b.db", "c.db"), late
    )
    assert pids_of(pool) == []  # a process that is still at it is used no more
    assert (await database.query("SELECT y FROM a", 5)).rows == ((2,),)
    await pool.aclose()


def test_work_that_takes_too_long_is_told_to_stop_and_left_if_it_does_not() -> None:
    stopped = Event()

    def waiting() -> None:
        stopped.wait(10)

    with pytest.raises(Late) as late:
        within(0.05, waiting, stopped.set)
    assert not late.value.stuck
    with pytest.raises(Late) as late:
        within(0.05, lambda: time.sleep(1), stopped.set)
    assert late.value.stuck


async def test_a_folder_whose_files_change_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    async with data_kit.duck(tmp_path) as database:
        assert (await database.query("SELECT sum(n) FROM a", 5)).rows == ((1,),)
        (tmp_path / "a.csv").write_text("n\n1\n5\n")
        (tmp_path / "b.csv").write_text("n\n1\n")
        assert (await database.query("SELECT sum(n) FROM a", 5)).rows == ((6,),)
        assert [t.name for t in await database.tables()] == ["a", "b"]
