"""Commands run over a copy, in the configured sandbox, and end at their time limit."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
import yaml
from engine_kit import until
from files_kit import BOOK, ProjectRun, tools, write_files
from process_kit import command as command_of
from process_kit import is_alive

from scopes.folders.commands import COMMAND_ENVIRONMENT, MAX_OUTPUT_BYTES, Commands
from scopes.folders.folders import MB
from scopes.tool import ToolContext, ToolResult

__all__ = ["tools"]

SHELL = ("sh", "-c", "{command}")


def sandbox(**more: Any) -> Commands:
    home = Path("commands").resolve()
    return Commands(**{"template": SHELL, "seconds": 10.0, "max_bytes": MB, "home": home, **more})


def sandbox_context(tools: ProjectRun, **more: Any) -> ToolContext:
    return tools.context(clients={**tools.context().clients, Commands: sandbox(**more)})


async def run_command(tools: ProjectRun, command: str, **more: Any) -> ToolResult:
    return await tools.use(
        "run_command", by=sandbox_context(tools, **more), command=command, folder=BOOK
    )


def output_text(found: ToolResult) -> str:
    return "\n".join(item.text for item in found.items)


async def test_a_command_sees_the_files_and_changes_none(tools: ProjectRun) -> None:
    (tools.root / "link").symlink_to("/etc/passwd")
    os.mkfifo(tools.root / "pipe")
    write_files(tools.root, {".git/config": "secret"})
    found = await run_command(
        tools, "ls -A; cat src/app.py | head -1; rm README.md; echo x > new; exit 3"
    )
    assert output_text(found) == "README.md\nsrc\ndef one():"
    assert found.note == "Exit code 3."
    assert sorted(p.name for p in tools.root.iterdir()) == [
        ".git", "README.md", "link", "pipe", "src",
    ]  # fmt: skip
    assert found.items[0].label.sources == {BOOK}
    assert found.items[0].label.untrusted


async def test_a_command_gets_no_secret_and_no_input(
    tools: ProjectRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    found = await run_command(tools, "env; cat; echo end")
    lines = set(output_text(found).split("\n"))
    assert {f"{k}={v}" for k, v in COMMAND_ENVIRONMENT.items()} <= lines
    assert not any("sk-secret" in line or "HOME=" in line for line in lines)
    assert "end" in lines


async def test_child_processes_are_killed_with_their_command(tools: ProjectRun) -> None:
    found = await run_command(tools, "sleep 600 & echo begun; sleep 600", seconds=0.5)
    assert output_text(found) == "begun"
    assert found.note == "It was killed: its time was up."
    found = await run_command(tools, "sleep 600 >/dev/null 2>&1 & echo $!")
    pid = int(output_text(found))
    await until(lambda: not is_alive(pid))


async def test_process_outside_the_group_does_not_delay_the_result(tools: ProjectRun) -> None:
    found = await run_command(tools, "setsid sleep 600 & echo $!; sleep 600", seconds=0.5)
    os.kill(int(output_text(found)), signal.SIGKILL)
    assert found.note == "It was killed: its time was up."


async def test_excessive_command_output_is_truncated(tools: ProjectRun) -> None:
    found = await run_command(tools, "yes | head -c 3000000; echo; seq 1 3")
    assert "The output is cut" in found.truncated
    assert len(output_text(found)) <= MAX_OUTPUT_BYTES
    assert found.note == "Exit code 0."


async def test_command_has_limits_on_file_size_memory_and_open_files(tools: ProjectRun) -> None:
    found = await run_command(
        tools, "ulimit -f; ulimit -v; ulimit -n; cat /dev/zero > big; echo $?"
    )
    limits = output_text(found).split("\n")
    assert [int(each) for each in limits[:3]] == [64 * 2048, 2 * MB, 256]
    assert limits[-1] != "0"


async def test_sandbox_start_failure_is_reported(tools: ProjectRun) -> None:
    for template in (("/nowhere/bwrap", "{command}"), ("/", "{command}")):
        ctx = sandbox_context(tools, template=template)
        error = await tools.fails("run_command", by=ctx, command="ls", folder=BOOK)
        assert "does not start" in error


async def test_cancelled_command_leaves_no_process_and_no_folder(
    tmp_path: Path, tools: ProjectRun
) -> None:
    mark = tmp_path / "pid"
    into = quote(str(mark))
    command = f"echo $$ $PWD > {into}.new; mv {into}.new {into}; sleep 60"
    work = asyncio.create_task(sandbox().run(tools.projects[BOOK].folder, command))
    await until(mark.exists)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    pid, folder = mark.read_text().strip().split(" ", 1)
    assert not is_alive(int(pid))
    assert folder not in map(str, Path(folder).parent.iterdir())


# ---- the sandbox that docs/files.md recommends: what a command reaches from inside of it


DOCS = Path(__file__).parent.parent / "docs" / "files.md"
(BLOCK,) = re.findall(r"```yaml\n(files:\n  sandbox: .*?)```", DOCS.read_text(), re.DOTALL)
SANDBOX: list[str] = yaml.safe_load(BLOCK)["files"]["sandbox"]
LONG = f"sleep {100_000 + os.getpid()}"
"""A command that no other process of this machine runs."""
in_bubblewrap = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture(scope="module")
def bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail("bubblewrap is not installed: see .ci/services")
        pytest.skip("bubblewrap is not installed (apt-get install bubblewrap)")
    probe = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("bubblewrap may make no namespaces on this machine")


async def run_sandboxed(tools: ProjectRun, command: str, seconds: float = 20.0) -> ToolResult:
    return await run_command(tools, command, template=SANDBOX, seconds=seconds)


@in_bubblewrap
async def test_sandbox_exposes_only_the_programs_of_the_machine(tools: ProjectRun) -> None:
    other = tools.root.parent / "other.txt"
    other.write_text("SECRET")
    tries = f"cat {quote(str(other))} /etc/passwd; echo x > /usr/x; ls {quote(str(tools.root))}"
    found = await run_sandboxed(tools, f"echo x > new && ls; ls /; {tries}")
    top, *errors = output_text(found).split("work\n")
    copied, shared = {"README.md", "new", "src"}, {"bin", "dev", "lib", "lib64", "proc", "usr"}
    assert set(top.split()) == copied | shared
    assert sorted(p.name for p in tools.root.iterdir()) == ["README.md", "src"]
    assert "SECRET" not in errors[0]
    assert errors[0].count("No such file") == 3
    assert "Read-only file system" in errors[0]


@in_bubblewrap
async def test_sandbox_has_no_network_access(tools: ProjectRun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        call = f"bash -c 'echo x > /dev/tcp/127.0.0.1/{server.getsockname()[1]}'"
        found = await run_sandboxed(tools, f"{call}; tail -n +3 /proc/net/dev")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "Connection refused" in output_text(found)
    assert [line.split()[0] for line in output_text(found).split("\n")[2:]] == ["lo:"]


@in_bubblewrap
async def test_sandboxed_command_sees_no_other_process_and_leaves_none(tools: ProjectRun) -> None:
    found = await run_sandboxed(tools, f"ls /proc | grep -c '^[0-9]'; {LONG} & {LONG}", seconds=1.0)
    assert int(output_text(found)) < 8
    assert found.note == "It was killed: its time was up."
    await until(lambda: not _sleeping_pids())


def _sleeping_pids() -> list[str]:
    pids = (each.name for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid in pids if command_of(int(pid)).startswith(LONG)]
