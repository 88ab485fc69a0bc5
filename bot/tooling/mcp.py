"""Tool servers: connected once for the process; their tools are collected for each run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import sqlalchemy as sa

import scopes
from bot.errors import SetupError
from bot.storage.database import Database
from bot.storage.tables import outside_calls, outside_tools
from bot.tooling.provider import OpenedTools, ToolProvider, readers_of
from config.sections import McpServer
from scopes import Outside
from scopes.label import INTERNET, WORKSPACE, Readers
from scopes.mcp import ServerTools, Unfit, tool_name, tool_of
from scopes.mcp_servers.servers import Connection, Offer, TransportOpener, Unreachable
from scopes.mcp_servers.transports import address, process
from scopes.tool import Tool

log = logging.getLogger(__name__)

State = Literal["on", "new", "changed"]
"""State of a tool: approved; never approved; approved with another description."""
SERVER = ""
"""The row of this name records that a server was ever seen."""


class OutsideTools:
    """Stored data about outside tools in one database. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def states(self, server: str, digests: Mapping[str, str]) -> dict[str, State]:
        """Return the current state of each tool that a server describes, by name.

        When a server is seen for the first time, its descriptions count as approved: the person
        who added it to the settings has checked it.
        """
        rows = await self._database.read(_of(server))
        if not rows:
            first = _rows(server, {SERVER: "", **digests}, {SERVER: "", **digests})
            insert = self._database.upsert(outside_tools)  # another process may have been first
            await self._database.change(lambda connection: connection.execute(insert, first))
            rows = await self._database.read(_of(server))
        seen = {row.tool: row.seen for row in rows}
        unseen = {tool: digest for tool, digest in digests.items() if seen.get(tool) != digest}
        if unseen:
            await self._saw(server, unseen)
        approved = {row.tool: row.approved for row in rows}
        return {
            tool: "on" if approved.get(tool) == d else "changed" if approved.get(tool) else "new"
            for tool, d in digests.items()
        }

    async def approved_tools(self, server: str) -> dict[str, str]:
        """Return tool -> its approved digest; empty for none."""
        rows = await self._database.read(_of(server))
        return {row.tool: row.approved for row in rows if row.tool != SERVER}

    async def confirm(self, server: str, digests: Mapping[str, str]) -> None:
        """Approve tools with the descriptions of these digests."""
        rows = _rows(server, {SERVER: "", **digests}, digests)
        upsert = self._database.upsert(
            outside_tools, ("server", "tool"), ("approved", "seen", "at")
        )
        await self._database.change(lambda connection: connection.execute(upsert, rows))

    async def _saw(self, server: str, unseen: Mapping[str, str]) -> None:
        """Record new descriptions, and warn about them once."""
        rows = _rows(server, dict.fromkeys(unseen, ""), unseen)
        upsert = self._database.upsert(outside_tools, ("server", "tool"), ("seen", "at"))
        await self._database.change(lambda connection: connection.execute(upsert, rows))
        log.warning(
            "%d tools of the server %s have new descriptions (%s): they are off until an "
            "administrator confirms them by `assistant mcp confirm`",
            len(unseen),
            server,
            ", ".join(ascii(tool[:60]) for tool in list(unseen)[:5]),
        )

    async def begin(self, key: str, run: str) -> bool:
        """Record the start of a call; False = it started before, here or in an earlier process."""
        row = {"key": key, "run": run, "at": datetime.now(UTC)}
        insert = self._database.insert(outside_calls).values(row)
        return await self._database.write(insert.on_conflict_do_nothing()) == 1


