"""The store: whole records of runs, the decision log, changes, the schema, errors in words."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import sqlalchemy as sa
from bot_kit import Shell, refusal_text
from pg_kit import StorePlace, execute, of, role, server

from bot.errors import StoreError
from bot.privacy import Forget, tidy
from bot.runs.checkpoint import RunLog
from bot.runs.durable import prepare_connection
from bot.runs.store import RunNotFound, Store
from bot.storage.database import KEY_CHECK, Database, open_file
from bot.storage.deletions import ForgetTarget
from bot.storage.encryption import cipher_here
from bot.storage.tables import METADATA, runs
from config.settings import load_settings
from subagents.gate import Decision
from subagents.result import SubagentResult
from subagents.trajectory import Context, Origin, Recording

ROOT = Path(__file__).resolve().parent.parent
NOW = datetime(2025, 4, 15, 9, 30, tzinfo=UTC)


def record(sink: Recording, run: str = "r1", words: str = "Hello.") -> None:
    sink.context(Context(run, "s1", "p1", "subagent", "slack", "fast", "t@1", ("read",), NOW))
    block = {"type": "text", "text": words}
    sink.note(run, "s1", Origin.BRIEF, block)
    sink.note(run, "s1", Origin.VIEW, block, "s2")
    sink.request(run, "s1", 0, 1, {"messages": [{"role": "user", "content": [block]}]})
    sink.reply(run, "s1", 0, 1, {"content": [{"type": "text", "text": "Hi."}], "cost_usd": 0.5})


def decision(tool: str = "read", verdict: str = "allow") -> Decision:
    return Decision("r1", "s1", tool, "abcd", verdict, "read within handles", NOW)


def result(id: str, status: str = "complete", stopped_by: str = "none") -> SubagentResult:
    task = {"scope": "slack", "model": "fast", "contract": "answer", "text": "¡Sí!"}
    ending = {"status": status, "stopped_by": stopped_by, "cost_usd": 0.25}
    return SubagentResult.model_validate({"id": id, **task, **ending})


async def test_ambiguous_run_is_refused_and_a_wildcard_is_no_pattern(in_file: StorePlace) -> None:
    store = await in_file.store("abc123", "abd456", "%_x")

    assert (await store.run("%")).id == "%_x"
    with pytest.raises(RunNotFound, match="Several runs begin with 'ab'"):
        await store.run("ab")
    for missing in ("abc12x", ""):
        with pytest.raises(RunNotFound, match=r"There is no run .*assistant runs"):
            await store.run(missing)
    await store.aclose()


async def test_cancelled_flush_neither_loses_nor_duplicates_records(in_file: StorePlace) -> None:
    store = await in_file.store("r1")
    sink, memory = RunLog(store, "r1"), Recording()
    record(sink)
    record(memory)
    sink.log_decision(decision())
    flushing = asyncio.create_task(sink.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    await sink.flush()

    assert await store.trajectory("r1") == memory.trajectory("r1")
    assert await store.decisions("r1") == [decision()]
    await store.aclose()


OPEN = """
import asyncio, pathlib, resource
from bot.errors import StoreError; from bot.runs.store import Store
from bot.storage.database import only_process; from bot.storage.encryption import cipher_here

cipher = cipher_here(pathlib.Path("."))
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, MOST))
try:
    WORK
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("most", "work", "words"),
    [
        (20_000, "asyncio.run(Store.open(pathlib.Path('.'), None, cipher))", "the disk is full"),
        (0, "only_process(pathlib.Path('.')).__enter__()", "cannot be used: file too large"),
    ],
    ids=["migration", "lock"],
)
async def test_full_disk_is_a_store_error_and_leaves_no_partial_schema(
    tmp_path: Path, most: int, work: str, words: str
) -> None:
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    opening = OPEN.replace("MOST", str(most)).replace("WORK", work)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{opening}"
    process = await asyncio.to_thread(run, [sys.executable, "-c", code])

    assert process.stderr == ""
    assert words in process.stdout
    store = await Store.open(tmp_path)
    assert await store.runs() == []
    await store.aclose()


def open_for_workflows(file: Path) -> None:
    connection = sqlite3.connect(file)
    prepare_connection(connection, None)
    connection.close()


def open_the_store(file: Path) -> None:
    open_file(file, cipher_here(file.parent)).dispose()


