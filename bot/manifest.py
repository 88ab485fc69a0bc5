"""The Slack app's manifest: the permissions for the configuration, and why each is needed.

Shape: version 2 of Slack's manifest schema (github.com/slackapi/manifest-schema).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import yaml

from bot.errors import SetupError
from bot.slack.assistant_pane import prompts
from bot.terminal import DONE, dump, say
from config.settings import Settings, load_settings

SHORTCUTS = {
    "summarize_thread": "Summarize this thread",
    "open_points": "What is open here?",
}
"""Callback id of a message shortcut -> its name, which is also its request."""
Manifest = dict[str, Any]

EVENTS_PATH = "/slack/events"
"""Path at which `serve` receives events, clicks and commands in mode http."""
REDIRECT_PATH = "/slack/oauth_redirect"
"""Path at which Slack completes the installation in one of several workspaces."""
PLACEHOLDER = "https://YOUR-PUBLIC-ADDRESS"
NEW_APP = "https://api.slack.com/apps?new_app=1&manifest_yaml="

NAME = "Assistant"
COMMAND = "/assistant"
DESCRIPTION = "Answers from what your channels say, with a link for every claim."
ASKS_THREAD = "Ask the assistant this about the message's thread"
AGENT_DESCRIPTION = (
    "Ask what your channels say: open questions, unsolved issues, who promised what. Readers work "
    "in isolation, and every claim in the answer links to the message that it stands on."
)


def _always(settings: Settings) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Permission:
    """An OAuth scope, why it is needed, and the events that Slack sends only with it."""

    scope: str
    reason: str
    events: tuple[str, ...] = ()
    is_needed: Callable[[Settings], bool] = _always


BOT_PERMISSIONS = (
    Permission("app_mentions:read", "receives messages that mention it", ("app_mention",)),
    Permission(
        "assistant:write",
        "the agent pane: titles and suggested prompts",
        ("app_context_changed",),
    ),
    Permission(
        "channels:history",
        "reads public channels that it is in, and receives follow-ups in their threads",
        ("message.channels",),
    ),
    Permission(
        "channels:read",
        "names and members of public channels; learns when one is deleted, and deletes its data",
        ("channel_deleted",),
    ),
    Permission("chat:write", "writes, streams and corrects its own answers; the Stop button"),
    Permission("commands", f"the command {COMMAND}"),
    Permission(
        "files:read",
        "reads files that are attached to a request; learns when one is deleted",
        ("file_deleted",),
        is_needed=lambda settings: settings.reply.max_files > 0,
    ),
    Permission(
        "files:write",
        "puts the files of an answer, and a report's table and chart, into its thread",
    ),
    Permission(
        "groups:history",
        "reads private channels that it was invited to, for requesters who are members",
        ("message.groups",),
    ),
    Permission(
        "groups:read",
        "names and members of private channels that it is in; learns when one is deleted",
        ("group_deleted",),
    ),
    Permission("im:history", "reads direct messages with it", ("message.im",)),
    Permission("im:read", "knows who is in a direct message with it"),
    Permission(
        "im:write",
        "shows one person alone what not everyone may read, and asks there for approvals",
    ),
    Permission(
        "lists:read",
        "reads the Slack Lists that slack.lists names",
        is_needed=lambda settings: bool(settings.slack.lists),
    ),
    Permission("mpim:history", "reads group messages that it is in", ("message.mpim",)),
    Permission("mpim:read", "knows who is in a group message with it"),
    Permission(
        "reactions:read",
        "hears the reactions that slack.reactions names",
        ("reaction_added",),
        is_needed=lambda settings: bool(settings.slack.reactions),
    ),
    Permission("reactions:write", "adds reactions that a request asks for"),
    Permission(
        "search:read.public",
        "searches public channels that it is not in, for the question at hand",
        is_needed=lambda settings: settings.slack.search,
    ),
    Permission(
        "usergroups:read",
        "knows who is in the user groups that the policy names",
        is_needed=lambda settings: any(asker.startswith("S") for asker in _askers(settings)),
    ),
    Permission(
        "users:read",
        "people's names, time zones, whether they are guests; learns when one is deactivated",
        ("user_change",),
    ),
    Permission(
        "users:read.email",
        "which mailbox the service account may open for whom",
        is_needed=lambda settings: bool(settings.google.service_account),
    ),
)

_USER_REASON = "search as the person whose token is SLACK_USER_TOKEN"
USER_PERMISSIONS = (
    Permission("channels:read", f"{_USER_REASON}: who may see a public channel"),
    Permission("groups:read", f"{_USER_REASON}: who may see a private channel"),
    Permission("search:read", _USER_REASON),
)

SIGN_IN_PERMISSION = Permission("openid", "administrators sign in to the console")
"""The permission of people who sign in with Slack; no token of ours has it."""
SIGN_IN_PATH = "/console/sign-in/back"
"""Path to which Slack redirects people after the sign-in."""

FREE_EVENTS = ("app_home_opened", "agent_session_stopped")
"""Events that need no scope."""
INSTALL_EVENTS = ("app_uninstalled", "tokens_revoked")
"""Events that end an installation in one of several workspaces."""


def bot_permissions(settings: Settings) -> tuple[Permission, ...]:
    """Return the permissions that the bot token needs for these settings."""
    return tuple(p for p in BOT_PERMISSIONS if p.is_needed(settings))


def user_permissions(settings: Settings) -> tuple[Permission, ...]:
    return USER_PERMISSIONS if settings.secrets.slack_user_token else ()


def _user_permissions(settings: Settings) -> tuple[Permission, ...]:
    """Return the permissions of people in the manifest."""
    signing_in = (SIGN_IN_PERMISSION,) if settings.console.public_url else ()
    return user_permissions(settings) + signing_in


def bot_events(settings: Settings) -> list[str]:
    ends = INSTALL_EVENTS if settings.slack.client_id else ()
    return sorted({*FREE_EVENTS, *ends, *(e for p in bot_permissions(settings) for e in p.events)})


def manifest(settings: Settings, url: str | None = None) -> Manifest:
    """Return the manifest; `url` is the bot's public address in mode http, None = a placeholder."""
    address = _address(settings, url)
    request_url = {"request_url": address} if address else {}
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {"name": NAME, "description": DESCRIPTION},
        "features": _features({"url": address} if address else {}),
        "oauth_config": {
            **_redirects(settings, url),
            "scopes": {kind: list(each) for kind, each in reasons(settings).items()},
        },
        "settings": {
            "event_subscriptions": {**request_url, "bot_events": bot_events(settings)},
            "interactivity": {"is_enabled": True, **request_url},
            "org_deploy_enabled": bool(settings.slack.client_id),
            "socket_mode_enabled": settings.slack.mode == "socket",
            "token_rotation_enabled": False,
        },
    }


