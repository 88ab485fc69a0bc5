"""The stored data of the bot, read from outside while it runs or is dead."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from bot.memory import PreferenceStore
from bot.runs.store import Store
from bot.storage.tables import METADATA
from subagents.overlap import AuditReport, audit

T = TypeVar("T")

WORKFLOWS = "workflows.sqlite"
OPEN_WORK = "select count(*) from workflow_status where status in ('PENDING', 'ENQUEUED')"
OPEN_REQUESTS = "select count(*) from inbox where state in ('new', 'running', 'waiting')"
LATEST = "select run, state from inbox order by received desc limit 1"


class Books:
    """The rows of one data directory or Postgres database; of several workspaces, one team's."""

    def __init__(self, data_dir: Path, url: str | None, team: str = "") -> None:
        self._common_dir, self._url = data_dir, url
        self._data_dir = data_dir / "teams" / team if team else data_dir
        self._schema = f"assistant_{team.lower()}" if team else "assistant"
        self._server: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        if self._server:
            self._server.close()

    def rows(self, query: str, file: str = "assistant.sqlite") -> list[tuple[Any, ...]]:
        """Return the rows of a query; none if there are no tables yet."""
        if self._url:
            if self._server is None:
                options = f"-csearch_path={self._schema},dbos"
                self._server = psycopg.connect(self._url, autocommit=True, options=options)
            with suppress(psycopg.errors.UndefinedTable):
                return self._server.execute(query).fetchall()
            return []
        path = (self._common_dir if file == WORKFLOWS else self._data_dir) / file
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
        return []

    def holds(self, query: str) -> bool:
        """Return whether there are such rows; False while a stopped process locks them.

        SQLite fails a reader with "locking protocol" if a stopped process holds its lock.
        """
        try:
            return bool(self.rows(query))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_BUSY):
                return False
            raise

    def open_work(self) -> int:
        """Return the number of requests and workflows that have not ended."""
        requests = self.rows(OPEN_REQUESTS) or [(0,)]
        workflows = self.rows(OPEN_WORK, WORKFLOWS) or [(0,)]
        return int(requests[0][0]) + int(workflows[0][0])

    def idle(self) -> bool:
        return self.open_work() == 0

    def latest(self) -> tuple[str, str]:
        """Return run and state of the latest request."""
        run, state = self.rows(LATEST)[0]
        return str(run), str(state)

    def runs(self) -> list[str]:
        """Return the ids of all runs, by start time."""
        return [str(run) for (run,) in self.rows("select id from runs order by started, id")]

    def preferences(self, user: str) -> list[str]:
        """Return the preferences of a person."""

        async def look(store: Store) -> list[str]:
            kept = PreferenceStore(store.database, None)  # type: ignore[arg-type]  # asks nobody
            return [each.text for each in await kept.list_preferences(user)]

        return self._with_store(look)

    def instructions(self, channel: str) -> str:
        """Return the instructions of a channel."""

        async def look(store: Store) -> str:
            kept = PreferenceStore(store.database, None)  # type: ignore[arg-type]  # asks nobody
            return await kept.instructions(channel)

        return self._with_store(look)

    def document(self, run: str) -> dict[str, Any]:
        """Return the result document of the run."""

        async def look(store: Store) -> dict[str, Any]:
            return dict((await store.run(run)).result or {})

        return self._with_store(look)

    def subagents(self, run: str) -> list[str]:
        """Return the status of the run's subagents."""
        return [s for (s,) in self.rows(f"select status from subagents where run = '{run}'")]

    def budget(self, run: str) -> tuple[int, int, int] | None:
        """Return cap, spent, reserved in nanodollars; None = it could spend nothing."""
        names = "cap_nanousd, spent_nanousd, reserved_nanousd"
        found = self.rows(f"select {names} from budgets where run = '{run}'")
        return (int(found[0][0]), int(found[0][1]), int(found[0][2])) if found else None

    def audit(self, run: str) -> AuditReport:
        """Return the audit of the stored run."""

        async def look(store: Store) -> AuditReport:
            return audit(await store.trajectory(run))

        return self._with_store(look)

    def texts(self) -> str:
        """Return all stored texts, decrypted: each column of each table."""

        async def look(store: Store) -> str:
            found = [await store.database.read(sa.select(t)) for t in METADATA.sorted_tables]
            return str([tuple(row) for rows in found for row in rows])

        return self._with_store(look)

    def _with_store(self, look: Callable[[Store], Awaitable[T]]) -> T:
        """Return what `look` reads in the store, decrypted by the product itself."""

        async def looked() -> T:
            url = sa.make_url(self._url) if self._url else None
            if url and self._schema != "assistant":
                url = url.set(query={"options": f"-csearch_path={self._schema}"})
            address = url.render_as_string(hide_password=False) if url else None
            store = await Store.open(self._data_dir, address)
            try:
                return await look(store)
            finally:
                await store.aclose()

        return asyncio.run(looked())
