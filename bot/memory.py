"""Notes, files, conversations and preferences as rows; notes and conversations are searchable.

The database does the full-text search: FTS5 in SQLite, tsvector in PostgreSQL. The words of a text
are split here, in the same way for both, and stored with it; the migration creates the indexes,
which the databases maintain by triggers and by a generated column. A word is also found by its
prefix, so that `invoice` finds `invoices`, in most languages that are written with spaces.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.policy.directory import SlackDirectory
from bot.reports.documents import AnswerDocument, Document, KeptFile
from bot.storage.database import Database, in_transaction
from bot.storage.tables import (
    conversations,
    inbox,
    notes,
    outside_calls,
    preferences,
    resources,
    runs,
)
from scopes.clean import normalize_unicode
from scopes.effects import OPEN_NOTES
from scopes.label import Label
from scopes.notes import NewNote, Note, Talk
from scopes.preferences import MAX_PREFERENCES, TOO_MANY_ERROR, Authorship, Preference
from scopes.resources import MAX_BYTES, MAX_RUN_BYTES, NewFile, Resource, Resources, space_of_run
from scopes.spaces import OPERATOR, notes_of, space_of
from scopes.tool import ToolError
from subagents.run import Run

STEM_LETTERS = 5
"""Number of first letters by which longer words match."""
MAX_LETTERS = 64
"""Maximum letters of a word; the rest of a longer one is ignored."""
MAX_ASKED = 30
"""Maximum different words of one search."""
MAX_INDEXED = 30_000
"""Maximum different words of one text: the first ones."""
MAX_INDEXED_BYTES = 300_000
"""Maximum size of those words: a tsvector of PostgreSQL holds 1 MB, including word positions."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED_SCRIPTS = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def words_of(text: str) -> str:
    """Return the indexed words of a text, each once."""
    words: dict[str, None] = {}
    size = 0
    for word in _words(text):
        if word in words:
            continue
        size += len(word.encode()) + 1
        if len(words) == MAX_INDEXED or size > MAX_INDEXED_BYTES:
            break
        words[word] = None
    return " ".join(words)


def restrict_to_words(
    query: sa.Select[Any], table: sa.Table, text: str, shared: bool, weights: Sequence[float] = ()
) -> sa.Select[Any]:
    """Restrict a query to rows of `table` with words of the text; without a text, the newest.

    Rows with all of the words come first, ordered by the rank of the database. `weights` of the
    indexed columns are for ranking in SQLite; PostgreSQL's are in its index.
    """
    if not text.strip():
        return query.order_by(table.c.id.desc())
    words = list(dict.fromkeys(_words(text)))[:MAX_ASKED]
    if not words:
        return query.where(sa.false())
    starts = {w: w[:STEM_LETTERS] for w in words if len(w) > STEM_LETTERS}
    if shared:
        loose = [f"'{starts[w]}':*" if w in starts else f"'{w}'" for w in words]
        some = sa.func.to_tsquery("simple", " | ".join([*(f"'{w}'" for w in starts), *loose]))
        vector: sa.ColumnElement[Any] = sa.literal_column(f"{table.name}.search")
        all_words = vector.op("@@")(sa.func.to_tsquery("simple", " & ".join(loose)))
        query = query.where(vector.op("@@")(some))
        rank: sa.ColumnElement[Any] = sa.func.ts_rank(vector, some).desc()
    else:
        loose = [f'"{starts[w]}"*' if w in starts else f'"{w}"' for w in words]
        index = sa.table(f"{table.name}_search", sa.column("rowid"))
        name: sa.ColumnElement[Any] = sa.literal_column(index.name)
        match = name.op("MATCH")
        holding = sa.select(index.c.rowid).where(match(" AND ".join(loose))).correlate(None)
        all_words = table.c.id.in_(holding)
        some_words = match(" OR ".join([*(f'"{w}"' for w in starts), *loose]))
        query = query.where(index.c.rowid == table.c.id, some_words)
        rank = sa.func.bm25(name, *weights)
    return query.order_by(all_words.desc(), rank, table.c.id.desc())


def _words(text: str) -> Iterator[str]:
    flat = normalize_unicode(text, "NFKD").casefold()
    plain = "".join(c for c in flat if not unicodedata.combining(c))
    for word in _WORD.findall(plain):
        if _is_unspaced(word):
            yield from (word[k : k + 2] for k in range(max(1, len(word) - 1)))
        else:
            yield word[:MAX_LETTERS]


