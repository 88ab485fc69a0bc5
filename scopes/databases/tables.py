"""Columns with types and rows of values, as all databases give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from scopes.label import Label
from scopes.tool import ToolError

Value = str | int | float | bool | Decimal | None
"""A cell; what a database has besides (times, lists, structs, blobs) comes as text."""
DATA: str = "data:"
"""How the handle of a database begins: `data:sales`."""
MAX_TABLES = 1_000
"""Of a list, where the database gives all at once; so many may be more."""


class StatementFailed(ToolError):
    """The database's own error about a statement: it may hold names and values, so it is shown as
    an item, with the label of the database."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """As the database calls it: `DECIMAL(10,2)`, `STRING`."""
    note: str = ""
    """What the database says of it; empty where it says nothing."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table or view, as the database lists it."""

    name: str
    """As a query names it, with its schema where it needs one."""
    rows: int | None = None
    """None where the database does not tell at once."""
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
    """One sentence of the database's own: what it read, what it costs."""

    @property
    def cut(self) -> bool:
        return self.total is None or self.total > len(self.rows)


def format_exact(cell: Value) -> str:
    """Return a value as text, exact: 0.00000001 is no 1E-8."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return format(cell, "f") if isinstance(cell, Decimal) else str(cell)


class SourceDatabase(Protocol):
    """One database, read only. What the model can fix (a column that is not there, a query that
    takes too long or costs too much) is a ToolError; it says what to do. What holds words of the
    database is a StatementFailed."""

    @property
    def dialect(self) -> str:
        """Return the name that models know: `DuckDB`, `PostgreSQL`, `BigQuery`."""

    async def tables(self) -> Sequence[TableInfo]:
        """Return all that may be queried, by name."""

    async def describe(self, table: str) -> TableInfo | None:
        """Return one table with its columns; None where there is none."""

    async def query(self, sql: str, max_rows: int) -> Rows:
        """Return the first rows of one SELECT."""

    async def aclose(self) -> None:
        """Close what it holds open."""


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of one run, by handle: the client of the tools of `data`."""

    by_handle: Mapping[str, SourceDatabase] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Of all that comes out of it: untrusted, its readers, `data:<name>` as its source."""
    max_rows: int = 10_000
    """Of a result."""
