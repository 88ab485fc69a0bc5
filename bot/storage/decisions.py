"""The gate's log: every decision with the rule that made it. It is only ever added to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.cli.given import read_length
from bot.cli.lookups import stored
from bot.cli.outcome import DONE, dump, say, tell
from bot.storage.database import Database
from bot.storage.store import RunNotFound, Store
from bot.storage.tables import decisions
from subagents.gate import Decision

SHOWN = 100
"""Decisions that a table shows where no limit is given; a document holds them all."""
CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which decisions; what is None or empty does not matter."""

    run: str = ""
    since: datetime | None = None
    tool: str = ""
    verdict: str = ""
    limit: int | None = None
    """The latest so many."""


async def read_log(database: Database, wanted: Wanted) -> list[Decision]:
    """The decisions that are wanted, oldest first. Raises StoreError."""
    c = decisions.c
    query = sa.select(decisions).order_by(c.seq.desc())
    for column, value in ((c.run, wanted.run), (c.tool, wanted.tool), (c.verdict, wanted.verdict)):
        query = query.where(column == value) if value else query
    query = query.where(c.at >= wanted.since) if wanted.since else query
    found: list[dict[str, Any]] = []
    left = wanted.limit
    while left is None or left > 0:
        size = min(CHUNK, left or CHUNK)
        older = query.where(c.seq < found[-1]["seq"]) if found else query
        rows = await database.read(older.limit(size))
        found += rows
        left = left - len(rows) if left is not None else None
        if len(rows) < size:
            break
    return [Decision(**{k: v for k, v in row.items() if k != "seq"}) for row in reversed(found)]


async def run_of(database: Database, id: str) -> str:
    """The run with this id, or the only one whose id begins so, in the log. Raises RunNotFound.

    The log knows runs that are stored nowhere else any more.
    """
    c = decisions.c.run
    begins = sa.func.substr(c, 1, len(id)) == id
    query = sa.select(c).where(begins).distinct().order_by(c).limit(4)
    found = [row["run"] for row in await database.read(query)]
    if id and (id in found or len(found) == 1):
        return id if id in found else str(found[0])
    raise RunNotFound(id, found, several=bool(id and found))


def show_log(
    run: str | None,
    since: str | None,
    tool: str | None,
    verdict: str | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """`assistant decisions`."""

    async def work(store: Store) -> int:
        database = store.database
        wanted = Wanted(
            run=await run_of(database, run) if run is not None else "",
            since=datetime.now(UTC) - read_length(since) if since else None,
            tool=tool or "",
            verdict=verdict or "",
            limit=limit or (None if as_json else SHOWN),
        )
        found = await read_log(database, wanted)
        if as_json:
            dump([asdict(each) for each in found])
            return DONE
        for each in found:
            say(line(each))
        if not found:
            tell("No such decisions.")
        elif limit is None and len(found) == SHOWN:
            tell(f"The latest {SHOWN}; --limit or --json shows more.")
        return DONE

    return stored(work, as_json)


def line(each: Decision) -> str:
    """A decision on one line of a table."""
    who = each.requester or "-"
    what = f"{each.run:12}  {each.context:4} {who:12} {each.tool:22} {each.verdict:8}"
    return f"{each.at:%Y-%m-%d %H:%M:%S}  {what} {each.rule}"
