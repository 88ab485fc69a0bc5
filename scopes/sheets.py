"""Tools that read the configured Google Sheets, and append to them after approval."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from config.words import phrase
from scopes.effects import Access, Effect, HandleArgument, PreparedCall
from scopes.google.errors import GoogleError, GoogleUnsure
from scopes.google.spreadsheet import Cell, Spreadsheet, Tab, letters
from scopes.label import Label
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fit_items,
    format_count,
    not_found,
    tool,
    under,
)

MOST_ROWS: Final = 1_000
"""Maximum rows of one read."""
MOST_APPENDED: Final = 50
MAX_CELL: Final = 2_000
"""Maximum characters of an appended cell; a read cell is cut to as many."""
LISTS: Final = "call read_sheet without a tab, which lists the tabs"

_PLAIN_TITLE = re.compile(r"\w{1,40}")

Sheet = Annotated[str, HandleArgument("sheet")]
Text = Annotated[str, Field(max_length=MAX_CELL)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[int | Finite, WithJsonSchema({"type": "number"})]
Row = Annotated[list[Text | Number | bool | None], Field(min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True)
class Sheets:
    """The spreadsheets of one run, by handle."""

    by_handle: Mapping[str, Spreadsheet] = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Handle -> label of everything read there: untrusted, its readers, the handle as source."""


@tool(client=Sheets)
async def read_sheet(ctx: ToolContext, sheet: Sheet, tab: str = "", row: int = 1) -> ToolResult:
    """Read a tab of a Google Sheet from a row on; without tab, its tabs."""
    book, label = _book(ctx, sheet)
    _, tabs = await book.about()
    if not tab.strip() and len(tabs) != 1:
        items = tuple(_tab_item(sheet, book, each, label) for each in tabs)
        return ToolResult(items, note=f"{len(items)} tabs; name one.", label=label)
    with under(label):
        found = _tab(tab, tabs) if tab.strip() else tabs[0]
        if not 0 < row <= found.rows:
            raise ToolError(f"The tab has the rows 1 to {found.rows}.")
    end = min(found.rows, row + MOST_ROWS - 1)
    head, body = await book.rows(found.title, (1, 1), (row, end))
    where, link = f"{sheet}#{_tab_id(found)}", _link(book, found)
    items = tuple(_items(where, link, head[0] if head else [], enumerate(body, row), label))
    kept = fit_items(items, ctx.max_output_tokens)
    last = end if len(kept) == len(items) else int(kept[-1].id.rpartition("!A")[2])
    more = ""
    if last < found.rows:
        more = f"Rows after {last} are left out: call again with row={last + 1}."
    rest = f"rows after {last} of {sheet} were not read" if more else ""
    undone = {f"read {sheet} {found.title}": rest}
    return ToolResult(kept, truncated=more, note=_count(kept), undone=undone, label=label)


async def _prepare(ctx: ToolContext, sheet: str, tab: str, rows: list[Row]) -> PreparedCall:
    """Return the tab by its own name, and the values with their columns."""
    book, label = _book(ctx, sheet)
    title, tabs = await book.about()
    with under(label):
        found = _tab(tab, tabs)
        head = await _head(book, found)
        facts = {"spreadsheet": title or "(without a title)", "tab": found.title}
        for number, row in enumerate(rows, 1):
            facts[f"row {number}"] = "; ".join(_pairs(row, *head))
    return PreparedCall({"sheet": sheet, "tab": found.title, "rows": rows}, facts)


