"""Current read permissions according to the services: the facts that the gate decides by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scopes.label import Label


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason a text may not go to a destination: a source that some there may not read."""

    source: str
    """Id of the conversation, mailbox or table; the destination's own id if that is the problem."""
    name: str
    """Display name: `#board`."""
    why: str
    """One clause, made by code."""
    grantable: bool = True
    """True if an administrator may allow it permanently."""


class Directory(Protocol):
    """Asks the services; what cannot be checked counts as forbidden. Its methods raise nothing."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        """Return whether this user may read a conversation, a message in it, or a list.

        None = the operator at the command line, who has the bot's rights. `fresh` = ask the service
        again, because something will be written; else the answer may be some seconds old.
        """

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        """Return the obstacles to showing a text of this label to all who can read the place now.

        A destination is a conversation, or a person (a direct message). Memberships are fetched
        again.
        """


class Operator:
    """The directory of the command line without a user: the operator may read what the bot may."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        return user is None

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        return (Obstacle(destination, destination, "the command line writes nowhere", False),)
