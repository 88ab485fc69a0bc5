"""The `notes` table: how long a search takes among 100,000 notes.

The texts have made-up words: some are in a third of all texts, as in any language, and some in
five.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path

import sqlalchemy as sa
from pg_kit import database as own_database

from benchmarks.table import Row
from bot.memory import NoteStore, words_of
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from bot.storage.tables import notes as notes_table
from scopes.label import TRUSTED_LABEL
from scopes.notes import MAX_HITS

NUMBER = 100_000
BATCH = 2_000
SPACES = ("user:U0ANA", "team", "channel:C0SALES")
"""Searched spaces; there is one more."""
SHARES = (50, 20, 10, 20)
"""Shares of the spaces in percent, that of the extra one last."""
WORDS = 30
"""Words of a text."""
VOCABULARY = 20_000
WARM, SEARCHES = 5, 40
KINDS = {"common": (0, 20), "rare": (10_000, VOCABULARY)}
"""Ranks of words: a common word is in a tenth to all of the texts."""
QUERIES = {
    "one rare word": ["rare"],
    "one common word": ["common"],
    "three common words": ["common"] * 3,
    "two of each": ["rare", "common", "rare", "common"],
}
NOTES = """\
Medians of 40 searches after five. Who searches has half of the notes, and reads those of the team
and of a channel besides, all but a fifth."""


async def notes() -> list[Row]:
    """Measure in a file, and in a Postgres database."""
    with tempfile.TemporaryDirectory() as folder:
        rows = await _measured("SQLite", await Database.open(Path(folder), None, Cipher.generate()))
        with own_database() as url:
            served = await Database.open(Path(folder), url, Cipher.generate())
            return rows + await _measured("Postgres", served)


async def _measured(kind: str, database: Database) -> list[Row]:
    """Measure a database, and close it."""
    try:
        texts = _Texts(random.Random(7))
        began = time.perf_counter()
        for start in range(0, NUMBER, BATCH):
            await database.change(partial(_fill, texts=texts, start=start))
        took = (time.perf_counter() - began) / NUMBER * 1000
        if database.shared:
            await database.change(lambda c: c.execute(sa.text("ANALYZE notes")))
        rows, shelf = [Row(f"{kind}: to keep a note", took, " ms")], NoteStore(database)
        for name, query in QUERIES.items():
            rows.append(await _timed(f"{kind}: {name}", shelf, texts, query))
        return rows
    finally:
        await database.aclose()


async def _timed(name: str, shelf: NoteStore, texts: _Texts, query: Sequence[str]) -> Row:
    spent, hits = [], []
    for turn in range(WARM + SEARCHES):
        text = " ".join(texts.word(*KINDS[each]) for each in query)
        began = time.perf_counter()
        hits.append(len(await shelf.search(SPACES, text, MAX_HITS + 1)))
        if turn >= WARM:
            spent.append((time.perf_counter() - began) * 1000)
    p95 = statistics.quantiles(spent, n=20)[-1]
    note = f"p95 {p95:.1f} ms, {statistics.median(hits):.0f} hits"
    return Row(name, statistics.median(spent), " ms", 500, note)


class _Texts:
    """Made-up texts: the n-th word of a language has about 1/n of the positions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        letters = "bcdfghjklmnprstvz", "aeiou"
        syllables = [a + b for a in letters[0] for b in letters[1]]
        self._words = ["".join(chance.choices(syllables, k=3 + k % 2)) for k in range(VOCABULARY)]
        self._shares = list(accumulate(1 / (k + 2) for k in range(VOCABULARY)))

    def text(self, words: int) -> str:
        return " ".join(self.chance.choices(self._words, cum_weights=self._shares, k=words))

    def word(self, first: int, last: int) -> str:
        return self._words[self.chance.randrange(first, last)]


def _fill(connection: sa.Connection, texts: _Texts, start: int) -> None:
    """Store notes, many in one transaction."""
    now, label = datetime.now(UTC), TRUSTED_LABEL.to_json()
    for k in range(start, start + BATCH):
        (space,) = texts.chance.choices((*SPACES, "user:U0BEN"), SHARES)
        title, text = texts.text(4), texts.text(WORDS)
        row = {
            **{"id": k + 1, "space": space, "key": f"k{k}", "title": title, "text": text},
            **{"title_words": words_of(title), "words": words_of(text), "label": label},
            **{"context": "", "run": "r", "at": now},
        }
        connection.execute(sa.insert(notes_table).values(row))
