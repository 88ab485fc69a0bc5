"""How long something computes or waits: the same beside other tests and on a slower machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.start import machine_s

REFERENCE_S = 0.1
"""What `machine_s` says of the machine that bounds are meant for."""
LOOK_S, LATE_S = 0.01, 0.03
"""A thread that sleeps for so long, and wakes so much later, was kept from running."""


@contextmanager
def computed_within(seconds: float) -> Iterator[None]:
    """Fails where what is inside takes more CPU time, of all threads; a slower machine gets more.

    What it waits for does not count.
    """
    began = time.process_time()
    yield
    took = time.process_time() - began
    assert took < seconds or took < seconds * machine_s() / REFERENCE_S, f"{took:.1f} s"


@contextmanager
def waited_within(
    seconds: float, *, least: float = 0.0, by: Iterable[int] = (), what: str = ""
) -> Iterator[None]:
    """Fails where what is inside takes longer, or not as long as `least`.

    What does not count is the time in which this process was kept from running: other processes had
    the processors, for long or bit by bit, or a garbage collection went over all that the tests
    have left. The same holds for the processes that this one waits for (`by`, their ids), one after
    the other. `what` is told of what failed.
    """
    held, over = [0.0], threading.Event()
    pids = (os.getpid(), *by)
    watch = threading.Thread(target=_hold_ups, args=(held, over), daemon=True)
    began = time.monotonic()
    watch.start()
    before = {pid: _delays(pid) for pid in pids}
    try:
        yield
    finally:
        took = time.monotonic() - began
        after = {pid: _delays(pid) for pid in pids}
        over.set()
        watch.join()
    assert least <= took, f"{what} {took:.2f} s"
    for delays in (*before.values(), *after.values()):
        delays.pop(watch.native_id or 0, None)  # it computes nothing
    mine, *others = (
        sum(now - before[pid].get(thread, 0.0) for thread, now in after[pid].items())
        for pid in pids
    )
    kept = max(held[0], mine) + sum(others)
    assert took - kept < seconds, f"{what} {took:.2f} s, kept from running for {kept:.2f} s of them"


def _delays(pid: int) -> dict[int, float]:
    """For how many seconds each thread of a process was ready to run, and did not (Linux).

    They can be added up: only the one that has the interpreter's lock is ready for long.
    """
    found: dict[int, float] = {}
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # it ended
            found[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def _hold_ups(held: list[float], over: threading.Event) -> None:
    """Add up by how much this thread wakes too late."""
    woken = time.monotonic()
    while not over.is_set():
        time.sleep(LOOK_S)
        late = time.monotonic() - woken - LOOK_S
        woken += late + LOOK_S
        held[0] += late if late > LATE_S else 0.0
