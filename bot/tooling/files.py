"""What the tools of the scope files work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.database import Database
from bot.options import Options
from bot.tooling.kit import Opened
from config.settings import Settings
from scopes.label import Readers


@dataclass(frozen=True)
class FilesKit:
    """Nothing yet."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""

    async def open(self, run: str, requester: str | None) -> Opened:
        return Opened()

    def readers(self) -> Mapping[str, Readers]:
        return {}

    def missing(self) -> Mapping[str, str]:
        return {}

    async def aclose(self) -> None:
        return None
