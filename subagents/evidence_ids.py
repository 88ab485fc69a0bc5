"""Ids of evidence as a submission writes them: rows of one result may be given together."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

_ROWS = re.compile(r"(?P<of>.+#row)(?P<first>\d{1,6})(?:-|–|\.\.)(?:(?P=of)|row)?(?P<last>\d{1,6})")
"""`q-1a2b3c#row1-16`, `q-1a2b3c#row1-row16`, `q-1a2b3c#row1-q-1a2b3c#row16`."""
MOST = 1_000
"""Rows that one range may name."""


def spread(ids: Iterable[str], items: Container[str]) -> Iterator[str]:
    """Each id once, a range of rows as the ids of its rows.

    A range counts where its first and last row are items that were read; else it stays one id, and
    is unknown.
    """
    seen = set[str]()
    for id in ids:
        for each in _rows(id, items):
            if each not in seen:
                seen.add(each)
                yield each


def _rows(id: str, items: Container[str]) -> Iterable[str]:
    found = None if id in items else _ROWS.fullmatch(id)
    if found is None:
        return (id,)
    first, last = int(found["first"]), int(found["last"])
    ends = (f"{found['of']}{first}", f"{found['of']}{last}")
    if not first <= last < first + MOST or any(end not in items for end in ends):
        return (id,)
    return (f"{found['of']}{n}" for n in range(first, last + 1))
