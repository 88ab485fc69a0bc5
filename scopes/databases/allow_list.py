"""The functions and the views of the catalog that a statement may use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ONE_SELECT_ERROR: Final = "Only one SELECT may be run at a time, and nothing else."
SYSTEM_ACCESS_ERROR: Final = (
    "Files, settings, other people's queries and the texts of views cannot be read here; "
    "list_tables, describe_table and information_schema.tables and .columns show the tables."
)
INFORMATION_SCHEMA: Final = frozenset(
    """columns constraint_column_usage key_column_usage referential_constraints schemata
    table_constraints tables""".split()
)
"""Its views that describe the data; the others hold texts of views and checks, or name roles."""
DUCKDB_VIEWS: Final = frozenset(
    "duckdb_columns duckdb_constraints duckdb_schemas duckdb_tables duckdb_types".split()
)
"""The same for DuckDB's own views; the texts of views and indexes may name files."""
DUCKDB_TABLE_FUNCTIONS: Final = frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)
"""All others of DuckDB read files, describe the machine, or take the name of a table as a text,
which hides the table: `histogram('duckdb_' || 'databases', path)`."""
DUCKDB_HIDDEN: Final = frozenset("current_setting getenv pg_get_viewdef".split())
"""The only scalar functions of DuckDB that reveal settings, or the definition of a view."""


def _load_names(dialect: str) -> frozenset[str]:
    folder = Path(__file__).parent
    files = (folder / f"functions_{name}.txt" for name in ("common", dialect))
    return frozenset(word for file in files for word in file.read_text().split())


POSTGRESQL: Final = _load_names("postgresql")
"""The server's functions that only compute, then those of hstore, fuzzystrmatch, pg_trgm, unaccent,
pgcrypto, uuid-ossp, tablefunc, ltree, intarray, pgvector, timescaledb and PostGIS. Not among them:
functions that describe the machine, read files, wait, count on, lock, or run a text as SQL."""
BIGQUERY: Final = _load_names("bigquery")
"""Functions that only compute. Not among them: those that ask a model or another database (ML, AI,
EXTERNAL_QUERY, VECTOR_SEARCH), use a key, or name the user."""
