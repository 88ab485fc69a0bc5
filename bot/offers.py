"""What each scope offers now, why a tool is missing, and what each subagent pays for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import scopes
from bot.lookups import stored
from bot.outcome import DONE, dump, say
from bot.store import Store
from bot.tooling.wiring import toolkit_of
from config.settings import Settings, load_settings
from scopes.slack_reader import SlackReader
from subagents.brief import fixed_tokens

NO_SLACK = "There is no Slack workspace: set SLACK_BOT_TOKEN (`assistant setup` helps)."


def list_scopes(as_json: bool) -> int:
    """The command `scopes`."""

    async def work(store: Store) -> int:
        settings = load_settings()
        toolkit = toolkit_of(settings, store.database)
        try:
            opened = await toolkit.open("scopes", None)
            clients = {**opened.clients, **_slack(settings)}
            found = [_offer(n, clients, toolkit.missing()) for n in scopes.scope_names()]
        finally:
            await toolkit.aclose()
        if as_json:
            dump(found)
        else:
            say("\n".join(line for offer in found for line in _lines(offer)))
        return DONE

    return stored(work, as_json)


def _slack(settings: Settings) -> dict[type, object]:
    """Stands for what reads Slack, where there is a token: nothing is read for a list."""
    return {SlackReader: SlackReader} if settings.secrets.slack_bot_token else {}


def _offer(name: str, clients: Mapping[type, object], missing: Mapping[str, str]) -> dict[str, Any]:
    offered = scopes.offered(name, clients)
    outside = scopes.outside(clients).tools(name)
    own = offered[: len(offered) - len(outside)]
    absent = [tool for tool in scopes.scope(name).tools if tool not in own]
    tokens = fixed_tokens(name, own)
    return {
        "name": name,
        "tools": [tool.name for tool in own],
        "tokens": tokens,
        "outside": [tool.name for tool in outside],
        "outside_tokens": fixed_tokens(name, offered) - tokens,
        "missing": {
            tool.name: NO_SLACK if tool.client is SlackReader else missing[tool.name]
            for tool in absent
        }
        | {key[len(name) + 1 :]: w for key, w in missing.items() if key.startswith(f"{name}/")},
    }


def _lines(offer: Mapping[str, Any]) -> Iterator[str]:
    yield f"{offer['name']}: {', '.join(offer['tools']) or 'no tool'}"
    yield f"  fixed tokens: {offer['tokens']:,}"
    if offer["outside"]:
        more = f"{offer['outside_tokens']:,} more tokens"
        yield f"  from outside: {', '.join(offer['outside'])} ({more})"
    reasons: dict[str, list[str]] = {}
    for tool, why in offer["missing"].items():
        reasons.setdefault(why, []).append(tool)
    for why, tools in reasons.items():
        yield f"  not offered: {', '.join(tools)}. {why}"
