"""Programs of our own beside the bot: what they work on can take nothing down but them.

Each is a module whose `main` is given numbers, and limits itself (`scopes.process_limits`)
before it reads.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, Final

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


START_S: Final = 25.0
"""Seconds in which a worker has to begin; they are no time of a request."""
MAX_REQUESTS: Final = 500
"""Requests after which a worker is started again, so that what leaks in it does not add up."""
MAX_ANSWER: Final = 64_000_000
"""Bytes of an answer."""
BEGUN: Final = bytes(4)
"""What a worker writes when it has begun."""


def _command(module: str, *numbers: int) -> list[str]:
    pid = str(os.getpid())
    return [sys.executable, "-I", "-c", BOOT, str(PACKAGE), pid, module, *map(str, numbers)]


class WorkerDied(Exception):
    """The worker ended while it worked on a request, or took too long for it."""


class WorkerProcess:
    """A program that answers one request after another; see `serve`.

    It is started with the first one, and again after it died. It may be used from several loops.
    """

    def __init__(self, module: str, seconds: float) -> None:
        """`seconds` is the time of one request."""
        self._module, self._seconds = module, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=module.rpartition(".")[2])
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = 0
        self._asking: object = None
        atexit.register(self._end)

    @property
    def pid(self) -> int | None:
        """Process id of the program; None while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Begin to start the program ahead of its first request, which fails if this does."""
        self._thread.submit(self._started)

    async def ask(self, request: bytes) -> bytes:
        """Return the answer. Raises WorkerDied."""
        mine = object()
        answer = asyncio.get_running_loop().run_in_executor(self._thread, self._ask, mine, request)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._asking is mine and self._process:
                self._process.kill()  # its answer would be taken for that of the next request
            raise

    async def aclose(self) -> None:
        """End the program for good."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=False)
        atexit.unregister(self._end)

    def _ask(self, mine: object, request: bytes) -> bytes:
        self._asking = mine
        try:
            return self._answer(request)
        except (EOFError, OSError) as error:
            self._end()
            raise WorkerDied from error
        finally:
            self._asking = None

    def _answer(self, request: bytes) -> bytes:
        process = self._started()
        assert process.stdin
        assert process.stdout
        self._requests += 1
        with _limited(process, self._seconds):
            process.stdin.write(len(request).to_bytes(4, "big") + request)
            process.stdin.flush()
            size = int.from_bytes(_exactly(process.stdout, 4), "big")
            if size > MAX_ANSWER:
                raise EOFError
            return _exactly(process.stdout, size)

    def _started(self) -> subprocess.Popen[bytes]:
        died = self._process is not None and self._process.poll() is not None
        if died or self._requests >= MAX_REQUESTS:
            self._end()
        if self._process is None:
            self._requests = 0
            self._process = subprocess.Popen(
                _command(self._module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
            assert self._process.stdout
            try:
                with _limited(self._process, START_S):
                    _exactly(self._process.stdout, len(BEGUN))
            except EOFError:
                self._end()
                raise
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()


@contextmanager
def _limited(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """Kill the process if this takes longer."""
    timer = Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer the requests of a `WorkerProcess` until there are no more.

    A request and an answer are four bytes of length and then so many bytes; four bytes of 0 come
    before all, when the program has begun. Memory is collected between requests.
    """
    gc.freeze()
    gc.disable()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(BEGUN)
    sink.flush()
    while len(size := source.read(4)) == 4:
        found = answer(source.read(int.from_bytes(size, "big")))
        sink.write(len(found).to_bytes(4, "big") + found)
        sink.flush()
        gc.collect()  # now that nobody waits for it


async def started(
    module: str,
    *numbers: int,
    folder: Path = Path("/"),
    env: Mapping[str, str] | None = None,
    line: int = LINE,
) -> Process:
    """Return a program, with pipes to what it reads and prints. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *_command(module, *numbers),
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
