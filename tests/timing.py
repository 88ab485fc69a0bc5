"""How long something computes or waits: the same beside other tests and on a slower machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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

    What does not count is the time in which no thread of this process could run: other tests had
    the processors, or a garbage collection went over all that the tests have left. Where the work
    is done by other processes (their ids), it is the time for which the first thread of one of them
    waited for a processor. `what` is told of what failed.
    """
    held, over = [0.0], threading.Event()
    before = {pid: _delayed(pid) for pid in by}
    watch = threading.Thread(target=_hold_ups, args=(held, over), daemon=True)
    began = time.monotonic()
    watch.start()
    try:
        yield
    finally:
        took = time.monotonic() - began
        over.set()
        watch.join()
    assert least <= took, f"{what} {took:.2f} s"
    kept = max(held[0], *(_delayed(pid) - since for pid, since in before.items()), 0.0)
    assert took - kept < seconds, f"{what} {took:.2f} s, kept from running for {kept:.2f} s of them"


def _delayed(pid: int) -> float:
    """Seconds for which the first thread of a process was ready to run, and did not (Linux)."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _hold_ups(held: list[float], over: threading.Event) -> None:
    """Add up by how much this thread wakes too late."""
    woken = time.monotonic()
    while not over.is_set():
        time.sleep(LOOK_S)
        late = time.monotonic() - woken - LOOK_S
        woken += late + LOOK_S
        held[0] += late if late > LATE_S else 0.0
