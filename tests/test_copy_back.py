"""What was written in a copy comes into the folder by the gate's word of that moment, once."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import engine, submitted, turns, until
from files_kit import ANA, BOOK, Desk, repository

from scopes.cleanup import LeftUndone
from scopes.effects import Access, Effect
from scopes.folders.copy_back import CopyBack
from scopes.folders.folders import Folders
from scopes.intent import Intent
from scopes.label import Label
from scopes.tool import SourceFailed, ToolContext, ToolResult, tool
from subagents.rules import MAX_FILED
from subagents.subagent import run_subagent

COPY = "changes were left in a copy, work/r1/trees/s1-book in the data folder"
BEN = "U0BEN"


async def wrote(desk: Desk) -> ToolContext:
    """A subagent that wrote beside others and committed nothing."""
    repository(desk.root)
    one = desk.context("s1", beside=True)
    await desk.use("write_file", by=one, path="a.md", text="One\n", folder=BOOK)
    return one


def stays(desk: Desk) -> None:
    """Nothing came, and nothing is lost."""
    assert not (desk.root / "a.md").exists()
    assert (desk.data / "work/r1/trees/s1-book/a.md").read_text() == "One\n"


async def test_bringing_is_a_decision_of_the_gate_in_its_log(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = await wrote(desk)
    undone = await desk.ended(one, stopped=True)
    assert "as the request was stopped" in undone["commit in files:book"]
    stays(desk)
    desk.gate.counts["file s1"] = MAX_FILED  # all changes that it may make: this is none
    assert await desk.ended(one) == {"commit in files:book": ""}
    assert (desk.root / "a.md").read_text() == "One\n"
    logged = [(d.context, d.tool, d.verdict, d.rule) for d in desk.decisions]
    assert logged[-1] == ("s1", "bring_files", "allow", "bring within all rules")


@pytest.mark.parametrize(
    ("requester", "readers", "label", "rule"),
    [
        (ANA, {BEN}, Label(), "entitlement"),
        (ANA, {ANA, BEN}, Label(readers=frozenset({ANA})), "audience"),
        (BEN, {ANA}, Label(), "entitlement"),
    ],
    ids=["closed-to-the-requester", "read-something-private", "another-requester"],
)
async def test_what_may_not_come_any_more_stays_in_the_copy_and_is_told(
    tmp_path: Path, requester: str, readers: set[str], label: Label, rule: str
) -> None:
    desk = Desk(tmp_path)
    one = replace(await wrote(desk), requester=requester, label=label)
    desk.projects[BOOK] = replace(desk.projects[BOOK], readers=frozenset(readers))
    undone = await desk.ended(one)
    text = f"book is as it was, as the gate's rule of {rule} wants it: {COPY}"
    assert undone == {"commit in files:book": text}
    last = desk.decisions[-1]
    assert (last.tool, last.verdict, last.rule) == ("bring_files", "deny", rule)
    stays(desk)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The disk takes no file above so many bytes, as if it were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_one_file_that_cannot_be_written_keeps_no_other_from_coming(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = await wrote(desk)
    for path, text in (("0.md", "x" * 30_000), ("b.md", "Two\n")):
        await desk.use("write_file", by=one, path=path, text=text, folder=BOOK)
    with files_of_at_most(20_000):
        undone = await desk.ended(one)
    told = f"these files of book could not be written, and their {COPY}: 0.md"
    assert undone == {"commit in files:book": told}
    assert [(desk.root / each).read_text() for each in ("a.md", "b.md")] == ["One\n", "Two\n"]
    assert not (desk.root / "0.md").exists()
    assert await desk.ended(one) == {"commit in files:book": ""}


async def test_half_a_copy_takes_no_room_on_a_full_disk(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    repository(desk.root, {"a.md": "One\n", "big.md": "x" * 30_000})
    one = desk.context("s1", beside=True)
    write = {"path": "b.md", "text": "Two\n", "folder": BOOK}
    with (
        files_of_at_most(20_000),
        pytest.raises(SourceFailed, match="no room is left for files:book"),
    ):
        await desk.use("write_file", by=one, **write)
    assert list((desk.data / "work/r1/trees").iterdir()) == []
    await desk.use("write_file", by=one, **write)
    assert await desk.ended(one) == {"commit in files:book": ""}


BRINGS = """
import asyncio, sys
from pathlib import Path
from files_kit import Desk
asyncio.run(Desk(Path(sys.argv[1])).ended("s1"))
"""


async def test_a_kill_while_files_come_loses_none_and_doubles_none(tmp_path: Path) -> None:
    desk, count = Desk(tmp_path), 60
    one = await wrote(desk)
    for number in range(count):
        text = f"{number}\n"
        await desk.use("write_file", by=one, path=f"new/{number}.md", text=text, folder=BOOK)
    came = desk.root / "new"
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here.parent}:{here}"}
    brings = (sys.executable, "-c", BRINGS, str(tmp_path))
    process = await asyncio.create_subprocess_exec(*brings, env=env)
    await until(lambda: came.is_dir() and any(came.glob("*.md")), 60)
    process.kill()
    await process.wait()
    assert 0 < len(list(came.glob("*.md"))) < count
    (came / "0.md").write_text("somebody went on with it\n")
    desk.begin()
    await desk.ended(one)
    assert (came / "0.md").read_text() == "somebody went on with it\n"
    found = sorted(came.iterdir())
    assert [each.name for each in found] == sorted(f"{n}.md" for n in range(count))
    assert all(each.read_text() == f"{each.stem}\n" for each in found if each.stem != "0")


async def test_two_runs_bring_one_file_and_the_second_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = await wrote(desk)
    other = Folders(desk.data / "work/r2", desk.projects, *desk.limits)
    second = replace(one, run="r2", clients={Folders: other, CopyBack: CopyBack(other)})
    await desk.use("write_file", by=second, path="a.md", text="Two\n", folder=BOOK)
    undone = await asyncio.gather(desk.ended(one), desk.ended(second))
    told = [each["commit in files:book"] for each in undone]
    assert sorted(map(bool, told)) == [False, True]
    assert (desk.root / "a.md").read_text() == ("One\n" if told[1] else "Two\n")


async def test_a_name_that_somebody_stored_as_on_macos_is_the_same_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = await wrote(desk)
    name = "caf\u00e9.md"
    await desk.use("write_file", by=one, path=name, text="Mine\n", folder=BOOK)
    there = desk.root / unicodedata.normalize("NFD", name)
    there.write_text("Theirs\n")
    assert name in (await desk.ended(one))["commit in files:book"]
    assert (there.read_text(), (desk.root / name).exists()) == ("Theirs\n", False)


told: list[str] = []
"""The calls by which something was brought."""


@tool(Access.WRITE, Effect.BRING)
async def bring(ctx: ToolContext) -> ToolResult:
    """Bring what lies aside."""
    told.append(ctx.key)
    return ToolResult()


class Aside:
    """Holds something of each context."""

    def left(self, context: str) -> list[LeftUndone]:
        return [LeftUndone(bring, {}, "it", "It stays, {}.")]


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_a_subagent_left_comes_unless_it_was_stopped(stopped: bool) -> None:
    told.clear()
    async with engine(turns(submitted("Done.", findings=[]))) as e:
        e.run.clients = {**e.run.clients, Aside: Aside()}
        asked = replace(e.brief("Find out", 2), beside=True, intent=Intent(text="Find out"))
        (frozen,) = await e.fanout().freeze([asked])
        found = await run_subagent(e.run, frozen, e.run.stop.set if stopped else None)
    assert told == ([] if stopped else [f"{e.run.id}/s1/close"])
    assert ("It stays, as the request was stopped." in found.not_covered) == stopped
