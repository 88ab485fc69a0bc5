"""Implement `assistant mcp`: ask each server, show the state of its tools, store approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain

from bot.cli.output import CommandContext, on_database
from bot.errors import SetupError
from bot.terminal import DONE, INCOMPLETE
from bot.tooling.mcp import NO_SUCH, McpTools, ServerStatus
from scopes.mcp import ServerTools, plain
from scopes.mcp_servers.servers import Unreachable

ASK_S = 20.0
"""Seconds in which a server must answer."""
DESCRIPTION_CHARS = 2_000
"""Characters of a description: the person who approves it must be able to read it."""


@dataclass(frozen=True)
class ShownTool:
    """A tool of a server as `assistant mcp` shows it."""

    tool: str
    offered_as: str | None
    off: str
    """Why it is off; empty = it is on."""
    description: str
    digest: str
    approved: str
    """Digest of the approved description; empty = never approved."""


@dataclass(frozen=True)
class ShownServer:
    """A server as `assistant mcp` shows it."""

    server: str
    reached: str
    scope: str
    access: str
    readers: str | list[str]
    trouble: str = ""
    """Why it could not be asked."""
    see: str = ""
    unknown: list[str] = field(default_factory=list)
    """Configured tools that it does not have."""
    tools: list[ShownTool] = field(default_factory=list)


@on_database
async def run_list(context: CommandContext) -> int:
    """Ask each server, and list its tools."""
    async with aclosing(McpTools(context.settings, context.database, None)) as kit:
        found = await asyncio.gather(*(_show(kit, server) for server in kit.servers))
    empty = "No server of tools is configured: `mcp.servers` in assistant.yaml names them."
    servers = [asdict(server) for server in found]
    context.show(servers, *chain(*map(_lines, found)), empty=empty)
    return INCOMPLETE if any(server.trouble or server.unknown for server in found) else DONE


@on_database
async def run_confirm(context: CommandContext, what: str) -> None:
    """Approve `what`, a server or `<server>.<tool>`. Raises SetupError if it does not exist."""
    async with aclosing(McpTools(context.settings, context.database, None)) as kit:
        await _confirm(context, kit, what)


async def _confirm(context: CommandContext, kit: McpTools, what: str) -> None:
    name, _, tool = what.partition(".")
    server = next((each for each in kit.servers if each.name == name), None)
    if server is None:
        known = ", ".join(each.name for each in kit.servers) or "none"
        raise SetupError("no_server", f"There is no server {name!r}.", f"There are: {known}.")
    try:
        found = await kit.statuses(server, ASK_S)
    except Unreachable as error:
        hint = kit.last_words(server) or "Try again later."
        raise SetupError("server_away", f"{name} {error}.", hint) from error
    chosen = [each for each in found if not tool or each.offer.name == tool]
    if not chosen:
        known = ", ".join(plain(each.offer.name, 60) for each in found)
        raise SetupError("no_tool", f"{name} has no tool {tool!r}.", f"It has: {known}.")
    await kit.book.confirm(name, {each.offer.name: each.offer.digest for each in chosen})
    shown = [_show_tool(each, {}) for each in chosen]
    lines = [f"  {each.tool}: {each.description}" for each in shown]
    document = {"server": name, "confirmed": [asdict(each) for each in shown]}
    context.show(document, f"Confirmed of {name}, as described here:", *lines)


async def _show(kit: McpTools, server: ServerTools) -> ShownServer:
    """Describe a server and its tools."""
    config = kit.settings.mcp.servers[server.name]
    shown = ShownServer(
        server=server.name,
        reached=config.url or " ".join(config.command or ()),
        scope=server.scope,
        access=server.access,
        readers="public" if config.readers == "public" else sorted(config.readers),
    )
    try:
        found = await kit.statuses(server, ASK_S)
    except Unreachable as error:
        return replace(shown, trouble=str(error), see=kit.last_words(server))
    approved = await kit.book.approved_tools(server.name)
    tools = [_show_tool(each, approved) for each in found]
    return replace(shown, unknown=kit.unknown(server, found), tools=tools)


def _show_tool(status: ServerStatus, approved: Mapping[str, str]) -> ShownTool:
    offer = status.offer
    return ShownTool(
        tool=plain(offer.name, 60),
        offered_as=status.name if status.tool else None,
        off=status.why,
        description=plain(offer.description, DESCRIPTION_CHARS),
        digest=offer.digest[:16],
        approved=approved.get(offer.name, "")[:16],
    )


def _lines(server: ShownServer) -> Iterator[str]:
    readers = "public" if server.readers == "public" else ", ".join(server.readers)
    yield f"{server.server}: {server.reached}"
    yield (
        f"  scope {server.scope}, access {server.access}, readers {readers or 'nobody in Slack'}"
    )
    if server.trouble:
        yield f"  It {server.trouble}. {server.see}".rstrip()
    for name in server.unknown:
        yield f"  no   {plain(name, 60)}: {NO_SUCH}, which `tools:` names"
    for tool in server.tools:
        if not tool.off:
            yield f"  on   {tool.tool}"
            continue
        yield f"  off  {tool.tool}: {tool.off}"
        if tool.approved != tool.digest:
            yield f"       approved {tool.approved or 'never'}, now {tool.digest}"
            yield f"       it says: {tool.description}"
