"""The bounds of other tests: what they count, and what they leave out."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

import pytest
from timing import computed_within, waited_within


def test_who_waits_or_computes_for_too_long_fails() -> None:
    told = r"\d\.\d\d s, kept from running for \d\.\d\d s"
    with pytest.raises(AssertionError, match=told), waited_within(0.2):
        time.sleep(1.5)  # no stall of the machine takes all but the 0.2 s of it
    with pytest.raises(AssertionError), waited_within(0.2):
        compute(1.0)
    with pytest.raises(AssertionError), computed_within(0.2):
        compute(2.0)


def compute(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_who_is_back_too_early_fails() -> None:
    with pytest.raises(AssertionError), waited_within(1.0, least=0.2):
        pass


def test_what_keeps_all_threads_from_running_does_not_count() -> None:
    began = time.monotonic()
    with waited_within(0.5):
        ctypes.PyDLL(None).usleep(900_000)  # with the lock of the interpreter, as a collection
    assert time.monotonic() - began > 0.8


BUSY = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
sys.stdin.read(1)
while time.process_time() < float(sys.argv[2]):
    pass
"""


def test_what_keeps_a_process_that_is_waited_for_from_running_does_not_count() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    args = [sys.executable, "-I", "-c", BUSY, cpu]
    others = [subprocess.Popen([*args, "60"], stdin=subprocess.DEVNULL) for _ in range(3)]
    one = subprocess.Popen([*args, "0.25"], stdin=subprocess.PIPE)
    try:
        with waited_within(0.5, by=[one.pid]), pytest.raises(AssertionError), waited_within(0.5):
            finished(one)
    finally:
        for each in (one, *others):
            each.kill()
            each.wait()


def finished(program: subprocess.Popen[bytes]) -> None:
    """Lets it begin; it has ended when this returns, and its numbers can still be read."""
    assert program.stdin
    program.stdin.close()
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)


def test_what_fails_inside_is_told_as_it_is() -> None:
    with pytest.raises(ValueError, match="inside"), waited_within(5.0):
        raise ValueError("inside")
