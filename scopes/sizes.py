"""How much something is, for people."""

from __future__ import annotations


def size_of(count: int) -> str:
    """Return bytes as people read them: `1.2 kB`."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"
