"""What `assistant mcp` does: asks each server, says how its tools stand, notes what is approved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from bot.cli.lookups import stored
from bot.cli.outcome import DONE, INCOMPLETE, dump, say, tell
from bot.errors import SetupError
from bot.storage.store import Store
from bot.tooling.mcp import NO_SUCH, McpKit, Standing
from config.settings import load_settings
from scopes.mcp import Server
from scopes.servers.schema import plain
from scopes.servers.servers import Unreachable

ASK_S = 20.0
"""Seconds that a server has to answer."""
TOLD_CHARS = 2_000
"""Of a description: who approves of it shall have read it."""

Json = dict[str, Any]


def run_list(as_json: bool) -> int:
    async def work(kit: McpKit) -> int:
        found = await asyncio.gather(*(_looked(kit, server) for server in kit.servers))
        if as_json:
            dump(list(found))
        elif not found:
            tell("No server of tools is configured: `mcp.servers` in assistant.yaml names them.")
        else:
            say("\n".join(line for server in found for line in _lines(server)))
        lacking = any(server["trouble"] or server["unknown"] for server in found)
        return INCOMPLETE if lacking else DONE

    return _with_kit(work, as_json)


def run_confirm(what: str, as_json: bool) -> int:
    """`what` is a server, or `<server>.<tool>`; SetupError for what is not there."""
    name, _, tool = what.partition(".")

    async def work(kit: McpKit) -> int:
        server = next((each for each in kit.servers if each.name == name), None)
        if server is None:
            known = ", ".join(each.name for each in kit.servers) or "none"
            raise SetupError("no_server", f"There is no server {name!r}.", f"There are: {known}.")
        try:
            stand = await kit.standings(server, ASK_S)
        except Unreachable as error:
            hint = kit.last_words(server) or "Try again later."
            raise SetupError("server_away", f"{name} {error}.", hint) from error
        meant = [each for each in stand if not tool or each.offer.name == tool]
        if not meant:
            known = ", ".join(plain(each.offer.name, 60) for each in stand)
            raise SetupError("no_tool", f"{name} has no tool {tool!r}.", f"It has: {known}.")
        await kit.book.confirm(name, {each.offer.name: each.offer.digest for each in meant})
        told = [_told(each) for each in meant]
        if as_json:
            dump({"server": name, "confirmed": told})
        else:
            say(f"Confirmed of {name}, as described here:")
            say("\n".join(f"  {each['tool']}: {each['description']}" for each in told))
        return DONE

    return _with_kit(work, as_json)


async def _looked(kit: McpKit, server: Server) -> Json:
    """A server and its tools; `trouble` says why it could not be asked, `unknown` which names the
    settings choose that it has no tool of."""
    said = kit.settings.mcp.servers[server.name]
    found: Json = {
        "server": server.name,
        "reached": said.url or " ".join(said.command or ()),
        "scope": server.scope,
        "access": server.access,
        "readers": said.readers if said.readers == "public" else sorted(said.readers),
        "trouble": "",
        "see": "",
        "unknown": [],
        "tools": [],
    }
    try:
        stand = await kit.standings(server, ASK_S)
    except Unreachable as error:
        return {**found, "trouble": str(error), "see": kit.last_words(server)}
    approved = await kit.book.approved(server.name)
    unknown, tools = kit.unknown(server, stand), [_told(each, approved) for each in stand]
    return {**found, "unknown": unknown, "tools": tools}


def _told(standing: Standing, approved: Mapping[str, str] | None = None) -> Json:
    offer = standing.offer
    return {
        "tool": plain(offer.name, 60),
        "offered_as": standing.name if standing.tool else None,
        "off": standing.why,
        "description": plain(offer.description, TOLD_CHARS),
        "digest": offer.digest[:16],
        "approved": (approved or {}).get(offer.name, "")[:16],
    }


def _lines(server: Json) -> Iterator[str]:
    readers = server["readers"] if server["readers"] == "public" else ", ".join(server["readers"])
    yield f"{server['server']}: {server['reached']}"
    yield (
        f"  scope {server['scope']}, access {server['access']}, "
        f"readers {readers or 'nobody in Slack'}"
    )
    if server["trouble"]:
        yield f"  It {server['trouble']}. {server['see']}".rstrip()
    for name in server["unknown"]:
        yield f"  no   {plain(name, 60)}: {NO_SUCH}, which `tools:` names"
    for tool in server["tools"]:
        if not tool["off"]:
            yield f"  on   {tool['tool']}"
            continue
        yield f"  off  {tool['tool']}: {tool['off']}"
        if tool["approved"] != tool["digest"]:
            yield f"       approved {tool['approved'] or 'never'}, now {tool['digest']}"
            yield f"       it says: {tool['description']}"


def _with_kit(work: Callable[[McpKit], Awaitable[int]], as_json: bool) -> int:
    async def go(store: Store) -> int:
        kit = McpKit(load_settings(), store.database, None)
        try:
            return await work(kit)
        finally:
            await kit.aclose()

    return stored(go, as_json)
