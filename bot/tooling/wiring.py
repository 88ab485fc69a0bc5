"""The kits of a process, put together."""

from __future__ import annotations

from bot.database import Database
from bot.options import Options
from bot.tooling.data import DataKit
from bot.tooling.files import FilesKit
from bot.tooling.kit import Toolkit
from bot.tooling.mcp import McpKit
from bot.tooling.notes import NotesKit
from bot.tooling.web import WebKit
from config.settings import Settings


def toolkit_of(settings: Settings, database: Database, given: Options | None = None) -> Toolkit:
    """`given` are the options of a command; None = it serves Slack."""
    made = (settings, database, given)
    return Toolkit((DataKit(*made), WebKit(*made), NotesKit(*made), FilesKit(*made), McpKit(*made)))
