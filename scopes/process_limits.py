"""Limit this process: it ends with its parent, and takes no more than these resources.

It imports little: our own programs call it before anything else (`scopes.programs`).
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2)."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; on Linux alone.

    It ends at once where the parent is not the process of this pid, which then died before the
    kernel was told. To the kernel the thread that started it is the parent: start no process from
    one that ends before it. A loop's `create_subprocess_exec` starts from its own.
    """
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != os.getppid():
        os._exit(1)


def limit(
    *,
    memory: int | None = None,
    seconds: int | None = None,
    file_bytes: int | None = None,
    files: int | None = None,
    processes: int | None = None,
) -> None:
    """Hold this process to bytes of addresses, seconds of computing from now on, bytes of each file
    that it writes, open files, and processes of all that run as this user; None = as it is.

    It dumps no core. A lower limit that stands already stays.
    """
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_NPROC, processes),
    ):
        if most is not None:
            most = _allowed(what, most)
            resource.setrlimit(what, (most, most))
    if seconds is not None:  # the hard limit stays, as more may be given later
        used = resource.getrusage(resource.RUSAGE_SELF)
        until = _allowed(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _allowed(what: int, most: int) -> int:
    hard = resource.getrlimit(what)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)