def _redirects(settings: Settings, url: str | None) -> Manifest:
    """Return Slack's redirect addresses: after an installation, and after a sign-in."""
    urls = []
    if settings.slack.client_id:
        public = settings.serve.public_url or url or PLACEHOLDER
        urls.append(public.rstrip("/") + REDIRECT_PATH)
    if console := settings.console.public_url:
        urls.append(console.rstrip("/") + SIGN_IN_PATH)
    return {"redirect_urls": urls} if urls else {}


def _features(request_url: Mapping[str, str]) -> Manifest:
    command = {
        "command": COMMAND,
        **request_url,
        "description": "Show whether it is running; administrators can pause and resume it",
        "usage_hint": "[status | pause | resume]",
        "should_escape": False,
    }
    return {
        "agent_view": {
            "agent_description": AGENT_DESCRIPTION,
            "suggested_prompts": prompts(),
        },
        "app_home": {
            "home_tab_enabled": True,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": NAME, "always_online": True},
        "shortcuts": [
            {"name": name, "type": "message", "callback_id": id, "description": ASKS_THREAD}
            for id, name in SHORTCUTS.items()
        ],
        "slash_commands": [command],
    }


def _address(settings: Settings, url: str | None) -> str:
    """Return the address for Slack's events; empty in Socket Mode."""
    if settings.slack.mode == "socket":
        if url:
            hint = "Leave --url out, or set slack.mode to http."
            raise SetupError("url", "Socket Mode needs no address.", hint)
        return ""
    if url and not url.startswith("https://"):
        raise SetupError("url", f"Slack sends nothing to {url}.", "Give --url https://...")
    return (url or PLACEHOLDER).rstrip("/") + EVENTS_PATH


def _askers(settings: Settings) -> set[str]:
    policy = settings.policy
    rules = (policy.everywhere, policy.direct, *policy.channels.values(), *policy.users.values())
    return {asker for rule in rules for asker in rule.ask or ()}


def reasons(settings: Settings) -> dict[str, dict[str, str]]:
    """Return why each scope is needed: kind of token -> scope -> reason."""
    permissions = {"bot": bot_permissions(settings), "user": _user_permissions(settings)}
    return {kind: {p.scope: p.reason for p in each} for kind, each in permissions.items() if each}


def as_yaml(document: Manifest, why: Mapping[str, Mapping[str, str]]) -> str:
    """Return the manifest as YAML, with the reason for each scope."""
    lines, kind = [], ""
    for line in _plain_yaml(document).splitlines():
        if key := re.fullmatch(r" {4}(bot|user):", line):
            kind = key[1]
        scope = line.strip().removeprefix("- ")
        reason = why.get(kind, {}).get(scope) if line.strip() != scope else None
        lines.append(f"{line:<34}# {reason}" if reason else line)
    return "\n".join(lines)


def new_app_link(document: Manifest) -> str:
    """Return a link that opens Slack's page for a new app with this manifest filled in."""
    return NEW_APP + quote(_plain_yaml(document), safe="")


def _plain_yaml(document: Manifest) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


def print_manifest(url: str | None, as_json: bool) -> int:
    """Print the manifest for `assistant manifest`."""
    settings = load_settings()
    document = manifest(settings, url)
    if as_json:
        dump(document)
    else:
        say(as_yaml(document, reasons(settings)))
    return DONE
