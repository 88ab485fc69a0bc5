"""Do work within a time limit, in a process that its parent replaces if the work goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

STARVED = 3
LOOK_S = 0.05
GRACE_S = 0.2
"""How long a library that was told to stop may take to do so."""


class Late(Exception):
    """The time was up. `stuck`: the work goes on all the same, until the process ends."""

    def __init__(self, *, stuck: bool) -> None:
        super().__init__("the time was up")
        self.stuck = stuck


_stuck: list[Thread] = []
"""Threads whose work goes on after its time."""


def _computed() -> float:
    """Return the CPU seconds of this process, without those of work that was given up."""
    clocks = [time.pthread_getcpuclockid(t.ident) for t in _stuck if t.ident and t.is_alive()]
    return time.process_time() - sum(map(time.clock_gettime, clocks))


def within(seconds: float, work: Callable[[], None], stop: Callable[[], None]) -> None:
    """Do `work` in a thread of its own; call `stop` if it takes longer than this.

    If this process hardly gets a processor, the work may take up to `STARVED` times as long. Raises
    Late, or what the work raises.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the seam: it is raised where it is waited for
            failed.append(error)

    thread = Thread(target=run, daemon=True)
    began, computed = time.monotonic(), _computed()
    thread.start()
    thread.join(max(seconds, 0.0))
    while thread.is_alive() and _computed() - computed < seconds / 2:
        if time.monotonic() - began > STARVED * seconds:
            break
        thread.join(LOOK_S)
    if thread.is_alive():
        stop()
        thread.join(GRACE_S)
        if thread.is_alive():
            _stuck.append(thread)
        raise Late(stuck=thread.is_alive())
    if failed:
        raise failed[0]
