"""Forgets files: a user's or a channel's own, and of others those that rest on what is to be
forgotten."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set

import sqlalchemy as sa

from bot.erasure.targets import Target
from bot.memory.resources import spaces_of
from bot.storage.database import Database
from bot.storage.tables import runs
from bot.storage.tool_tables import resources


async def forget_resources(
    database: Database,
    target: Target,
    held: Mapping[str, Set[str]],
    busy: Set[str],
    dry_run: bool,
) -> int:
    """Delete all versions of them that are not of a run at work; how many files they were.

    `held`: run -> the items of the target that it held text of. Raises StoreError.
    """
    whole = {"user": f"user:{target.id}", "channel": f"channel:{target.id}"}.get(target.kind, "")
    theirs = await database.read(sa.select(runs.c.id).where(target.runs()))
    own = {whole, *spaces_of(row["id"] for row in theirs)} - {""}
    at_work = set(spaces_of(busy))
    told = (resources.c.id, resources.c.space, resources.c.name, resources.c.head, resources.c.run)
    gone = [
        row
        for row in await database.read(sa.select(*told))
        if row["space"] not in at_work
        and (row["space"] in own or _rests_on(row["head"], target, held.get(row["run"], set())))
    ]
    if gone and not dry_run:
        ids = [row["id"] for row in gone]
        await database.write(sa.delete(resources).where(resources.c.id.in_(ids)))
    return len({(row["space"], row["name"]) for row in gone})


def _rests_on(head: str, target: Target, items: Set[str]) -> bool:
    """Whether a file was written by a context that had read of the target."""
    sources = set(json.loads(head)["label"]["sources"])
    return bool(sources & target.places(items))
