"""The store: runs, their subagents, the gate's log and the trajectories, in one database."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.errors import SetupError
from bot.memory import store_conversation
from bot.storage import deletions, tables
from bot.storage.database import Database, chunks
from bot.storage.encryption import Cipher
from bot.storage.run_index import fold_text, store_model_costs
from bot.storage.tables import StoredRun, StoredSubagent, proposal
from subagents.brief import SpawnedBrief, brief_to_json
from subagents.gate import Action, Decision
from subagents.result import SubagentResult
from subagents.trajectory import (
    Context,
    Origin,
    RecordedReply,
    RecordedRequest,
    Recording,
    Trajectory,
    TrajectoryEntry,
)

CALL = ("run", "context", "seq", "attempt")
UPSERT_COLUMNS = {
    "requests": (CALL, ("parts",)),
    "replies": (CALL, ("blocks", "outcome")),
    "quoted": (("item", "run"), ("author",)),
    "subagents": (("run", "id"), tuple(c.name for c in tables.subagents.c)),
}
"""Table -> its key columns, and the columns that a later row updates."""


@dataclass(frozen=True, slots=True)
class Review:
    """The subagents of one template version, and how they ended."""

    template: str
    total: int
    troubled: tuple[StoredSubagent, ...]
    """Subagents that failed, stayed partial or lacked something in their brief; newest first."""


WAITING_STATUS = "waiting"
"""Status of a subagent that no process has started yet, or whose process has not finished it."""


@dataclass(frozen=True, slots=True)
class RanSubagent:
    """A subagent that ended, to be stored."""

    run: str
    frozen: SpawnedBrief
    result: SubagentResult

    def row(self) -> dict[str, Any]:
        result = self.result
        return {
            **_row(self.run, self.frozen),
            "status": result.status,
            "stopped_by": result.stopped_by,
            "cost_usd": result.cost_usd,
            "result": result.model_dump(mode="json"),
        }

    def seen_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the items that it has seen."""
        return deletions.seen_by_subagent(self.run, self.frozen.brief, self.result.findings)


def _row(run: str, spawned: SpawnedBrief) -> dict[str, Any]:
    """Return the row of a subagent that just started; its id ends in its number, which is its
    place in call order."""
    digits = re.search(r"\d*$", spawned.id)
    position = int((digits and digits[0]) or 0)
    brief, version = brief_to_json(spawned), spawned.template
    return {"run": run, "id": spawned.id, "position": position, "brief": brief, "template": version}


def _brief_row(run: str, spawned: SpawnedBrief) -> dict[str, Any]:
    state = {"status": WAITING_STATUS, "stopped_by": "none", "cost_usd": 0.0}
    return {**_row(run, spawned), **state, "result": {"id": spawned.id, **state}}


def _trajectory(
    run: str,
    contexts: Iterable[sa.Row[Any]],
    ledger: Iterable[sa.Row[Any]],
    requests: Iterable[sa.Row[Any]],
    replies: Iterable[sa.Row[Any]],
    blocks: Mapping[str, str],
) -> Trajectory:
    """Return the trajectory stored in these rows, with lists and names converted back to values."""
    return Trajectory(
        run,
        tuple(Context(**{**row._asdict(), "tools": tuple(row.tools)}) for row in contexts),
        tuple(TrajectoryEntry(**{**row._asdict(), "origin": Origin(row.origin)}) for row in ledger),
        tuple(
            RecordedRequest(**{**row._asdict(), "parts": tuple(map(tuple, row.parts))})
            for row in requests
        ),
        tuple(RecordedReply(**{**row._asdict(), "blocks": tuple(row.blocks)}) for row in replies),
        blocks,
    )


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a slotted dataclass; `asdict` copies deeply, ten times slower."""
    return {name: getattr(value, name) for name in value.__slots__}


@dataclass
class PendingRecords(Recording):
    """Records that are not stored yet: the trajectory, and the other data stored with it."""

    decisions: list[Decision] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    """Actions that wait for approval."""
    authors: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Run and id of an item that it saw -> author."""
    subagents: list[RanSubagent] = field(default_factory=list)

    def take(self) -> PendingRecords:
        """Remove the records so far and return them; remember which blocks they hold."""
        records = copy(self)
        for name in STORED_FIELDS:
            setattr(self, name, type(getattr(self, name))())
        return records

    def put_back(self, records: PendingRecords) -> None:
        """Add records that were taken and could not be stored, before later ones."""
        for name in STORED_FIELDS:
            first, later = getattr(records, name), getattr(self, name)
            setattr(self, name, first + later if isinstance(first, list) else first | later)


UNSTORED_FIELDS = {"known_blocks", "digests"}
STORED_FIELDS = [each.name for each in fields(PendingRecords) if each.name not in UNSTORED_FIELDS]
"""Fields of the records that are stored; the remembered blocks are not."""


