"""Items that runs have seen: ids only, so that the runs can be found and deleted.

Functions that query the database raise StoreError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database, chunks
from bot.storage.tables import quoted, subagents
from subagents.trajectory import Seen

_SOURCE = re.compile(r"[^/#]+")


def source_of(item: str) -> str:
    """Return the channel, list, thread or table of an item; a page is its own source."""
    found = None if "://" in item else _SOURCE.match(item)
    return found[0] if found else item


def rows(run: str, items: Iterable[Seen]) -> list[dict[str, Any]]:
    """Return the rows of the items that a run has seen, each once."""
    return [
        {"item": item, "run": run, "channel": source_of(item), "author": author}
        for item, author in dict(items).items()
    ]


def of_request(run: str, request: str | None, requester: str | None) -> list[dict[str, Any]]:
    """Return the row of the message that asked for a run, if any: its key is `team/id`."""
    item = (request or "").partition("/")[2]
    return rows(run, [(item, requester)]) if item else []


def of_subagent(
    run: str, brief: Mapping[str, Any], result: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a stored brief and result: its material and its findings' evidence."""
    shown = brief.get("brief", {}).get("material", ())
    material = [(item["id"], item["author"]) for item in shown]
    evidence = [(e, None) for f in result.get("findings") or () for e in f["evidence"]]
    return rows(run, [*evidence, *material])


async def of_runs(database: Database, runs: Sequence[str]) -> list[Seen]:
    """Return what these runs have seen: a run that reads their answers sees it, too."""
    c = quoted.c
    query = sa.select(c.item, c.author).where(c.run.in_(runs)).distinct()
    return [(row.item, row.author) for row in await database.read(query)] if runs else []


async def runs_that_read(database: Database, runs: Iterable[str], handle: str) -> set[str]:
    """Return those of these runs of which a subagent had this handle, or a label with it."""
    found, c = set(), subagents.c
    for some in chunks(runs):
        query = sa.select(c.run, c.brief, c.result).where(c.run.in_(some))
        for row in await database.read(query):
            label = (row.result or {}).get("label") or {}
            if handle in {*(row.brief.get("handles") or ()), *(label.get("sources") or ())}:
                found.add(row.run)
    return found


async def record_reused_items(database: Database, run: str, items: Sequence[str]) -> None:
    """Note that a run repeats what earlier ones had read of these items."""
    c = quoted.c
    for some in chunks(items):
        query = sa.select(c.item, sa.func.max(c.author).label("author")).where(c.item.in_(some))
        known = {row.item: row.author for row in await database.read(query.group_by(c.item))}
        made = rows(run, [(item, known.get(item)) for item in some])
        await database.write(database.upsert(quoted).values(made))
