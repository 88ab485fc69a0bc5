"""The store: runs, their subagents, the gate's log and the trajectories, in one database."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import sqlalchemy as sa

from bot.erasure import sightings
from bot.errors import SetupError, StoreError
from bot.memory import conversations
from bot.storage import gate_tables, serve_tables, tables
from bot.storage.database import Database
from bot.storage.gate_tables import proposal
from bot.storage.tables import (
    WAITING,
    Review,
    StoredRun,
    StoredSubagent,
    row_of,
    rows_of,
    trajectory_of,
)
from bot.storage.vault import Vault
from subagents.action import Action
from subagents.gate import Decision
from subagents.trajectory import Recording, Trajectory

__all__ = ["Review", "RunNotFound", "Store", "StoreError", "StoredRun", "StoredSubagent"]

T = TypeVar("T")

CALL = ("run", "context", "seq", "attempt")
REDONE = {
    "requests": (CALL, ("parts",)),
    "replies": (CALL, ("blocks", "outcome")),
    "quoted": (sightings.KEY, ("author",)),
}
"""Table -> what a row is known by, and its columns that a later one changes."""

_CHUNK = 5_000
"""Hashes asked for in one query; SQLite takes 32,766 parameters."""


class RunNotFound(SetupError):
    """No run has this id, and none or several begin with it."""

    def __init__(self, id: str, nearest: Sequence[str], *, several: bool = False) -> None:
        self.id, self.nearest = id, tuple(nearest)
        near = f"{'Such as' if several else 'Nearest:'} {', '.join(nearest)}. " if nearest else ""
        hint = f"{near}`assistant runs` lists them."
        what = f"Several runs begin with {id!r}." if several else f"There is no run {id!r}."
        super().__init__("unknown_run", what, hint)


class Store:
    """What is kept of runs, in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, vault: Vault | None = None
    ) -> Store:
        """The store in this directory, or in the Postgres database of `url`: see Database.open."""
        return cls(await Database.open(data_dir, url, vault))

    async def aclose(self) -> None:
        """Close the database when what was asked for is done."""
        await self.database.aclose()

    async def start_run(
        self,
        id: str,
        kind: str,
        question: str,
        model: str,
        args: Mapping[str, Any],
        *,
        requester: str | None = None,
        request: str | None = None,
    ) -> None:
        """Note that a run began; nothing changes where it was noted before."""
        readable = question.encode("utf-8", "replace").decode().replace("\0", "")
        row = StoredRun(
            id,
            kind,
            "running",
            readable,
            model,
            args,
            datetime.now(UTC),
            requester=requester,
            request=request,
        )
        await self._add(
            (tables.runs, [asdict(row)]),
            (gate_tables.quoted, sightings.of_request(id, request, requester)),
        )

    async def _add(self, *parts: tuple[sa.Table, Sequence[Mapping[str, Any]]]) -> None:
        """Store rows in one transaction; those that are there already stay as they are."""

        def add(connection: sa.Connection) -> None:
            for table, rows in parts:
                if rows:
                    connection.execute(self.database.upsert(table), rows)

        await self.database.change(add)

    async def finish_run(
        self,
        id: str,
        status: str,
        *,
        result: Mapping[str, Any] | None = None,
        cost_usd: float | None = None,
        error: Mapping[str, Any] | None = None,
        private: bool = False,
    ) -> None:
        """Note how a run ended, and keep what was asked and answered, which can be found again.

        `private`: the answer went to who asked alone. Raises RunNotFound for one that was never
        started.
        """
        end = {"status": status, "result": result, "cost_usd": cost_usd, "error": error}
        change = sa.update(tables.runs).where(tables.runs.c.id == id)
        change = change.values(finished=datetime.now(UTC), **end)
        key = self.database.digest_key

        def finish(connection: sa.Connection) -> int:
            found = connection.execute(change).rowcount
            if found:
                conversations.keep(connection, key, id, private=private)
            return found

        if not await self.database.change(finish):
            raise RunNotFound(id, ())

    async def save_subagent(
        self, run: str, brief: Mapping[str, Any], result: Mapping[str, Any]
    ) -> None:
        """Store a frozen brief and its result, or what has become of it since."""
        quotes = sightings.of_subagent(run, brief, result)
        columns = tuple(c.name for c in tables.subagents.c)

        def save(connection: sa.Connection) -> None:
            insert = self.database.upsert(tables.subagents, ("run", "id"), columns)
            connection.execute(insert, row_of(run, brief, result))
            if quotes:
                connection.execute(self.database.upsert(gate_tables.quoted), quotes)

        await self.database.change(save)

    async def save_briefs(
        self, run: str, briefs: Sequence[Mapping[str, Any]], texts: Mapping[str, Any]
    ) -> None:
        """Store frozen briefs that wait for a process, with the texts of their templates."""
        await self._add(
            (serve_tables.templates, [{"version": v, "body": body} for v, body in texts.items()]),
            (tables.subagents, [row_of(run, b, {"id": b["id"], **WAITING}) for b in briefs]),
            (gate_tables.quoted, [q for b in briefs for q in sightings.of_subagent(run, b, {})]),
        )

    async def record(
        self,
        recording: Recording,
        decisions: Sequence[Decision] = (),
        steps: Sequence[Mapping[str, Any]] = (),
        actions: Sequence[Action] = (),
        seen: Mapping[tuple[str, str], str | None] = MappingProxyType({}),
    ) -> None:
        """Store a recording, with the steps that it was made in, whole, in one transaction.

        What is stored already is left as it is; but a call that is made again after a crash, which
        lost its reply, stands for the one before. `seen`: the author of each item, by run and id.
        """

        proposed = [proposal(action) for action in actions]
        quotes = [row for (run, i), by in seen.items() for row in sightings.rows(run, [(i, by)])]
        parts = [
            *rows_of(recording, decisions),
            (serve_tables.steps, steps),
            (gate_tables.actions, proposed),
            (gate_tables.quoted, quotes),
        ]
        filled = [(table, rows) for table, rows in parts if rows]

        def save(connection: sa.Connection) -> None:
            for table, rows in filled:
                insert = self.database.upsert(table)
                if redone := REDONE.get(table.name):
                    insert = self.database.upsert(table, *redone)
                connection.execute(insert, rows)

        if filled:
            await self.database.change(save)

    async def runs(self, limit: int = 20) -> list[StoredRun]:
        """The latest runs, newest first."""
        newest = sa.select(tables.runs).order_by(tables.runs.c.started.desc()).limit(limit)
        return [StoredRun(**row) for row in await self.database.read(newest)]

    async def begun(self, id: str) -> StoredRun | None:
        """The run with exactly this id; None = it was not begun."""
        found = await self.database.read(sa.select(tables.runs).where(tables.runs.c.id == id))
        return StoredRun(**found[0]) if found else None

    async def run(self, id: str) -> StoredRun:
        """The run with this id, or the only one whose id begins so. Raises RunNotFound."""
        if id and (exact := await self.begun(id)):
            return exact
        column = tables.runs.c.id
        begins = sa.func.substr(column, 1, len(id)) == id
        found = await self.database.read(sa.select(tables.runs).where(begins).limit(20))
        if id and len(found) == 1:
            return StoredRun(**found[0])
        if id and found:
            raise RunNotFound(id, sorted(row["id"] for row in found)[:3], several=True)
        known = [row["id"] for row in await self.database.read(sa.select(column).limit(10_000))]
        raise RunNotFound(id, difflib.get_close_matches(id, known, n=3, cutoff=0.3))

    async def subagents(self, run: str) -> list[StoredSubagent]:
        """The subagents of a run in call order."""
        table = tables.subagents
        query = sa.select(table).where(table.c.run == run).order_by(table.c.position)
        return [StoredSubagent(**row) for row in await self.database.read(query)]

    async def subagent(self, run: str, id: str) -> StoredSubagent:
        """One subagent; a LookupError where there is none."""
        table = tables.subagents
        mine = sa.select(table).where(table.c.run == run, table.c.id == id)
        rows = await self.database.read(mine)
        if not rows:
            raise LookupError(f"{run} has no subagent {id}")
        return StoredSubagent(**rows[0])

    async def template(self, version: str) -> Mapping[str, Any]:
        """Prompt and schemas `{system, tools}` of a template version that a run began with."""
        table = serve_tables.templates
        rows = await self.database.read(sa.select(table).where(table.c.version == version))
        return dict(rows[0]["body"])

    async def subagents_by_template(self) -> list[Review]:
        """All template versions with the subagents that did not do well, most of those first."""
        table = tables.subagents
        rows = await self.database.read(
            sa.select(table).join(tables.runs).order_by(tables.runs.c.started.desc())
        )
        groups: dict[str, list[StoredSubagent]] = {}
        for row in rows:
            groups.setdefault(row["template"], []).append(StoredSubagent(**row))
        reviews = [
            Review(name, len(group), tuple(s for s in group if s.troubled))
            for name, group in groups.items()
        ]
        return sorted(reviews, key=lambda review: -len(review.troubled))

    async def decisions(self, run: str) -> list[Decision]:
        """The gate's log of a run, oldest first."""
        columns = [c for c in tables.decisions.c if c.name != "seq"]
        return [Decision(**row) for row in await self._of(run, tables.decisions, columns)]

    async def trajectory(self, run: str) -> Trajectory:
        """All that was recorded of a run, in the order in which it was."""
        contexts, ledger, requests, replies = [
            await self._of(run, table, [c for c in table.c if not c.primary_key])
            for table in (tables.contexts, tables.ledger, tables.requests, tables.replies)
        ]
        hashes = {row["hash"] for row in ledger}
        hashes.update(digest for row in requests for _, digest in row["parts"])
        hashes.update(digest for row in replies for digest in row["blocks"])
        blocks = await self._blocks(sorted(hashes))
        return trajectory_of(run, contexts, ledger, requests, replies, blocks)

    async def _blocks(self, hashes: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(hashes), _CHUNK):
            some = tables.blocks.c.hash.in_(hashes[start : start + _CHUNK])
            for row in await self.database.read(sa.select(tables.blocks).where(some)):
                found[row["hash"]] = row["body"]
        return found

    async def _of(
        self, run: str, table: sa.Table, columns: Iterable[sa.Column[Any]]
    ) -> list[dict[str, Any]]:
        """A run's rows of a table in the order written."""
        order = next(iter(table.primary_key))
        return await self.database.read(
            sa.select(*columns).where(table.c.run == run).order_by(order)
        )
