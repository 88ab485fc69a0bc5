"""Files as rows: what tells of them and what they hold sealed apart, their names hidden."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.tool_tables import resources
from scopes.label import TRUSTED, Label
from scopes.resources import MAX_BYTES, MAX_RUN_BYTES, Resource, space_of_run
from scopes.tool import ToolError

TRIES = 20
"""Of finding a free number for a version, where others save the same file."""
MB = 1_000_000


class ResourceShelf:
    """The files of one database: `scopes.resources.Resources`. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, space: str, key: str, name: str, kind: str, content: bytes, label: Label, run: str
    ) -> Resource:
        """Keep a version, once for each key. Raises ToolError where it is too large."""
        if len(content) > MAX_BYTES:
            raise ToolError(f"A file has at most {MAX_BYTES // MB} MB. Keep less of it.")
        digest, packed = await asyncio.to_thread(_packed, content)
        head = {"space": space, "name": name, "kind": kind, "digest": digest}
        told = {**head, "label": label.to_json()}
        named = sa.and_(resources.c.space == space, resources.c.name == self._hidden(name))
        row = {"space": space, "name": self._hidden(name), "key": key, "body": packed, "run": run}
        facts = {"size": len(content), "at": datetime.now(UTC)}

        def add(connection: sa.Connection) -> int:
            known = sa.select(resources.c.id).where(resources.c.key == key)
            insert = self._database.insert(resources).on_conflict_do_nothing()
            for _ in range(TRIES):
                if (id := connection.execute(known).scalar()) is not None:
                    return int(id)
                _bounded(connection, run, len(content))
                last = sa.select(sa.func.max(resources.c.version)).where(named)
                version = (connection.execute(last).scalar() or 0) + 1
                numbered = {"version": version, "head": json.dumps({**told, "version": version})}
                connection.execute(insert.values({**row, **facts, **numbered}))
            raise ToolError("Others save this file just now. Try again, or use another name.")

        id = await self._database.change(add)
        (stored,) = await self._rows(resources.c.id == id, resources.c.body)
        found = await asyncio.to_thread(_resource, stored, space)
        if found is None:
            raise ToolError("This file cannot be read any more. Save it under another name.")
        return found

    async def get(self, space: str, name: str, version: int | None = None) -> Resource | None:
        """This version, else the newest; None where there is none, or not what was sealed."""
        mine = sa.and_(resources.c.space == space, resources.c.name == self._hidden(name))
        if version is not None:
            mine = sa.and_(mine, resources.c.version == version)
        rows = await self._rows(mine, resources.c.body, limit=1)
        return await asyncio.to_thread(_resource, rows[0], space) if rows else None

    async def before(self, kept: Resource) -> Label:
        """The label of what its number tells of: of all earlier versions."""
        same = (resources.c.space == kept.space, resources.c.name == self._hidden(kept.name))
        rows = await self._rows(sa.and_(*same, resources.c.version < kept.version))
        earlier = filter(None, (_resource(row, kept.space) for row in rows))
        return reduce(Label.join, (each.label for each in earlier), TRUSTED)

    async def listed(self, space: str) -> Sequence[Resource]:
        """The newest version of each file, without its content, by name."""
        newest: dict[str, Resource] = {}
        for row in await self._rows(resources.c.space == space):
            if found := _resource(row, space):
                newest.setdefault(found.name, found)
        return [newest[name] for name in sorted(newest)]

    async def _rows(
        self, mine: sa.ColumnElement[bool], *more: sa.Column[Any], limit: int | None = None
    ) -> list[dict[str, Any]]:
        """These rows, the newest version first."""
        told = (resources.c.space, resources.c.version, resources.c.size, resources.c.head)
        query = sa.select(*told, resources.c.at, *more).where(mine)
        return await self._database.read(query.order_by(resources.c.version.desc()).limit(limit))

    def _hidden(self, name: str) -> str:
        """What stands for a name where rows are looked for by it."""
        key = self._database.digest_key
        return hmac.new(key, f"file:{name}".encode(), hashlib.sha256).hexdigest()[:32]


def spaces_of(runs: Iterable[str]) -> list[str]:
    """Where the files of these runs lie."""
    return [space_of_run(run) for run in runs]


def _bounded(connection: sa.Connection, run: str, more: int) -> None:
    total = sa.select(sa.func.sum(resources.c.size)).where(resources.c.run == run)
    if (connection.execute(total).scalar() or 0) + more > MAX_RUN_BYTES:
        raise ToolError(
            f"This request has kept {MAX_RUN_BYTES // MB} MB of files, and may keep no more."
        )


def _packed(content: bytes) -> tuple[str, str]:
    """The digest of a file, and how it is stored."""
    packed = base64.b64encode(zlib.compress(content)).decode()
    return hashlib.sha256(content).hexdigest(), packed


def _resource(row: dict[str, Any], space: str) -> Resource | None:
    """The file of a row; None where the row is not what was sealed."""
    head = json.loads(row["head"])
    if (head["space"], head["version"]) != (space, row["version"]):
        return None
    content = b""
    if "body" in row:
        content = zlib.decompress(base64.b64decode(row["body"]))
        if hashlib.sha256(content).hexdigest() != head["digest"]:
            return None
    label, size = Label.of(head["label"]), int(row["size"])
    told = (head["name"], head["version"], head["kind"], content, label, row["at"], size)
    return Resource(space, *told)
