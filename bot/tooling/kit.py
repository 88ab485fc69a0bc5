"""What tools work with besides Slack and mail: made once for the process, opened for each run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from scopes.label import WORKSPACE, Readers


@dataclass(frozen=True, slots=True)
class Opened:
    """What one run works with; what must be closed is closed with its kit."""

    clients: Mapping[type, object] = field(default_factory=dict)
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handle -> title of what its parent may hand to subagents, as far as the requester may read
    it: `data:sales` -> `sales`; of an open handle the title is empty."""


class Kit(Protocol):
    """What the tools of one scope work with, for all runs of a process."""

    async def open(self, run: str, requester: str | None) -> Opened:
        """For one run; `requester` is None at the command line. Raises SetupError, StoreError."""

    def readers(self) -> Mapping[str, Readers]:
        """Handle -> who may read it in Slack, where the settings say it."""
        return {}

    def anybodys(self) -> Collection[str]:
        """Those of these handles of which guests and other companies may hear."""
        return ()

    def missing(self) -> Mapping[str, str]:
        """Tool -> why it is not offered, in a sentence that says what to do about it."""
        return {}

    def problems(self) -> Sequence[str]:
        """What the settings name and is not there, a sentence each; all else goes on without it."""
        return ()

    async def aclose(self) -> None:
        """End what it started, if anything."""
        return


@dataclass(frozen=True)
class Toolkit:
    """All kits of a process."""

    kits: Sequence[Kit] = ()

    async def open(self, run: str, requester: str | None) -> Opened:
        """What a run works with."""
        clients: dict[type, object] = {}
        handles: dict[str, str] = {}
        for kit in self.kits:
            opened = await kit.open(run, requester)
            clients |= opened.clients
            handles |= opened.handles
        return Opened(clients, handles)

    def readers(self) -> dict[str, Readers]:
        return {handle: who for kit in self.kits for handle, who in kit.readers().items()}

    def anybodys(self) -> frozenset[str]:
        return frozenset(handle for kit in self.kits for handle in kit.anybodys())

    def missing(self) -> dict[str, str]:
        return {tool: why for kit in self.kits for tool, why in kit.missing().items()}

    def problems(self) -> list[str]:
        return [problem for kit in self.kits for problem in kit.problems()]

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for kit in self.kits:
                stack.push_async_callback(kit.aclose)


def readers_of(configured: Sequence[str]) -> Readers:
    """Who may read what the settings name: WORKSPACE for all full members, else user ids."""
    return WORKSPACE if "members" in configured else frozenset(configured)
