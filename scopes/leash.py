"""Processes that end with the bot, however it ends: also where it is killed and can end nothing."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""prctl(2)."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def leashed() -> None:
    """Have the kernel kill this process when its parent dies; for `preexec_fn`, and Linux alone.

    The parent is the thread that started it: start no process from one that ends before it.
    """
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def output_of(
    argv: Sequence[str], given: bytes, seconds: float, env: Mapping[str, str], folder: Path
) -> bytes:
    """What a program prints to whom this is given on its standard input; empty where it failed.

    Raises TimeoutError where it takes longer: it is killed then, as whenever nobody waits for it.
    """
    program = await asyncio.create_subprocess_exec(
        *argv,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=folder,
        env=env,
        preexec_fn=leashed,
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await program.communicate(given)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return out if program.returncode == 0 else b""
