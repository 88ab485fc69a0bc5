"""The functions and the views of the catalog that a statement may use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REFUSED: Final = "Only one SELECT may be run at a time, and nothing else."
MACHINE: Final = (
    "What tells of the machine, its settings, other people's queries, or how views are made "
    "cannot be used here; list_tables, describe_table and information_schema.tables and .columns "
    "tell what data there is."
)
INFORMATION_SCHEMA: Final = frozenset(
    """columns constraint_column_usage key_column_usage referential_constraints schemata
    table_constraints tables""".split()
)
"""Its views that tell of the data; the others hold texts of views and checks, or name roles."""
DUCKDB_VIEWS: Final = frozenset(
    "duckdb_columns duckdb_constraints duckdb_schemas duckdb_tables duckdb_types".split()
)
"""The same of DuckDB's own; the texts of views and indexes may name files."""
DUCKDB_TABLE_FUNCTIONS: Final = frozenset(
    "range generate_series unnest repeat repeat_row json_each json_tree summary".split()
)
"""All others of DuckDB read files, tell of the machine, or take the name of a table as a text, in
which nobody sees what it is: `histogram('duckdb_' || 'databases', path)`."""
DUCKDB_HIDDEN: Final = frozenset("current_setting getenv pg_get_viewdef".split())
"""The only functions of DuckDB for a value that tell of settings, or of what a view is made of."""


def _load_names(dialect: str) -> frozenset[str]:
    folder = Path(__file__).parent
    files = (folder / f"functions_{name}.txt" for name in ("common", dialect))
    return frozenset(word for file in files for word in file.read_text().split())


POSTGRESQL: Final = _load_names("postgresql")
"""Those of the server that only compute, then those of hstore, fuzzystrmatch, pg_trgm, unaccent,
pgcrypto, uuid-ossp, tablefunc, ltree, intarray, pgvector, timescaledb and PostGIS. Not among them:
what tells of the machine, reads files, waits, counts on, locks, or runs a text as SQL."""
BIGQUERY: Final = _load_names("bigquery")
"""Those that only compute. Not among them: what asks a model or another database (ML, AI,
EXTERNAL_QUERY, VECTOR_SEARCH), uses a key, or tells who asks."""
