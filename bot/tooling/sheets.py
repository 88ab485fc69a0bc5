"""What the tools for sheets work with: the spreadsheets that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.cli.options import Options
from bot.storage.database import Database
from bot.tooling.google import google_of, has_credentials, missing_credentials
from bot.tooling.kit import Kit, Opened, readers_of
from config.settings import Settings
from config.tools import Sheet
from scopes.google.spreadsheet import SCOPE, Spreadsheet
from scopes.label import Label, Readers
from scopes.sheets import SHEET, Sheets

NONE = "No sheet is configured: name one under data.sheets (docs/google.md)."


@dataclass(frozen=True)
class SheetsKit(Kit):
    """Spreadsheets of Google Sheets."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""
    _made: dict[str, Spreadsheet] = field(default_factory=dict)
    """By handle; one for all runs, as they hold connections and a token."""

    async def open(self, run: str, requester: str | None) -> Opened:
        """Raises SetupError where a key file cannot be used."""
        books = dict(self._books())
        if not books:
            return Opened()
        who = self.readers()
        labels = {h: Label(True, who[h], frozenset({h}), outside=True) for h in books}
        titles = {handle: handle.removeprefix(SHEET) for handle in books}
        return Opened({Sheets: Sheets(books, labels)}, titles)

    def _books(self) -> Iterator[tuple[str, Spreadsheet]]:
        """Those that there are credentials for."""
        endpoint, operator = self.settings.endpoints.sheets_api_endpoint, self.given is not None
        for name, sheet in self.settings.data.sheets.items():
            handle, source, own = f"{SHEET}{name}", f"data.sheets.{name}", sheet.service_account
            if handle not in self._made:
                google = google_of(self.settings, source, own, SCOPE, endpoint, operator=operator)
                if google is None:
                    continue
                self._made[handle] = Spreadsheet(google, sheet.id)
            yield handle, self._made[handle]

    def readers(self) -> Mapping[str, Readers]:
        return {
            f"{SHEET}{name}": readers_of(sheet.readers)
            for name, sheet in self.settings.data.sheets.items()
        }

    def missing(self) -> Mapping[str, str]:
        sheets = self.settings.data.sheets
        if any(map(self._has_credentials, sheets.values())):
            return {}
        why = missing_credentials(f"data.sheets.{next(iter(sheets))}") if sheets else NONE
        return dict.fromkeys(("read_sheet", "append_rows"), why)

    def problems(self) -> Sequence[str]:
        return [
            missing_credentials(f"data.sheets.{name}")
            for name, sheet in self.settings.data.sheets.items()
            if not self._has_credentials(sheet)
        ]

    def _has_credentials(self, sheet: Sheet) -> bool:
        operator = self.given is not None
        return has_credentials(self.settings, sheet.service_account, operator=operator)

    async def aclose(self) -> None:
        """Close connections."""
        while self._made:
            _, book = self._made.popitem()
            await book.aclose()
