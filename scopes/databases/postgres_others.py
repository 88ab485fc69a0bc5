"""What of a PostgreSQL server tells what other sessions of a role ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

OTHERS: Final = re.compile(
    r"\bpg_(?:stat_|locks?\b|lock_|prepared_|cursors?\b|qualstats|store_plans|wait_sampling)\w*"
    r'|\bu&"',
    re.IGNORECASE,
)
"""What tells of other sessions of the role, with the text of their statements (PostgreSQL,
"Monitoring Database Activity" and "System Views"; the last three are extensions), and names that
nobody knows as they are written. Literals are looked through, too: no name is cut in two."""
TELLS: Final = (
    "What tells of what others do (pg_stat_..., pg_locks, pg_prepared_..., pg_cursors) and names "
    'written as U&"..." cannot be used here; list_tables and describe_table tell what there is.'
)
KEPT: Final = "SELECT set_config('track_activities', 'off', true)"
"""Keeps the statements of a transaction from others. A superuser may, and from PostgreSQL 15 on who
was granted SET on that parameter."""
MADE: Final = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relname, pg_get_viewdef(c.oid),
  has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
UNION ALL
SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname) || '()', p.proname,
  pg_get_functiondef(p.oid),
  has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.prokind IN ('f', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1"""
"""Views and functions that somebody made: full name, name, what it says, whether it may be used."""


def telling(made: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return those that may be used and read what tells of other sessions, be it through one
    another; what is named so itself is refused in queries.
    """
    known = {name for _, name, said, _ in made if OTHERS.search(said)}
    while True:
        more = {name for _, name, said, _ in made if known & set(re.findall(r"\w+", said))}
        if more <= known:
            break
        known |= more
    return [
        full
        for full, name, _, usable in made
        if usable and name in known and not OTHERS.match(name)
    ]
