"""Implement `assistant scopes`: what each scope offers, and why a tool is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from itertools import chain

import scopes
from bot.cli.output import CommandContext, on_database
from bot.mailbox.accounts import OPERATOR, Credentials
from bot.storage.database import Database
from bot.tooling.provider import toolkit_of
from config.settings import Settings
from scopes.google.gmail import Gmail
from scopes.slack_reader import SlackReader
from scopes.tool import with_clients
from subagents.brief import fixed_tokens

NO_CLIENT: Mapping[object, str] = {
    SlackReader: "There is no Slack workspace: set SLACK_BOT_TOKEN (`assistant setup` helps).",
    Gmail: "No Slack user has connected a mailbox: press Connect Gmail in App Home "
    "(docs/google.md), or give `ask` --mbox FILE.",
}
"""Client -> why it is missing, where no toolkit says so."""


@dataclass(frozen=True)
class ScopeOffer:
    """A scope as `assistant scopes` shows it."""

    name: str
    given: bool
    """Subagents are started with it now."""
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
        found = [_offer(n, clients, toolkit.missing()) for n in scopes.scope_names()]
    context.show([asdict(offer) for offer in found], *chain(*map(_lines, found)))


async def _readers(settings: Settings, database: Database) -> dict[type, object]:
    """Return placeholders for the configured readers of Slack and mail; nothing is read."""
    accounts = await Credentials(database).accounts()
    connected = any(account != OPERATOR for account in accounts)
    mail = settings.google.service_account or connected
    found = {SlackReader: settings.secrets.slack_bot_token, Gmail: mail}
    return {reader: reader for reader, key in found.items() if key}


def _offer(name: str, clients: Mapping[type, object], missing: Mapping[str, str]) -> ScopeOffer:
    offered = scopes.offered(name, clients)
    own = [tool for tool in offered if tool in scopes.scope(name).tools]
    outside = [tool for tool in offered if tool not in own]
    absent = [tool for tool in scopes.scope(name).tools if tool not in own]
    tokens = fixed_tokens(name, own)
    return ScopeOffer(
        name=name,
        given=name in scopes.offering(clients),
        tools=[tool.name for tool in own],
        tokens=tokens,
        outside=[tool.name for tool in outside],
        outside_tokens=fixed_tokens(name, offered) - tokens,
        missing={tool.name: missing.get(tool.name) or NO_CLIENT[tool.client] for tool in absent}
        | {key[len(name) + 1 :]: w for key, w in missing.items() if key.startswith(f"{name}/")},
    )


def _lines(offer: ScopeOffer) -> Iterator[str]:
    yield f"{offer.name}: {', '.join(offer.tools) or 'no tool'}"
    yield f"  fixed tokens: {offer.tokens:,}"
    if offer.tools and not offer.given:
        yield "  no subagent is started with it now, because the scope notes does as much"
    if offer.outside:
        more = f"{offer.outside_tokens:,} more tokens"
        yield f"  from outside: {', '.join(offer.outside)} ({more})"
    reasons: dict[str, list[str]] = {}
    for tool, why in offer.missing.items():
        reasons.setdefault(why, []).append(tool)
    for why, tools in reasons.items():
        yield f"  not offered: {', '.join(tools)}. {why}"
