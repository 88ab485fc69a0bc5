"""A command runs over a copy, in what an administrator configured, and is over when its time is."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from engine_kit import until
from files_kit import BOOK, Desk, desk, written

from scopes.folders.commands import GIVEN, OUTPUT, Commands
from scopes.folders.folders import MB
from scopes.tool import ToolContext, ToolResult

__all__ = ["desk"]

SHELL = ("sh", "-c", "{command}")


def sandbox(**more: Any) -> Commands:
    home = Path("commands").resolve()
    return Commands(**{"template": SHELL, "seconds": 10.0, "max_bytes": MB, "home": home, **more})


def boxed(desk: Desk, **more: Any) -> ToolContext:
    return desk.context(clients={**desk.context().clients, Commands: sandbox(**more)})


async def ran(desk: Desk, command: str, **more: Any) -> ToolResult:
    return await desk.use("run_command", by=boxed(desk, **more), command=command, folder=BOOK)


def said(found: ToolResult) -> str:
    return "\n".join(item.text for item in found.items)


async def test_a_command_sees_the_files_and_changes_none(desk: Desk) -> None:
    (desk.root / "link").symlink_to("/etc/passwd")
    os.mkfifo(desk.root / "pipe")
    written(desk.root, {".git/config": "secret"})
    found = await ran(desk, "ls -A; cat src/app.py | head -1; rm README.md; echo x > new; exit 3")
    assert said(found) == "README.md\nsrc\ndef one():"
    assert found.note == "Exit code 3."
    assert sorted(p.name for p in desk.root.iterdir()) == [
        ".git", "README.md", "link", "pipe", "src",
    ]  # fmt: skip
    assert found.items[0].label.sources == {BOOK}
    assert found.items[0].label.untrusted


async def test_a_command_gets_no_secret_and_no_input(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    found = await ran(desk, "env; cat; echo end")
    lines = set(said(found).split("\n"))
    assert {f"{k}={v}" for k, v in GIVEN.items()} <= lines
    assert not any("sk-secret" in line or "HOME=" in line for line in lines)
    assert "end" in lines


async def test_what_it_started_is_killed_with_it(desk: Desk) -> None:
    found = await ran(desk, "sleep 600 & echo begun; sleep 600", seconds=0.5)
    assert said(found) == "begun"
    assert found.note == "It was killed: its time was up."
    found = await ran(desk, "sleep 600 >/dev/null 2>&1 & echo $!")
    pid = int(said(found))
    await until(lambda: not _args(pid))


def _args(pid: int) -> bytes:
    """Empty of what has ended and nobody has looked after."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


async def test_what_leaves_its_group_keeps_nobody_waiting(desk: Desk) -> None:
    found = await ran(desk, "setsid sleep 600 & echo $!; sleep 600", seconds=0.5)
    os.kill(int(said(found)), signal.SIGKILL)
    assert found.note == "It was killed: its time was up."


async def test_output_without_end_is_cut_and_takes_no_memory(desk: Desk) -> None:
    found = await ran(desk, "yes | head -c 3000000; echo; seq 1 3")
    assert "The output is cut" in found.truncated
    assert len(said(found)) <= OUTPUT
    assert found.note == "Exit code 0."


async def test_a_file_without_end_is_stopped(desk: Desk) -> None:
    found = await ran(desk, "ulimit -f; ulimit -v; ulimit -n; cat /dev/zero > big; echo $?")
    limits = said(found).split("\n")
    assert [int(each) for each in limits[:3]] == [64 * 2048, 2 * MB, 256]
    assert limits[-1] != "0"


async def test_a_sandbox_that_does_not_start_is_said(desk: Desk) -> None:
    for template in (("/nowhere/bwrap", "{command}"), ("/", "{command}")):
        ctx = boxed(desk, template=template)
        said_ = await desk.fails("run_command", by=ctx, command="ls", folder=BOOK)
        assert "does not start" in said_


async def test_who_gives_up_leaves_nothing_behind(tmp_path: Path, desk: Desk) -> None:
    mark = tmp_path / "pid"
    into = quote(str(mark))
    command = f"echo $$ $PWD > {into}.new; mv {into}.new {into}; sleep 60"
    work = asyncio.create_task(sandbox().run(desk.projects[BOOK].folder, command))
    await until(mark.exists)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    pid, folder = mark.read_text().strip().split(" ", 1)
    assert not _args(int(pid))
    assert folder not in map(str, Path(folder).parent.iterdir())
