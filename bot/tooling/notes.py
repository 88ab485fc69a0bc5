"""What the tools of notes work with: notes, and what was asked and answered before."""

from __future__ import annotations

from dataclasses import dataclass

from bot.cli.options import Options
from bot.memory.conversations import TalkShelf
from bot.memory.notes import NoteShelf
from bot.storage.database import Database
from bot.tooling.kit import Kit, Opened
from config.settings import Settings
from scopes.conversations import Conversations
from scopes.effects import OPEN_NOTES
from scopes.notes import Notes
from scopes.spaces import TEAM_NOTES


@dataclass(frozen=True)
class NotesKit(Kit):
    """Notes of users, conversations and the team, and of the operator at the command line."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command, where a user is one of an export; None = it serves Slack."""

    async def open(self, run: str, requester: str | None) -> Opened:
        if requester and self.given:
            return Opened()
        clients: dict[type, object] = {Notes: NoteShelf(self.database)}
        clients[Conversations] = TalkShelf(self.database)
        return Opened(clients, {OPEN_NOTES: "", TEAM_NOTES: ""})
