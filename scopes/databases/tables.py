"""Columns with types and rows of values, the same for all databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from scopes.label import Label
from scopes.tool import ToolError

Value = str | int | float | bool | Decimal | None
"""A cell; other types of a database (times, lists, structs, blobs) come as text."""
DATABASE_PREFIX: str = "data:"
"""Prefix of the handle of a database: `data:sales`."""
MAX_TABLES = 1_000
"""Maximum tables of a list that a database returns at once; at this number there may be more."""


class StatementFailed(ToolError):
    """The database's own error about a statement: it may hold names and values, so it is shown as
    an item, with the label of the database."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """Name in the database: `DECIMAL(10,2)`, `STRING`."""
    note: str = ""
    """Description in the database; empty if it has none."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table or view, as the database lists it."""

    name: str
    """Name in a query, with its schema if it needs one."""
    rows: int | None = None
    """None if the database does not return it at once."""
    columns: tuple[Column, ...] = ()
    """Empty in a list of many."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of a query."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    total: int | None
    """Rows in all; None = more than `rows`, and not counted."""
    note: str = ""
    """One sentence of the database: what it read, what it costs."""

    @property
    def cut(self) -> bool:
        return self.total is None or self.total > len(self.rows)


def format_exact(cell: Value) -> str:
    """Return a value as text, exact: 0.00000001 is no 1E-8."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return format(cell, "f") if isinstance(cell, Decimal) else str(cell)


class SourceDatabase(Protocol):
    """One database, read only. An error that the model can fix (a missing column, a query that
    takes too long or costs too much) is a ToolError, which says what to do. One with words of the
    database is a StatementFailed."""

    @property
    def dialect(self) -> str:
        """Return the name that models know: `DuckDB`, `PostgreSQL`, `BigQuery`."""

    async def tables(self) -> Sequence[TableInfo]:
        """Return all that may be queried, by name."""

    async def describe(self, table: str) -> TableInfo | None:
        """Return one table with its columns; None if it does not exist."""

    async def query(self, sql: str, max_rows: int) -> Rows:
        """Return the first rows of one SELECT."""

    async def aclose(self) -> None:
        """Close its connections."""


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of one run, by handle: the client of the tools of `data`."""

    by_handle: Mapping[str, SourceDatabase] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Handle -> label of its data: untrusted, its readers, `data:<name>` as source."""
    max_rows: int = 10_000
    """Maximum rows of a result."""
