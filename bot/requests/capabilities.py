"""List what the assistant can do for a user now, in the user's words."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bot.errors import SetupError
from bot.tooling.provider import Toolkit
from config.words import phrase
from scopes import permitted
from scopes.effects import OPEN_MAIL
from scopes.slack import OPEN_CHANNELS
from subagents.directory import Directory

log = logging.getLogger(__name__)

CAN = {
    OPEN_CHANNELS: ("slack", "slack"),
    OPEN_MAIL: ("email", "email"),
    "data:": ("data", "data"),
    "sheet:": ("data", "sheets"),
    "web:search": ("web", "web"),
    "web:read": ("web", "pages"),
    "notes:": ("notes", "notes"),
    "files:run$": ("files", "files"),
    "files:(?!run$)": ("files", "folders"),
    "mcp:": ("", "more"),
}
"""Pattern of a handle -> its scope, and the key of what a user can do with it.

The scope of an MCP server is in the title of its handle.
"""


def abilities(scopes: Collection[str], handles: Mapping[str, str]) -> list[str]:
    """List what these scopes can do with these handles."""

    def within(scope: str) -> bool:
        return scope in (*scopes, *permitted(scopes))

    told = [
        phrase(f"can.{key}")
        for pattern, (scope, key) in CAN.items()
        if any(
            re.match(pattern, handle) and within(scope or title.removeprefix("scope "))
            for handle, title in handles.items()
        )
    ]
    return told or [phrase("can.nothing")]


@dataclass(frozen=True)
class Capabilities:
    """The sources that a user's requests may use besides Slack and mail."""

    toolkit: Toolkit
    directory: Directory

    async def of(self, user: str) -> dict[str, str]:
        """Return handle -> title of everything available that this user may read now.

        The result is empty if a request could not be opened either. Raises StoreError.
        """
        try:
            opened = await self.toolkit.open("home", user)
        except SetupError as error:
            log.warning("nothing is open to requests: %s", error)
            return {}
        may = {h: await self.directory.may_read(user, h) for h in opened.handles}
        return {h: title for h, title in opened.handles.items() if may[h]}
