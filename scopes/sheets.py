"""Tools for sheets of Google Sheets that the settings name: read, and append to by a card."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from config.words import phrase
from scopes.effects import Access, Effect, HandleArgument, Prepared
from scopes.google.errors import GoogleError, GoogleUnsure
from scopes.google.spreadsheet import Area, Block, Cell, Spreadsheet, Tab, area_of, letters, parsed
from scopes.label import Label
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fitting,
    not_found,
    tool,
    under,
)

MOST_ROWS: Final = 1_000
"""Rows of one reading."""
MOST_APPENDED: Final = 50
MAX_CELL: Final = 2_000
"""Characters of a cell that is appended; of one that is read the beginning is shown."""
LISTS: Final = "call read_sheet without a range, which lists the tabs"

_WORD = re.compile(r"\w{1,40}")

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
    """Of all that comes out of one: untrusted, its readers, its handle as the source."""


@tool(client=Sheets)
async def read_sheet(ctx: ToolContext, sheet: Sheet, range: str = "") -> ToolResult:
    """Read `Tab` or `Tab!A1:D20` of a Google Sheet; without range, its tabs."""
    book, label = _book(ctx, sheet)
    _, tabs = await book.about()
    if not range.strip() and len(tabs) != 1:
        items = tuple(_listed(sheet, book, tab, label) for tab in tabs)
        return ToolResult(items, note=f"{len(items)} tabs; name one.", label=label)
    with under(label):
        tab, asked = _area(range, tabs)
        area = asked.within(tab.rows, tab.columns, MOST_ROWS)
        _inside(area, tab)
    first = Area(1, 1, area.column, area.last_column)
    head, body = await book.blocks(tab.title, [first, area])
    found = list(_items(f"{sheet}#{_named(tab)}", _link(book, tab), head, body, label))
    kept = fitting(found, ctx.max_output_tokens)
    end = (area.last_row or 0) if len(kept) == len(found) else _row(kept[-1])
    more = ""
    if len(kept) < len(found) or end < min(asked.last_row or tab.rows, tab.rows):
        more = f"Rows after {end} are left out: call again with a range from row {end + 1} on."
    rest = f"rows after {end} of {sheet} were not read" if more else ""
    undone = {f"read {sheet} {tab.title}": rest}
    return ToolResult(kept, truncated=more, note=_count(kept), undone=undone, label=label)


async def _prepared(ctx: ToolContext, **given: Any) -> Prepared:
    """Return the tab by its own name, and the columns beside the values."""
    book, label = _book(ctx, given["sheet"])
    title, tabs = await book.about()
    with under(label):
        tab = _tab(given["tab"], tabs)
        head = await _head(book, tab)
        told = {"spreadsheet": title or "(without a title)", "tab": tab.title}
        for number, row in enumerate(given["rows"], 1):
            told[f"row {number}"] = "; ".join(_pairs(row, head))
    return Prepared({**given, "tab": tab.title}, told)


@tool(Access.EGRESS, Effect.CHANGE, prepare=_prepared, client=Sheets)
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
            list(_pairs(row, head))
        before: list[Cell] = [None] * (head.column - 1)
        made = await book.append(found, [[*before, *row] for row in rows], ctx.key)
    except GoogleUnsure as error:
        raise ToolError(
            "It is not known whether the rows were appended: look into the sheet before you ask "
            "for it again."
        ) from error
    except GoogleError as error:
        raise ToolError(f"No row was appended. {error}") from error
    note = phrase("done.appended" if made else "done.appended_before", n=len(rows))
    return ToolResult(note=note, label=label)


TOOLS = (read_sheet, append_rows)


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


def _area(text: str, tabs: Sequence[Tab]) -> tuple[Tab, Area]:
    """Return what a range names: a tab goes before cells that are written the same (`Q1`)."""
    named = parsed(text) if text.strip() else ("", Area())
    titles = {tab.title.strip().casefold() for tab in tabs}
    if named is None:
        raise ToolError("That is no range: write Tab, or Tab!A1:D20.")
    name, area = named
    if name and name.strip().casefold() in titles:
        return _tab(name, tabs), area
    cells = area_of(text) if name else area
    if cells is None:
        raise ToolError(f"There is no such tab: {LISTS}.")
    if len(tabs) != 1:
        raise ToolError(f"Name the tab, too, as in Tab!A1:D20; {LISTS}.")
    return tabs[0], cells


def _inside(area: Area, tab: Tab) -> None:
    if area.row > tab.rows or area.column > tab.columns:
        raise ToolError(f"The tab ends at {letters(tab.columns)}{tab.rows}: ask for less.")


def _listed(sheet: str, book: Spreadsheet, tab: Tab, label: Label) -> Item:
    text = f"{tab.title}: {tab.rows} rows and {tab.columns} columns, empty ones included"
    return Item(f"{sheet}#{_named(tab)}", text, _link(book, tab), label)


def _named(tab: Tab) -> str:
    """Return a tab in an id: by its name where that is one word, which tells a model
    nothing to do.
    """
    return tab.title if _WORD.fullmatch(tab.title) else f"gid{tab.id}"


def _link(book: Spreadsheet, tab: Tab) -> str:
    return f"https://docs.google.com/spreadsheets/d/{book.id}/edit#gid={tab.id}"


def _items(where: str, link: str, head: Block, body: Block, label: Label) -> Iterator[Item]:
    """Yield the columns first, then each row that holds anything, with the columns beside it."""
    columns = head.values[0] if head.values else ()
    if columns:
        at = f"{letters(head.column)}1"
        text = "; ".join(each or "(empty)" for each in columns)
        yield Item(f"{where}!{at}", text, f"{link}&range={at}", label, notes=("columns",))
    for row, values in enumerate(body.values, body.row):
        if any(values) and not (row == 1 and columns):
            at = f"{letters(body.column)}{row}"
            text = "; ".join(_shown(values, columns, body.column))
            yield Item(f"{where}!{at}", text, f"{link}&range={at}", label)


def _shown(values: Sequence[str], columns: Sequence[str], first: int) -> Iterator[str]:
    for place, value in enumerate(values):
        if value:
            name = columns[place] if place < len(columns) else ""
            cut = value if len(value) <= MAX_CELL else f"{value[:MAX_CELL]}…"
            yield f"{name or letters(first + place)}: {cut}"


def _row(item: Item) -> int:
    """Return the row that an item is of."""
    return int(re.sub(r".*![A-Z]+", "", item.id))


def _count(items: Sequence[Item]) -> str:
    count = sum(not each.notes for each in items)
    return f"{count} row{'' if count == 1 else 's'}." if items else "These cells are empty."


async def _head(book: Spreadsheet, tab: Tab) -> Block:
    """Return the names of the columns: the first row, from its first cell that holds something."""
    (row,) = await book.blocks(tab.title, [Area(1, 1, 1, tab.columns)])
    cells = row.values[0] if row.values else ()
    first = next((n for n, cell in enumerate(cells) if cell), 0)
    return Block(1, 1 + first, (cells[first:],) if cells else ())


def _pairs(row: Sequence[Cell], head: Block) -> Iterator[str]:
    """Each value with its column. ToolError for more values than columns."""
    columns = head.values[0] if head.values else ()
    if columns and len(row) > len(columns):
        raise ToolError(f"A row has {len(row)} values, and the tab {len(columns)} columns.")
    for place, value in enumerate(row):
        name = columns[place] if columns else ""
        said = "(empty)" if value in (None, "") else str(value)
        yield f"{name or letters(head.column + place)}: {said}"
