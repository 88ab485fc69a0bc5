"""What the tools of notes work with: notes, and what else this database keeps for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.database import Database
from bot.notes import NoteShelf
from bot.options import Options
from bot.tooling.kit import Opened
from config.settings import Settings
from scopes.label import Readers
from scopes.notes import OPEN_NOTES, Notes


@dataclass(frozen=True)
class NotesKit:
    """Notes of users, and of the operator at the command line."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command, where a user is one of an export; None = it serves Slack."""

    async def open(self, run: str, requester: str | None) -> Opened:
        if requester and self.given:
            return Opened()
        return Opened({Notes: NoteShelf(self.database)}, {OPEN_NOTES: ""})

    def readers(self) -> Mapping[str, Readers]:
        return {}

    def missing(self) -> Mapping[str, str]:
        return {}

    async def aclose(self) -> None:
        return None
