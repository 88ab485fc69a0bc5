"""Spreadsheets of the local Google: tabs of cells, and the ranges that name them."""

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bot.local.google.api import GoogleRefused, Json

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
