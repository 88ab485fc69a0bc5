"""The store keeps runs whole, in a private file, and says in words when it cannot."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from pg_kit import with_store

from bot.runs.checkpoint import RunLog
from bot.runs.durable import prepare_connection
from bot.runs.store import PendingRecords, RunNotFound, Store
from bot.storage.database import open_file
from bot.storage.encryption import cipher_here
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
    about = {"scope": "slack", "model": "fast", "contract": "answer", "text": "¡Sí!"}
    ended = {"status": status, "stopped_by": stopped_by, "cost_usd": 0.25}
    return SubagentResult.model_validate({"id": id, **about, **ended})


async def opened(path: Path, *runs: str) -> Store:
    with_store(path)
    store = await Store.open(path)
    for run in runs:
        await store.start_run(run, "ask", f"What of {run}?", "offline", {"since": "30d"})
    return store


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path / "assistant.sqlite")
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


async def test_an_unknown_or_ambiguous_run_is_refused_with_the_nearest_ids(tmp_path: Path) -> None:
    store = await opened(tmp_path, "abc123", "abd456", "%_x")

    for asked, nearest in (("abc12x", "abc123"), ("ab", "abc123"), ("%", None), ("", None)):
        if asked == "%":
            assert (await store.run(asked)).id == "%_x"
            continue
        told = (
            "Several runs begin with 'ab'" if asked == "ab" else "There is no run .*assistant runs"
        )
        with pytest.raises(RunNotFound, match=told) as error:
            await store.run(asked)
        assert nearest is None or nearest in error.value.nearest
    with pytest.raises(RunNotFound):
        await store.finish_run("zzz", "complete")
    await store.aclose()


async def test_a_cancelled_flush_loses_and_doubles_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path, "r1")
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


async def test_steps_that_wait_for_a_transaction_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path, "r1")
    sink, taken, real = RunLog(store, "r1"), list[int](), store.record

    async def counted(records: PendingRecords) -> None:
        taken.append(len(records.decisions))
        await real(records)

    monkeypatch.setattr(store, "record", counted)

    async def step(n: int) -> None:
        await asyncio.sleep(0)
        sink.log_decision(decision(f"read {n}"))
        await sink.flush()

    await asyncio.gather(*map(step, range(20)))
    assert sum(taken) == 20
    assert len(taken) <= 2
    assert len(await store.decisions("r1")) == 20
    await store.aclose()


def python(code: str, path: Path, **options: Any) -> subprocess.Popen[str]:
    """Another process at work on the store in `path`, which is its working directory."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


OPEN = """
import asyncio, os, pathlib, resource
from bot.errors import StoreError; from bot.runs.store import Store
from bot.storage.encryption import cipher_here

async def main():
    cipher = cipher_here(pathlib.Path("."))
    TROUBLE
    try:
        store = await Store.open(pathlib.Path("."), None, cipher)
        await store.start_run(f"r{os.getpid()}", "ask", "?", "offline", {})
        await store.aclose()
    except StoreError as error:
        print(error)

asyncio.run(main())
"""
SMALL_DISK = "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"


async def told_by(*openers: subprocess.Popen[str]) -> list[str]:
    """What processes print that open a store, and nothing else."""
    ends = [await asyncio.to_thread(opener.communicate) for opener in openers]
    assert [err for _, err in ends] == [""] * len(openers)
    return [out for out, _ in ends]


async def test_a_disk_that_fills_up_while_migrating_leaves_no_half_schema(tmp_path: Path) -> None:
    (told,) = await told_by(python(OPEN.replace("TROUBLE", SMALL_DISK), tmp_path))

    assert "the disk is full" in told
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
def test_a_new_file_is_waited_for_while_another_process_begins_to_write_to_it(
    tmp_path: Path, open_it: Callable[[Path], None]
) -> None:
    file = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(file, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with (
            closing(sqlite3.connect(file)) as plain,
            pytest.raises(sqlite3.OperationalError, match="locked"),  # what SQLite does by itself
        ):
            plain.execute("PRAGMA journal_mode=WAL")
        finished = Timer(0.2, other.rollback)
        finished.start()
        open_it(file)
        finished.join()

    with closing(sqlite3.connect(file)) as after:
        assert after.execute("PRAGMA journal_mode").fetchone() == ("wal",)
