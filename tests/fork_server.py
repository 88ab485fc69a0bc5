"""Starts Python programs as forks of a process that has imported the bot.

An import of it takes two to three seconds of CPU, and a test of kills starts it again and again.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from timing import WAIT_S, Patience

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fork_server", "typer", "bot.serving.serve"])


class Fork:
    """A process of its own, as `python PROGRAM ARGUMENT ...` would start it."""

    def __init__(
        self, program: str, *arguments: str, env: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        """`program` is a module or the path of a file; `env` is the whole environment.

        What it prints is added to `log`.
        """
        log.touch()
        args = (program, arguments, dict(env), folder, log)
        self.log = log
        self._process = _CONTEXT.Process(target=_run, args=args, daemon=True)
        self._process.start()
        self._polling = threading.Lock()

    @property
    def pid(self) -> int:
        assert self._process.pid
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code, or minus the number of a signal; None = it runs."""
        with self._polling:  # of two threads one would read nothing, and return 255
            return self._process.exitcode

    def wait(self) -> int | None:
        """Wait until it ends, and return its exit code; None if it does not end."""
        wait([self._process.sentinel], WAIT_S)
        return self.poll()

    def read_output(self) -> str:
        """Return all that it has printed."""
        return self.log.read_text("utf-8", "replace")

    def wait_for_output(self) -> str:
        """Wait until it has printed a line, and return all that it has printed."""
        patience = Patience()
        while "\n" not in (output := self.read_output()):
            assert self.poll() is None, output
            assert not patience.over, output
            time.sleep(0.05)
        return output

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it as a power failure would; return when it has ended."""
        self.send_signal(signal.SIGKILL)
        self.wait()


@contextmanager
def forked_command(*words: str) -> Iterator[Fork]:
    """A command in the folder and environment of the test; it is killed at the end."""
    folder = Path.cwd()
    process = Fork("bot", *words, env=os.environ, folder=folder, log=folder / "command.log")
    try:
        yield process
    finally:
        process.kill()


def _run(
    program: str, arguments: tuple[str, ...], env: dict[str, str], folder: Path, log: Path
) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = [program, *arguments]
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
