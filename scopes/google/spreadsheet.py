"""One spreadsheet of Google Sheets: its tabs, their cells, and rows that are appended once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from scopes.google.client import GoogleClient
from scopes.google.errors import GoogleAbsent, GoogleError, GoogleUnsure

SHEETS_SCOPE: Final = "https://www.googleapis.com/auth/spreadsheets"
"""Reading and changing spreadsheets that are shared with the account."""
METADATA_KEY: Final = "assistant.rows"
"""Key of the mark that is set together with appended rows."""
MOST_MARKS: Final = 200
"""Maximum marks in a spreadsheet, which holds 30,000 characters of them."""
MAX_ATTEMPTS: Final = 2


def letters(number: int) -> str:
    """Return the letters of a column: 1 = `A`, 27 = `AA`, 0 = empty."""
    text = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        text = chr(65 + rest) + text
    return text


Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Tab:
    id: int
    title: str
    rows: int
    """Rows of the grid, empty ones included."""
    columns: int


class Spreadsheet:
    """One spreadsheet. Its methods raise GoogleError."""

    def __init__(self, google: GoogleClient, id: str) -> None:
        self.google, self.id = google, id

    @cached_property
    def _sheets(self) -> Any:
        return self.google.service("sheets", "v4").spreadsheets()

    async def about(self) -> tuple[str, list[Tab]]:
        """Return the title and the tabs that have cells, in their order."""
        found = await self._call(self._sheets.get(spreadsheetId=self.id))
        held = [each.get("properties") or {} for each in found.get("sheets") or ()]
        tabs = [_tab(each) for each in held if each.get("sheetType", "GRID") == "GRID"]
        return str((found.get("properties") or {}).get("title") or ""), tabs

    async def rows(self, tab: str, *spans: tuple[int, int]) -> list[list[list[str]]]:
        """Return the displayed values of these rows (first and last, from 1), without trailing
        empty cells and rows."""
        name = "'" + tab.replace("'", "''") + "'"
        request = self._sheets.values().batchGet(
            spreadsheetId=self.id,
            ranges=[f"{name}!{first}:{last}" for first, last in spans],
            valueRenderOption="FORMATTED_VALUE",
        )
        found = (await self._call(request)).get("valueRanges") or ()
        return [[[*map(str, row)] for row in each.get("values") or ()] for each in found]

    async def append(self, tab: Tab, rows: Sequence[Sequence[Cell]], key: str) -> bool:
        """Append rows to a tab, once for each key; return False if they were there before.

        The same atomic request sets a mark with an id that can exist only once. Texts stay texts,
        never formulas. Raises GoogleUnsure if it is unknown whether they were appended.
        """
        digest = hashlib.sha256(f"{self.id}\n{key}".encode()).hexdigest()[:16]
        unsure: GoogleUnsure | None = None
        for _ in range(MAX_ATTEMPTS):
            marks = await self._marks(unsure)
            if any(_value(each).endswith(digest) for each in marks):
                return unsure is not None
            body = {"requests": [_cells(tab, rows), _mark(digest), *_old(marks)]}
            request = self._sheets.batchUpdate(spreadsheetId=self.id, body=body)
            try:
                await self._call(request, repeat=False)
            except GoogleUnsure as error:
                unsure = error
            except GoogleError as error:
                if error.code != 400 or not await self._is_marked(digest, unsure):
                    raise
                return unsure is not None
            else:
                return True
        if await self._is_marked(digest, unsure):
            return True
        raise unsure or AssertionError("it was tried")

    async def _is_marked(self, digest: str, unsure: GoogleUnsure | None) -> bool:
        return any(_value(each).endswith(digest) for each in await self._marks(unsure))

    async def _marks(self, unsure: GoogleUnsure | None) -> list[Mapping[str, Any]]:
        """Return the marks of rows. Raises `unsure`, if given, when they cannot be read."""
        lookup = {"developerMetadataLookup": {"metadataKey": METADATA_KEY}}
        body = {"dataFilters": [lookup]}
        request = self._sheets.developerMetadata().search(spreadsheetId=self.id, body=body)
        try:
            found = (await self._call(request)).get("matchedDeveloperMetadata") or ()
        except GoogleError as error:
            raise unsure or error from error
        return [each.get("developerMetadata") or {} for each in found]

    async def _call(self, request: Any, *, repeat: bool = True) -> dict[str, Any]:
        try:
            return await self.google.call(request, repeat=repeat)
        except GoogleAbsent as error:
            text = "There is no spreadsheet of this id: fix it in data.sheets."
            raise GoogleAbsent(text, error.code, error.reason) from error
        except GoogleError as error:
            if error.code != 403 or error.is_setup:
                raise
            text = (
                "The account may not do that with this spreadsheet: share it with its address "
                f"(docs/google.md). ({request.methodId}, 403 {error.reason})"
            )
            raise GoogleError(text, error.code, error.reason) from error

    async def aclose(self) -> None:
        await self.google.aclose()


def _tab(found: Mapping[str, Any]) -> Tab:
    grid = found.get("gridProperties") or {}
    size = int(grid.get("rowCount") or 0), int(grid.get("columnCount") or 0)
    return Tab(int(found.get("sheetId") or 0), str(found.get("title") or ""), *size)


def _value(mark: Mapping[str, Any]) -> str:
    return str(mark.get("metadataValue") or "")


def _cells(tab: Tab, rows: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    row_data = [{"values": [_cell(each) for each in row]} for row in rows]
    return {"appendCells": {"sheetId": tab.id, "rows": row_data, "fields": "userEnteredValue"}}


def _cell(value: Cell) -> dict[str, Any]:
    if value is None or value == "":
        return {}
    kind = "boolValue" if isinstance(value, bool) else "numberValue"
    return {"userEnteredValue": {"stringValue" if isinstance(value, str) else kind: value}}


def _mark(digest: str) -> dict[str, Any]:
    metadata = {
        "metadataId": int(digest[:7], 16) + 1,
        "metadataKey": METADATA_KEY,
        "metadataValue": f"{int(time.time()):011d}.{digest}",
        "location": {"spreadsheet": True},
        "visibility": "DOCUMENT",
    }
    return {"createDeveloperMetadata": {"developerMetadata": metadata}}


def _old(marks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return requests that delete the oldest marks if there are too many."""
    oldest = sorted(marks, key=_value)[: max(0, len(marks) + 1 - MOST_MARKS)]
    return [
        {
            "deleteDeveloperMetadata": {
                "dataFilter": {"developerMetadataLookup": {"metadataId": each["metadataId"]}}
            }
        }
        for each in oldest
    ]