def _is_unspaced(word: str) -> bool:
    """Return whether its script has no spaces, so that pairs of letters are used as words."""
    return _UNSPACED_SCRIPTS.search(word) is not None


TITLE, TEXT = 5.0, 1.0
"""Weights of a word."""


class NoteStore:
    """The notes of one database: `scopes.notes.Notes`. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, note: NewNote) -> int:
        """Save a note, once for each key; return its id.

        A note by the same context with this title is updated.
        """
        identity = {name: getattr(note, name) for name in ("space", "title", "run", "context")}
        changed = {
            "text": note.text,
            "label": note.label.to_json(),
            "words": words_of(note.text),
            "at": datetime.now(UTC),
        }

        def add(connection: sa.Connection) -> int:
            before = sa.select(notes.c.id).where(notes.c.key == note.key)
            existing = connection.execute(before).scalar()
            if existing is not None:  # a replay: later text with its title stays
                return int(existing)
            is_same = sa.and_(*(notes.c[name] == value for name, value in identity.items()))
            same = sa.select(notes.c.id).where(is_same)
            id = connection.execute(same).scalar() if note.context else None
            if id is None:
                row = {**identity, **changed, "key": note.key, "title_words": words_of(note.title)}
                insert = sa.insert(notes).values(row).returning(notes.c.id)
                return int(connection.execute(insert).scalar_one())
            connection.execute(sa.update(notes).where(notes.c.id == id).values(changed))
            return int(id)

        return await self._database.change(add)

    async def search(self, spaces: Sequence[str], query: str, limit: int) -> Sequence[Note]:
        """Return notes in these spaces with words of the query, best first; or else the newest."""
        candidates = sa.select(notes).where(notes.c.space.in_(spaces))
        found = restrict_to_words(candidates, notes, query, self._database.shared, (TITLE, TEXT))
        return [_note(row) for row in await self._database.read(found.limit(limit))]

    async def get(self, spaces: Sequence[str], id: int) -> Note | None:
        """Return the note with this id, if it is in one of the spaces."""
        in_spaces = sa.and_(notes.c.id == id, notes.c.space.in_(spaces))
        rows = await self._database.read(sa.select(notes).where(in_spaces))
        return _note(rows[0]) if rows else None


def _note(row: sa.Row[Any]) -> Note:
    return Note(row.id, row.space, row.title, row.text, Label.of(row.label), row.at)


MAX_SAVE_ATTEMPTS = 20
"""Attempts to find a free version number while others save the same file."""
MB = 1_000_000


class ResourceStore:
    """The files of one database: `scopes.resources.Resources`. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, file: NewFile) -> Resource:
        """Save a version, once for each key. Raises ToolError if it is too large."""
        size = len(file.content)
        if size > MAX_BYTES:
            raise ToolError(f"A file has at most {MAX_BYTES // MB} MB. Keep less of it.")
        same_name = sa.and_(resources.c.space == file.space, resources.c.name == file.name)
        row = {
            **{name: getattr(file, name) for name in ("space", "key", "name", "kind", "run")},
            "label": file.label.to_json(),
            "size": size,
            "at": datetime.now(UTC),
            "body": await asyncio.to_thread(zlib.compress, file.content),
        }

        def add(connection: sa.Connection) -> int:
            query = sa.select(resources.c.id).where(resources.c.key == file.key)
            insert = self._database.upsert(resources)
            for _ in range(MAX_SAVE_ATTEMPTS):
                if (id := connection.execute(query).scalar()) is not None:
                    return int(id)
                _check_size(connection, file.run, size)
                last = sa.select(sa.func.max(resources.c.version)).where(same_name)
                version = (connection.execute(last).scalar() or 0) + 1
                connection.execute(insert.values({**row, "version": version}))
            raise ToolError("Others save this file just now. Try again, or use another name.")

        id = await self._database.change(add)
        (stored,) = await self._rows(resources.c.id == id, resources.c.body)
        return await asyncio.to_thread(_resource, stored)

    async def get(self, space: str, name: str, version: int | None = None) -> Resource | None:
        """Return this version, or the newest; None if there is none."""
        is_file = sa.and_(resources.c.space == space, resources.c.name == name)
        if version is not None:
            is_file = sa.and_(is_file, resources.c.version == version)
        rows = await self._rows(is_file, resources.c.body, limit=1)
        return await asyncio.to_thread(_resource, rows[0]) if rows else None

    async def list_files(self, space: str) -> Sequence[Resource]:
        """Return the newest version of each file, without its content, by name."""
        newest: dict[str, Resource] = {}
        for row in await self._rows(resources.c.space == space):
            newest.setdefault(row.name, _resource(row))
        return [newest[name] for name in sorted(newest)]

    async def _rows(
        self, condition: sa.ColumnElement[bool], *more: sa.Column[Any], limit: int | None = None
    ) -> Sequence[sa.Row[Any]]:
        """Return these rows, the newest version first."""
        names = ("space", "name", "version", "kind", "size", "label", "at")
        query = sa.select(*(resources.c[name] for name in names), *more).where(condition)
        return await self._database.read(query.order_by(resources.c.version.desc()).limit(limit))


