"""Programs of our own beside the bot: what they work on can take nothing down but them.

Each is a module whose `main` is given numbers, and limits itself (`scopes.process_limits`)
before it reads.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent
BOOT: Final = """
import sys, types
package = types.ModuleType("scopes")
package.__path__ = [sys.argv[1]]
sys.modules["scopes"] = package
from scopes.process_limits import die_with_parent
die_with_parent(int(sys.argv[2]))
from importlib import import_module
import_module(sys.argv[3]).main(*map(int, sys.argv[4:]))
"""
"""Runs a module alone, without what the package loads for the bot; it ends with the bot."""
LINE: Final = 1 << 16
"""Bytes of one line of what a program prints, where nothing else is said."""


async def started(
    module: str,
    *numbers: int,
    folder: Path = Path("/"),
    env: Mapping[str, str] | None = None,
    line: int = LINE,
) -> Process:
    """Return a program, with pipes to what it reads and prints. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", BOOT, str(PACKAGE), str(os.getpid()), module),
        *map(str, numbers),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=line,
        cwd=folder,
        env=env or {},
        start_new_session=True,
    )


async def output_of(
    module: str,
    *numbers: int,
    given: bytes,
    seconds: float,
    folder: Path = Path("/"),
    env: Mapping[str, str] | None = None,
) -> bytes:
    """Return what a program prints to whom this is given on its standard input.

    Empty where it failed.

    Raises TimeoutError where it takes longer: it is killed then, as whenever nobody waits for it.
    """
    program = await started(module, *numbers, folder=folder, env=env)
    try:
        async with asyncio.timeout(seconds):
            out, _ = await program.communicate(given)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return out if program.returncode == 0 else b""
