"""A lock that holds between processes: that of an open file, let go when its holder dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from scopes.tool import ToolError

T = TypeVar("T")
P = ParamSpec("P")

THREADS = 8
PATIENCE_S = 20.0
"""How long a lock is waited for."""
LOOK_EVERY_S = 0.01


class Busy(ToolError):
    """A lock that others hold all the time."""


@cache
def _threads() -> ThreadPoolExecutor:
    """Of their own: who waits for a lock in one is not to hold up anything else of the bot."""
    return ThreadPoolExecutor(THREADS, "folders")


async def run_in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run work that blocks and may wait for a lock; return its result."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), partial(work, *args, **named))


@contextmanager
def lock_file(path: Path, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold the lock of this file, made where it is missing. It blocks: not for the event loop.

    Raises Busy where others hold it all the time.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _take(opened, time.monotonic() + patience_s)
        yield
    finally:
        os.close(opened)


def _take(opened: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy("Others are writing in this folder. Try again.") from None
            time.sleep(LOOK_EVERY_S)
        else:
            return