class RunNotFound(SetupError):
    """No run has this id, and none or several begin with it."""

    def __init__(self, id: str, nearest: Sequence[str], *, several: bool = False) -> None:
        self.id, self.nearest = id, tuple(nearest)
        near = f"{'Such as' if several else 'Nearest:'} {', '.join(nearest)}. " if nearest else ""
        hint = f"{near}`assistant runs` lists them."
        what = f"Several runs begin with {id!r}." if several else f"There is no run {id!r}."
        super().__init__("unknown_run", what, hint)


class Store:
    """The stored data of runs, in one database. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, cipher: Cipher | None = None
    ) -> Store:
        """Open the store in this directory, or in the Postgres database `url`."""
        return cls(await Database.open(data_dir, url, cipher))

    async def aclose(self) -> None:
        """Finish pending work, then close the database."""
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
        """Store the start of a run; do nothing if it was stored before."""
        row = {
            "id": id,
            "kind": kind,
            "status": "running",
            "question": question,
            "model": model,
            "args": args,
            "started": datetime.now(UTC),
            "requester": requester,
            "request": request,
        }
        await self._add(
            (tables.runs, [row]),
            (tables.questions, [{"run": id, "text": fold_text(question)}]),
            (tables.quoted, deletions.seen_in_request(id, request, requester)),
        )

    async def _add(self, *parts: tuple[sa.Table, Sequence[Mapping[str, Any]]]) -> None:
        """Store rows in one transaction; existing ones stay unchanged."""

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
        """Store the end of a run, and its question and answer, which can be searched.

        `private`: only the requester got the answer. Raises RunNotFound for a run that was never
        started.
        """
        end = {"status": status, "result": result, "cost_usd": cost_usd, "error": error}
        change = sa.update(tables.runs).where(tables.runs.c.id == id)
        change = change.values(finished=datetime.now(UTC), **end)

        def finish(connection: sa.Connection) -> int:
            found = connection.execute(change).rowcount
            if found:
                store_model_costs(connection, id)
                store_conversation(connection, id, private=private)
            return found

        if not await self.database.change(finish):
            raise RunNotFound(id, ())

    async def save_subagent(self, run: str, spawned: SpawnedBrief, result: SubagentResult) -> None:
        """Store a frozen brief with its result."""
        await self.record(PendingRecords(subagents=[RanSubagent(run, spawned, result)]))

    async def save_briefs(self, run: str, briefs: Sequence[SpawnedBrief]) -> None:
        """Store frozen briefs that wait for a process, with the texts of their templates."""
        texts = {f.template: {"system": f.system, "tools": f.tools} for f in briefs}
        seen = [q for f in briefs for q in deletions.seen_by_subagent(run, f.brief)]
        await self._add(
            (tables.templates, [{"version": v, "body": body} for v, body in texts.items()]),
            (tables.subagents, [_brief_row(run, f) for f in briefs]),
            (tables.quoted, seen),
        )

    async def record(self, records: PendingRecords) -> None:
        """Store records, with the steps that produced them, in one transaction.

        Existing rows stay unchanged; but a call that is repeated after a crash, which lost its
        reply, replaces the earlier one.
        """
        saw = [deletions.seen_row(run, item, by) for (run, item), by in records.authors.items()]
        parts = [  # in this order: references point to earlier rows
            (tables.blocks, [{"hash": h, "body": body} for h, body in records.blocks.items()]),
            (tables.contexts, [_plain(c) for c in records.contexts]),
            (tables.ledger, [_plain(e) for e in records.entries]),
            (tables.requests, [_plain(r) for r in records.requests]),
            (tables.replies, [_plain(r) for r in records.replies]),
            (tables.decisions, [_plain(d) for d in records.decisions]),
            (tables.steps, records.steps),
            (tables.actions, [proposal(action) for action in records.actions]),
            (tables.quoted, saw),
            (tables.subagents, [each.row() for each in records.subagents]),
        ]
        upsert = self.database.upsert
        filled = [
            (upsert(table, *UPSERT_COLUMNS.get(table.name, ())), rows)
            for table, rows in parts
            if rows
        ]
        seen_rows = [row for each in records.subagents for row in each.seen_rows()]
        if seen_rows:  # already stored with their authors if a tool showed them
            filled.append((upsert(tables.quoted), seen_rows))

        def save(connection: sa.Connection) -> None:
            for insert, rows in filled:
                connection.execute(insert, rows)

        if filled:
            await self.database.change(save)

    async def runs(self, limit: int = 20) -> list[StoredRun]:
        """Return the latest runs, newest first."""
        newest = sa.select(tables.runs).order_by(tables.runs.c.started.desc()).limit(limit)
        return [StoredRun(**row._asdict()) for row in await self.database.read(newest)]

    async def find_run(self, id: str) -> StoredRun | None:
        """Return the run with exactly this id; None = it was not started."""
        found = await self.database.read(sa.select(tables.runs).where(tables.runs.c.id == id))
        return StoredRun(**found[0]._asdict()) if found else None

    async def run(self, id: str) -> StoredRun:
        """Return the run with this id, or the only one with this prefix. Raises RunNotFound."""
        if id and (exact := await self.find_run(id)):
            return exact
        column = tables.runs.c.id
        has_prefix = sa.func.substr(column, 1, len(id)) == id
        found = await self.database.read(sa.select(tables.runs).where(has_prefix).limit(20))
        if id and len(found) == 1:
            return StoredRun(**found[0]._asdict())
        if id and found:
            raise RunNotFound(id, sorted(row.id for row in found)[:3], several=True)
        ids = [row.id for row in await self.database.read(sa.select(column).limit(10_000))]
        raise RunNotFound(id, difflib.get_close_matches(id, ids, n=3, cutoff=0.3))

    async def steps(self, run: str, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Return the results of a run's steps, by key; `prefix`: only keys with this prefix."""
        table = tables.steps
        query = sa.select(table.c.key, table.c.body).where(table.c.run == run)
        if prefix:
            query = query.where(sa.func.substr(table.c.key, 1, len(prefix)) == prefix)
        return {row.key: row.body for row in await self.database.read(query)}

    async def subagents(self, run: str) -> list[StoredSubagent]:
        """Return the subagents of a run in call order."""
        table = tables.subagents
        query = sa.select(table).where(table.c.run == run).order_by(table.c.position)
        return [StoredSubagent(**row._asdict()) for row in await self.database.read(query)]

    async def subagent(self, run: str, id: str) -> StoredSubagent:
        """Return one subagent. Raises LookupError if there is none."""
        table = tables.subagents
        query = sa.select(table).where(table.c.run == run, table.c.id == id)
        rows = await self.database.read(query)
        if not rows:
            raise LookupError(f"{run} has no subagent {id}")
        return StoredSubagent(**rows[0]._asdict())

    async def template(self, version: str) -> Mapping[str, Any]:
        """Return prompt and schemas `{system, tools}` of a template version that was used."""
        table = tables.templates
        rows = await self.database.read(sa.select(table).where(table.c.version == version))
        return dict(rows[0].body)

    async def subagents_by_template(self) -> list[Review]:
        """Return all template versions with their troubled subagents, most of those first."""
        table = tables.subagents
        rows = await self.database.read(
            sa.select(table).join(tables.runs).order_by(tables.runs.c.started.desc())
        )
        groups: dict[str, list[StoredSubagent]] = {}
        for row in rows:
            groups.setdefault(row.template, []).append(StoredSubagent(**row._asdict()))
        reviews = [
            Review(name, len(group), tuple(s for s in group if s.troubled))
            for name, group in groups.items()
        ]
        return sorted(reviews, key=lambda review: -len(review.troubled))

    async def decisions(self, run: str | None = None) -> list[Decision]:
        """Return the gate's log of a run, or of all, oldest first."""
        c = tables.decisions.c
        query = sa.select(*(each for each in c if each.name != "seq")).order_by(c.seq)
        rows = await self.database.read(query if run is None else query.where(c.run == run))
        return [Decision(**row._asdict()) for row in rows]

    async def trajectory(self, run: str, context: str | None = None) -> Trajectory:
        """Return the records of a run, or of one of its contexts, in order of recording."""
        contexts, ledger, requests, replies = [
            await self._of(run, table, [c for c in table.c if not c.primary_key], context)
            for table in (tables.contexts, tables.ledger, tables.requests, tables.replies)
        ]
        hashes = {row.hash for row in ledger}
        hashes.update(digest for row in requests for _, digest in row.parts)
        hashes.update(digest for row in replies for digest in row.blocks)
        blocks = await self._blocks(hashes)
        return _trajectory(run, contexts, ledger, requests, replies, blocks)

    async def _blocks(self, hashes: Iterable[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for some in chunks(hashes):
            is_block = tables.blocks.c.hash.in_(some)
            for row in await self.database.read(sa.select(tables.blocks).where(is_block)):
                found[row.hash] = row.body
        return found

    async def _of(
        self,
        run: str,
        table: sa.Table,
        columns: Iterable[sa.Column[Any]],
        context: str | None = None,
    ) -> Sequence[sa.Row[Any]]:
        """Return a run's rows of a table, or those of a context, in the order written."""
        query = sa.select(*columns).where(table.c.run == run)
        if context is not None:
            query = query.where(table.c["id" if table is tables.contexts else "context"] == context)
        return await self.database.read(query.order_by(next(iter(table.primary_key))))
