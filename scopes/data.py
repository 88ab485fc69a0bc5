"""Tools of the scope data: tables and queries of databases, sheets, charts of what was found."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
from collections.abc import Awaitable, Iterable
from typing import Annotated, TypeVar

from scopes.charts import make_chart
from scopes.databases.tables import (
    MAX_TABLES,
    Column,
    Databases,
    Rows,
    SourceDatabase,
    StatementFailed,
    TableInfo,
    Value,
    format_exact,
)
from scopes.effects import Effect, HandleArgument, Kept, Statement
from scopes.label import Label
from scopes.notes import read_note, save_note, search_notes
from scopes.resources import (
    CSV,
    MAX_BYTES,
    NewFile,
    Resources,
    file_name,
    resources_of,
    space_of_run,
)
from scopes.sheets import append_rows, read_sheet
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fit_items,
    not_found,
    one_line,
    only,
    open_to,
    tool,
    under,
)

T = TypeVar("T")
DatabaseName = Annotated[str, HandleArgument("database")]

MAX_SHOWN = 300
"""Characters of one value of a row."""
MAX_STATEMENT = 4_000
"""Characters of a statement that are stored with each of its rows."""
MAX_TITLE = 120
"""Characters of a column's name."""
RESERVED_TOKENS = 300
"""Tokens reserved for the text around the items."""


@tool(client=Databases)
async def list_tables(ctx: ToolContext, database: DatabaseName = "") -> ToolResult:
    """List tables, named as in queries."""
    handle, source, label = await _choose(ctx, database)
    tables = await _answer_of(source.tables(), _id("t", handle), label)
    if isinstance(tables, ToolResult):
        return tables
    items = [Item(_id("t", handle, t.name), _table_text(t), None, label) for t in tables]
    kept = fit_items(items, ctx.max_output_tokens - RESERVED_TOKENS)
    least = "At least " if len(tables) >= MAX_TABLES else ""
    omitted = len(items) - len(kept)
    more = f"{least}{omitted} more: query the catalog." if omitted else ""
    rest = f"{least}{omitted} more tables of {handle} were not listed" if omitted else ""
    undone = {f"list {handle}": rest}
    note = (
        f"{source.dialect}." if tables else f"{source.dialect}. It has no table that may be read."
    )
    return ToolResult(kept, truncated=more, note=note, undone=undone, label=label)


@tool(client=Databases)
async def describe_table(ctx: ToolContext, table: str, database: DatabaseName = "") -> ToolResult:
    """Columns of a table that list_tables left out or cut."""
    handle, source, label = await _choose(ctx, database)
    wanted = table.strip()
    found = await _answer_of(source.describe(wanted), _id("t", handle, wanted), label)
    if isinstance(found, ToolResult):
        return found
    if found is None:
        with under(label):
            raise ToolError(not_found("table", table))
    id = _id("t", handle, found.name)
    head = Item(id, _table_text(found, bare=True), None, label)
    lines = [
        Item(f"{id}#{n}", _column_text(c), None, label) for n, c in enumerate(found.columns, 1)
    ]
    kept = fit_items([head, *lines], ctx.max_output_tokens - RESERVED_TOKENS)
    omitted = len(lines) + 1 - len(kept)
    more = f"{omitted} more columns: query the catalog." if omitted else ""
    return ToolResult(kept, truncated=more, note=f"{source.dialect}.", label=label)


@tool(effect=Effect.QUERY, client=Databases)
async def execute_query(
    ctx: ToolContext, sql: Statement, database: DatabaseName = "", keep: Kept = ""
) -> ToolResult:
    """Run one SELECT. keep: a .csv name to keep all rows."""
    handle, source, label = await _choose(ctx, database)
    files = resources_of(ctx) if keep else None
    name = file_name(keep, "csv") if keep else ""
    id = _id("q", ctx.key, handle, sql)
    answer = source.query(sql, ctx.client(Databases).max_rows)
    found = await _answer_of(answer, id, label, "The statement failed: fix it.")
    if isinstance(found, ToolResult):
        return found
    query = f"{handle}: {sql.strip()[:MAX_STATEMENT]}"
    items = fit_items(_items(id, found, label, query), ctx.max_output_tokens - RESERVED_TOKENS)
    shown = max(0, len(items) - 1)
    note = " ".join(filter(None, (_count_words(found), one_line(found.note))))
    if files is not None:
        note = f"{note} {await _keep(ctx, files, name, found, label)}"
    rest = _describe_rest(ctx, found, shown, bool(keep))
    summary = f"{shown} of {found.total or 'many more'} rows of a query on {handle} were read"
    undone = {f"list {handle}": "", f"query {handle}": summary if rest and not keep else ""}
    return ToolResult(items, truncated=rest, note=note, undone=undone, label=label)