def _check_size(connection: sa.Connection, run: str, more: int) -> None:
    total = sa.select(sa.func.sum(resources.c.size)).where(resources.c.run == run)
    if (connection.execute(total).scalar() or 0) + more > MAX_RUN_BYTES:
        raise ToolError(
            f"This request has kept {MAX_RUN_BYTES // MB} MB of files, and may keep no more."
        )


def _resource(row: sa.Row[Any]) -> Resource:
    """Return the file of a row, without its content if that was not read."""
    fields = row._asdict()
    content = zlib.decompress(fields.pop("body")) if "body" in fields else b""
    return Resource(content=content, **{**fields, "label": Label.of(row.label)})


USER = "user:"
"""Prefix of the place of an answer that only the requester has seen."""

CONVERSATIONS_QUERY = sa.select(
    conversations, inbox.c.channel, inbox.c.ts, inbox.c.thread_ts
).select_from(
    conversations.outerjoin(runs, runs.c.id == conversations.c.run).outerjoin(
        inbox, inbox.c.key == runs.c.request
    )
)
"""Conversations with their request message, if it is still stored."""


class ConversationStore:
    """The conversations of one database: `scopes.notes.Conversations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self, owner: str | None, query: str, limit: int, closed: Collection[str]
    ) -> Sequence[Talk]:
        """Return conversations with words of the query, best first; without a query the newest.

        Raises StoreError.
        """
        own = space_of(OPEN_NOTES, owner)
        place = conversations.c.place
        is_visible = place.not_in([OPERATOR, *closed]) & ~place.startswith(USER)
        candidates = CONVERSATIONS_QUERY.where(
            (place == own) | is_visible if owner else place == own
        )
        found = restrict_to_words(candidates, conversations, query, self._database.shared)
        return [_talk(row, own) for row in await self._database.read(found.limit(limit))]


def store_conversation(connection: sa.Connection, run: str, *, private: bool) -> None:
    """Store request and answer of a finished run, replacing earlier ones.

    `private`: only the requester got the answer.
    """
    connection.execute(sa.delete(conversations).where(conversations.c.run == run))
    row = connection.execute(sa.select(runs).where(runs.c.id == run)).one()
    place, result = _place(row, private), row.result or {}
    answer, label = result.get("answer"), result.get("label")
    if not place or not answer or not label or row.status == "failed":
        return
    insert = sa.insert(conversations).values(
        run=run,
        place=place,
        requester=row.requester,
        at=row.started,
        question=row.question,
        answer=answer,
        label=label,
        words=words_of(f"{answer} {row.question}"),  # the first ones of a very long text
    )
    connection.execute(insert)


async def publish_conversation(database: Database, run: str) -> None:
    """Record that an answer was published in the place of its request. Raises StoreError."""
    await database.change(lambda connection: store_conversation(connection, run, private=False))


def _place(row: sa.Row[Any], private: bool) -> str:
    """Return the place of a run's request and answer; empty if nobody asked.

    It counts requests in Slack, and `assistant ask` by the operator, but not as a user of an
    export, who may be somebody else here.
    """
    if row.request:
        channel = str(row.request).partition("/")[2].partition("/")[0]
        alone = private or channel.startswith("D")
        return space_of(OPEN_NOTES, row.requester) if alone else channel
    by_operator = row.kind == "ask" and not (row.requester or row.args.get("as_user"))
    return OPERATOR if by_operator else ""


def _talk(row: sa.Row[Any], own: str) -> Talk:
    return Talk(
        run=row.run,
        place="" if row.place == own else row.place,
        question=row.question,
        answer=row.answer,
        label=Label.of(row.label),
        at=row.at,
        message=(row.channel, row.ts, row.thread_ts) if row.channel else None,
    )


async def kept_files(run: Run) -> Sequence[Resource]:
    """Return the newest version of each file of the run."""
    files: Resources | None = run.clients.get(Resources)  # type: ignore[assignment]
    return await files.list_files(space_of_run(run.id)) if files else ()


async def add_files(run: Run, document: Document) -> None:
    """Add the files that the run of an answer kept to its document."""
    if isinstance(document, AnswerDocument):
        document.files = [
            KeptFile(name=f.name, kind=f.kind, bytes=f.size, version=f.version)
            for f in await kept_files(run)
        ]


PREFERENCES_LOCK = 7_005
"""Advisory lock of Postgres that a replica holds while it sets a preference."""
UNKNOWN_MEMBERS_ERROR = (
    "Slack does not tell just now who is in this channel. Ask again in a minute."
)
NOT_IN_IT = "Only a full member of this workspace who is in this channel sets its instructions."


@dataclass(frozen=True, slots=True)
class PreferenceStore:
    """Preferences in one database. The methods also raise StoreError."""

    database: Database
    directory: SlackDirectory

    async def list_preferences(self, user: str) -> Sequence[Preference]:
        rows = await self.database.read(_in(space_of(OPEN_NOTES, user)))
        return [Preference(row.id, row.text) for row in rows]

    @in_transaction
    def add(self, connection: sa.Connection, text: str, authorship: Authorship) -> None:
        space = space_of(OPEN_NOTES, authorship.by)
        self._lock(connection)
        existing = connection.execute(_in(space)).all()
        same = [row.id for row in existing if row.text.casefold() == text.casefold()]
        if len(existing) - len(same) >= MAX_PREFERENCES:
            raise ToolError(TOO_MANY_ERROR)
        connection.execute(sa.delete(preferences).where(preferences.c.id.in_(same)))
        connection.execute(sa.insert(preferences).values(_row(space, text, authorship)))

    def _lock(self, connection: sa.Connection) -> None:
        """Keep other replicas from counting or replacing rows until this transaction ends."""
        if self.database.shared:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(PREFERENCES_LOCK)))

    @in_transaction
    def delete(
        self, connection: sa.Connection, user: str, id: int, key: str = "", run: str = ""
    ) -> None:
        is_own = sa.and_(preferences.c.id == id, preferences.c.space == space_of(OPEN_NOTES, user))
        connection.execute(sa.delete(preferences).where(is_own))
        if key:
            row = {"key": key, "run": run, "at": datetime.now(UTC)}
            connection.execute(sa.insert(outside_calls).values(row))

    async def has_deleted(self, key: str) -> bool:
        rows = await self.database.read(sa.select(outside_calls).where(outside_calls.c.key == key))
        return bool(rows)

    async def instructions(self, channel: str) -> str:
        rows = await self.database.read(_in(_of(channel)))
        return rows[0].text if rows else ""

    async def check_member(self, user: str, channel: str) -> None:
        person = await self.directory.people.person(user, self.directory.team, fresh=True)
        inside = await self.directory.members.inside(channel)
        if person is None or inside is None:
            raise ToolError(UNKNOWN_MEMBERS_ERROR)
        if person.kind != "member" or user not in inside:
            raise ToolError(NOT_IN_IT)

    @in_transaction
    def instruct(
        self, connection: sa.Connection, channel: str, text: str, authorship: Authorship
    ) -> None:
        space = _of(channel)
        self._lock(connection)
        connection.execute(sa.delete(preferences).where(preferences.c.space == space))
        if text:
            connection.execute(sa.insert(preferences).values(_row(space, text, authorship)))


def _of(channel: str) -> str:
    return space_of(notes_of(channel), None)


def _in(space: str) -> sa.Select[Any]:
    rows = sa.select(preferences.c.id, preferences.c.text).where(preferences.c.space == space)
    return rows.order_by(preferences.c.id)


def _row(space: str, text: str, authorship: Authorship) -> dict[str, Any]:
    return {
        "space": space,
        "text": text,
        "by": authorship.by,
        "label": authorship.label.to_json(),
        "run": authorship.run,
        "at": datetime.now(UTC),
    }
