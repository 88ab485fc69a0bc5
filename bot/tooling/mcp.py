"""Servers of tools: connected once for the process, their tools put together for each run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mcp.client._transport import TransportStreams

import scopes
from bot.cli.options import Options
from bot.errors import SetupError
from bot.storage.database import Database
from bot.tooling.kit import Kit, Opened, readers_of
from bot.tooling.outside_tools import OutsideTools, State
from config.settings import Settings
from config.tools import McpServer
from scopes.label import WORKSPACE, Readers
from scopes.mcp import Server, tool_name, tool_of
from scopes.outside import Outside
from scopes.servers.said import NoToken, Offer
from scopes.servers.schema import Unfit
from scopes.servers.servers import Connection, Unreachable, Way
from scopes.servers.ways import address, process
from scopes.tool import Access, Tool

MAX_TOOLS = 40
"""Of one server: each subagent of its scope is sent all of them."""
SPARE_S = 2.0
"""Seconds that a call ends before the time of the tool call that it is made by."""
OFF = {
    "new": "it came after the server was configured",
    "changed": "it was described otherwise when it was approved",
}
"""Why a tool is off that waits for an administrator."""
NO_SUCH = "The server has no such tool"


@dataclass(frozen=True, slots=True)
class Standing:
    """One tool of a server as it stands now."""

    offer: Offer
    name: str
    """As a subagent is offered it."""
    tool: Tool | None
    why: str = ""
    """Why it is not offered; empty where it is."""


@dataclass(frozen=True)
class McpKit(Kit):
    """The servers of the settings. SetupError for one that is put where it does not fit."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""
    servers: list[Server] = field(default_factory=list, init=False)
    book: OutsideTools = field(init=False)
    _made: dict[tuple[str, str], Tool] = field(default_factory=dict, init=False)
    """Server and digest of a description -> the tool: the same one in each run."""
    _missing: dict[str, dict[str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "book", OutsideTools(self.database))
        if self.given and self.given.sample:  # a sample asks nobody
            return
        for name, said in self.settings.mcp.servers.items():
            _check(name, said)
            self.servers.append(self._server(name, said))
        for server in self.servers:
            server.connection.begin()

    def _server(self, name: str, said: McpServer) -> Server:
        timeout_s = min(said.timeout_s, self.settings.limits.tool_timeout_s - SPARE_S)
        way = way_to(said, self._folder(name))
        connection = Connection(name, way, max(1.0, timeout_s))
        readers = WORKSPACE if said.readers == "public" else readers_of(said.readers)
        return Server(name, said.scope, said.access, readers, connection, self.book.begin)

    async def open(self, run: str, requester: str | None) -> Opened:
        """What servers offer that are there now; one that is not costs two seconds at most."""
        mine = [s for s in self.servers if _may(s, requester)]
        found = await asyncio.gather(*(self._offered(server) for server in mine))
        by_scope: dict[str, tuple[Tool, ...]] = {}
        for server, tools in zip(mine, found, strict=True):
            reading = [tool for tool in tools if tool.access is Access.READ]
            shares = {server.scope: tools} | {scopes.ALL: reading}
            for scope in (scope for scope, share in shares.items() if share):
                by_scope[scope] = (*by_scope.get(scope, ()), *shares[scope])
        handles = {
            s.handle: f"scope {s.scope}" for s, tools in zip(mine, found, strict=True) if tools
        }
        return Opened({Outside: Outside(by_scope)} if by_scope else {}, handles)

    async def _offered(self, server: Server) -> Sequence[Tool]:
        try:
            stand = await self.standings(server, server.connection.patience_s())
        except Unreachable as error:
            why = f"The server {error}. `assistant mcp` looks again."
            self._missing[server.name] = {f"{server.scope}/{server.handle}": why}
            return ()
        self._missing[server.name] = {
            f"{server.scope}/{each.name}": f"{each.why[:1].upper()}{each.why[1:]}."
            for each in stand
            if each.why
        } | {
            f"{server.scope}/{server.name}_{name}": f"{NO_SUCH}: mend `tools:`."
            for name in self.unknown(server, stand)
        }
        tools = [each.tool for each in stand if each.tool]
        return sorted(tools, key=lambda tool: tool.name)  # in whatever order it lists them

    async def standings(self, server: Server, within_s: float) -> list[Standing]:
        """All tools of a server, and why those that are off are off. Raises Unreachable."""
        offers = await server.connection.offers(within_s)
        chosen = self.settings.mcp.servers[server.name].tools
        digests = {o.name: o.digest for o in offers if chosen is None or o.name in chosen}
        states = await self.book.states(server.name, digests)
        found, room = list[Standing](), MAX_TOOLS
        for offer in offers:
            made = self._standing(server, offer, _why(states.get(offer.name), room))
            room -= made.tool is not None
            found.append(made)
        return found

    def unknown(self, server: Server, stand: Sequence[Standing]) -> list[str]:
        """Names that the settings choose and the server has no tool of."""
        chosen = self.settings.mcp.servers[server.name].tools or ()
        return sorted({*chosen} - {each.offer.name for each in stand})

    def last_words(self, server: Server) -> str:
        """Where the operator finds what a process said before it ended; empty where it is not
        known."""
        if not self.settings.mcp.servers[server.name].command:
            return ""
        logs = [self._folder(server.name) / name for name in ("stderr.log", "stderr.old.log")]
        found = next((log for log in logs if log.is_file() and log.stat().st_size), None)
        return f"What it wrote to stderr: {found}." if found else ""

    def _folder(self, name: str) -> Path:
        """The home of a server that is a process."""
        return self.settings.data_dir / "mcp" / name

    def _standing(self, server: Server, offer: Offer, why: str) -> Standing:
        name = tool_name(server.name, offer.name, list(self.settings.mcp.servers))
        if why:
            return Standing(offer, name, None, why)
        key = (server.name, offer.digest)
        try:
            self._made[key] = self._made.get(key) or tool_of(server, offer, name)
        except Unfit as error:
            return Standing(offer, name, None, str(error))
        return Standing(offer, name, self._made[key])

    def readers(self) -> Mapping[str, Readers]:
        return {server.handle: server.readers for server in self.servers}

    def anybodys(self) -> Collection[str]:
        said = self.settings.mcp.servers
        return [s.handle for s in self.servers if said[s.name].readers == "public"]

    def missing(self) -> Mapping[str, str]:
        """`<scope>/<tool>` -> why, as of the last time that a run was opened."""
        return {tool: why for tools in self._missing.values() for tool, why in tools.items()}

    async def aclose(self) -> None:
        await asyncio.gather(*(server.connection.aclose() for server in self.servers))


def way_to(said: McpServer, folder: Path) -> Way:
    if said.command:
        return partial(process, said.command, folder)
    assert said.url, "the settings take one of command and url"
    return partial(_with_token, said.url, said.token_file)


@asynccontextmanager
async def _with_token(
    url: str, token_file: Path | None, ended: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """The way to an address. Raises NoToken where there is no token for it."""
    try:
        if token_file:
            await asyncio.to_thread(token_file.read_bytes)
    except FileNotFoundError:
        raise NoToken("does not exist") from None
    except OSError as error:
        raise NoToken(f"cannot be read ({error.strerror})") from None
    async with address(url, token_file, ended) as streams:
        yield streams


def _check(name: str, said: McpServer) -> None:
    known = [*scopes.MODULES, *([scopes.ALL] if said.access == "read" else [])]
    if said.scope not in known:
        why = f"assistant.yaml: 'mcp.servers.{name}.scope' is {said.scope!r}."
        raise SetupError("bad_settings", why, f"Take one of {', '.join(known)}.")


def _why(state: State | None, room: int) -> str:
    """Why a tool of this state is not offered; None = the settings do not choose it."""
    if state is None:
        return "the settings do not choose it"
    if state != "on":
        return f"{OFF[state]}; `assistant mcp` shows it, `assistant mcp confirm` approves of it"
    return "" if room else f"{MAX_TOOLS} of a server are offered at most; choose by `tools:`"


def _may(server: Server, requester: str | None) -> bool:
    """Whether it is any business of theirs; the gate asks again, for what is called."""
    return requester is None or server.readers == WORKSPACE or requester in server.readers
