"""Names of what a database tells of the machine that it runs on, and not of the data in it."""

from __future__ import annotations

import re

from scopes.databases.statement import STRINGS

CATALOG = "columns|constraints|indexes|schemas|tables|types|views"
"""What of `duckdb_...` tells of the data."""
NAMES = re.compile(
    rf"""duckdb_(?!(?:{CATALOG})$)\w+|pragma_\w+|current_setting|getenv                     # DuckDB
    |pg_(?:settings|file_settings|hba_file_rules|ident_file_mappings|config|db_role_setting
      |backend_memory_contexts|shmem_\w+|foreign_server\w*|user_mappings?)
    |inet_(?:server|client)_(?:addr|port)                                           # PostgreSQL""",
    re.IGNORECASE | re.VERBOSE,
)
"""Paths of files, settings, addresses (DuckDB, "Metadata Functions" and "Table Functions";
PostgreSQL, "System Views" and "System Catalogs")."""
TELLS = (
    "What tells of the machine and its settings (duckdb_databases, duckdb_settings, pg_settings, "
    "current_setting, pragma_...) cannot be used here; list_tables, describe_table and "
    "information_schema tell what data there is."
)
WORD = re.compile(r"\w+")


def tells_of_machine(text: str) -> bool:
    """Whether one of these names stands in a statement, in quotes or not, but in no literal."""
    names = STRINGS.sub(lambda found: f" {found['name'] or ''} ", text)
    return any(map(NAMES.fullmatch, WORD.findall(names)))
