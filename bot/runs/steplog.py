"""What the steps of a durable run returned: stored as they end, and handed out in a later life."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from bot.runs.sink import StoreSink
from bot.storage import serve_tables
from bot.storage.store import Store
from subagents.run import Step


class StepLog:
    """The checkpoint of a durable run: what a step returned is stored, and handed out again."""

    def __init__(self, store: Store, sink: StoreSink, run: str) -> None:
        self._store, self._sink, self._run = store, sink, run
        self._done: dict[str, dict[str, Any]] = {}

    async def load(self, prefix: str = "") -> None:
        """Read what the steps whose keys begin so returned in an earlier life."""
        table = serve_tables.steps
        query = sa.select(table.c.key, table.c.body).where(table.c.run == self._run)
        if prefix:
            query = query.where(sa.func.substr(table.c.key, 1, len(prefix)) == prefix)
        for row in await self._store.database.read(query):
            self._done[row["key"]] = row["body"]

    def known(self, key: str) -> dict[str, Any] | None:
        """What this step returned in an earlier life."""
        return self._done.get(key)

    async def step(self, key: str, fn: Step) -> dict[str, Any]:
        if (done := self._done.get(key)) is not None:
            return done
        out = await fn()
        await self._sink.keep(self._run, key, out)
        return out
