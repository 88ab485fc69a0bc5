"""How long something computes or waits: the same beside other tests and on a slower machine."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from benchmarks.start import machine_s

REFERENCE_S = 0.1
"""What `machine_s` says of the machine that bounds are meant for."""
LOOK_S, LATE_S, DELAYS_S = 0.01, 0.03, 0.1
"""Between two looks at the clock, and at what the kernel tells of delays. A thread that wakes
so much later than it should (LATE_S) was kept from running."""
CROWDED = 0.1
"""How much of the time counts in which something waits for a processor."""


@contextmanager
def computed_within(seconds: float) -> Iterator[None]:
    """Fails where what is inside takes more CPU time, of all threads; a slower machine gets more.

    What it waits for does not count, nor do garbage collections of what earlier tests have left.
    """
    gc.freeze()
    try:
        began = time.process_time()
        yield
        took = time.process_time() - began
    finally:
        gc.unfreeze()
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
    before = {pid: _delays(pid) for pid in pids}
    after = {pid: dict(delays) for pid, delays in before.items()}
    watch = threading.Thread(target=_hold_ups, args=(held, over, after), daemon=True)
    began = time.monotonic()
    watch.start()
    try:
        yield
    finally:
        took = time.monotonic() - began
        over.set()
        watch.join()
    assert least <= took, f"{what} {took:.2f} s"
    after[os.getpid()].pop(watch.native_id or 0, None)  # it computes nothing
    mine, *others = (
        sum(now - before[pid].get(thread, 0.0) for thread, now in after[pid].items())
        for pid in pids
    )
    kept = max(held[0], mine) + sum(others)
    assert took - kept < seconds, f"{what} {took:.2f} s, kept from running for {kept:.2f} s of them"


class Patience:
    """How long a test waits for what must come: long enough that it never will where it did not.

    It is no bound of how soon it comes; `waited_within` is. So it goes on more slowly while other
    processes have the processors (CROWDED; Linux tells).
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began, self._crowded = time.monotonic(), _crowded()

    @property
    def over(self) -> bool:
        took = time.monotonic() - self._began
        free = took - (1 - CROWDED) * (_crowded() - self._crowded)
        return free > self._seconds


@asynccontextmanager
async def patient(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError where what is inside does not come to its end (Patience)."""
    patience = Patience(seconds)

    async def watch(timer: asyncio.Timeout) -> None:
        while not patience.over:  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(LOOK_S)
        timer.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as timer:
        watching = asyncio.create_task(watch(timer))
        try:
            yield
        finally:
            watching.cancel()


def _crowded() -> float:
    """For how many seconds some process of this machine has waited for a processor (Linux)."""
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        return 0.0
    return int(text.splitlines()[0].rpartition("total=")[2]) / 1e6


def _delays(pid: int) -> dict[int, float]:
    """For how many seconds each thread of a process was ready to run, and did not (Linux).

    They can be added up: only the one that has the interpreter's lock is ready for long.
    """
    found: dict[int, float] = {}
    with suppress(OSError):  # it ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def _hold_ups(
    held: list[float], over: threading.Event, delays: dict[int, dict[int, float]]
) -> None:
    """Add up by how much this thread wakes too late; keep the latest delays of each process, which
    may end."""
    woken = looked = time.monotonic()
    while not over.is_set():
        time.sleep(LOOK_S)
        late = time.monotonic() - woken - LOOK_S
        woken += late + LOOK_S
        held[0] += late if late > LATE_S else 0.0
        if woken - looked > DELAYS_S:
            looked = woken
            _look(delays)
    _look(delays)


def _look(delays: dict[int, dict[int, float]]) -> None:
    for pid, known in delays.items():
        known.update(_delays(pid))
