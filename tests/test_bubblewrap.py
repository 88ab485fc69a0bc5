"""The sandbox that docs/files.md recommends: what a command reaches from inside of it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from shlex import quote

import pytest
import yaml
from engine_kit import until
from files_kit import BOOK, Desk, desk

from scopes.folders.commands import Commands
from scopes.folders.folders import MB
from scopes.tool import ToolResult

__all__ = ["desk"]

DOCS = Path(__file__).parent.parent / "docs" / "files.md"
(BLOCK,) = re.findall(r"```yaml\n(files:\n  sandbox: .*?)```", DOCS.read_text(), re.DOTALL)
SANDBOX: list[str] = yaml.safe_load(BLOCK)["files"]["sandbox"]
LONG = f"sleep {100_000 + os.getpid()}"
"""A command that no other process of this machine runs."""


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail("bubblewrap is not installed: see .ci/services")
        pytest.skip("bubblewrap is not installed (apt-get install bubblewrap)")
    tried = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    if subprocess.run(tried, capture_output=True).returncode:
        pytest.skip("bubblewrap may make no namespaces on this machine")


async def ran(desk: Desk, command: str, seconds: float = 20.0) -> ToolResult:
    clients = desk.context().clients
    commands = Commands(SANDBOX, seconds, MB, desk.root.parent / "commands")
    by = desk.context(clients={**clients, Commands: commands})
    return await desk.use("run_command", by=by, command=command, folder=BOOK)


def said(found: ToolResult) -> str:
    return "\n".join(item.text for item in found.items)


async def test_a_command_works_on_the_copy_alone(desk: Desk) -> None:
    found = await ran(desk, "pwd; head -1 src/app.py; echo x > new && rm README.md && ls")
    assert said(found).split("\n") == ["/work", "def one():", "new", "src"]
    assert sorted(p.name for p in desk.root.iterdir()) == ["README.md", "src"]


async def test_nothing_of_the_machine_is_there_but_its_programs(desk: Desk) -> None:
    other = desk.root.parent / "other.txt"
    other.write_text("SECRET")
    tries = f"cat {quote(str(other))} /etc/passwd; echo x > /usr/x; ls {quote(str(desk.root))}"
    found = await ran(desk, f"ls /; {tries}")
    top, *errors = said(found).split("work\n")
    assert set(top.split()) == {"bin", "dev", "lib", "lib64", "proc", "usr"}
    assert "SECRET" not in errors[0]
    assert errors[0].count("No such file") == 3
    assert "Read-only file system" in errors[0]


async def test_no_address_is_reached(desk: Desk) -> None:
    heard: list[object] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(reader)
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outside = await asyncio.open_connection("127.0.0.1", port)
        outside[1].close()
        await until(lambda: len(heard) == 1)
        call = f"bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'"
        found = await ran(desk, f"{call}; tail -n +3 /proc/net/dev")
    assert "Connection refused" in said(found)
    assert [line.split()[0] for line in said(found).split("\n")[2:]] == ["lo:"]
    assert len(heard) == 1


async def test_it_sees_no_other_process_and_leaves_none(desk: Desk) -> None:
    found = await ran(desk, f"ls /proc | grep -c '^[0-9]'; {LONG} & {LONG}", seconds=1)
    assert int(said(found)) < 8
    assert found.note == "It was killed: its time was up."
    await until(lambda: not _sleeping())


def _sleeping() -> list[Path]:
    found = []
    for program in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if program.read_bytes().startswith(LONG.replace(" ", "\0").encode()):
                found.append(program)
    return found
