"""Notes as rows: their text sealed, their words hidden in a full-text index of the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.database import Database
from bot.note_words import asked, hidden_word, indexed
from bot.sealed import OnlySealed
from bot.tables import METADATA, UtcTime, text_column
from scopes.label import Label
from scopes.notes import Note

OPERATOR = "operator"
"""The space of the command line."""

notes = sa.Table(
    "notes",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    text_column("space", index=True),
    text_column("key", unique=True),
    sa.Column("body", OnlySealed("notes.body"), nullable=False),
    sa.Column("run", sa.String, index=True),
    sa.Column("at", UtcTime, nullable=False),
)
"""`space`: whose they are. `body` names its space, and holds title, text and label: who writes here
without the key has nothing told to a model. The index of their words is the table `note_words`:
FTS5 in SQLite, a tsvector in Postgres; the migration makes it."""

INDEX = {
    "sqlite": (
        "INSERT INTO note_words (rowid, space, title, text) VALUES (:id, :space, :title, :text)"
    ),
    "postgresql": (
        "INSERT INTO note_words (note, words) VALUES (:id, to_tsvector('simple', :space) || "
        "setweight(to_tsvector('simple', :title), 'A') || to_tsvector('simple', :text))"
    ),
}
FORGET = {
    "sqlite": "DELETE FROM note_words WHERE rowid = :id",
    "postgresql": "DELETE FROM note_words WHERE note = :id",
}
"""By the dialect of the database."""


class NoteShelf:
    """The notes of one database: `scopes.notes.Notes`. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, owner: str | None, key: str, title: str, text: str, label: Label, run: str
    ) -> int:
        """Keep a note, once for each key; its id."""
        space = space_of(owner)
        body = {"space": space, "title": title, "text": text, "label": label.to_json()}
        row = {"space": space, "key": key, "body": json.dumps(body), "run": run}
        digest = self._database.digest_key
        words = {
            "space": hidden_word(space, digest),
            "title": indexed(title, digest),
            "text": indexed(text, digest),
        }

        def add(connection: sa.Connection) -> int:
            known = sa.select(notes.c.id).where(notes.c.key == key)
            insert = self._database.insert(notes).values({**row, "at": datetime.now(UTC)})
            connection.execute(insert.on_conflict_do_nothing(index_elements=["key"]))
            id = int(connection.execute(known).scalar_one())
            for statements in (FORGET, INDEX):  # under a key that is known it stands there already
                connection.execute(
                    sa.text(statements[connection.dialect.name]), {"id": id, **words}
                )
            return id

        return await self._database.change(add)

    async def search(self, owner: str | None, query: str, limit: int) -> Sequence[Note]:
        """The owner's notes that hold words of the query, best first; without one the newest."""
        space = space_of(owner)
        if not query.strip():
            mine = sa.select(notes).where(notes.c.space == space)
            rows = await self._database.read(mine.order_by(notes.c.id.desc()).limit(limit))
            return [note for row in rows if (note := _note(row, space))]
        ids = await self._matching(space, query, limit)
        rows = await self._database.read(sa.select(notes).where(notes.c.id.in_(ids)))
        found = {row["id"]: _note(row, space) for row in rows}
        return [note for id in ids if (note := found.get(id))]

    async def _matching(self, space: str, query: str, limit: int) -> list[int]:
        """Ids by the index, best first; what it is asked is made of hidden words alone."""
        digest = self._database.digest_key
        words = asked(query, digest)
        if not words:
            return []
        own, shared = hidden_word(space, digest), self._database.shared
        either = (" | " if shared else " OR ").join(words)
        text = f"{own} & ({either})" if shared else f"space : {own} AND ({either})"
        found = await self._database.read(_served(limit) if shared else _in_file(limit), words=text)
        return [int(row["id"]) for row in found]

    async def get(self, owner: str | None, id: int) -> Note | None:
        """The note of this id, where it is the owner's."""
        space = space_of(owner)
        mine = sa.and_(notes.c.id == id, notes.c.space == space)
        rows = await self._database.read(sa.select(notes).where(mine))
        return _note(rows[0], space) if rows else None


def space_of(owner: str | None) -> str:
    """Where the notes of a user lie."""
    return f"user:{owner}" if owner else OPERATOR


def without(connection: sa.Connection, mine: sa.ColumnElement[bool]) -> int:
    """Delete these notes and what is indexed of them; how many they were."""
    ids = list(connection.execute(sa.select(notes.c.id).where(mine)).scalars())
    for id in ids:
        connection.execute(sa.text(FORGET[connection.dialect.name]), {"id": id})
    connection.execute(sa.delete(notes).where(notes.c.id.in_(ids)))
    return len(ids)


def _in_file(limit: int) -> sa.Select[Any]:
    """The search in SQLite's index; a title weighs more than a text."""
    order = sa.text("bm25(note_words, 0.0, 4.0, 1.0), rowid DESC")
    query: sa.Select[Any] = sa.select(sa.literal_column("rowid").label("id"))
    query = query.select_from(sa.text("note_words"))
    return query.where(sa.text("note_words MATCH :words")).order_by(order).limit(limit)


def _served(limit: int) -> sa.Select[Any]:
    """The same in Postgres."""
    order = sa.text("ts_rank(words, to_tsquery('simple', :words), 1) DESC, note DESC")
    query: sa.Select[Any] = sa.select(sa.literal_column("note").label("id"))
    found = query.select_from(sa.text("note_words")).where(
        sa.text("words @@ to_tsquery('simple', :words)")
    )
    return found.order_by(order).limit(limit)


def _note(row: dict[str, Any], space: str) -> Note | None:
    """The note of a row; None where the row is not what was sealed."""
    body = json.loads(row["body"])
    if body["space"] != space or row["space"] != space:
        return None
    return Note(row["id"], body["title"], body["text"], Label.of(body["label"]), row["at"])
