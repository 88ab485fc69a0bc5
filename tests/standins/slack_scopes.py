"""The OAuth scopes of a token, and which of them a method needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.local.slack import state
from bot.local.slack.state import Call, SlackError, visible

_PREFIX = {
    "public_channel": "channels",
    "private_channel": "groups",
    "mpim": "mpim",
    "im": "im",
}
_READ_SCOPES = frozenset(
    f"{prefix}:{right}" for prefix in _PREFIX.values() for right in ("read", "history")
) | {"lists:read", "users:read"}

BOT_SCOPES = _READ_SCOPES | {
    "app_mentions:read",
    "assistant:write",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "im:write",
    "mpim:write",
    "reactions:write",
    "search:read.public",
    "usergroups:read",
}
USER_SCOPES = _READ_SCOPES | {"search:read"}

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "agents": ("assistant:write", "chat:write"),
    "assistant": ("assistant:write",),
    "chat": ("chat:write",),
    "files": ("files:write",),
    "reactions": ("reactions:write",),
    "slackLists": ("lists:read",),
    "usergroups": ("usergroups:read",),
    "users": ("users:read",),
}
_METHODS: Mapping[str, tuple[str, ...]] = {
    "assistant.search.context": ("search:read.public",),
    "chat.getPermalink": (),
    "files.info": ("files:read",),
}
"""Of methods that need other scopes than their family."""


@dataclass(frozen=True, slots=True)
class Identity(state.Identity):
    """The owner of a token, and its scopes."""

    scopes: frozenset[str] = BOT_SCOPES


def scopes_of(identity: state.Identity) -> frozenset[str]:
    """The scopes of a token: those that a test gave it, else all of a bot or of a user."""
    if isinstance(identity, Identity):
        return identity.scopes
    return BOT_SCOPES if identity.bot_id else USER_SCOPES


def need(call: Call) -> None:
    """Refuse a call whose token lacks a scope of its method."""
    require(call, *_needed_scopes(call))


def require(call: Call, *scopes: str) -> None:
    """Refuse a call whose token lacks one of these."""
    granted = scopes_of(call.identity)
    missing = [scope for scope in scopes if scope not in granted]
    if missing:
        provided = ",".join(sorted(granted))
        raise SlackError("missing_scope", needed=",".join(missing), provided=provided)


def _needed_scopes(call: Call) -> tuple[str, ...]:
    family, _, action = call.method.partition(".")
    if call.method in ("conversations.list", "users.conversations"):
        return tuple(sorted(f"{_PREFIX[kind]}:read" for kind in call.kinds()))
    if call.method == "conversations.open":
        return ("im:write",)
    if family == "conversations":
        right = "history" if action in ("history", "replies") else "read"
        return (f"{_PREFIX[visible(call).kind]}:{right}",)
    return _METHODS.get(call.method, _FAMILIES.get(family, ()))