@pytest.mark.parametrize("open_it", [open_for_workflows, open_the_store])
def test_opening_a_new_database_file_waits_for_another_writers_lock(
    tmp_path: Path, open_it: Callable[[Path], None]
) -> None:
    file = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(file, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        finished = Timer(0.2, other.rollback)
        finished.start()
        open_it(file)
        finished.join()

    with closing(sqlite3.connect(file)) as after:
        assert after.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- the decision log


THEN = datetime(2026, 4, 15, 9, 30, tzinfo=UTC)
LABEL = {"untrusted": True, "readers": ["U0ANA"], "sources": ["C1"]}


def logged_decision(
    run: str = "r1", tool: str = "read", verdict: str = "allow", minutes: int = 0
) -> Decision:
    at = THEN + timedelta(minutes=minutes)
    return Decision(run, "s1", tool, "abcd", verdict, "within all rules", at, "U0ANA", LABEL)


async def store_with_log(place: StorePlace, *log: Decision) -> Store:
    store = await place.store(*{each.run for each in log})
    sink = RunLog(store, "r1")
    for each in log:
        sink.log_decision(each)
    await sink.flush()
    return store


async def run_sql(store: Store, statement: str) -> None:
    await store.database.change(lambda connection: connection.exec_driver_sql(statement).rowcount)


async def test_decision_log_cannot_be_changed_or_deleted(place: StorePlace) -> None:
    store = await store_with_log(place, logged_decision(verdict="deny"))

    for statement in (
        "UPDATE decisions SET verdict = 'allow'",
        "UPDATE decisions SET at = at",
        "DELETE FROM decisions",
        "DELETE FROM decisions WHERE verdict = 'deny'",
        *(["TRUNCATE decisions"] if place.shared else []),
    ):
        with pytest.raises(Exception, match="append-only"):
            await run_sql(store, statement)
    assert [d.verdict for d in await store.decisions()] == ["deny"]
    await store.aclose()


async def test_decision_log_survives_deletion_of_its_runs_and_forgotten_users(
    bare: StorePlace,
) -> None:
    log = [logged_decision("r1"), logged_decision("r2")]
    store = await store_with_log(bare, *log)
    settings = load_settings(env={})
    short = {"trajectories_days": 1, "results_days": 7, "actions_days": 1}
    old = sa.update(runs).values(started=datetime(2020, 1, 1, tzinfo=UTC))

    await store.database.write(old)
    await tidy(store.database, settings.retention.model_copy(update=short))
    await Forget(store.database)(ForgetTarget("user", "U0ANA"))
    await store.database.write(sa.delete(runs).where(runs.c.id == "r1"))

    assert [run.id for run in await store.runs()] == ["r2"]
    assert await store.decisions() == log
    await store.aclose()


def test_decisions_command_exports_the_log_of_all_runs_or_of_one(shell: Shell) -> None:
    for question in (
        "Which questions in #csm-spain are unanswered?",
        "What is open in #csm-italy?",
    ):
        shell("ask", question, "--sample", "--model", "offline")
    everything = shell("decisions", "--json").json
    run = everything[0]["run"]
    mine = [row for row in everything if row["run"] == run]

    assert shell("decisions", run[:6], "--json").json == mine != everything
    lines = shell("decisions", run).out.splitlines()
    assert len(lines) == len(mine)
    assert run in lines[0]
    assert "allow" in lines[0]
    refusal_text(shell("decisions", "zzz", "--json"), "unknown_run")


# ---- changes


COUNT = sa.text(f"SELECT count(*) FROM flags WHERE name <> '{KEY_CHECK}'")


def flag_insert(name: str) -> Any:
    """Return a change that inserts a flag and returns the number of flags."""

    def work(connection: sa.Connection) -> int:
        mark = sa.text("INSERT INTO flags (name, at) VALUES (:name, '2025')")
        connection.execute(mark, {"name": name})
        return int(connection.execute(COUNT).scalar_one())

    return work


def spoil(name: str) -> Any:
    """Return a change that inserts a flag and then fails."""

    def work(connection: sa.Connection) -> None:
        flag_insert(name)(connection)
        raise LookupError(name)

    return work


async def marks(database: Database) -> set[str]:
    table = METADATA.tables["flags"]
    query = sa.select(table.c.name).where(table.c.name != KEY_CHECK)
    return {row.name for row in await database.read(query)}


async def test_failed_change_is_rolled_back_without_affecting_others(place: StorePlace) -> None:
    async with place.stores() as (store, *_):
        database = store.database
        works = [spoil(f"bad {n}") if n % 7 == 3 else flag_insert(f"good {n}") for n in range(50)]
        twice = [flag_insert("good 0"), sa.text("no such statement")]
        outcomes = await asyncio.gather(
            *(database.change(work) for work in works),
            database.change(twice[0]),
            database.change(lambda connection: connection.execute(twice[1])),
            database.change(flag_insert("last")),
            return_exceptions=True,
        )

        bad = [n for n in range(50) if n % 7 == 3]
        assert [n for n in range(50) if isinstance(outcomes[n], LookupError)] == bad
        assert isinstance(outcomes[50], sa.exc.IntegrityError)
        assert isinstance(outcomes[51], Exception)
        good = [o for o in outcomes if isinstance(o, int)]
        assert good == list(range(1, 45))
        assert await marks(database) == {f"good {n}" for n in range(50) if n not in bad} | {"last"}


async def test_waiting_changes_are_committed_when_some_callers_are_cancelled(
    place: StorePlace,
) -> None:
    async with place.stores() as (store, *_):
        database = store.database
        waiting = [asyncio.create_task(database.change(flag_insert(f"{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(isinstance(each, asyncio.CancelledError) for each in outcomes[::2])
        assert all(isinstance(each, int) for each in outcomes[1::2])
        assert len(await marks(database)) == 20


# ---- the schema


async def test_concurrent_starts_on_an_empty_database_create_it_once(bare: StorePlace) -> None:
    stores = await asyncio.gather(*(bare.store() for _ in range(6)))
    for store in stores:
        assert await marks(store.database) == set()
        await store.aclose()


@pytest.mark.parametrize("revision", ["0018", "9999"])
async def test_a_database_of_another_version_is_refused(place: StorePlace, revision: str) -> None:
    async with place.stores() as (store, *_):
        await run_sql(store, f"UPDATE alembic_version SET version_num = '{revision}'")

    message = rf"another version of the assistant \(schema {revision}.*Use that version"
    with pytest.raises(StoreError, match=message):
        await place.store()


# ---- faults


async def test_database_connection_error_does_not_contain_the_password(tmp_path: Path) -> None:
    url = of(server(), password="hidden-word")
    for parts, expected in (
        ({"username": "nobody"}, '"nobody" does not exist'),
        ({"database": "nowhere"}, '"nowhere" does not exist'),
        ({"port": 9}, "on 127.0.0.1 cannot be used: "),
    ):
        with pytest.raises(StoreError, match="Check that Postgres runs") as error:
            await Database.open(tmp_path, of(url, **parts))
        text = str(error.value)
        assert expected in text
        assert "hidden-word" not in text
        assert "\n" not in text


async def test_database_account_needs_to_own_only_our_schema(bare_postgres: StorePlace) -> None:
    assert bare_postgres.url
    with role() as (name, password):
        execute("CREATE SCHEMA assistant AUTHORIZATION {name}", bare_postgres.url, name=name)
        url = of(bare_postgres.url, username=name, password=password)
        store = await Store.open(bare_postgres.path, url)
        await store.start_run("r1", "ask", "?", "m", {})
        assert (await store.run("r1")).id == "r1"
        await store.aclose()
        execute("DROP SCHEMA assistant CASCADE", bare_postgres.url)


@pytest.mark.parametrize(
    "url", ["mysql://u:hidden@h/x", "hidden", "postgresql://u:hidden@h:port/x"]
)
async def test_error_for_an_invalid_address_does_not_repeat_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match=r"Write it as postgresql://user@host/database") as error:
        await Database.open(tmp_path, url)
    assert "hidden" not in str(error.value)


def drop_connections(url: str) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", url)


async def test_dropped_connection_is_replaced_and_loses_only_its_own_change(
    postgres: StorePlace,
) -> None:
    def cut(connection: sa.Connection) -> None:
        flag_insert("lost")(connection)
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    assert postgres.url
    async with postgres.stores() as (store,):
        drop_connections(postgres.url)
        assert await marks(store.database) == set()
        drop_connections(postgres.url)
        _, lost, _ = await asyncio.gather(
            store.database.change(flag_insert("before")),
            store.database.change(cut),
            store.database.change(flag_insert("after")),
            return_exceptions=True,
        )
        assert isinstance(lost, StoreError)
        assert await marks(store.database) == {"before", "after"}
