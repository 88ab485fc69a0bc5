"""Processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield pid and start of each process that this one, or one below it, has started."""
    below: dict[int, list[int]] = {}
    for each in _pids():
        if stat := _stat(each):
            below.setdefault(int(stat[1]), []).append(each)
    found = list(below.get(pid, []))
    for each in found:
        found += below.get(each, [])
        if stat := _stat(each):
            yield each, stat[19]


def is_alive(pid: int, started: str = "") -> bool:
    """Return whether this process runs; a zombie does not.

    `started` distinguishes it from a later process with the same pid.
    """
    stat = _stat(pid)
    return bool(stat) and started in ("", stat[19]) and stat[0] not in "ZX"


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:300]
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """Return the fields of `proc(5)` from the third one on: state, parent and others."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
