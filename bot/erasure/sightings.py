"""Which run holds text of which item: ids only, so that what is forgotten can be found."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.gate_tables import quoted
from bot.storage.tables import subagents
from subagents.sightings import Seen

Row = dict[str, Any]

KEY = ("item", "run")
CHUNK = 500
"""Items of one query."""
_SOURCE = re.compile(r"[^/#]+")


def source_of(item: str) -> str:
    """The channel, list, thread or table that an item is of; a page is its own source."""
    found = None if "://" in item else _SOURCE.match(item)
    return found[0] if found else item


def rows(run: str, items: Iterable[Seen]) -> list[Row]:
    """What is stored of the items that a run has seen, each once."""
    return [
        {"item": item, "run": run, "channel": source_of(item), "author": author}
        for item, author in dict(items).items()
    ]


def of_request(run: str, request: str | None, requester: str | None) -> list[Row]:
    """The message that a run was asked by, where it was asked by one: its key is `team/id`."""
    item = (request or "").partition("/")[2]
    return rows(run, [(item, requester)]) if item else []


def of_subagent(run: str, brief: Mapping[str, Any], result: Mapping[str, Any]) -> list[Row]:
    """What a stored brief and result hold text of: the material, and what the findings rest on."""
    material = [(item["id"], item["author"]) for item in brief.get("material") or ()]
    evidence = [(e, None) for f in result.get("findings") or () for e in f["evidence"]]
    return rows(run, [*evidence, *material])


async def of_runs(database: Database, runs: Sequence[str]) -> list[Seen]:
    """What these runs hold text of: who reads their answers holds it, too. Raises StoreError."""
    c = quoted.c
    query = sa.select(c.item, c.author).where(c.run.in_(runs)).distinct()
    return [(row["item"], row["author"]) for row in await database.read(query)] if runs else []


async def that_read(database: Database, runs: Iterable[str], handle: str) -> dict[str, set[str]]:
    """Those of these runs of which a subagent had this handle, or a label with it -> queries and
    tables that only subagents rest on which had neither. Raises StoreError."""
    theirs, others = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    listed, c = sorted(runs), subagents.c
    for start in range(0, len(listed), CHUNK):
        some = c.run.in_(listed[start : start + CHUNK])
        for row in await database.read(sa.select(c.run, c.brief, c.result).where(some)):
            result = row["result"] or {}
            read = {*(row["brief"].get("handles") or ())}
            read |= {*((result.get("label") or {}).get("sources") or ())}
            rests = {source_of(q["item"]) for q in of_subagent(row["run"], row["brief"], result)}
            (theirs if handle in read else others)[row["run"]] |= rests
    return {run: others[run] - rests for run, rests in theirs.items()}


async def note_told(database: Database, run: str, items: Sequence[str]) -> None:
    """Note that a run tells again what earlier ones had read of these items. Raises StoreError."""
    c = quoted.c
    for start in range(0, len(items), CHUNK):
        some = items[start : start + CHUNK]
        query = sa.select(c.item, sa.func.max(c.author).label("author")).where(c.item.in_(some))
        known = {row["item"]: row["author"] for row in await database.read(query.group_by(c.item))}
        made = rows(run, [(item, known.get(item)) for item in some])
        await database.change(partial(_add, database=database, made=made))


def _add(connection: sa.Connection, database: Database, made: list[Row]) -> None:
    connection.execute(database.upsert(quoted), made)