@tool(Access.EGRESS, Effect.CHANGE, prepare=_prepare, client=Sheets)
async def append_rows(
    ctx: ToolContext,
    sheet: Sheet,
    tab: str,
    rows: Annotated[list[Row], Field(min_length=1, max_length=MOST_APPENDED)],
) -> ToolResult:
    """Append rows to a tab, in the order of its columns, once approved."""
    book, label = _book(ctx, sheet)
    try:
        found = _tab(tab, (await book.about())[1])
        head = await _head(book, found)
        for row in rows:
            list(_pairs(row, *head))
        before: list[Cell] = [None] * (head[0] - 1)
        appended = await book.append(found, [[*before, *row] for row in rows], ctx.key)
    except GoogleUnsure as error:
        raise ToolError(
            "It is not known whether the rows were appended: look into the sheet before you ask "
            "for it again."
        ) from error
    except GoogleError as error:
        raise ToolError(f"No row was appended. {error}") from error
    note = phrase("done.appended" if appended else "done.appended_before", n=len(rows))
    return ToolResult(note=note, label=label)


def _book(ctx: ToolContext, sheet: str) -> tuple[Spreadsheet, Label]:
    held = ctx.clients.get(Sheets)
    if not isinstance(held, Sheets) or sheet not in held.by_handle:
        raise ToolError(not_found("sheet", sheet))
    return held.by_handle[sheet], held.labels[sheet]


def _tab(name: str, tabs: Sequence[Tab]) -> Tab:
    wanted = name.strip().strip("'").casefold()
    exact = [tab for tab in tabs if tab.title == name]
    alike = [tab for tab in tabs if tab.title.strip().casefold() == wanted]
    found = exact or alike
    if len(found) != 1:
        raise ToolError(f"There is no such tab: {LISTS}.")
    return found[0]


def _tab_item(sheet: str, book: Spreadsheet, tab: Tab, label: Label) -> Item:
    text = f"{tab.title}: {tab.rows} rows and {tab.columns} columns, empty ones included"
    return Item(f"{sheet}#{_tab_id(tab)}", text, _link(book, tab), label)


def _tab_id(tab: Tab) -> str:
    """Return a tab in an id: by its name only if that is one word, which can be no instruction."""
    return tab.title if _PLAIN_TITLE.fullmatch(tab.title) else f"gid{tab.id}"


def _link(book: Spreadsheet, tab: Tab) -> str:
    return f"https://docs.google.com/spreadsheets/d/{book.id}/edit#gid={tab.id}"


def _items(
    where: str,
    link: str,
    columns: Sequence[str],
    rows: Iterable[tuple[int, list[str]]],
    label: Label,
) -> Iterator[Item]:
    """Yield the columns first, then each row that is not empty, with the columns."""
    if columns:
        text = "; ".join(each or "(empty)" for each in columns)
        yield Item(f"{where}!A1", text, f"{link}&range=A1", label, notes=("columns",))
    for number, values in rows:
        if any(values) and not (number == 1 and columns):
            text = "; ".join(_cells(values, columns))
            yield Item(f"{where}!A{number}", text, f"{link}&range=A{number}", label)


def _cells(values: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    for place, value in enumerate(values):
        if value:
            name = columns[place] if place < len(columns) else ""
            cut = value if len(value) <= MAX_CELL else f"{value[:MAX_CELL]}…"
            yield f"{name or letters(1 + place)}: {cut}"


def _count(items: Sequence[Item]) -> str:
    count = sum(not each.notes for each in items)
    return f"{format_count(count, 'row')}." if items else "These cells are empty."


async def _head(book: Spreadsheet, tab: Tab) -> tuple[int, list[str]]:
    """Return the names of the columns, and the number of the first: the first row, from its first
    cell that holds something."""
    (rows,) = await book.rows(tab.title, (1, 1))
    cells = rows[0] if rows else []
    first = next((n for n, cell in enumerate(cells) if cell), 0)
    return 1 + first, cells[first:]


def _pairs(row: Sequence[Cell], first: int, columns: Sequence[str]) -> Iterator[str]:
    """Return each value with its column. Raises ToolError for more values than columns."""
    if columns and len(row) > len(columns):
        raise ToolError(f"A row has {len(row)} values, and the tab {len(columns)} columns.")
    for place, value in enumerate(row):
        name = columns[place] if columns else ""
        text = "(empty)" if value in (None, "") else str(value)
        yield f"{name or letters(first + place)}: {text}"
