"""What a statement in SQL reads: its tables, and by what it groups and filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIALECTS = ("duckdb", "bigquery", "postgres")


@dataclass(frozen=True, slots=True)
class StatementSources:
    """The sources that a statement reads; none where no dialect of ours parses it."""

    tables: tuple[str, ...] = ()
    """Names without schema, those of the outermost SELECT first."""
    groups: tuple[str, ...] = ()
    """Columns by which the outermost SELECT groups, as it names them in its result."""
    filters: tuple[str, ...] = ()
    """Columns in its WHERE."""


@lru_cache(512)
def sources_of(sql: str) -> StatementSources:
    """Return what a statement that was run reads. It is only parsed, in this process."""
    for dialect in DIALECTS:
        try:
            return _read_by(sqlglot.parse_one(sql, dialect=dialect))
        except (SqlglotError, RecursionError):  # the latter: too many levels to name its tables
            continue
    return StatementSources()


def _read_by(statement: exp.Expr) -> StatementSources:
    made = {each.alias for each in statement.find_all(exp.CTE)}
    read = (each.name for each in statement.find_all(exp.Table, bfs=False))
    names = (name.rpartition(".")[2] for name in read if name and name not in made)
    where = statement.args.get("where")
    filters = (each.name for each in where.find_all(exp.Column, bfs=False)) if where else ()
    return StatementSources(
        *(tuple(dict.fromkeys(each)) for each in (names, _groups(statement), filters))
    )


def _groups(statement: exp.Expr) -> Iterator[str]:
    group = statement.args.get("group")
    columns = statement.expressions
    for each in group.expressions if group else ():
        if isinstance(each, exp.Literal) and each.is_int and 0 < int(each.name) <= len(columns):
            yield from filter(None, [columns[int(each.name) - 1].alias_or_name])
            continue
        same = (c.alias_or_name for c in columns if c.unalias() == each)
        if name := next(same, each.alias_or_name):
            yield name