def _of(server: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(outside_tools).where(outside_tools.c.server == server)


def _rows(
    server: str, approved: Mapping[str, str], seen: Mapping[str, str]
) -> list[dict[str, object]]:
    now = datetime.now(UTC)
    return [
        {"server": server, "tool": t, "approved": a, "seen": seen.get(t, ""), "at": now}
        for t, a in approved.items()
    ]


MAX_TOOLS = 40
"""Maximum tools of one server: each subagent of its scope gets all of them."""
SPARE_S = 2.0
"""Seconds between the end of a call and the deadline of its tool call."""
OFF = {
    "new": "the server did not have it at first, or `tools:` did not name it",
    "changed": "its description has changed since it was approved",
}
"""Why a tool that waits for an administrator is off."""
NO_SUCH = "The server has no such tool"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The current status of one tool of a server."""

    offer: Offer
    name: str
    """Its name for a subagent."""
    tool: Tool | None
    why: str = ""
    """Why it is not offered; empty if it is."""
    waits: bool = False
    """Whether it waits for an administrator."""


@dataclass
class McpTools(ToolProvider):
    """The servers of the settings. Raises SetupError for one with an unfit scope."""

    servers: list[ServerTools] = field(default_factory=list, init=False)
    book: OutsideTools = field(init=False)
    _tools: dict[tuple[str, str], Tool] = field(default_factory=dict, init=False)
    """Server and digest of a description -> the tool, the same one in each run."""
    _missing: dict[str, dict[str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.book = OutsideTools(self.database)
        if self.options and self.options.sample:  # sample data needs no servers
            return
        for name, config in self.settings.mcp.servers.items():
            if config.scope not in (names := scopes.scope_names()):
                why = f"assistant.yaml: 'mcp.servers.{name}.scope' is {config.scope!r}."
                raise SetupError("bad_settings", why, f"Take one of {', '.join(names)}.")
            self.servers.append(self._server(name, config))
        for server in self.servers:
            server.connection.begin()

    def _server(self, name: str, config: McpServer) -> ServerTools:
        timeout_s = min(config.timeout_s, self.settings.limits.tool_timeout_s - SPARE_S)
        transport = way_to(config, self._folder(name))
        connection = Connection(name, transport, max(1.0, timeout_s))
        readers = WORKSPACE if config.readers == "public" else readers_of(config.readers)
        return ServerTools(name, config.scope, config.access, readers, connection, self.book.begin)

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Return the tools of reachable servers; an unreachable one costs at most two seconds."""
        everybody = requester is None  # otherwise the gate checks again for each call
        permitted = [
            s for s in self.servers if everybody or s.readers == WORKSPACE or requester in s.readers
        ]
        found = await asyncio.gather(*(self._offer(server) for server in permitted))
        by_scope: dict[str, tuple[Tool, ...]] = {}
        handles: dict[str, str] = {}
        for server, tools in zip(permitted, found, strict=True):
            if tools:
                by_scope[server.scope] = (*by_scope.get(server.scope, ()), *tools)
                handles[server.handle] = f"scope {server.scope}"
        return OpenedTools({Outside: Outside(by_scope)} if by_scope else {}, handles)

    async def _offer(self, server: ServerTools) -> Sequence[Tool]:
        try:
            statuses = await self.statuses(server, server.connection.patience_s())
        except Unreachable as error:
            why = f"The server {error}. `assistant mcp` looks again."
            self._missing[server.name] = {f"{server.scope}/{server.handle}": why}
            return ()
        self._missing[server.name] = {
            f"{server.scope}/{each.name}": f"{each.why[:1].upper()}{each.why[1:]}."
            for each in statuses
            if each.why
        } | {
            f"{server.scope}/{server.name}_{name}": f"{NO_SUCH}: fix `tools:`."
            for name in self.unknown(server, statuses)
        }
        tools = [each.tool for each in statuses if each.tool]
        return sorted(tools, key=lambda tool: tool.name)  # servers may list them in any order

    async def statuses(self, server: ServerTools, within_s: float) -> list[ServerStatus]:
        """Return all tools of a server, with why some are not offered. Raises Unreachable."""
        offers = await server.connection.offers(within_s)
        selected = self.settings.mcp.servers[server.name].tools
        digests = {o.name: o.digest for o in offers if selected is None or o.name in selected}
        states = await self.book.states(server.name, digests)
        found, remaining = list[ServerStatus](), MAX_TOOLS
        for offer in offers:
            state = states.get(offer.name)
            status = self._status(server, offer, _why(state, remaining))
            remaining -= status.tool is not None
            found.append(replace(status, waits=state in OFF))
        return found

    def unknown(self, server: ServerTools, statuses: Sequence[ServerStatus]) -> list[str]:
        """Return names in the settings for which the server has no tool."""
        selected = self.settings.mcp.servers[server.name].tools or ()
        return sorted({*selected} - {each.offer.name for each in statuses})

    def last_words(self, server: ServerTools) -> str:
        """Return the path of the stderr of an ended process, for the operator; empty if unknown."""
        if not self.settings.mcp.servers[server.name].command:
            return ""
        log = self._folder(server.name) / "stderr.log"
        return f"What it wrote to stderr: {log}." if log.is_file() and log.stat().st_size else ""

    def _folder(self, name: str) -> Path:
        """Return the home folder of a server that is a process."""
        return self.settings.data_dir / "mcp" / name

    def _status(self, server: ServerTools, offer: Offer, why: str) -> ServerStatus:
        name = tool_name(server.name, offer.name, list(self.settings.mcp.servers))
        if why:
            return ServerStatus(offer, name, None, why)
        key = (server.name, offer.digest)
        try:
            self._tools[key] = self._tools.get(key) or tool_of(server, offer, name)
        except Unfit as error:
            return ServerStatus(offer, name, None, str(error))
        return ServerStatus(offer, name, self._tools[key])

    def readers(self) -> Mapping[str, Readers]:
        config = self.settings.mcp.servers
        return {
            s.handle: INTERNET if config[s.name].readers == "public" else s.readers
            for s in self.servers
        }

    def find_missing(self) -> Mapping[str, str]:
        """Return `<scope>/<tool>` -> why it is missing, as of the last opened run."""
        return {tool: why for tools in self._missing.values() for tool, why in tools.items()}

    async def aclose(self) -> None:
        await asyncio.gather(*(server.connection.aclose() for server in self.servers))


def way_to(config: McpServer, folder: Path) -> TransportOpener:
    if config.command:
        return partial(process, config.command, folder)
    assert config.url, "the settings take one of command and url"
    return partial(address, config.url, config.token_file)


def _why(state: State | None, remaining: int) -> str:
    """Return why a tool with this state is not offered; None = the settings do not choose it."""
    if state is None:
        return "the settings do not choose it"
    if state != "on":
        return f"{OFF[state]}; `assistant mcp` shows it, `assistant mcp confirm` approves it"
    return "" if remaining else f"{MAX_TOOLS} of a server are offered at most: choose in `tools:`"
