"""Forgets notes: a user's or a channel's own, and of others those that rest on what goes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set

import sqlalchemy as sa

from bot.erasure.targets import Target
from bot.memory.notes import notes, without
from bot.storage.database import Database


async def forget_notes(
    database: Database, target: Target, held: Mapping[str, Set[str]], dry_run: bool
) -> int:
    """Delete them whole, as nobody can tell which of their words came from where; how many.

    `held`: run -> the items of the target that it held text of. Raises StoreError.
    """
    whole = {"user": f"user:{target.id}", "channel": f"channel:{target.id}"}.get(target.kind)
    rows = await database.read(sa.select(notes.c.id, notes.c.space, notes.c.body, notes.c.run))
    nothing: frozenset[str] = frozenset()
    gone = [
        row["id"]
        for row in rows
        if row["space"] == whole or _rests_on(row["body"], target, held.get(row["run"], nothing))
    ]
    if gone and not dry_run:
        await database.change(lambda connection: without(connection, notes.c.id.in_(gone)))
    return len(gone)


def _rests_on(body: str, target: Target, items: Set[str]) -> bool:
    """Whether a note was written by a context that had read of the target."""
    sources = set(json.loads(body)["label"]["sources"])
    return bool(sources & target.places(items))
