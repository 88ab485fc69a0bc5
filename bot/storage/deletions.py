"""Items that runs have seen, and pending deletions: conditions on the tables that name such items.

Items are stored as ids only. Functions that query the database raise StoreError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database, chunks
from bot.storage.tables import flags, inbox, quoted, runs, subagents
from subagents.brief import Brief
from subagents.result import Finding
from subagents.trajectory import SeenItem


def source_of(item: str) -> str:
    """Return the channel, list, thread or table of an item; the source of a page is the page."""
    if "://" in item:
        return item
    return item.partition("/")[0].partition("#")[0] or item


def seen_row(run: str, item: str, author: str | None) -> dict[str, Any]:
    """Return the row of an item that a run has seen."""
    return {"item": item, "run": run, "channel": source_of(item), "author": author}


def seen_rows(run: str, items: Iterable[SeenItem]) -> list[dict[str, Any]]:
    """Return the rows of the items that a run has seen, each once."""
    return [seen_row(run, item, author) for item, author in dict(items).items()]


def seen_in_request(run: str, request: str | None, requester: str | None) -> list[dict[str, Any]]:
    """Return the row of the message that requested a run, if any: its key is `team/id`."""
    item = (request or "").partition("/")[2]
    return seen_rows(run, [(item, requester)]) if item else []


def seen_by_subagent(
    run: str, brief: Brief, findings: Sequence[Finding] = ()
) -> list[dict[str, Any]]:
    """Return the rows of a subagent: its material, and the evidence of its findings."""
    material = [(item.id, item.author) for item in brief.material]
    evidence = [(e, None) for f in findings for e in f.evidence]
    return seen_rows(run, [*evidence, *material])


async def seen_by_runs(database: Database, runs: Sequence[str]) -> list[SeenItem]:
    """Return the items that these runs have seen: a run that reads their answers sees them, too."""
    c = quoted.c
    query = sa.select(c.item, c.author).where(c.run.in_(runs)).distinct()
    return [(row.item, row.author) for row in await database.read(query)] if runs else []


async def runs_that_read(database: Database, runs: Iterable[str], handle: str) -> set[str]:
    """Return those of these runs with a subagent that had this handle, or a label with it."""
    found, c = set(), subagents.c
    for some in chunks(runs):
        query = sa.select(c.run, c.brief, c.result).where(c.run.in_(some))
        for row in await database.read(query):
            label = (row.result or {}).get("label") or {}
            if handle in {*(row.brief.get("handles") or ()), *(label.get("sources") or ())}:
                found.add(row.run)
    return found


async def record_reused_items(database: Database, run: str, items: Sequence[str]) -> None:
    """Record that a run repeats text that earlier runs had read from these items."""
    c = quoted.c
    for some in chunks(items):
        query = sa.select(c.item, sa.func.max(c.author).label("author")).where(c.item.in_(some))
        authors = {row.item: row.author for row in await database.read(query.group_by(c.item))}
        rows = seen_rows(run, [(item, authors.get(item)) for item in some])
        await database.write(database.upsert(quoted).values(rows))


Condition = sa.ColumnElement[bool]

_WHOLE = re.compile(r"(data|files|mcp):([a-z][a-z0-9_-]*)")
"""A whole database, project or tool server, as labels and answers name it."""
_PERMALINK = re.compile(r"/archives/([A-Z0-9]+)/p(\d{10})(\d{6})")
_ROWS = ("q-______", "q-______#%", "t-______", "t-______#%")
"""Ids of rows and tables read from databases: they do not name the database."""
DELETION_FLAG_PREFIX = "forget/"
"""Prefix of the names of flags for pending deletions."""


@dataclass(frozen=True, slots=True)
class ForgetTarget:
    """The target of a deletion: one message, one source, one channel, or one person.

    `item`: one message, row or file. `source`: that, or all of a thread, list, table, file, folder,
    sheet or database. `channel`: every message there. `author`: everything that a person wrote.
    `user`: that, their requests, and the data that they left here.
    """

    kind: str
    id: str

    @classmethod
    def source(cls, text: str) -> ForgetTarget:
        """Parse an id, a permalink, or the label of a mail thread: `mail:<thread>`."""
        return cls("source", item_at(text) or text.strip().removeprefix("mail:"))

    @property
    def is_person(self) -> bool:
        return self.kind in ("author", "user")

    def quotes(self) -> Condition:
        """Match rows of `quoted`, which say which run has seen the target."""
        conditions = {
            "item": quoted.c.item == self.id,
            "source": sa.or_(*self._in_source()),
            "channel": quoted.c.channel == self.id,
        }
        person = sa.or_(quoted.c.author == self.id, quoted.c.item == self.id)
        return conditions.get(self.kind, person)

    def _in_source(self) -> list[Condition]:
        item = quoted.c.item
        same = [item == self.id, quoted.c.channel == self.id]
        if not (whole := _WHOLE.fullmatch(self.id)):  # lines of a file: `book:a.md:3`, `a.md:3`
            return [*same, item.startswith(f"{self.id}:", autoescape=True)]
        kind, name = whole.groups()
        if kind == "data":
            return [*same, *(item.like(pattern) for pattern in _ROWS)]
        return [*same, item.startswith(f"{name}{'/' if kind == 'mcp' else ':'}", autoescape=True)]

    @property
    def told_by_label(self) -> bool:
        """Return whether only labels show which runs that `quotes` matches have seen it."""
        return self.kind == "source" and self.id.startswith("data:")

    @property
    def space(self) -> str:
        """Return the space of notes and files that belongs to a user or channel; else empty."""
        return f"{self.kind}:{self.id}" if self.kind in ("user", "channel") else ""

    @property
    def labels(self) -> set[str]:
        """Return the sources of a label that name the target; a label names no single message."""
        if self.kind == "user":
            return {f"notes:{self.id}"}
        return {self.id, f"mail:{self.id}"} if self.kind in ("channel", "source") else set()

    def requests(self) -> Condition:
        """Match requests that are the target or were made in it."""
        if self.is_person:
            return inbox.c.user == self.id
        channel, _, ts = self.id.partition("/")
        in_channel = inbox.c.channel == channel
        return sa.and_(in_channel, inbox.c.ts == ts) if ts else in_channel

    def runs(self) -> Condition:
        """Match runs that are deleted, no matter what they saw."""
        return runs.c.requester == self.id if self.kind == "user" else sa.false()


def item_at(link: str) -> str:
    """Return the id of the message of a permalink; empty if it is not one."""
    found = _PERMALINK.search(link)
    return f"{found[1]}/{found[2]}.{found[3]}" if found else ""


def note(
    connection: sa.Connection,
    database: Database,
    target: ForgetTarget,
    at: datetime | None = None,
    **facts: bool,
) -> None:
    """Record a pending deletion, in the caller's transaction.

    `at`: when it happened; None = just now. `edited`: it was changed, not deleted. `amended`: the
    stored request has the new text.
    """
    name = f"{DELETION_FLAG_PREFIX}{target.kind}/{target.id}"
    row = {"name": name, "value": facts, "at": at or datetime.now(UTC)}
    connection.execute(database.upsert(flags, ("name",), ("value", "at")), row)


async def forget_later(database: Database, target: ForgetTarget) -> None:
    """Record a pending deletion in a separate transaction. Raises StoreError."""
    await database.change(lambda connection: note(connection, database, target))
