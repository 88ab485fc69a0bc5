"""Tools under failure: stopped, crashed, concurrent, out of disk; and deletion of their data."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from shlex import quote
from typing import Any

import pygit2
import pytest
from data_kit import duck_file
from engine_kit import Json, line, results, say, scripted_parent, submission, turn, until, use
from files_kit import (
    BOOK,
    BRANCH,
    ProjectRun,
    branches,
    git,
    repository,
    text_at,
    write_files,
)
from forget_kit import tables_with
from mcp_kit import Rogue
from mcp_kit import tool as offer
from process_kit import descendants, is_alive
from serve_kit import ASKER, Served, serve, with_sections

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.privacy import Forget
from bot.storage.deletions import ForgetTarget
from config.sections import DatabaseSettings, McpServer, ProjectSettings
from config.settings import Settings
from scopes.folders.folder import digest_of
from scopes.folders.folders import Wrote
from scopes.tool import SourceFailed

FOREVER = "SELECT count(*) FROM range(100000000000) a"
HANDLES = {
    "data": ["data:shop"],
    "files": ["files:book", "files:run"],
    "web": ["mcp:rogue"],
    "notes": ["notes:own"],
}


def with_all(folder: Path, **limits: Any) -> Callable[[Settings], Settings]:
    """Settings with a database, a project, a shell and an MCP server, for the requester alone."""
    mine: dict[str, Any] = {"readers": (ASKER,)}
    rogue = Rogue(folder, offer("hang"))
    server = McpServer(command=tuple(rogue.command), scope="web", access="read", **mine)
    base, book = folder / "shop.duckdb", folder / "book"
    shell = ("sh", "-c", "{command}")

    projects = {"book": ProjectSettings(path=book, **mine)}
    return with_sections(
        data={"databases": {"shop": DatabaseSettings(path=base, **mine)}},
        files={"projects": projects, "sandbox": shell},
        mcp={"servers": {"rogue": server}},
        limits={"seconds": 100.0, **limits},
    )


def parent_model(children: Responder, *parts: tuple[str, str]) -> Responder:
    """A parent that gives each scope its task, all in one turn."""

    def report(body: Json) -> Answer:
        errors = [each for each in results(body) if each.get("is_error")]
        return say(f"It is done. {errors or ''}")

    briefs = [{"task": t, "description": t, "scope": s, "handles": HANDLES[s]} for s, t in parts]
    return scripted_parent(
        Answer([use("run_subagent", **each) for each in briefs]), report, children=children
    )


def task(body: Json) -> str:
    return line(body, "TASK")


async def dm(bot: Served, text: str) -> tuple[str, str]:
    home = bot.slack.people.dm(ASKER)
    return home, bot.ask(text, channel=home)


ENDLESS: dict[str, Json] = {
    "query": use("execute_query", sql=FOREVER),
    "program": use("run_python", code="while True: pass"),
    "server": use("rogue_hang"),
}
"""By the last word of the task; the test adds the command."""


def children_but(others: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the processes of this test, without `others`, such as Python's resource tracker."""
    return set(descendants(os.getpid())) - others


async def test_stop_button_ends_processes_of_running_tools(tmp_path: Path) -> None:
    duck_file(tmp_path / "shop.duckdb")
    repository(tmp_path / "book")
    others = set(descendants(os.getpid()))
    started = tmp_path / "at-work"
    sleep = use("run_command", command=f"touch {quote(str(started))}; sleep 600", folder=BOOK)

    def endless(body: Json) -> Answer:
        return Answer([ENDLESS.get(task(body).split()[-1], sleep)])

    scopes = {"query": "data", "program": "web", "server": "web", "command": "files"}
    model = parent_model(endless, *((scopes[name], f"Do the {name}") for name in scopes))
    async with serve(tmp_path, model, change=with_all(tmp_path, max_subagents=9)) as bot:
        home, thread = await dm(bot, "Look it all up.")
        await until(lambda: started.exists() and len(bot.model.recorded) >= 5, 30)
        await asyncio.sleep(1.0)
        commands = {each for each in children_but(others) if is_alive(*each)}
        assert len(commands) >= 4
        bot.slack.people.stop(ASKER, home, thread)
        await bot.answer(thread, channel=home)
        (run,) = await bot.store.runs()
        children = await bot.store.subagents(run.id)
        assert {s.result["stopped_by"] for s in children if s.result} == {"user"}
    assert [each for each in children_but(others) if is_alive(*each)] == []


