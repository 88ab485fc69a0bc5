"""The bounds of other tests: what they count, and what they leave out."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import timing
from timing import Patience, computed_within, patient, waited_within


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


@contextmanager
def crowded(*more: list[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One processor for this thread, for three that compute all the time, and for `more`."""
    before = os.sched_getaffinity(0)
    cpu = str(min(before))
    args = [sys.executable, "-I", "-c", BUSY, cpu]
    all_ = [subprocess.Popen([*args, "60"], stdin=subprocess.DEVNULL) for _ in range(3)]
    try:
        all_ += (mine := [subprocess.Popen([*args, *each], stdin=subprocess.PIPE) for each in more])
        os.sched_setaffinity(0, {int(cpu)})
        yield mine
    finally:
        os.sched_setaffinity(0, before)
        for each in all_:
            each.kill()
            each.wait()


@pytest.mark.slow  # it crowds the machine, and so do other tests
def test_what_keeps_a_process_that_is_waited_for_from_running_does_not_count() -> None:
    with (
        crowded(["0.25"]) as (one,),
        waited_within(0.5, by=[one.pid]),
        pytest.raises(AssertionError),
        waited_within(0.5),
    ):
        finished(one)


@pytest.mark.slow  # it crowds the machine, and so do other tests
def test_what_keeps_two_processes_from_running_one_after_the_other_does_not_count() -> None:
    with (
        crowded(["0.25"], ["0.25"]) as (one, two),
        waited_within(0.9, by=[one.pid, two.pid]),
        pytest.raises(AssertionError),
        waited_within(0.9, by=[one.pid]),
    ):
        finished(one, two)


@pytest.mark.slow  # it crowds the machine, and so do other tests
def test_what_keeps_this_thread_from_running_bit_by_bit_does_not_count() -> None:
    with crowded(), waited_within(0.5):
        began = time.monotonic()
        compute(0.25)
        assert time.monotonic() - began > 0.5


def finished(*programs: subprocess.Popen[bytes]) -> None:
    """Lets one after the other begin; they have ended when this returns, and their numbers can
    still be read."""
    for program in programs:
        assert program.stdin
        program.stdin.close()
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)


def test_what_fails_inside_is_told_as_it_is() -> None:
    with pytest.raises(ValueError, match="inside"), waited_within(5.0):
        raise ValueError("inside")


def test_patience_lasts_longer_where_others_have_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, crowded_s = 100.0, 5.0
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(timing, "_crowded", lambda: crowded_s)
    patience = Patience(0.4)
    now, crowded_s = 100.8, 5.8
    assert not patience.over
    now = 101.2
    assert patience.over


async def test_patience_ends_with_what_never_comes() -> None:
    with pytest.raises(TimeoutError):
        async with patient(0.1):
            await asyncio.Event().wait()
    async with patient(60):
        await asyncio.sleep(0)
