"""stdout carries the result of a command: where it cannot be written, the command has failed.

stderr carries what is said beside it: where that cannot be written, it is dropped.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


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


class Aside(io.TextIOWrapper):
    """stderr, whoever writes to it. Raises nothing: the result is worth more than what is said
    beside it."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


@contextmanager
def streams() -> Iterator[None]:
    """Run a command with streams that it can rely on. That stdout takes no more is said in one
    sentence on stderr, and raised as SystemExit(1); stderr changes no exit code."""
    _opened()
    out, err = sys.stdout, sys.stderr
    if isinstance(out, io.TextIOWrapper):  # else it is one in memory
        how = (out.encoding, "replace", None, out.line_buffering)  # a `?` for what it lacks
        sys.stdout = Out(out.buffer, *how)
    if isinstance(err, io.TextIOWrapper):
        sys.stderr = Aside(err.buffer, err.encoding, err.errors, None, err.line_buffering)
    try:
        yield
    except Unwritten as error:
        _discard(sys.stdout)
        print(f"error: The result cannot be written to stdout: {error}.", file=sys.stderr)
        raise SystemExit(1) from error
    finally:
        for stream in (sys.stdout, sys.stderr):  # else one would close what lies under both
            if isinstance(stream, Out | Aside):
                stream.detach()
        sys.stdout, sys.stderr = out, err
        try:
            err.flush()
        except OSError:
            _discard(err)


def _discard(stream: TextIO) -> None:
    """Send what a stream still holds nowhere: when Python writes it at its end, and that fails, it
    sets the exit code to 120."""
    with suppress(OSError):  # a stream in memory has no number
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


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
