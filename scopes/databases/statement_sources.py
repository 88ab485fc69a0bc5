"""What a statement in SQL reads: its tables, and by what it groups and filters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import duckdb

PARSED = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
"""DuckDB parses a statement and runs nothing of it."""


@dataclass(frozen=True, slots=True)
class StatementSources:
    """What a statement reads; nothing where DuckDB's parser does not take its dialect."""

    tables: tuple[str, ...] = ()
    """Names without schema, in the order in which they occur."""
    groups: tuple[str, ...] = ()
    """Columns by which the outermost SELECT groups, as it names them in its result."""
    filters: tuple[str, ...] = ()
    """Columns in its WHERE."""


@lru_cache(512)
def sources_of(sql: str) -> StatementSources:
    """Return what a statement that was run reads."""
    try:
        with duckdb.connect(config={"enable_external_access": False}) as parser:
            ((text,),) = parser.execute(PARSED, [sql.replace("`", '"')]).fetchall()
    except duckdb.Error:
        return StatementSources()
    parsed = json.loads(text)
    if parsed["error"] or not parsed["statements"]:
        return StatementSources()
    node = parsed["statements"][0]["node"]
    made = {name for each in _nodes(node) for name in _named(each)}
    read = (each["table_name"] for each in _nodes(node) if each.get("type") == "BASE_TABLE")
    names = (name.rpartition(".")[2] for name in read if name not in made)
    filters = (_column(each) for each in _nodes(node.get("where_clause")))
    found = (names, _groups(node), filter(None, filters))
    return StatementSources(*(tuple(dict.fromkeys(each)) for each in found))


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _nodes(each)


def _named(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that a WITH gives."""
    for entry in (node.get("cte_map") or {}).get("map") or ():
        yield str(entry["key"])


def _groups(node: Mapping[str, Any]) -> Iterator[str]:
    columns: Sequence[Mapping[str, Any]] = node.get("select_list") or ()
    names = [_column(each) for each in columns]
    for each in node.get("group_expressions") or ():
        place = str(((each.get("literal") or each.get("value")) or {}).get("text") or "")
        if place.isdigit() and 0 < int(place) <= len(names):
            yield from filter(None, [names[int(place) - 1]])
        elif (own := _column(each)) and own not in names:
            same = (n for n, c in zip(names, columns, strict=True) if _ref(c) == _ref(each))
            yield next(filter(None, same), own)
        elif own:
            yield own


def _column(node: Mapping[str, Any]) -> str:
    """Return the name of a column of the result; empty for an expression without one."""
    return str(node.get("alias") or next(reversed(_ref(node)), ""))


def _ref(node: Mapping[str, Any]) -> Sequence[str]:
    return node.get("column_names") or ()
