"""Python without access to anything: Monty, an interpreter of its own in separate processes.

The synchronous pool runs in threads: the asynchronous one of pydantic-monty 1.4 may abort the
interpreter when it ends.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from pydantic_monty import (
    CollectString,
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
    ResourceLimits,
)

MEGABYTE = 1 << 20
MAX_PROCESSES = 2
"""Programs that run at once; further ones wait."""
MAX_PRINTED = 100_000
"""Bytes."""
MAX_RECURSION, MAX_SUSPENSIONS = 200, 50
GRACE_S = 0.5
"""Seconds after the limit until a process is killed that did not end by itself."""
MAX_RUNS = 100
"""Programs after which a process is replaced."""


class ProgramFailed(Exception):
    """The program failed; the text is its error with the line."""


class Sandbox:
    """Runs programs; one for a process of the bot. Its processes are started with the first."""

    def __init__(self, seconds: float, megabytes: int) -> None:
        """`seconds` of computing and `megabytes` of memory for each program."""
        self._limits: ResourceLimits = {
            "max_feed_duration_secs": seconds,
            "max_memory": megabytes * MEGABYTE,
            "max_recursion_depth": MAX_RECURSION,
            "max_suspensions": MAX_SUSPENSIONS,
        }
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(MAX_PROCESSES, "sandbox")
        self._starting = asyncio.Lock()
        self._pool: Monty | None = None

    async def run(self, code: str, data: str) -> str:
        """Return what a program printed; it finds `data` under that name. Raises ProgramFailed."""
        pool = await self._start()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, pool, code, data)

    async def aclose(self) -> None:
        """End the processes when their programs have ended or were stopped."""
        async with self._starting:
            pool, self._pool = self._pool, None
        await asyncio.to_thread(self._end, pool)

    def _end(self, pool: Monty | None) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        if pool:
            pool.__exit__(None, None, None)

    async def _start(self) -> Monty:
        async with self._starting:
            if self._pool is None:
                pool = Monty(
                    max_processes=MAX_PROCESSES,
                    request_timeout=self._seconds + 2 * GRACE_S,
                    max_checkouts_per_worker=MAX_RUNS,
                    feed_duration_limit_grace=GRACE_S,
                )
                self._pool = await asyncio.to_thread(pool.__enter__)
            return self._pool

    def _run(self, pool: Monty, code: str, data: str) -> str:
        printed = CollectString(max_bytes=MAX_PRINTED)
        try:
            with pool.checkout(limits=self._limits, os_policy={"sleep": "zero"}) as session:
                # No last value leaves the sandbox: out here a list with one object a million times
                # is a million objects, and no limit applies.
                program = f"{code.rstrip()}\nNone"
                session.feed_run(program, inputs={"data": data}, print_callback=printed)
        except (MontyError, UnicodeError) as error:
            raise ProgramFailed(_error_line(error, code)) from None
        return printed.output


def _error_line(error: Exception, code: str) -> str:
    """Return the error in one line, after the number of the program's line where it is."""
    if isinstance(error, MontyCrashedError):
        return "It took too much time or memory and was ended."
    if isinstance(error, UnicodeError):
        return "It holds characters that are none."
    frames = error.traceback() if isinstance(error, MontyRuntimeError | MontySyntaxError) else []
    last = code.rstrip().count("\n") + 1  # the lines after it are ours
    where = f"line {min(frames[-1].line, last)}: " if frames else ""
    return f"{where}{error}"
