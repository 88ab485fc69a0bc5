"""Google Sheets of the local Google: spreadsheets with tabs, values and developer metadata.

Values are returned by whole rows only.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.local.google.api import Call, GoogleRefused, Json, MethodHandler
from standins.google_faults import invalid, one_of

_ROWS = re.compile(r"'((?:[^']|'')+)'!(\d+):(\d+)")


Value = str | int | float | bool | None


@dataclass(slots=True)
class Tab:
    id: int
    title: str
    rows: list[list[Value]] = field(default_factory=list)
    row_count: int = 1000
    column_count: int = 26

    def last_filled_row(self) -> int:
        """Return the number of rows up to the last one that holds anything."""
        filled = [n for n, row in enumerate(self.rows, 1) if any(v not in (None, "") for v in row)]
        return filled[-1] if filled else 0


@dataclass(slots=True)
class Book:
    """One spreadsheet."""

    title: str
    tabs: list[Tab]
    marks: list[Json] = field(default_factory=list)
    """Developer metadata."""


@dataclass(slots=True)
class SheetsState:
    """All spreadsheets by id; open to tests, under `lock`."""

    books: dict[str, Book] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


def book_of(title: str, **tabs: Sequence[Sequence[Value]]) -> Book:
    """Return a spreadsheet of these tabs; `_` in a name means a blank."""
    sheets = [
        Tab(number, name.replace("_", " "), [list(row) for row in rows])
        for number, (name, rows) in enumerate(tabs.items())
    ]
    return Book(title, sheets)


def values_of(book: Book, text: str) -> Json:
    """Return a ValueRange of whole rows of a tab, without empty rows and cells at the end."""
    match = _ROWS.fullmatch(text)
    title = match[1].replace("''", "'") if match else ""
    tab = next((tab for tab in book.tabs if tab.title == title), None)
    if match is None or tab is None:
        raise GoogleRefused("invalidArgument", f"Unable to parse range: {text}")
    top, bottom = int(match[2]) - 1, int(match[3])
    if bottom > tab.row_count:
        most = f"Max rows: {tab.row_count}, max columns: {tab.column_count}"
        raise GoogleRefused("invalidArgument", f"Range ({text}) exceeds grid limits. {most}")
    grid = [[_format_value(value) for value in row] for row in tab.rows[top:bottom]]
    for cells in grid:
        while cells and cells[-1] == "":
            cells.pop()
    while grid and not grid[-1]:
        grid.pop()
    body: Json = {"range": text, "majorDimension": "ROWS"}
    return body | ({"values": grid} if grid else {})


def _format_value(value: Value) -> str:
    if value is None:
        return ""
    return str(value).upper() if isinstance(value, bool) else str(value)


def _book(call: Call[SheetsState]) -> Book:
    id = call.path["spreadsheetId"]
    if id not in call.state.books:
        raise GoogleRefused("notFound")
    return call.state.books[id]


def _get(call: Call[SheetsState]) -> Json:
    book, id = _book(call), call.path["spreadsheetId"]
    sheets = [{"properties": _properties(n, tab)} for n, tab in enumerate(book.tabs)]
    url = f"https://docs.google.com/spreadsheets/d/{id}/edit"
    properties = {"title": book.title, "locale": "en_US", "timeZone": "Etc/UTC"}
    return {
        "spreadsheetId": id, "properties": properties, "sheets": sheets, "spreadsheetUrl": url,
    }  # fmt: skip


def _properties(index: int, tab: Tab) -> Json:
    grid = {"rowCount": tab.row_count, "columnCount": tab.column_count}
    return {
        "sheetId": tab.id, "title": tab.title, "index": index, "sheetType": "GRID",
        "gridProperties": grid,
    }  # fmt: skip


# ---- values


def _batch_get(call: Call[SheetsState]) -> Json:
    """Return values as people see them, by row; refuse any other form."""
    one_of(call, "valueRenderOption", ("formatted_value",))
    one_of(call, "majorDimension", ("rows",))
    ranges = [values_of(_book(call), text) for text in call.many("ranges")]
    return {"spreadsheetId": call.path["spreadsheetId"], "valueRanges": ranges}


# ---- changing


def _batch_update(call: Call[SheetsState]) -> Json:
    """Apply all requests or none: each is checked before any is applied."""
    book, requests = _book(call), call.body.get("requests") or []
    if not requests:
        invalid("Must specify at least one request.")
    for number, request in enumerate(requests):
        _check_request(book, number, request)
    replies = [_apply_request(book, request) for request in requests]
    return {"spreadsheetId": call.path["spreadsheetId"], "replies": replies}


def _check_request(book: Book, number: int, request: Json) -> None:
    kind = next(iter(request), "")
    at = f"Invalid requests[{number}].{kind}"
    if len(request) != 1 or kind not in _CHANGES:
        invalid(f"{at}: this stand-in does not know it")
    if kind == "appendCells" and _tab(book, request[kind]) is None:
        invalid(f"{at}: No grid with id: {request[kind].get('sheetId')}")
    if kind == "createDeveloperMetadata":
        id = request[kind]["developerMetadata"].get("metadataId")
        if any(mark["metadataId"] == id for mark in book.marks):
            invalid(f"{at}: Metadata with ID {id} already exists.")


def _apply_request(book: Book, request: Json) -> Json:
    ((kind, body),) = request.items()
    reply: Json = _CHANGES[kind](book, body)
    return {kind: reply} if reply else {}


def _tab(book: Book, body: Json) -> Tab | None:
    return next((tab for tab in book.tabs if tab.id == body.get("sheetId")), None)


def _append_cells(book: Book, body: Json) -> Json:
    """Append rows below the last one that holds anything; the grid grows with them."""
    tab = _tab(book, body)
    assert tab is not None
    del tab.rows[tab.last_filled_row() :]
    for row in body.get("rows") or ():
        tab.rows.append([_cell_value(cell) for cell in row.get("values") or ()])
    tab.row_count = max(tab.row_count, len(tab.rows))
    return {}


def _cell_value(cell: Json) -> Value:
    """Return what was written: a text stays one, also with `=`."""
    value: Value = next(iter((cell.get("userEnteredValue") or {}).values()), None)
    return value


def _create_mark(book: Book, body: Json) -> Json:
    mark = {"metadataId": len(book.marks) + 1, **body["developerMetadata"]}
    mark["location"] = {**mark.get("location", {}), "locationType": "SPREADSHEET"}
    book.marks.append(mark)
    return {"developerMetadata": mark}


def _delete_marks(book: Book, body: Json) -> Json:
    deleted = _matching_marks(book, [body["dataFilter"]])
    book.marks = [mark for mark in book.marks if mark not in deleted]
    return {"deletedDeveloperMetadata": deleted}


_CHANGES = {
    "appendCells": _append_cells,
    "createDeveloperMetadata": _create_mark,
    "deleteDeveloperMetadata": _delete_marks,
}


def _matching_marks(book: Book, filters: Sequence[Json]) -> list[Json]:
    lookups = [each.get("developerMetadataLookup") or {} for each in filters]
    return [
        mark
        for mark in book.marks
        if any(all(mark.get(key) == value for key, value in one.items()) for one in lookups)
    ]


def _search(call: Call[SheetsState]) -> Json:
    filters = call.body.get("dataFilters") or []
    found = _matching_marks(_book(call), filters)
    rows = [{"developerMetadata": mark, "dataFilters": filters} for mark in found]
    return {"matchedDeveloperMetadata": rows} if rows else {}


METHODS: Mapping[str, MethodHandler] = {
    "sheets.spreadsheets.get": _get,
    "sheets.spreadsheets.values.batchGet": _batch_get,
    "sheets.spreadsheets.batchUpdate": _batch_update,
    "sheets.spreadsheets.developerMetadata.search": _search,
}
