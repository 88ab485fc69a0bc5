"""Which functions of DuckDB a statement takes tables from, as DuckDB itself reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from scopes.databases.duck_source import OURS

PARSED = f"SELECT {OURS}.json_serialize_sql(CAST(? AS VARCHAR))"
FUNCTIONS = f"SELECT function_name, internal FROM {OURS}.duckdb_functions()"
HARMLESS = frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)
"""All others of DuckDB read files, tell of the machine, or take the name of a table as a text, in
which nobody sees what it is: `histogram('duckdb_' || 'databases', path)`."""


def reaches_out(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    """Return whether a SELECT takes tables from a function that is neither harmless nor of the
    database.

    Raises RecursionError where it is nested too deeply to be read.
    """
    parsed = connection.execute(PARSED, [sql]).fetchone()
    used = {name.casefold() for name in _tables_from(json.loads(parsed[0]))} if parsed else set()
    if used <= HARMLESS:
        return False
    all_of_them = connection.execute(FUNCTIONS).fetchall()
    own = {name.casefold() for name, internal in all_of_them if not internal}
    return not used <= HARMLESS | own - {n.casefold() for n, internal in all_of_them if internal}


def _tables_from(tree: Any) -> Iterator[str]:
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if node.get("type") == "TABLE_FUNCTION":
                yield str(node["function"]["function_name"])
            todo += node.values()
        elif isinstance(node, list):
            todo += node
