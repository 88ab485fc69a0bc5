"""What the tools for files that are kept work with."""

from __future__ import annotations

from dataclasses import dataclass

from bot.cli.options import Options
from bot.memory.resources import ResourceShelf
from bot.storage.database import Database
from bot.tooling.kit import Kit, Opened
from config.settings import Settings
from scopes.resources import Resources


@dataclass(frozen=True)
class KeptKit(Kit):
    """The files of this database: each run has its own, and the spaces of notes have theirs."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""

    async def open(self, run: str, requester: str | None) -> Opened:
        return Opened({Resources: ResourceShelf(self.database)})
