"""List what the assistant can do for a user now, in the user's words."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bot.errors import SetupError
from bot.tooling.provider import Toolkit
from scopes import ALL
from scopes.effects import OPEN_MAIL
from scopes.slack import OPEN_CHANNELS
from subagents.directory import Directory

log = logging.getLogger(__name__)

CAN = {
    OPEN_CHANNELS: (
        "slack",
        "*Slack.* I read what both of us are in, and public channels. My answers link to the "
        "messages that they rest on.",
    ),
    OPEN_MAIL: (
        "email",
        "*Email.* I read the mailbox that you connect, for you alone. Write `triage my inbox` "
        "to learn what to do first and what can wait. I prepare labels and drafts, and send "
        "nothing without your approval.",
    ),
    "data:": (
        "data",
        "*Databases.* I query those that my administrator lets you read, and draw charts. I "
        "change nothing in them.",
    ),
    "sheet:": (
        "data",
        "*Spreadsheets.* I read those that my administrator lets you read, and append rows only "
        "after a click.",
    ),
    "web:search": (
        "web",
        "*Web.* I search it, read pages, and calculate. What I have read in private I tell no "
        "site.",
    ),
    "web:read": (
        "web",
        "*Web.* I read pages that you name, and calculate. What I have read in private I tell no "
        "site.",
    ),
    "notes:": (
        "notes",
        "*Notes.* I keep notes for you, for a channel or for the team, and find what you asked me "
        "before.",
    ),
    "files:run$": ("files", "*Files.* I write files for you."),
    "files:(?!run$)": (
        "files",
        "*Project folders.* I work in those that my administrator lets you read. I push nothing "
        "without a click.",
    ),
    "mcp:": ("", "*More.* I use tools of other servers."),
}
"""Pattern of a handle -> its scope, and what a user can do with it.

The scope of an MCP server is in the title of its handle.
"""


def abilities(scopes: Collection[str], handles: Mapping[str, str]) -> list[str]:
    """List what these scopes can do with these handles."""

    def within(scope: str) -> bool:
        return ALL in scopes or scope in scopes

    told = [
        sentence
        for pattern, (scope, sentence) in CAN.items()
        if any(
            re.match(pattern, handle) and within(scope or title.removeprefix("scope "))
            for handle, title in handles.items()
        )
    ]
    return told or ["I answer from what you write; no source is open to me here."]


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
