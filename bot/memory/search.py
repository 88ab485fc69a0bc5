"""Full-text search of notes and conversations: FTS5 in SQLite, tsvector in PostgreSQL.

The words of a text are split here, alike for both, and stored beside it; the migration creates the
indexes, which the databases maintain by triggers and by a generated column. A word is also found by
its beginning, so that `invoice` finds `invoices`, in most languages that are written with spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from scopes.clean import unified

STEM = 5
"""Number of first letters by which longer words match."""
MAX_LETTERS = 64
"""Maximum letters of a word; the rest of a longer one is ignored."""
MAX_ASKED = 30
"""Maximum different words of one search."""
MAX_INDEXED = 30_000
"""Maximum different words of one text, its first ones."""
MAX_BYTES = 300_000
"""Maximum size of those words: a tsvector of PostgreSQL holds 1 MB, including word positions."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def words_of(text: str) -> str:
    """Return the words of a text as they are indexed, each once."""
    words: dict[str, None] = {}
    size = 0
    for word in _words(text):
        if word in words:
            continue
        size += len(word.encode()) + 1
        if len(words) == MAX_INDEXED or size > MAX_BYTES:
            break
        words[word] = None
    return " ".join(words)


def matching(
    query: sa.Select[Any], table: sa.Table, text: str, shared: bool, weights: Sequence[float] = ()
) -> sa.Select[Any]:
    """Restrict a query to rows of `table` that hold words of the text.

    Rows that hold all of them come first, ordered by the rank of the database. `weights`: of the
    indexed columns, for ranking in SQLite; PostgreSQL's are in its index.
    """
    words = list(dict.fromkeys(_words(text)))[:MAX_ASKED]
    if not words:
        return query.where(sa.false())
    starts = {w: w[:STEM] for w in words if len(w) > STEM and not _is_unspaced(w)}
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
    flat = unified(text, "NFKD").casefold()
    plain = "".join(c for c in flat if not unicodedata.combining(c))
    for word in _WORD.findall(plain):
        if _is_unspaced(word):
            yield from (word[k : k + 2] for k in range(max(1, len(word) - 1)))
        else:
            yield word[:MAX_LETTERS]


def _is_unspaced(word: str) -> bool:
    """Return whether its script has no spaces, so that pairs of letters are used as words."""
    return _UNSPACED.search(word) is not None
