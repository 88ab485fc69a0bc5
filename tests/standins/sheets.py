"""Google Sheets of the local Google: spreadsheets with tabs, values, and marks of developers.

Formulas are kept and not computed: people would see `#FORMULA` there.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bot.local.google.api import Answering, Call, GoogleRefused, Json
from standins.google_faults import invalid, one_of

UNCOMPUTED = "#FORMULA"

_SIDE = r"\$?([A-Za-z]*)\$?([0-9]*)"
_CELLS = re.compile(rf"{_SIDE}(?::{_SIDE})?")
_RANGE = re.compile(r"(?:(?:'((?:[^']|'')+)'|([^'!]+))!)?(.*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Formula(NamedTuple):
    text: str


Value = str | int | float | bool | Formula | None


@dataclass(slots=True)
class Tab:
    id: int
    title: str
    rows: list[list[Value]] = field(default_factory=list)
    row_count: int = 1000
    column_count: int = 26

    def at(self, row: int, column: int) -> Value:
        """A cell by its place from 0; None where it is empty."""
        cells = self.rows[row] if row < len(self.rows) else []
        return cells[column] if column < len(cells) else None

    def filled(self) -> int:
        """Rows up to the last one that holds anything."""
        held = [n for n, row in enumerate(self.rows, 1) if any(v not in (None, "") for v in row)]
        return held[-1] if held else 0


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
    denied: set[str] = field(default_factory=set)
    """Ids of those that are not shared with the account."""
    lock: threading.RLock = field(default_factory=threading.RLock)


def book_of(title: str, **tabs: Sequence[Sequence[Value]]) -> Book:
    """A spreadsheet of these tabs; `_` in a name stands for a blank."""
    made = [
        Tab(number, name.replace("_", " "), [list(row) for row in rows])
        for number, (name, rows) in enumerate(tabs.items())
    ]
    return Book(title, made)


class Area(NamedTuple):
    """Places from 0, the ends not included."""

    tab: Tab
    top: int
    left: int
    bottom: int
    right: int

    def named(self) -> str:
        title = self.tab.title
        name = title if _PLAIN.fullmatch(title) else "'" + title.replace("'", "''") + "'"
        first = f"{_letters(self.left + 1)}{self.top + 1}"
        last = f"{_letters(self.right)}{self.bottom}"
        return f"{name}!{first}" + (f":{last}" if last != first else "")


def area_of(book: Book, text: str) -> Area:
    """The cells that a range names, as far as there is a grid."""
    whole = next((tab for tab in book.tabs if text in (tab.title, f"'{tab.title}'")), None)
    if whole:
        return Area(whole, 0, 0, whole.row_count, whole.column_count)
    named = _RANGE.fullmatch(text)
    title = (named[1] or "").replace("''", "'") or named[2] if named else None
    tab = next((t for t in book.tabs if t.title == title), None) if title else book.tabs[0]
    cells = _CELLS.fullmatch(named[3]) if named else None
    if tab is None or not cells or not any(cells.groups()):
        raise GoogleRefused("invalidArgument", f"Unable to parse range: {text}")
    left, top, right, bottom = cells.groups()
    if right is None:
        right, bottom = left, top
    area = Area(
        tab, int(top or 1) - 1, max(0, _number(left) - 1), int(bottom or tab.row_count),
        _number(right) or tab.column_count,
    )  # fmt: skip
    if area.bottom > tab.row_count or area.right > tab.column_count:
        most = f"Max rows: {tab.row_count}, max columns: {tab.column_count}"
        raise GoogleRefused(
            "invalidArgument", f"Range ({area.named()}) exceeds grid limits. {most}"
        )
    return area


def _number(letters: str) -> int:
    at = 0
    for letter in letters.upper():
        at = at * 26 + ord(letter) - 64
    return at


def _letters(number: int) -> str:
    number, rest = divmod(number - 1, 26)
    return (_letters(number) if number else "") + chr(65 + rest)


def values_of(area: Area) -> Json:
    """A ValueRange: empty rows and cells at the end are left out."""
    grid = [
        [_shown(area.tab.at(row, column)) for column in range(area.left, area.right)]
        for row in range(area.top, min(area.bottom, len(area.tab.rows)))
    ]
    for cells in grid:
        while cells and cells[-1] == "":
            cells.pop()
    while grid and not grid[-1]:
        grid.pop()
    body: Json = {"range": area.named(), "majorDimension": "ROWS"}
    return body | ({"values": grid} if grid else {})


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, Formula):
        return UNCOMPUTED
    return str(value).upper() if isinstance(value, bool) else str(value)


def _book(call: Call[SheetsState]) -> Book:
    id = call.path["spreadsheetId"]
    if id in call.state.denied:
        raise GoogleRefused("forbidden")
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
    """Values as people see them, by row: what is asked for in another way is refused."""
    one_of(call, "valueRenderOption", ("formatted_value",))
    one_of(call, "majorDimension", ("rows",))
    found = [values_of(area_of(_book(call), text)) for text in call.many("ranges")]
    return {"spreadsheetId": call.path["spreadsheetId"], "valueRanges": found}


# ---- changing


def _batch_update(call: Call[SheetsState]) -> Json:
    """All requests or none: each is looked at before any is carried out."""
    book, requests = _book(call), call.body.get("requests") or []
    if not requests:
        invalid("Must specify at least one request.")
    for number, request in enumerate(requests):
        _look(book, number, request)
    replies = [_carried_out(book, request) for request in requests]
    return {"spreadsheetId": call.path["spreadsheetId"], "replies": replies}


def _look(book: Book, number: int, request: Json) -> None:
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


def _carried_out(book: Book, request: Json) -> Json:
    ((kind, given),) = request.items()
    found: Json = _CHANGES[kind](book, given)
    return {kind: found} if found else {}


def _tab(book: Book, given: Json) -> Tab | None:
    return next((tab for tab in book.tabs if tab.id == given.get("sheetId")), None)


def _append_cells(book: Book, given: Json) -> Json:
    """New rows below the last one that holds anything; the grid grows with them."""
    tab = _tab(book, given)
    assert tab is not None
    del tab.rows[tab.filled() :]
    for row in given.get("rows") or ():
        tab.rows.append([_entered(cell) for cell in row.get("values") or ()])
    tab.row_count = max(tab.row_count, len(tab.rows))
    return {}


def _entered(cell: Json) -> Value:
    """What was written: a text stays one, whatever it begins with; a formula is said to be one."""
    entered: Json = cell.get("userEnteredValue") or {}
    if "formulaValue" in entered:
        return Formula(entered["formulaValue"])
    value: Value = next(iter(entered.values()), None)
    return value


def _create_mark(book: Book, given: Json) -> Json:
    mark = {"metadataId": len(book.marks) + 1, **given["developerMetadata"]}
    mark["location"] = {**mark.get("location", {}), "locationType": "SPREADSHEET"}
    book.marks.append(mark)
    return {"developerMetadata": mark}


def _delete_marks(book: Book, given: Json) -> Json:
    gone = _matching(book, [given["dataFilter"]])
    book.marks = [mark for mark in book.marks if mark not in gone]
    return {"deletedDeveloperMetadata": gone}


_CHANGES = {
    "appendCells": _append_cells,
    "createDeveloperMetadata": _create_mark,
    "deleteDeveloperMetadata": _delete_marks,
}


def _matching(book: Book, filters: Sequence[Json]) -> list[Json]:
    wanted = [each.get("developerMetadataLookup") or {} for each in filters]
    return [
        mark
        for mark in book.marks
        if any(all(mark.get(key) == value for key, value in one.items()) for one in wanted)
    ]


def _search(call: Call[SheetsState]) -> Json:
    filters = call.body.get("dataFilters") or []
    found = _matching(_book(call), filters)
    rows = [{"developerMetadata": mark, "dataFilters": filters} for mark in found]
    return {"matchedDeveloperMetadata": rows} if rows else {}


METHODS: Mapping[str, Answering] = {
    "sheets.spreadsheets.get": _get,
    "sheets.spreadsheets.values.batchGet": _batch_get,
    "sheets.spreadsheets.batchUpdate": _batch_update,
    "sheets.spreadsheets.developerMetadata.search": _search,
}