TOOLS = (
    *(list_tables, describe_table, execute_query),
    *(read_sheet, append_rows, make_chart),
    *(save_note, search_notes, read_note),
)


async def _answer_of(
    answer: Awaitable[T], id: str, label: Label, note: str = "The database failed."
) -> T | ToolResult:
    """Return the answer of a database; its objection to the question becomes an item."""
    try:
        with under(label):
            return await answer
    except StatementFailed as error:
        item = Item(f"{id}#error", str(error), None, label)
        return ToolResult((item,), note=note, label=label)


async def _choose(ctx: ToolContext, name: str) -> tuple[str, SourceDatabase, Label]:
    """Return the database and its label: the named one, else the only one held."""
    databases = ctx.client(Databases)
    found = await open_to(ctx, databases.by_handle)
    if name and name not in found:
        raise ToolError(not_found("database", name))
    handle = name or only("database", found)
    return handle, databases.by_handle[handle], databases.labels[handle]


def _id(kind: str, *parts: str) -> str:
    """Return a short name for a thing, the same in a replay, unique in the run."""
    return f"{kind}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:6]}"


def _table_text(table: TableInfo, *, bare: bool = False) -> str:
    rows = "" if table.rows is None else f"{table.rows} rows"
    named = ", ".join(f"{_short(c.name, MAX_TITLE)} {_short(c.type, 60)}" for c in table.columns)
    columns = f" ({named})" if named and not bare else ""
    facts = "; ".join(filter(None, (rows, _short(table.note, MAX_SHOWN))))
    return f"{table.name}{columns}{': ' if facts else ''}{facts}"


def _column_text(column: Column) -> str:
    note = f": {_short(column.note, MAX_SHOWN)}" if column.note else ""
    return f"{_short(column.name, MAX_TITLE)} {_short(column.type, 200)}{note}"


def _items(id: str, found: Rows, label: Label, query: str) -> Iterable[Item]:
    """Yield the columns with their types, then the rows."""
    columns = "; ".join(_column_text(c) for c in found.columns)
    yield Item(f"{id}#columns", columns, None, label)
    names = [_short(c.name, MAX_TITLE) for c in found.columns]
    for n, row in enumerate(found.rows, 1):
        cells = (f"{name}: {format_cell(cell)}" for name, cell in zip(names, row, strict=True))
        yield Item(f"{id}#row{n}", "; ".join(cells), None, label, query=query)


def format_cell(cell: Value) -> str:
    """Return a value on one line, exact; a long text is cut with a mark."""
    return "null" if cell is None else _short(format_exact(cell), MAX_SHOWN)


def _short(text: str, most: int) -> str:
    line = one_line(text)
    return line if len(line) <= most else f"{line[:most]}... [cut]"


def _count_words(found: Rows) -> str:
    if not found.rows:
        return "No rows."
    if found.total is None:
        return f"More than {len(found.rows)} rows."
    return f"{found.total} {'row' if found.total == 1 else 'rows'}."


def _describe_rest(ctx: ToolContext, found: Rows, shown: int, kept: bool) -> str:
    """Return a sentence on the rows that are not shown, and how to get them."""
    if shown >= len(found.rows) and not found.cut:
        return ""
    if not shown:
        return "A row is too long to be shown: select fewer columns, or shorten texts with left()."
    how = "count, sum or sort in the query"
    if Resources in ctx.clients and not kept:
        how += ", or save the rows with keep"
    return f"The first {shown} are shown: {how}."


async def _keep(ctx: ToolContext, files: Resources, name: str, found: Rows, label: Label) -> str:
    """Save as many rows as fit as CSV; return a sentence on it."""
    content, rows = await asyncio.to_thread(csv_of, found, MAX_BYTES)
    label = ctx.label.join(label)
    file = NewFile(space_of_run(ctx.run), ctx.key, name, CSV, content, label, ctx.run)
    saved = await files.save(file)
    less = found.cut or rows < len(found.rows)
    return f"{'Only the first ' if less else ''}{rows} rows are kept as {saved.id}."


def csv_of(found: Rows, max_bytes: int) -> tuple[bytes, int]:
    """Return rows as CSV in UTF-8, as many as fit, and how many they are.

    `Resource.shown` disarms cells that look like a formula.
    """
    lines = [_csv_line(c.name for c in found.columns)]
    room = max_bytes - len(lines[0])
    for row in found.rows:
        line = _csv_line("" if cell is None else format_exact(cell) for cell in row)
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return b"".join(lines), len(lines) - 1


def _csv_line(cells: Iterable[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow(cells)
    return out.getvalue().encode(errors="replace")
