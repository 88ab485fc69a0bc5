"""What each scope means to a user, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from scopes import ALL, MODULES

CAN = {
    "slack": "*Slack.* I read what both of us are in, and public channels. My answers "
    "link to the messages that they rest on.",
    "email": "*Email.* I read the mailbox that you connect, for you alone. Write `triage my inbox` "
    "to learn what to do first and what can wait. I prepare labels and drafts, and send nothing "
    "without your word.",
    "data": "*Data.* I query the databases and spreadsheets that my administrator lets you read, "
    "and draw charts. I change no database, and append rows to a spreadsheet only after a click.",
    "web": "*Web.* I read pages that you name, search where that is set up, and calculate. What I "
    "have read in private I tell no site.",
    "notes": "*Notes.* I keep notes for you, for a channel or for the team, and find what you "
    "asked me before.",
    "files": "*Files.* I write files for you, and work in the project folders that my "
    "administrator lets you read. I push nothing without a click.",
}
"""Scope -> what a user can have of it."""


def abilities(scopes: Sequence[str], *, mailbox: bool) -> list[str]:
    """What one can have of these scopes; `mailbox`: one can be connected."""
    named = [name for name in MODULES if name in scopes or ALL in scopes]
    told = [CAN[name] for name in named if mailbox or name != "email"]
    return told or ["I answer from what you write; no source is open to me here."]