async def test_replay_completes_a_write_interrupted_by_a_crash(tmp_path: Path) -> None:
    tools = ProjectRun(tmp_path)
    repository(tools.root)
    ctx = tools.context(key="r1/s1/write")
    old = (tools.root / "README.md").read_bytes()
    await tools.use("read_file", path="README.md", folder=BOOK)
    before, after = digest_of(old), digest_of(b"anew")
    change = ("r1/s1/write", "s1", BOOK, "README.md", before, after, 4)
    tools.folders.log.wrote(Wrote(*change))  # the process dies here
    tools.begin()
    await tools.use("write_file", by=ctx, path="README.md", text="anew", folder=BOOK)
    assert text_at(pygit2.Repository(str(tools.root)), "README.md", f"{BRANCH}-1") == "anew"
    assert tools.folders.log.load().size == 4, "one write counts once"


@contextmanager
def full_disk(max_bytes: int) -> Iterator[None]:
    """Limit the size of each file that this process writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_full_disk_is_reported_and_leaves_the_old_file_intact(tmp_path: Path) -> None:
    tools, text = ProjectRun(tmp_path), Random(1).randbytes(2_500).hex()  # does not compress
    repository(tools.root)
    await tools.use("read_file", path="README.md", folder=BOOK)
    half_a_line = tools.folders.log.path.stat().st_size + 20
    for max_bytes in (2_000, half_a_line):
        with full_disk(max_bytes), pytest.raises(SourceFailed, match=r"no room (is )?left"):
            await tools.use("write_file", path="README.md", text=text, folder=BOOK)
    repo = pygit2.Repository(str(tools.root))
    assert branches(repo) == {"main"}
    await tools.use("write_file", path="README.md", text=text, folder=BOOK)
    await tools.use("git_commit", message="Write much", folder=BOOK)
    assert text_at(repo, "README.md") == text
    assert git(tools.root, "fsck", "--no-dangling") == ""


SECRET = "quokka-harbour-ledger"


async def test_forgotten_user_appears_in_no_column_and_no_file(tmp_path: Path) -> None:
    duck_file(tmp_path / "shop.duckdb")
    write_files(tmp_path / "book")
    steps = {
        "notes": [use("save_note", title=SECRET, text=SECRET)],
        "web": [use("save_resource", name="plan.md", text=SECRET)],
        "files": [use("write_file", path="draft.md", text=SECRET, folder="files:run")],
    }

    def save(body: Json) -> Answer:
        if turn(body) == 0:
            return Answer(steps[task(body).split()[-1]])
        assert not any(each.get("is_error") for each in results(body)), results(body)
        return submission("Kept.", findings=[])

    model = parent_model(save, *((scope, f"Keep it by {scope}") for scope in steps))
    async with serve(tmp_path, model, change=with_all(tmp_path, max_subagents=9)) as bot:
        home, thread = await dm(bot, f"Remember {SECRET}.")
        await bot.answer(thread, channel=home)
        database = bot.store.database
        data_dir = bot.settings.data_dir
        assert await tables_with(database, [SECRET])
        assert files_with(data_dir / "work", SECRET)
        dry_run = await Forget(database, True, data_dir)(ForgetTarget("user", ASKER))
        assert files_with(data_dir / "work", SECRET)
        deletion = await Forget(database, False, data_dir)(ForgetTarget("user", ASKER))
        assert (dry_run.notes, dry_run.files) == (deletion.notes, deletion.files) == (1, 1)
        assert await tables_with(database, [SECRET]) == []
        assert files_with(data_dir, SECRET) == []
        assert list((data_dir / "work").glob("*/folder")) == []


def files_with(folder: Path, text: str) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if text.encode() in path.read_bytes()]
