"""What each scope offers now, why a tool is missing, and what each subagent pays for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import scopes
from bot.accounts.connected import GOOGLE, OPERATOR
from bot.accounts.credentials import Credentials
from bot.cli.lookups import stored
from bot.cli.outcome import DONE, dump, say
from bot.storage.database import Database
from bot.storage.store import Store
from bot.tooling.wiring import toolkit_of
from config.settings import Settings, load_settings
from scopes.google.gmail import Gmail
from scopes.slack_reader import SlackReader
from subagents.brief import fixed_tokens

NO_CLIENT: Mapping[object, str] = {
    SlackReader: "There is no Slack workspace: set SLACK_BOT_TOKEN (`assistant setup` helps).",
    Gmail: "No Slack user has connected a mailbox: press Connect Gmail in App Home "
    "(docs/google.md), or give `ask` --mbox FILE.",
}
"""What reads -> why it is not there, where no kit of tools tells."""


def list_scopes(as_json: bool) -> int:
    """The command `scopes`."""

    async def work(store: Store) -> int:
        settings = load_settings()
        toolkit = toolkit_of(settings, store.database)
        try:
            opened = await toolkit.open("scopes", None)
            clients = {**opened.clients, **await _readers(settings, store.database)}
            found = [_offer(n, clients, toolkit.missing()) for n in scopes.scope_names()]
        finally:
            await toolkit.aclose()
        if as_json:
            dump(found)
        else:
            say("\n".join(line for offer in found for line in _lines(offer)))
        return DONE

    return stored(work, as_json)


async def _readers(settings: Settings, database: Database) -> dict[type, object]:
    """Stands for what reads Slack and mail, where there is anything to read it with: nothing is
    read for a list."""
    accounts = await Credentials(database).accounts(GOOGLE)
    connected = any(account != OPERATOR for account, _ in accounts)
    mail = settings.google.service_account or connected
    found = {SlackReader: settings.secrets.slack_bot_token, Gmail: mail}
    return {reader: reader for reader, key in found.items() if key}


def _offer(name: str, clients: Mapping[type, object], missing: Mapping[str, str]) -> dict[str, Any]:
    offered = scopes.offered(name, clients)
    outside = scopes.outside(clients).tools(name)
    own = offered[: len(offered) - len(outside)]
    absent = [tool for tool in scopes.scope(name).tools if tool not in own]
    tokens = fixed_tokens(name, own)
    return {
        "name": name,
        "given": name in scopes.offering(clients),
        "tools": [tool.name for tool in own],
        "tokens": tokens,
        "outside": [tool.name for tool in outside],
        "outside_tokens": fixed_tokens(name, offered) - tokens,
        "missing": {tool.name: missing.get(tool.name) or NO_CLIENT[tool.client] for tool in absent}
        | {key[len(name) + 1 :]: w for key, w in missing.items() if key.startswith(f"{name}/")},
    }


def _lines(offer: Mapping[str, Any]) -> Iterator[str]:
    yield f"{offer['name']}: {', '.join(offer['tools']) or 'no tool'}"
    yield f"  fixed tokens: {offer['tokens']:,}"
    if offer["tools"] and not offer["given"]:
        yield "  no subagent is started with it now, for the scope notes does as much"
    if offer["outside"]:
        more = f"{offer['outside_tokens']:,} more tokens"
        yield f"  from outside: {', '.join(offer['outside'])} ({more})"
    reasons: dict[str, list[str]] = {}
    for tool, why in offer["missing"].items():
        reasons.setdefault(why, []).append(tool)
    for why, tools in reasons.items():
        yield f"  not offered: {', '.join(tools)}. {why}"
