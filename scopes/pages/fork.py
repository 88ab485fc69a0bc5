"""Run a function in a forked process while the caller goes on."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from scopes.process_limits import die_with_parent

Given = TypeVar("Given")
Made = TypeVar("Made")


class ProgramEnded(Exception):
    """The forked process has ended."""


class ForkedProcess(Generic[Given, Made]):
    """Calls it with one thing after another. For programs of one thread: their process is forked.

    Raises ProgramEnded if that process died, by an exception of the function or by a limit.
    """

    def __init__(self, work: Callable[[Given], Made]) -> None:
        fork = get_context("fork")
        asked, self._asked = fork.Pipe(duplex=False)  # no sockets: `scopes.confinement`
        self._told, told = fork.Pipe(duplex=False)
        args = (work, asked, told, (self._asked, self._told), os.getpid())
        fork.Process(target=_serve, args=args, daemon=True).start()
        asked.close()
        told.close()

    def begin(self, given: Given) -> None:
        """Have it work on this."""
        try:
            self._asked.send(given)
        except OSError as error:
            raise ProgramEnded from error

    def end(self) -> Made:
        """Return what became of it; to be asked for once, before the next begins."""
        try:
            made: Made = self._told.recv()
        except (EOFError, OSError) as error:
            raise ProgramEnded from error
        return made


def _serve(
    work: Callable[[Given], Made],
    asked: Connection,
    told: Connection,
    ours: tuple[Connection, ...],
    parent: int,
) -> None:
    die_with_parent(parent)
    for end in ours:
        end.close()  # so that the end of the other process ends this one, too
    while True:
        try:
            given = asked.recv()
        except EOFError:
            return
        told.send(work(given))
        gc.collect()
