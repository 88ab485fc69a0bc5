"""Notes as rows: their text sealed, their words hidden in a full-text index of the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.memory.word_index import WordIndex
from bot.storage.database import Database
from bot.storage.sealed import OnlySealed
from bot.storage.tables import METADATA, UtcTime, text_column
from scopes.label import Label
from scopes.notes import Note

notes = sa.Table(
    "notes",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    text_column("space", index=True),
    text_column("key", unique=True),
    sa.Column("body", OnlySealed("notes.body"), nullable=False),
    sa.Column("run", sa.String, index=True),
    sa.Column("at", UtcTime, nullable=False),
    sqlite_autoincrement=True,  # the id of a deleted note is never another's
)
"""`space`: whose they are, see `scopes.spaces`. `body` names its space, and holds title, text,
label and context: who writes here without the key has nothing told to a model."""

WORDS = WordIndex("note_words", "note", "space", has_title=True)


class NoteShelf:
    """The notes of one database: `scopes.notes.Notes`. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self,
        space: str,
        key: str,
        title: str,
        text: str,
        label: Label,
        run: str,
        context: str = "",
    ) -> int:
        """Keep a note, once for each key; its id. A context's own of this title is changed."""
        made = {"space": space, "title": title, "text": text, "context": context}
        body = json.dumps({**made, "label": label.to_json()})
        row = {"space": space, "key": key, "body": body, "run": run, "at": datetime.now(UTC)}

        def add(connection: sa.Connection) -> int:
            known = connection.execute(sa.select(notes.c.id).where(notes.c.key == key)).scalar()
            if known is not None:  # a replay: what was written since under its title stays
                return int(known)
            id = _same(connection, made, run) if context else None
            if id is None:
                insert = sa.insert(notes).values(row).returning(notes.c.id)
                id = int(connection.execute(insert).scalar_one())
            else:
                new = {"body": body, "at": row["at"]}
                connection.execute(sa.update(notes).where(notes.c.id == id).values(new))
            WORDS.put(connection, id, [space], text, self._database.digest_key, title)
            return id

        return await self._database.change(add)

    async def search(self, spaces: Sequence[str], query: str, limit: int) -> Sequence[Note]:
        """The notes there that hold words of the query, best first; without one the newest."""
        if not query.strip():
            there = sa.select(notes).where(notes.c.space.in_(spaces))
            rows = await self._database.read(there.order_by(notes.c.id.desc()).limit(limit))
            return [note for row in rows if (note := _note(row, spaces))]
        ids = await WORDS.find(self._database, spaces, query, limit)
        rows = await self._database.read(sa.select(notes).where(notes.c.id.in_(ids)))
        found = {row["id"]: _note(row, spaces) for row in rows}
        return [note for id in ids if (note := found.get(id))]

    async def get(self, spaces: Sequence[str], id: int) -> Note | None:
        """The note of this id, where it lies in one of the spaces."""
        there = sa.and_(notes.c.id == id, notes.c.space.in_(spaces))
        rows = await self._database.read(sa.select(notes).where(there))
        return _note(rows[0], spaces) if rows else None


def without(connection: sa.Connection, mine: sa.ColumnElement[bool]) -> int:
    """Delete these notes and what is indexed of them; how many they were."""
    ids = list(connection.execute(sa.select(notes.c.id).where(mine)).scalars())
    WORDS.drop(connection, ids)
    connection.execute(sa.delete(notes).where(notes.c.id.in_(ids)))
    return len(ids)


def _same(connection: sa.Connection, made: dict[str, str], run: str) -> int | None:
    """The note that this context wrote there under this title."""
    there = sa.and_(notes.c.run == run, notes.c.space == made["space"])
    named = ("space", "title", "context")
    for row in connection.execute(sa.select(notes.c.id, notes.c.body).where(there)).mappings():
        body = json.loads(row["body"])
        if all(body.get(name) == made[name] for name in named):
            return int(row["id"])
    return None


def _note(row: dict[str, Any], spaces: Sequence[str]) -> Note | None:
    """The note of a row; None where the row is not what was sealed."""
    body = json.loads(row["body"])
    if body["space"] not in spaces or row["space"] != body["space"]:
        return None
    label = Label.of(body["label"])
    return Note(row["id"], body["space"], body["title"], body["text"], label, row["at"])
