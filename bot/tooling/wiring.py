"""The kits of a process, put together."""

from __future__ import annotations

from bot.cli.options import Options
from bot.storage.database import Database
from bot.tooling.data import DataKit
from bot.tooling.files import FilesKit
from bot.tooling.kept import KeptKit
from bot.tooling.kit import Toolkit
from bot.tooling.notes import NotesKit
from bot.tooling.sheets import SheetsKit
from bot.tooling.web import WebKit
from config.settings import Settings


def toolkit_of(settings: Settings, database: Database, given: Options | None = None) -> Toolkit:
    """`given` are the options of a command; None = it serves Slack."""
    made = (settings, database, given)
    kits = (
        DataKit(*made),
        SheetsKit(*made),
        WebKit(*made),
        NotesKit(*made),
        KeptKit(*made),
        FilesKit(*made),
    )
    if not settings.mcp.servers:
        return Toolkit(kits)
    from bot.tooling.mcp import McpKit  # its client takes 0.7 s and 55 MB

    return Toolkit((*kits, McpKit(*made)))
