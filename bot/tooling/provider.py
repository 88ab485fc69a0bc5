"""Tool providers: created once for the process, opened for each run; and their complete list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bot.memory import ConversationStore, NoteStore, ResourceStore
from bot.options import Options
from bot.storage.database import Database
from config.settings import Settings
from scopes.effects import OPEN_NOTES
from scopes.label import WORKSPACE, Readers
from scopes.notes import Conversations, Notes
from scopes.resources import Resources
from scopes.spaces import TEAM_NOTES
from scopes.tool import with_clients


@dataclass(frozen=True, slots=True)
class OpenedTools:
    """The clients and handles of one run; the provider closes what must be closed."""

    clients: Mapping[type, object] = field(default_factory=dict)
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handle -> title of each source that its parent may give to subagents and the requester may
    read: `data:sales` -> `sales`; the title of an open handle is empty."""


@dataclass
class ToolProvider(ABC):
    """The clients of one scope's tools, for all runs of a process."""

    settings: Settings
    database: Database
    options: Options | None
    """Options of a command; None = it serves Slack."""

    @abstractmethod
    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open for one run (`requester` None: command line). Raises SetupError, StoreError."""

    def readers(self) -> Mapping[str, Readers]:
        """Return handle -> its readers in Slack, according to the settings; INTERNET = also guests
        and other companies."""
        return {}

    def find_missing(self) -> Mapping[str, str]:
        """Return tool -> why it is not offered, in a sentence with what to do about it."""
        return {}

    def problems(self) -> Sequence[str]:
        """Return a sentence for each missing source of the settings; the others still work."""
        return ()

    async def aclose(self) -> None:
        """End its processes and connections, if any."""
        return


@dataclass(frozen=True)
class Toolkit:
    """All tool providers of a process."""

    kits: Sequence[ToolProvider] = ()

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open all providers for one run."""
        clients: Mapping[type, object] = {}
        handles: dict[str, str] = {}
        for kit in self.kits:
            opened = await kit.open(run, requester)
            clients = with_clients(clients, opened.clients)
            handles |= opened.handles
        return OpenedTools(clients, handles)

    def readers(self) -> dict[str, Readers]:
        return {handle: allowed for kit in self.kits for handle, allowed in kit.readers().items()}

    def find_missing(self) -> dict[str, str]:
        return {tool: why for kit in self.kits for tool, why in kit.find_missing().items()}

    def problems(self) -> list[str]:
        return [problem for kit in self.kits for problem in kit.problems()]

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for kit in self.kits:
                stack.push_async_callback(kit.aclose)


def readers_of(configured: Sequence[str]) -> Readers:
    """Return the readers of a source of the settings: WORKSPACE for full members, else user ids."""
    return WORKSPACE if "members" in configured else frozenset(configured)


class MemoryTools(ToolProvider):
    """Files that runs keep, and notes of users, conversations, the team and the operator."""

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        clients: dict[type, object] = {Resources: ResourceStore(self.database)}
        if requester and self.options:  # a user of an export has no notes
            return OpenedTools(clients)
        clients[Notes] = NoteStore(self.database)
        clients[Conversations] = ConversationStore(self.database)
        return OpenedTools(clients, {OPEN_NOTES: "", TEAM_NOTES: ""})


def toolkit_of(settings: Settings, database: Database, given: Options | None = None) -> Toolkit:
    """Return all tool providers; `given` are the options of a command; None = it serves Slack."""
    from bot.tooling.data import DataTools
    from bot.tooling.files import FileTools
    from bot.tooling.web import WebTools

    parts = (settings, database, given)
    kits: list[ToolProvider] = [DataTools(*parts), WebTools(*parts), MemoryTools(*parts)]
    kits.append(FileTools(*parts))
    if settings.mcp.servers:
        from bot.tooling.mcp import McpTools  # its client takes 0.7 s and 55 MB

        kits.append(McpTools(*parts))
    return Toolkit(kits)
