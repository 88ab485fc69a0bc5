"""stdout carries the result of a command: where it cannot be written, the command has failed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Unwritten(Exception):
    """stdout takes no more, and why."""


class Out(io.TextIOWrapper):
    """stdout, whoever writes to it. Raises Unwritten; BrokenPipeError where who reads it went away,
    which is no fault."""

    def write(self, text: str) -> int:
        with _told():
            return super().write(text)

    def flush(self) -> None:
        with _told():
            super().flush()


@contextmanager
def streams() -> Iterator[None]:
    """Run a command with streams that it can rely on. That stdout takes no more is said in one
    sentence on stderr, and raised as SystemExit(1)."""
    _opened()
    before = sys.stdout
    if isinstance(before, io.TextIOWrapper):  # else it is one in memory
        how = (before.encoding, "replace", None, before.line_buffering)  # a `?` for what it lacks
        sys.stdout = Out(before.buffer, *how)
    try:
        yield
    except Unwritten as error:
        with suppress(OSError):  # what is still held would fail once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with suppress(OSError):
            print(f"error: The result cannot be written to stdout: {error}.", file=sys.stderr)
        raise SystemExit(1) from error
    finally:
        if isinstance(sys.stdout, Out):  # else it would close what lies under both
            sys.stdout.detach()
        sys.stdout = before


def _opened() -> None:
    """Let none of the three be closed: the next file that is opened would stand in its place, and
    get what others write there. What is written to a stdout that was closed fails."""
    for number, how in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, how)  # the lowest number that is free
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritten(error.strerror or type(error).__name__) from error
