"""Who may read what, as the services say it now: the facts that the gate decides by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scopes.label import Label


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a text may not go to a destination: a source that not all there may read."""

    source: str
    """Id of the conversation, mailbox, table; the destination's own where that is the trouble."""
    name: str
    """As people call it: `#board`."""
    why: str
    """One clause, made by code."""
    grantable: bool = True
    """An administrator may let it pass for good."""


class Directory(Protocol):
    """Asks the services; what cannot be checked counts as forbidden. Nothing here raises."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        """Whether this user may read a conversation, a message in it, or a list.

        None = the operator at the command line, who has the bot's rights. `fresh` = asked anew,
        because something will be written; else an answer may be some seconds old.
        """

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        """What keeps a text of this label from all who can read the destination at this moment.

        A destination is a conversation, or a person (a direct message). Memberships are read anew.
        """


class Operator:
    """The directory of the command line without a user: the operator reads what the bot reads."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        return user is None

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        return (Obstacle(destination, destination, "the command line writes nowhere", False),)
