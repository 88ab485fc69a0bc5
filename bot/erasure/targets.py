"""What is to be forgotten, as conditions on the tables that say who holds it."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from bot.erasure.scrub import item_at
from bot.storage.database import Database
from bot.storage.gate_tables import actions, quoted
from bot.storage.serve_tables import flags, inbox
from bot.storage.tables import runs

Condition = sa.ColumnElement[bool]

_WHOLE = re.compile(r"(data|files|mcp):([a-z][a-z0-9_-]*)")
"""All of a database, a project or a server of tools, as labels and answers name it."""
_ROWS = ("q-______", "q-______#%", "t-______", "t-______#%")
"""Ids of what is read of databases: they do not say of which."""
NOTES = "forget/"
"""How the names of the flags begin that say what is still to be forgotten."""


@dataclass(frozen=True, slots=True)
class Target:
    """One message, one source, one channel, or one person.

    `item`: one message, row or file. `source`: that, or all of a thread, list, table, file, folder,
    sheet or database. `channel`: all that was said there. `author`: all that a person wrote.
    `user`: that, and all that they asked for and left here.
    """

    kind: str
    id: str

    @classmethod
    def source(cls, text: str) -> Target:
        """Of an id or a permalink; a mail thread may be named as labels do it: `mail:<thread>`."""
        return cls("source", item_at(text) or text.strip().removeprefix("mail:"))

    @property
    def is_person(self) -> bool:
        return self.kind in ("author", "user")

    def quotes(self) -> Condition:
        """Rows of `quoted`: what is held of it."""
        mine = {
            "item": quoted.c.item == self.id,
            "source": sa.or_(*self._in_source()),
            "channel": quoted.c.channel == self.id,
        }
        person = sa.or_(quoted.c.author == self.id, quoted.c.item == self.id)
        return mine.get(self.kind, person)

    def _in_source(self) -> list[Condition]:
        item = quoted.c.item
        same = [item == self.id, quoted.c.channel == self.id]
        if not (whole := _WHOLE.fullmatch(self.id)):
            lines = item.startswith(f"{self.id}:", autoescape=True)  # of a file: `book:a.md:3`
            return [*same, lines] if ":" in self.id else same
        kind, name = whole.groups()
        if kind == "data":
            return [*same, *(item.like(pattern) for pattern in _ROWS)]
        return [*same, item.startswith(f"{name}{'/' if kind == 'mcp' else ':'}", autoescape=True)]

    @property
    def told_by_label(self) -> bool:
        """Whether only labels tell which of the runs that `quotes` finds have read of it."""
        return self.kind == "source" and self.id.startswith("data:")

    def places(self, items: Set[str]) -> set[str]:
        """Sources of a label that say that what bears it may rest on the target; `items`: what of
        the target was held where it was written."""
        found = {item.partition("/")[0] for item in items}
        found |= {f"files:{item.partition(':')[0]}" for item in items if ":" in item}
        if self.kind in ("channel", "source"):
            found.add(self.id)
        if self.kind == "user":
            found.add(f"notes:{self.id}")
        return found | {f"mail:{place}" for place in found}

    def requests(self) -> Condition:
        """Rows of `inbox`: requests that it is, or that were made there."""
        if self.is_person:
            return inbox.c.user == self.id
        channel, _, ts = self.id.partition("/")
        here = inbox.c.channel == channel
        return sa.and_(here, inbox.c.ts == ts) if ts else here

    def runs(self) -> Condition:
        """Runs of which nothing stays but numbers."""
        return runs.c.requester == self.id if self.kind == "user" else sa.false()

    def actions(self) -> Condition:
        """Actions that go whoever's words they hold."""
        return actions.c.requester == self.id if self.kind == "user" else sa.false()


def note(
    connection: sa.Connection,
    database: Database,
    target: Target,
    at: datetime | None = None,
    **facts: bool,
) -> None:
    """Note what is to be forgotten, in the transaction that this is called in.

    `at`: when it happened; None = just now. `edited`: it was changed, not deleted. `amended`: the
    stored request has the new text.
    """
    name = f"{NOTES}{target.kind}/{target.id}"
    row = {"name": name, "value": facts, "at": at or datetime.now(UTC)}
    connection.execute(database.upsert(flags, ("name",), ("value", "at")), row)


async def forget_later(database: Database, target: Target) -> None:
    """Note it in a transaction of its own. Raises StoreError."""
    await database.change(lambda connection: note(connection, database, target))
