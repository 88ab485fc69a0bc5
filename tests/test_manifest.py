"""The manifest fits Slack's schema and requests only permissions that our code uses."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.manifest import (
    BOT_PERMISSIONS,
    FREE_EVENTS,
    SIGN_IN_PERMISSION,
    USER_PERMISSIONS,
    manifest,
)
from config.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [
    path
    for package in ("bot", "scopes", "subagents")
    for path in (ROOT / package).rglob("*.py")
    if not path.is_relative_to(ROOT / "bot" / "local") and path.name != "manifest.py"
]
TABLE = (*BOT_PERMISSIONS, *USER_PERMISSIONS, SIGN_IN_PERMISSION)
CHANNELS = (
    *("conversations.info", "conversations.list", "conversations.members"),
    "users.conversations",
)
HISTORY = ("conversations.history", "conversations.replies")
METHODS = {
    "assistant:write": ("assistant.threads.setTitle", "assistant.threads.setSuggestedPrompts"),
    **dict.fromkeys(("channels:history", "groups:history", "im:history", "mpim:history"), HISTORY),
    **dict.fromkeys(("channels:read", "groups:read", "im:read", "mpim:read"), CHANNELS),
    "chat:write": (
        *("chat.postMessage", "chat.update", "chat.delete", "chat.postEphemeral"),
        *("chat.startStream", "chat.appendStream", "chat.stopStream"),
        "agents.sessions.setStatus",
    ),
    "files:read": ("files.info",),
    "files:write": ("files.getUploadURLExternal", "files.completeUploadExternal"),
    "im:write": ("conversations.open",),
    "lists:read": ("slackLists.items.list",),
    "reactions:write": ("reactions.add",),
    "search:read.public": ("assistant.search.context",),
    "usergroups:read": ("usergroups.users.list",),
    "users:read": ("users.info", "users.list"),
    "users:read.email": ("users.info",),
    "search:read": ("search.messages",),
    "openid": ("openid.connect.token", "openid.connect.userInfo"),
}
"""Scope -> the Web API methods that need it."""
FREE_METHODS = {
    *("auth.teams.list", "auth.test", "chat.getPermalink", "oauth.v2.access"),
    *("views.open", "views.publish"),
}
"""Web API methods that need no scope."""
APP_METHODS = {"apps.connections.open"}
"""Methods of the app-level token, which has its own scope: connections:write."""


@cache
def helpers() -> dict[str, str]:
    """Map each method of the SDK's client to the Web API method that it calls."""
    source = inspect.getsource(AsyncWebClient)
    parts = re.split(r"    async def (\w+)\(", source)[1:]
    calls = {
        name: re.search(r'self\.api_call\(\s*"([\w.]+)"', text)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    found = {name: call[1] for name, call in calls.items() if call}
    found["assistant_search_context"] = "assistant.search.context"  # the SDK has no helper for it
    assert len(found) > 200
    return found


@cache
def web_api_calls() -> dict[str, str]:
    """Map each Web API method that our sources call, also by the SDK, to a file that calls it."""
    methods = helpers()
    names = set(methods.values())
    calls: dict[str, str] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                calls[str(node.value)] = path.name
            elif isinstance(node, ast.Attribute) and node.attr in methods:
                calls[methods[node.attr]] = path.name
    return calls


def test_every_web_api_method_in_use_has_its_scope_in_the_table() -> None:
    requested = {permission.scope for permission in TABLE}
    assert METHODS.keys() <= requested
    named = {m for methods in METHODS.values() for m in methods} | FREE_METHODS | APP_METHODS
    assert {m: file for m, file in web_api_calls().items() if m not in named} == {}


def test_every_requested_scope_is_used_by_code() -> None:
    called = web_api_calls()
    sources = "\n".join(path.read_text("utf-8") for path in SOURCES)
    for permission in TABLE:
        if permission.scope == "commands":  # the slash command has no method
            continue
        methods = METHODS.get(permission.scope, ())
        events = [e for e in permission.events if f'"{e.partition(".")[0]}"' in sources]
        assert methods or events, permission.scope
        assert len(events) == len(permission.events), "an event has no listener"
    assert [e for e in FREE_EVENTS if f'"{e}"' not in sources] == []
    assert [m for methods in METHODS.values() for m in methods if m not in called] == []
    assert [m for m in FREE_METHODS | APP_METHODS if m not in called] == []


def test_manifest_matches_the_slack_schema() -> None:
    """By version 2 of the schema in github.com/slackapi/manifest-schema."""
    for overrides in ({}, {"SLACK_USER_TOKEN": "xoxp-1"}):
        document = manifest(load_settings(env=overrides))
        assert document["_metadata"]["major_version"] == 2
        assert len(document["display_information"]["name"]) <= 35
        assert len(document["display_information"]["description"]) <= 140
        features = document["features"]
        assert all(len(each["name"]) <= 24 for each in features["shortcuts"])
        pane = features["agent_view"]
        assert 0 < len(pane["agent_description"]) <= 300
        assert 1 <= len(pane["suggested_prompts"]) <= 4
        assert all(p.keys() == {"title", "message"} for p in pane["suggested_prompts"])
        assert features["app_home"]["messages_tab_read_only_enabled"] is False
        (command,) = features["slash_commands"]
        assert re.fullmatch(r"/[a-z]{1,31}", command["command"])
        scopes = document["oauth_config"]["scopes"]
        assert scopes.keys() == ({"bot", "user"} if overrides else {"bot"})
        assert all(len(s) == len(set(s)) and sorted(s) == s for s in scopes.values())
        assert document["settings"]["socket_mode_enabled"] is True
        assert not document["settings"]["token_rotation_enabled"]


def manifest_of(folder: Path, text: str, url: str | None = None) -> dict[str, Any]:
    """Return the manifest for the settings in `text`."""
    path = folder / "assistant.yaml"
    path.write_text(text, "utf-8")
    return dict(manifest(load_settings(path, env={}), url))


def test_manifest_requests_only_scopes_that_the_settings_use(tmp_path: Path) -> None:
    def scopes(text: str) -> set[str]:
        return set(manifest_of(tmp_path, text)["oauth_config"]["scopes"]["bot"])

    plain = scopes("")
    assert scopes("slack: {lists: {F0BUGS: Bugs}}") - plain == {"lists:read"}
    assert scopes("policy: {channels: {'csm-*': {ask: [S0SUPPORT]}}}") - plain == {
        "usergroups:read"
    }
    assert plain - scopes("reply: {max_files: 0}") == {"files:read"}


def test_manifest_of_a_multi_workspace_app_lists_redirect_urls(tmp_path: Path) -> None:
    one = "slack: {mode: http, client_id: '1.2'}\n"
    oauth = manifest_of(tmp_path, one, "https://bot.example.com")["oauth_config"]
    assert oauth["redirect_urls"] == ["https://bot.example.com/slack/oauth_redirect"]
    console = "console: {public_url: 'https://runs.example.com', client_id: '1.2'}\n"
    two = f"{one}serve: {{public_url: 'https://bot.example.com/'}}\n{console}"
    both = manifest_of(tmp_path, two)
    assert both["oauth_config"]["redirect_urls"] == [
        "https://bot.example.com/slack/oauth_redirect",
        "https://runs.example.com/console/sign-in/back",
    ]
    assert both["oauth_config"]["scopes"]["user"] == ["openid"]
    assert both["settings"]["org_deploy_enabled"]
    assert {"app_uninstalled", "tokens_revoked"} <= set(
        both["settings"]["event_subscriptions"]["bot_events"]
    )
    closed = manifest_of(tmp_path, "")["oauth_config"]
    assert "redirect_urls" not in closed
    assert "user" not in closed["scopes"]
