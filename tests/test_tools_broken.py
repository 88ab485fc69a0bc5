"""Tools under failure: stopped, crashed, concurrent, out of disk; and deletion of their data."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
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
)
from forget_kit import tables_with
from mcp_kit import Rogue
from mcp_kit import tool as offer
from process_kit import descendants, is_alive
from serve_kit import ASKER, serve, with_sections

from bot.local.model.answer import Answer
from bot.privacy import Forget
from bot.storage.deletions import ForgetTarget
from config.sections import DatabaseSettings, McpServer, ProjectSettings
from scopes.folders.folder import digest_of
from scopes.folders.folders import Wrote
from scopes.tool import SourceFailed


def brief(scope: str, task: str, *handles: str) -> Json:
    return use("run_subagent", task=task, description=task, scope=scope, handles=list(handles))


def kind_of(body: Json) -> str:
    """Return the last word of a subagent's task."""
    return line(body, "TASK").split()[-1]


ENDLESS: dict[str, Json] = {
    "query": use("execute_query", sql="SELECT count(*) FROM range(100000000000) a"),
    "program": use("run_python", code="while True: pass"),
    "server": use("rogue_hang"),
}
"""By the last word of the task; the test adds the command."""


def children_but(others: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return the processes of this test, without `others`, such as Python's resource tracker."""
    return set(descendants(os.getpid())) - others


async def test_stop_button_ends_processes_of_running_tools(tmp_path: Path) -> None:
    base = duck_file(tmp_path / "shop.duckdb")
    repository(tmp_path / "book")
    others = set(descendants(os.getpid()))
    mine: dict[str, Any] = {"readers": (ASKER,)}
    command = tuple(Rogue(tmp_path, offer("hang")).command)
    server = McpServer(command=command, scope="web", access="read", **mine)
    projects = {"book": ProjectSettings(path=tmp_path / "book", **mine)}
    change = with_sections(
        data={"databases": {"shop": DatabaseSettings(path=base, **mine)}},
        files={"projects": projects, "sandbox": ("sh", "-c", "{command}")},
        mcp={"servers": {"rogue": server}},
        limits={"seconds": 100.0, "max_subagents": 9},
    )
    started = tmp_path / "at-work"
    sleep = use("run_command", command=f"touch {quote(str(started))}; sleep 600", folder=BOOK)

    def endless(body: Json) -> Answer:
        return Answer([ENDLESS.get(kind_of(body), sleep)])

    briefs = [
        brief("data", "Do the query", "data:shop"),
        brief("web", "Do the program"),
        brief("web", "Do the server", "mcp:rogue"),
        brief("files", "Do the command", BOOK),
    ]
    model = scripted_parent(Answer(briefs), say("It is done."), children=endless)
    async with serve(tmp_path, model, change=change) as bot:
        home = bot.slack.people.dm(ASKER)
        thread = bot.ask("Look it all up.", channel=home)
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
    steps = {
        "notes": [use("save_note", title=SECRET, text=SECRET)],
        "web": [use("save_resource", name="plan.md", text=SECRET)],
        "files": [use("write_file", path="draft.md", text=SECRET, folder="files:run")],
    }

    def save(body: Json) -> Answer:
        if turn(body) == 0:
            return Answer(steps[kind_of(body)])
        assert not any(each.get("is_error") for each in results(body)), results(body)
        return submission("Kept.", findings=[])

    briefs = [
        brief("notes", "Keep it by notes", "notes:own"),
        brief("web", "Keep it by web"),
        brief("files", "Keep it by files", "files:run"),
    ]
    model = scripted_parent(Answer(briefs), say("It is done."), children=save)
    async with serve(tmp_path, model) as bot:
        home = bot.slack.people.dm(ASKER)
        await bot.answer(bot.ask(f"Remember {SECRET}.", channel=home), channel=home)
        database, data_dir = bot.store.database, bot.settings.data_dir
        assert await tables_with(database, [SECRET])
        dry_run = await Forget(database, True, data_dir)(ForgetTarget("user", ASKER))
        assert files_with(data_dir / "work", SECRET)
        deletion = await Forget(database, False, data_dir)(ForgetTarget("user", ASKER))
        assert (dry_run.notes, dry_run.files) == (deletion.notes, deletion.files) == (1, 1)
        assert await tables_with(database, [SECRET]) == []
        assert files_with(data_dir, SECRET) == []


def files_with(folder: Path, text: str) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if text.encode() in path.read_bytes()]
