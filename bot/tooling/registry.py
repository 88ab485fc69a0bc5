"""The provider of notes and kept files, and the list of all tool providers."""

from __future__ import annotations

from bot.memory import ConversationStore, NoteStore, ResourceStore
from bot.storage.database import Database
from bot.tooling.files import FileTools
from bot.tooling.provider import OpenedTools, Options, Toolkit, ToolProvider
from bot.tooling.web import WebTools
from config.settings import Settings
from scopes.effects import OPEN_NOTES
from scopes.notes import Conversations, Notes
from scopes.resources import Resources
from scopes.spaces import TEAM_NOTES

NO_DATABASES = (
    "No database is configured: set data.databases in assistant.yaml, or give --database FILE."
)
NO_SHEETS = "No sheet is configured: name one under data.sheets (docs/google.md)."
DATABASE_TOOLS = ("list_tables", "describe_table", "execute_query")
SHEET_TOOLS = ("read_sheet", "append_rows")


class MemoryTools(ToolProvider):
    """Files that runs keep, and notes of users, conversations, the team and the operator."""

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        clients: dict[type, object] = {Resources: ResourceStore(self.database)}
        if requester and self.given:  # a user of an export has no notes
            return OpenedTools(clients)
        clients[Notes] = NoteStore(self.database)
        clients[Conversations] = ConversationStore(self.database)
        return OpenedTools(clients, {OPEN_NOTES: "", TEAM_NOTES: ""})


def toolkit_of(settings: Settings, database: Database, given: Options | None = None) -> Toolkit:
    """Return all tool providers; `given` are the options of a command; None = it serves Slack.

    What is not configured is not imported.
    """
    parts = (settings, database, given)
    kits: list[ToolProvider] = []
    absent: dict[str, str] = {}
    if settings.data.databases or (given and given.databases):
        from bot.tooling.data import DataTools

        kits.append(DataTools(*parts))
    else:
        absent |= dict.fromkeys(DATABASE_TOOLS, NO_DATABASES)
    if settings.data.sheets:
        from bot.tooling.data import SheetTools

        kits.append(SheetTools(*parts))
    else:
        absent |= dict.fromkeys(SHEET_TOOLS, NO_SHEETS)
    kits += [WebTools(*parts), MemoryTools(*parts), FileTools(*parts)]
    if settings.mcp.servers:
        from bot.tooling.mcp import McpTools  # its client takes 0.7 s and 55 MB

        kits.append(McpTools(*parts))
    return Toolkit(kits, absent)
