"""What the assistant is good for, in a user's words: told as far as that user can have it now."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bot.errors import SetupError
from bot.tooling.kit import Toolkit
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
        "nothing without your word.",
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
    "mcp:": ("", "*More.* I use tools that other servers lend me."),
}
"""Pattern of a handle -> its scope, and what a user can have of it; of servers of tools the title
of the handle says the scope."""


def abilities(scopes: Collection[str], handles: Mapping[str, str]) -> list[str]:
    """What one can have of these scopes with these handles."""

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
class Reach:
    """What the requests of a user may work with besides Slack and mail."""

    toolkit: Toolkit
    directory: Directory

    async def of(self, user: str) -> dict[str, str]:
        """Handle -> title of all that is there now and that this user may read; nothing where a
        request could not be opened either. Raises StoreError."""
        try:
            opened = await self.toolkit.open("home", user)
        except SetupError as error:
            log.warning("nothing is open to requests: %s", error)
            return {}
        may = {h: await self.directory.may_read(user, h) for h in opened.handles}
        return {h: title for h, title in opened.handles.items() if may[h]}
