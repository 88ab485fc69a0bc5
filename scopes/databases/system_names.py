"""Names by which a database reveals its machine and settings instead of its data."""

from __future__ import annotations

import re

from scopes.databases.statement import STRINGS

CATALOG = "columns|constraints|schemas|tables|types"
"""What of `duckdb_...` tells of the data; the texts of views and indexes may name files."""
NAMES = re.compile(
    rf"""duckdb_(?!(?:{CATALOG})$)\w+|pragma_\w+|current_setting|getenv                     # DuckDB
    |pg_(?:settings|file_settings|hba_file_rules|ident_file_mappings|config|db_role_setting
      |backend_memory_contexts|shmem_\w+|foreign_server\w*|user_mappings?)
    |inet_(?:server|client)_(?:addr|port)                                           # PostgreSQL
    |sqlite_(?:temp_)?(?:master|schema)|pg_(?:views|indexes|proc)              # texts of views""",
    re.IGNORECASE | re.VERBOSE,
)
"""Paths of files, settings, addresses, and the texts of views and macros, which may hold such
(DuckDB, "Metadata Functions" and "Table Functions"; PostgreSQL, "System Views" and "System
Catalogs")."""
TELLS = (
    "What tells of the machine and its settings, or how views are made (duckdb_databases, "
    "duckdb_views, sqlite_master, pg_settings, pg_views, current_setting, pragma_...) cannot be "
    "used here; list_tables, describe_table and information_schema.tables and .columns tell what "
    "data there is."
)
VIEWS = re.compile(r"\binformation_schema\W*\.\W*views\b", re.IGNORECASE)
"""It holds the texts of views, too."""
WORD = re.compile(r"\w+")


def tells_of_machine(text: str) -> bool:
    """Return whether a statement uses such a name, quoted or not, outside literals."""
    names = STRINGS.sub(lambda found: f" {found['name'] or ''} ", text)
    return bool(VIEWS.search(names)) or any(map(NAMES.fullmatch, WORD.findall(names)))
