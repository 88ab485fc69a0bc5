"""Subagents on their way into the store: those that end while one transaction runs share the next.

A transaction waits 2 to 6 ms for the disk; a fan-out of 200 would wait for a second and more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from bot.tables import subagents

Row = dict[str, Any]
Change = Callable[[Callable[[sa.Connection], object]], Awaitable[object]]
"""Runs its argument inside one transaction."""

_INSERT = insert(subagents)
_SAVE = _INSERT.on_conflict_do_update(index_elements=["run", "id"], set_=_INSERT.excluded)


def row_of(run: str, brief: Mapping[str, Any], result: Mapping[str, Any]) -> Row:
    """The id of a subagent ends in its number, which is its place in call order."""
    digits = re.search(r"\d*$", result["id"])
    return {
        "run": run,
        "position": int((digits and digits[0]) or 0),
        "brief": brief,
        "template": brief["template"],
        "result": result,
        **{name: result[name] for name in ("id", "status", "stopped_by", "cost_usd")},
    }


class Saves:
    """Rows that wait for the transaction before theirs."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._rows: list[Row] = []
        self._saving = asyncio.Lock()

    async def add(self, row: Row) -> None:
        """Return when the row is stored; what could not be stored is tried again with the next."""
        self._rows.append(row)
        async with self._saving:
            rows, self._rows = self._rows, []
            if not rows:
                return
            try:
                await self._change(lambda connection: connection.execute(_SAVE, rows))
            except BaseException:
                self._rows = [*rows, *self._rows]
                raise
