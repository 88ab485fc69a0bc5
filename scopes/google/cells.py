"""Ranges of a sheet in A1 notation: `Tab!B2:D10`, `'My tab'!A:C`, `3:10`, `Tab`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIDE = r"\$?([A-Za-z]{0,3})\$?([0-9]{0,7})"
_CELLS = re.compile(rf"{_SIDE}(?:(:){_SIDE})?")
_TAB = re.compile(r"(?:'((?:[^']|'')+)'|([^'!]+))(?:!(.*))?", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Area:
    """A block of cells; all numbers from 1, both ends included, None = to the end of the tab."""

    row: int = 1
    last_row: int | None = None
    column: int = 1
    last_column: int | None = None

    def within(self, rows: int, columns: int, most_rows: int) -> Area:
        """Return what of it lies in a tab of this size, and at most so many of its rows."""
        last_row = min(self.last_row or rows, rows, self.row + most_rows - 1)
        return Area(self.row, last_row, self.column, min(self.last_column or columns, columns))

    def named(self, tab: str) -> str:
        """As the API takes it."""
        ends = f"{letters(self.last_column or 0)}{self.last_row or ''}"
        return f"{quoted(tab)}!{letters(self.column)}{self.row}:{ends}"


def parsed(text: str) -> tuple[str, Area] | None:
    """Return the tab (empty where none is named) and the cells; None where it is no range.

    A word that could be both is a tab where it has no cells behind it, such as `Q1`; who calls
    looks whether there is one.
    """
    text = text.strip()
    found = _TAB.fullmatch(text)
    if not found:
        return None
    tab = found[1].replace("''", "'") if found[1] else found[2]
    if found[3] is None:
        return tab, Area()
    area = area_of(found[3])
    return (tab, area) if area else None


def area_of(text: str) -> Area | None:
    """Cells without a tab: `B2:D10`, `A:C`, `3:10`, `B2`."""
    found = _CELLS.fullmatch(text.strip())
    if not found or not text.strip():
        return None
    left, top, colon, right, bottom = found.groups()
    if not colon:
        if not (left and top and int(top)):
            return None
        at = number(left)
        return Area(int(top), int(top), at, at)
    if not (left or top) or not (right or bottom) or "0" in (top, bottom):
        return None
    if bool(left) != bool(right) or (bottom and not top):
        return None
    first, last = number(left) or 1, number(right) or None
    row, last_row = int(top or 1), int(bottom) if bottom else None
    if (last and last < first) or (last_row and last_row < row):
        return None
    return Area(row, last_row, first, last)


def number(letters: str) -> int:
    """`A` = 1, `AA` = 27, empty = 0."""
    at = 0
    for letter in letters.upper():
        at = at * 26 + ord(letter) - 64
    return at


def letters(number: int) -> str:
    """1 = `A`, 27 = `AA`, 0 = empty."""
    text = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        text = chr(65 + rest) + text
    return text


def quoted(tab: str) -> str:
    """Return a tab's name as a range begins with it."""
    return tab if _PLAIN.fullmatch(tab) and not area_of(tab) else "'" + tab.replace("'", "''") + "'"
