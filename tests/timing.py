"""Time limits of tests: a busy machine stays below them, a test that hangs does not."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

WAIT_S = 60.0
"""How long a test waits for an event. It does not limit how soon the event comes."""
REFERENCE_S = 0.1
"""What `machine_s` returns on the machine that limits of CPU time are set for."""
ADDITIONS = 2_000_000


def machine_s() -> float:
    """Return the best of five times of a fixed loop: how fast this machine is now."""
    times = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for step in range(ADDITIONS):
            total += step
        times.append(time.perf_counter() - began)
    return min(times)


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Fail if the block takes more CPU time, of all threads; a slower machine gets more.

    Waiting does not count, nor do garbage collections of what earlier tests have left.
    """
    gc.disable()
    try:
        began = time.process_time()
        yield
        took = time.process_time() - began
    finally:
        gc.enable()
    assert took < seconds or took < seconds * machine_s() / REFERENCE_S, f"{took:.1f} s"


class Patience:
    """The time that a loop waits for an event: `WAIT_S`, or longer."""

    def __init__(self, seconds: float = WAIT_S) -> None:
        self._until = time.monotonic() + max(seconds, WAIT_S)

    @property
    def over(self) -> bool:
        return time.monotonic() > self._until


def patient(seconds: float = WAIT_S) -> asyncio.Timeout:
    """Raise TimeoutError if the block takes longer than `WAIT_S` and than `seconds`."""
    return asyncio.timeout(max(seconds, WAIT_S))
