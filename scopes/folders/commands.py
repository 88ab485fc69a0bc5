"""A command in the sandbox that an administrator configured, over a copy of a folder."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final

from scopes.folders.folder import MAX_ENTRIES, FileTree, Look
from scopes.folders.search import walk
from scopes.programs import die_with_parent, limit
from scopes.tool import ToolError

log = logging.getLogger(__name__)

MAX_OUTPUT_BYTES: Final = 64_000
"""Bytes of output that are kept."""
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
COMMAND_ENVIRONMENT: Final = {"PATH": PATH, "LANG": "C.UTF-8"}
"""The whole environment of a command."""
MB = 1 << 20
MAX_MEMORY: Final = 2_048 * MB
MAX_FILE: Final = 64 * MB
MAX_FILES, MAX_PROCESSES = 256, 1_024
"""Open files of each process in the sandbox, and processes of this user."""


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """A command that has ended."""

    code: int | None
    """None = it was killed when its time was up."""
    output: str
    cut: bool
    """True if there was more output."""


@dataclass(frozen=True)
class Commands:
    """The configured command; `{folder}` and `{command}` are replaced in it."""

    template: Sequence[str]
    seconds: float
    max_bytes: int
    """Maximum bytes of a folder to copy."""
    home: Path
    """Folder of the copies; one left by a killed process is deleted with its request's folder."""

    async def run(self, folder: FileTree, command: str) -> CommandEnded:
        """Run a command on a copy of the folder, then delete the copy. Raises ToolError."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        copy = tempfile.TemporaryDirectory(dir=self.home, ignore_cleanup_errors=True)
        try:
            await asyncio.to_thread(copy_files, folder, Path(copy.name), self.max_bytes)
            fills = {"{folder}": copy.name, "{command}": command}
            return await self._run([_fill(each, fills) for each in self.template], copy.name)
        finally:
            await asyncio.to_thread(copy.cleanup)

    async def _run(self, argv: Sequence[str], folder: str) -> CommandEnded:
        code = None
        with tempfile.TemporaryFile(dir=self.home) as file:
            process = await _start(argv, folder, file)
            try:
                async with asyncio.timeout(self.seconds):
                    code = await process.wait()
            except TimeoutError:
                log.info("a command was killed after %g s", self.seconds)
            finally:
                _kill(process.pid)
                await process.wait()
            file.seek(0)
            output = file.read(MAX_OUTPUT_BYTES + 1)
        return CommandEnded(
            code, output[:MAX_OUTPUT_BYTES].decode(errors="replace"), len(output) > MAX_OUTPUT_BYTES
        )


def copy_files(folder: FileTree, to: Path, max_bytes: int) -> None:
    """Copy the files of a folder: no links, and nothing of its repository. Raises ToolError."""
    room, look = max_bytes, Look()
    for entry in walk(folder, look):
        here = to / entry.path
        if entry.kind == "folder":
            here.mkdir()
        elif entry.kind == "file" and entry.size <= folder.max_bytes:
            found = folder.read(entry.path)
            room -= len(found.data) if found else 0
            if room < 0:
                raise ToolError(f"The folder is larger than {max_bytes // MB} MB: no command runs.")
            if found:
                here.write_bytes(found.data)
                here.chmod(found.mode | 0o600)
    if look.cut:
        raise ToolError(f"The folder has more than {MAX_ENTRIES} entries: no command runs.")


async def _start(argv: Sequence[str], folder: str, file: IO[bytes]) -> asyncio.subprocess.Process:
    """Start the command, whose output goes to a file. Raises ToolError."""
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
            env=COMMAND_ENVIRONMENT,
            cwd=folder,
            umask=0o077,
            start_new_session=True,
            preexec_fn=partial(_limit, os.getpid()),
        )
    except (OSError, ValueError) as error:
        raise ToolError(
            "The sandbox that is configured here does not start. Say so in your result."
        ) from error


def _fill(word: str, fills: dict[str, str]) -> str:
    """Return a word of the template, filled once."""
    if word in fills:
        return fills[word]
    return word.replace("{folder}", fills["{folder}"])


def _limit(bot: int) -> None:
    die_with_parent(bot)
    limit(memory=MAX_MEMORY, file_bytes=MAX_FILE, files=MAX_FILES, processes=MAX_PROCESSES)


def _kill(group: int) -> None:
    """End a command and everything that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
