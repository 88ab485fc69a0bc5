"""Implement `assistant scopes` and `mcp`: the tools of each scope; tool servers, approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain

import scopes
from bot.cli.output import CommandContext, on_database
from bot.errors import SetupError
from bot.mailbox.accounts import OPERATOR, Credentials
from bot.storage.database import Database
from bot.terminal import DONE, INCOMPLETE
from bot.tooling.mcp import NO_SUCH, McpTools, ServerStatus
from bot.tooling.provider import toolkit_of
from config.settings import Settings
from scopes.google.gmail import Gmail
from scopes.mcp import ServerTools, plain
from scopes.mcp_servers.servers import Unreachable
from scopes.slack_reader import SlackReader
from scopes.tool import with_clients
from subagents.brief import fixed_tokens

NO_CLIENT: Mapping[object, str] = {
    SlackReader: "There is no Slack workspace: set SLACK_BOT_TOKEN (`assistant setup` helps).",
    Gmail: "No Slack user has connected a mailbox: press Connect Gmail in App Home "
    "(docs/google.md), or give `ask` --mbox FILE.",
}
"""Client -> why it is missing, if no toolkit gives the reason."""


@dataclass(frozen=True)
class ScopeOffer:
    """A scope as `assistant scopes` shows it."""

    name: str
    given: bool
    """Whether subagents are started with it now."""
    tools: list[str]
    tokens: int
    outside: list[str]
    outside_tokens: int
    missing: dict[str, str]
    """Tool -> why it is not offered."""


@on_database
async def list_scopes(context: CommandContext) -> None:
    """Run the command `scopes`."""
    async with aclosing(toolkit_of(context.settings, context.database)) as toolkit:
        opened = await toolkit.open("scopes", None)
        readers = await _readers(context.settings, context.database)
        clients = with_clients(opened.clients, readers)
        found = [_offer(n, clients, toolkit.find_missing()) for n in scopes.scope_names()]
    context.show([asdict(offer) for offer in found], *chain(*map(_scope_lines, found)))


async def _readers(settings: Settings, database: Database) -> dict[type, object]:
    """Return placeholders for the configured readers of Slack and mail; nothing is read."""
    accounts = await Credentials(database).accounts()
    connected = any(account != OPERATOR for account in accounts)
    mail = settings.google.service_account or connected
    found = {SlackReader: settings.secrets.slack_bot_token, Gmail: mail}
    return {reader: reader for reader, key in found.items() if key}


def _offer(name: str, clients: Mapping[type, object], missing: Mapping[str, str]) -> ScopeOffer:
    offered = scopes.offered_tools(name, clients)
    own = [tool for tool in offered if tool in scopes.scope(name).tools]
    outside = [tool for tool in offered if tool not in own]
    absent = [tool for tool in scopes.scope(name).tools if tool not in own]
    tokens = fixed_tokens(name, own)
    return ScopeOffer(
        name=name,
        given=name in scopes.offering_scopes(clients),
        tools=[tool.name for tool in own],
        tokens=tokens,
        outside=[tool.name for tool in outside],
        outside_tokens=fixed_tokens(name, offered) - tokens,
        missing={tool.name: missing.get(tool.name) or NO_CLIENT[tool.client] for tool in absent}
        | {key[len(name) + 1 :]: w for key, w in missing.items() if key.startswith(f"{name}/")},
    )


def _scope_lines(offer: ScopeOffer) -> Iterator[str]:
    yield f"{offer.name}: {', '.join(offer.tools) or 'no tool'}"
    yield f"  fixed tokens: {offer.tokens:,}"
    if offer.tools and not offer.given:
        yield "  no subagent is started with it now, because the scope notes has the same tools"
    if offer.outside:
        more = f"{offer.outside_tokens:,} more tokens"
        yield f"  from outside: {', '.join(offer.outside)} ({more})"
    reasons: dict[str, list[str]] = {}
    for tool, why in offer.missing.items():
        reasons.setdefault(why, []).append(tool)
    for why, tools in reasons.items():
        yield f"  not offered: {', '.join(tools)}. {why}"


ASK_S = 20.0
"""Maximum seconds for the answer of a server."""
DESCRIPTION_CHARS = 2_000
"""Maximum characters of a description: the person who approves it must be able to read it."""


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
    waits: bool
    """Whether it waits for an administrator."""


@dataclass(frozen=True)
class ShownServer:
    """A server as `assistant mcp` shows it."""

    server: str
    reached: str
    scope: str
    access: str
    readers: str | list[str]
    trouble: str = ""
    """Why it could not be reached."""
    see: str = ""
    unknown: list[str] = field(default_factory=list)
    """Configured tools that it does not have."""
    tools: list[ShownTool] = field(default_factory=list)


@on_database
async def list_servers(context: CommandContext) -> int:
    """Ask each server, and list its tools."""
    async with aclosing(McpTools(context.settings, context.database, None)) as kit:
        found = await asyncio.gather(*(_show(kit, server) for server in kit.servers))
    empty = "No server of tools is configured: `mcp.servers` in assistant.yaml names them."
    servers = [asdict(server) for server in found]
    context.show(servers, *chain(*map(_server_lines, found)), empty=empty)
    return INCOMPLETE if any(server.trouble or server.unknown for server in found) else DONE


@on_database
async def confirm_tools(context: CommandContext, what: str) -> None:
    """Approve `what`, a server or `<server>.<tool>`. Raises SetupError if it does not exist."""
    name, _, tool = what.partition(".")
    async with aclosing(McpTools(context.settings, context.database, None)) as kit:
        server = next((each for each in kit.servers if each.name == name), None)
        if server is None:
            names = ", ".join(each.name for each in kit.servers) or "none"
            raise SetupError("no_server", f"There is no server {name!r}.", f"There are: {names}.")
        try:
            found = await kit.statuses(server, ASK_S)
        except Unreachable as error:
            hint = kit.last_words(server) or "Try again later."
            raise SetupError("server_away", f"{name} {error}.", hint) from error
        selected = [each for each in found if not tool or each.offer.name == tool]
        if not selected:
            names = ", ".join(plain(each.offer.name, 60) for each in found)
            raise SetupError("no_tool", f"{name} has no tool {tool!r}.", f"It has: {names}.")
        await kit.book.confirm(name, {each.offer.name: each.offer.digest for each in selected})
    shown = [_show_tool(each, {}) for each in selected]
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
        waits=status.waits,
    )


def _server_lines(server: ShownServer) -> Iterator[str]:
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
        if tool.waits:
            yield f"       approved {tool.approved or 'never'}, now {tool.digest}"
            yield f"       it says: {tool.description}"
