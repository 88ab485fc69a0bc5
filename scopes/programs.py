"""Programs of our own, separate from the bot: hostile input can crash only them.

Each is a module whose `main` takes numbers, limits itself (`limit`), and then answers the requests
(`serve`) of a `WorkerProcess`.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Timer
from typing import IO, Final

PR_SET_PDEATHSIG = 1
"""prctl(2)."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; only on Linux.

    It ends at once if its parent is not the process of this pid, which then died before this call.
    For the kernel the parent is the thread that started it: start no process from a thread that
    ends before it. A loop's `create_subprocess_exec` starts it from the loop's own thread.
    """
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != os.getppid():
        os._exit(1)


def limit(
    *,
    memory: int | None = None,
    seconds: int | None = None,
    file_bytes: int | None = None,
    files: int | None = None,
    processes: int | None = None,
) -> None:
    """Limit this process: bytes of address space, seconds of computing from now on, bytes of each
    file that it writes, open files, and processes of this user; None = unchanged.

    It dumps no core. An existing lower limit stays.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_NPROC, processes),
    ):
        if most is not None:
            most = _permitted_limit(what, most)
            resource.setrlimit(what, (most, most))
    if seconds is not None:  # the hard limit stays: more seconds may be allowed later
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = _permitted_limit(
            resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + seconds
        )
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _permitted_limit(what: int, most: int) -> int:
    hard = resource.getrlimit(what)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


PACKAGE: Final = Path(__file__).parent
BOOT: Final = """
import sys, types
package = types.ModuleType("scopes")
package.__path__ = [sys.argv[1]]
sys.modules["scopes"] = package
from scopes.programs import die_with_parent
die_with_parent(int(sys.argv[2]))
from importlib import import_module
import_module(sys.argv[3]).main(*map(int, sys.argv[4:]))
"""
"""Runs only a module, without the imports of the package for the bot; it ends with the bot."""
START_S: Final = 25.0
"""Seconds in which a worker has to start; they do not count for a request."""
MAX_REQUESTS: Final = 500
"""Requests after which a worker is started again, so that its leaks do not add up."""
MAX_ANSWER: Final = 64_000_000
"""Bytes of an answer."""
START_SIGNAL: Final = bytes(4)
"""Written by a worker when it has started."""


class WorkerDied(Exception):
    """The worker ended during a request."""


class WorkerTimedOut(WorkerDied):
    """The worker took too long for a request, and was killed."""


class WorkerProcess:
    """A program that answers one request after another; see `serve`.

    It starts with the first request, and again after it died. Several loops may use it.
    """

    def __init__(
        self,
        module: str,
        seconds: float,
        *numbers: int,
        env: Mapping[str, str] | None = None,
        idle_s: float | None = None,
    ) -> None:
        """`seconds` is the time of one request, `numbers` are the arguments of `main`.

        The program ends after `idle_s` without a request; None = it stays.
        """
        self._command = (module, *map(str, numbers))
        self._seconds, self._env, self._idle_s = seconds, dict(env or {}), idle_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=module.rpartition(".")[2])
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: Timer | None = None
        self._requests = 0
        self._asking: object = None
        atexit.register(self._end)

    @property
    def pid(self) -> int | None:
        """Process id of the program; None while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the program before its first request, which fails if this start fails."""
        self._thread.submit(self._start)

    async def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        """Return the answer within `seconds`, None = the usual time. Raises WorkerDied."""
        ticket = object()
        answer = asyncio.get_running_loop().run_in_executor(
            self._thread, self._ask, ticket, request, seconds or self._seconds
        )
        try:
            return await answer
        except asyncio.CancelledError:
            if self._asking is ticket and self._process:
                self._process.kill()  # its answer would be taken for that of the next request
            raise

    async def end(self) -> None:
        """End the program; the next request starts it again."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)

    async def aclose(self) -> None:
        """End the program for good."""
        await self.end()
        self._thread.shutdown(wait=False)
        atexit.unregister(self._end)

    def _ask(self, ticket: object, request: bytes, seconds: float) -> bytes:
        self._asking = ticket
        try:
            return self._answer(request, seconds)
        except TimeoutError:
            self._end()
            raise WorkerTimedOut from None
        except (EOFError, OSError) as error:
            self._end()
            raise WorkerDied from error
        finally:
            self._asking = None

    def _answer(self, request: bytes, seconds: float) -> bytes:
        process = self._start()
        assert process.stdin
        assert process.stdout
        self._requests += 1
        with _limit_time(process, seconds):
            process.stdin.write(len(request).to_bytes(4, "big") + request)
            process.stdin.flush()
            size = int.from_bytes(_exactly(process.stdout, 4), "big")
            if size > MAX_ANSWER:
                raise EOFError
            return _exactly(process.stdout, size)

    def _start(self) -> subprocess.Popen[bytes]:
        died = self._process is not None and self._process.poll() is not None
        if died or self._requests >= MAX_REQUESTS:
            self._end()
        if self._process is None:
            self._requests = 0
            boot = (sys.executable, "-I", "-c", BOOT, str(PACKAGE), str(os.getpid()))
            self._process = subprocess.Popen(
                [*boot, *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=self._env,
                start_new_session=True,
            )
            assert self._process.stdout
            try:
                with _limit_time(self._process, START_S):
                    _exactly(self._process.stdout, len(START_SIGNAL))
            except (EOFError, TimeoutError):
                self._end()
                raise EOFError from None
        self._wait_idle()
        return self._process

    def _wait_idle(self) -> None:
        """End the program unless another request comes in time."""
        if self._idle:
            self._idle.cancel()
        if self._idle_s is not None:
            self._idle = Timer(self._idle_s, self._end_idle)
            self._idle.daemon = True
            self._idle.start()

    def _end_idle(self) -> None:
        with suppress(RuntimeError):  # it was closed meanwhile
            self._thread.submit(self._end)

    def _end(self) -> None:
        if self._idle:
            self._idle.cancel()
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()


@contextmanager
def _limit_time(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """Kill the process if the block takes longer, and raise TimeoutError."""
    late = Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (EOFError, OSError):
        if late.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer the requests of a `WorkerProcess` until there are no more.

    A request and an answer are four bytes of length and then so many bytes; when the program has
    started, it first writes four bytes of 0. Memory is collected between requests.
    """
    gc.freeze()
    gc.disable()
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # output of libraries is no answer
        sink.write(START_SIGNAL)
        sink.flush()
        source = sys.stdin.buffer
        while len(size := source.read(4)) == 4:
            found = answer(source.read(int.from_bytes(size, "big")))
            sink.write(len(found).to_bytes(4, "big") + found)
            sink.flush()
            gc.collect()  # now that nobody waits for it
