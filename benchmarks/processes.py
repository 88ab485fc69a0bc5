"""Memory and CPU time of a process, from the system."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def memory_mb(kind: str, pid: int | None = None) -> float:
    """Return the memory of a process, `VmRSS` or its peak, `VmHWM`; None = of this one.

    0 for one that has ended. `getrusage` would count the peak of its parent, too.
    """
    status = Path(f"/proc/{pid or 'self'}/status").read_text("utf-8")
    return int((status.partition(f"{kind}:")[2].split() or ["0"])[0]) / 1024


def cpu_s(pid: int) -> float:
    """Return the user and system time of all threads of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS
