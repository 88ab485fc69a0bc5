"""The full-text index of what lies in spaces: FTS5 in SQLite, a tsvector in Postgres.

A common word is in half of all texts, and to rank those takes longer than a reader waits. So each
word of a search gives the newest texts that hold it, and only these are ranked: the rarer the word,
the more it counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from bot.memory.note_words import asked, every, hidden_word, indexed
from bot.storage.database import Database

NEWEST = 150
"""Texts that one word of a search can bring in."""
TITLE = 5.0
"""What a word counts for in a title, besides what it counts for in any text."""


@dataclass(frozen=True, slots=True)
class WordIndex:
    """One table of hidden words; a migration made it."""

    table: str
    id: str
    """The column in Postgres that names the text; in SQLite it is the row's number."""
    space: str
    """The column in SQLite that says where the text lies."""
    has_title: bool = False

    def put(
        self,
        connection: sa.Connection,
        id: int,
        spaces: Sequence[str],
        text: str,
        key: bytes,
        title: str = "",
    ) -> None:
        """Index a text, in place of what was indexed under this id. It is looked for in the first
        of the spaces, and can be left out by each."""
        self.drop(connection, [id])
        there = " ".join(hidden_word(space, key) for space in spaces)
        values = {"id": id, "first": spaces[0], "space": there, "text": indexed(text, key)}
        if self.has_title:
            words = indexed(title, key)
            shared = connection.dialect.name == "postgresql"
            values["title"] = " ".join([words, *map(_titled, words.split())]) if shared else words
        connection.execute(sa.text(self._insert(connection.dialect.name)), values)

    def _insert(self, dialect: str) -> str:
        if dialect == "sqlite":
            names = ("space", "title", "text") if self.has_title else ("space", "text")
            columns = ", ".join([self.space, *names[1:]])
            values = ", ".join(f":{name}" for name in names)
            return f"INSERT INTO {self.table} (rowid, {columns}) VALUES (:id, {values})"
        title = "to_tsvector('simple', :title) || " if self.has_title else ""
        words = f"to_tsvector('simple', :space) || {title}to_tsvector('simple', :text)"
        return f"INSERT INTO {self.table} ({self.id}, space, words) VALUES (:id, :first, {words})"

    def drop(self, connection: sa.Connection, ids: Iterable[int]) -> None:
        """Take these texts out of the index."""
        name = "rowid" if connection.dialect.name == "sqlite" else self.id
        statement = sa.text(f"DELETE FROM {self.table} WHERE {name} = :id")
        for id in ids:
            connection.execute(statement, {"id": id})

    async def find(
        self,
        database: Database,
        spaces: Sequence[str],
        query: str,
        limit: int,
        closed: Collection[str] = (),
    ) -> list[int]:
        """Ids of texts in these spaces, not in the closed ones, that hold words of the query."""
        key = database.digest_key
        words = asked(query, key)
        if not words:
            return []
        within = _Terms(
            database.shared,
            self.space,
            "" if database.shared else " OR ".join(hidden_word(space, key) for space in spaces),
            [hidden_word(space, key) for space in closed],
        )
        loose = every(query, key)
        titles = [words.index(word) for word in loose] if self.has_title else []
        lists = [within.holding(word) for word in words]
        lists += [within.titled(words[k]) for k in titles]
        lists += [within.holding(*loose)] if len(loose) > 1 else []
        given = enumerate(spaces if database.shared else lists)
        values = {f"v{k}": value for k, value in given}
        found: defaultdict[int, list[int]] = defaultdict(list)
        for row in await database.read(self._newest(lists, database.shared, len(spaces)), **values):
            found[row["k"]].append(row["id"])
        return _ranked(found, len(words), titles)[:limit]

    def _newest(self, lists: Sequence[str], shared: bool, spaces: int) -> sa.Select[Any]:
        """The newest texts of each list.

        Postgres is given digests and signs in the statement itself: how it looks for a word depends
        on how common that is, which of a parameter it does not know.
        """
        id = self.id if shared else "rowid"
        there = ", ".join(f":v{k}" for k in range(spaces))
        served = f"words @@ '{{text}}'::tsquery AND space IN ({there})"
        match = served if shared else f"{self.table} MATCH :v{{k}}"
        found = f"SELECT {id} AS id FROM {self.table} WHERE {match}"
        newest = f"SELECT {{k}} AS k, id FROM ({found} ORDER BY {id} DESC LIMIT {NEWEST}) AS l{{k}}"
        union = " UNION ALL ".join(newest.format(k=k, text=text) for k, text in enumerate(lists))
        columns: list[sa.ColumnElement[Any]] = [sa.literal_column(n).label(n) for n in ("k", "id")]
        return sa.select(*columns).select_from(sa.text(f"({union}) AS lists"))


@dataclass(frozen=True, slots=True)
class _Terms:
    """Spells a search for words in some spaces as the database wants it; all words are hidden."""

    shared: bool
    column: str
    spaces: str
    """Of SQLite: any of these. In Postgres it is a column that says where a text lies."""
    closed: Sequence[str]

    def holding(self, *words: str) -> str:
        """Texts that hold all these words."""
        return self._within((" & " if self.shared else " AND ").join(words))

    def titled(self, word: str) -> str:
        """Texts with this word in their title."""
        return self._within(_titled(word) if self.shared else f"title : {word}")

    def _within(self, words: str) -> str:
        if self.shared:
            closed = "".join(f" & !{space}" for space in self.closed)
            return f"{words}{closed}"
        there = f"{self.column} : ({self.spaces}) AND {words}"
        closed = " OR ".join(self.closed)
        return f"({there}) NOT {self.column} : ({closed})" if closed else there


def _titled(word: str) -> str:
    """What stands for a word of a title in Postgres, whose index knows of no columns."""
    return f"t{word[1:]}"


def _ranked(found: Mapping[int, Sequence[int]], words: int, titles: Sequence[int]) -> list[int]:
    """Ids, best first, the newest of equals.

    `found`: the list of each word, then of each that was looked for in titles, then of all at once.
    """
    score: defaultdict[int, float] = defaultdict(float)
    rarity = [math.log(1 + NEWEST / len(found[k])) if found.get(k) else 0.0 for k in range(words)]
    weights = [*rarity, *(TITLE * rarity[k] for k in titles)]
    weights.append(sum(rarity))  # it holds those, too, of which only the newest were found
    for k, weight in enumerate(weights):
        for id in found.get(k, ()):
            score[id] += weight
    return sorted(score, key=lambda id: (-score[id], -id))
