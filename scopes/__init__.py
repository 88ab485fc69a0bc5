"""The one table: scope -> tools. A scope's module is imported when the scope is first used."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from scopes.tool import Tool, names_in

MODULES: Final = {
    "slack": "scopes.slack",
    "email": "scopes.email",
    "data": "scopes.data",
    "web": "scopes.web",
    "notes": "scopes.notes",
    "files": "scopes.files",
}
"""Scope name -> the module that holds its TOOLS."""

REQUIRED_CLIENTS: Final = {
    "slack": {"scopes.slack_reader:SlackReader"},
    "email": {"scopes.google.gmail:Gmail"},
    "data": {
        "scopes.databases.tables:Databases",
        "scopes.sheets:Sheets",
        "scopes.resources:Resources",
    },
    "web": {
        "scopes.search_engines:SearchEngine",
        "scopes.pages.pages:Pages",
        "scopes.sandbox:Sandbox",
    },
    "notes": {
        "scopes.notes:Notes",
        "scopes.notes:Conversations",
        "scopes.resources:Resources",
    },
    "files": {
        "scopes.folders.folders:Folders",
        "scopes.folders.git:Git",
        "scopes.folders.git_push:GitPush",
        "scopes.folders.commands:Commands",
    },
}
"""Scope name -> the kinds of clients, by name; with any of them it has a tool of its own. A scope
that is not here needs none."""

PARENT: Final = (
    *("scopes.slack", "scopes.notes"),
    *("scopes.schedules", "scopes.preferences"),
)
"""Modules of the tools that a parent may be offered; those on the last line are only for it."""

SCOPES_BY_PREFIX: Final = {
    "slack": "slack",
    "mail": "email",
    "data": "data",
    "sheet": "data",
    "web": "web",
    "http": "web",
    "https": "web",
    "notes": "notes",
    "files": "files",
}
"""Prefix of a handle, before the colon -> the scope that reads the thing with this handle."""

_OF_SLACK: Final = re.compile(r"[A-Z][A-Z0-9]*(?:/.*)?", re.DOTALL)
"""An id of a conversation or of something in it, of a list, of a person."""

ALL: Final = "all"
"""The tools of all others: only if the request itself needs several of them in one context."""


class UnknownScope(LookupError):
    """A scope that is not in the table; `names` are those that are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names = scope_names()
        super().__init__(f"No scope {name[:40]!r}. Scopes: {', '.join(self.names)}.")


@dataclass(frozen=True, slots=True)
class Scope:
    """The tools of a subagent, and the prompt file that explains them."""

    name: str
    tools: tuple[Tool, ...]
    prompt: str
    """Name of the file in config/prompts/, without `.md`."""


class Outside(dict[str, tuple[Tool, ...]]):
    """The tools of one run that come from outside, by scope; they do not change while it lasts."""


def scope_names() -> list[str]:
    return [*MODULES, ALL]


@cache
def scope(name: str) -> Scope:
    """Return the scope of this name. Raises `UnknownScope`."""
    if name == ALL:
        return Scope(ALL, _once(t for each in MODULES for t in scope(each).tools), "scope_all")
    if name not in MODULES:
        raise UnknownScope(name)
    return Scope(name, tuple(import_module(MODULES[name]).TOOLS), f"scope_{name}")


def _once(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Return each tool once: notes are in several scopes."""
    return tuple({t.name: t for t in tools}.values())


def permitted_scopes(names: Collection[str] | None) -> tuple[str, ...]:
    """Return the scopes whose tools may be used if these are allowed: the named ones, or all if
    only `all` is named. None = no limit.
    """
    allowed = None if names is None or {*names} == {ALL} else names
    return tuple(name for name in MODULES if allowed is None or name in allowed)


def offered_tools(
    name: str, clients: Mapping[type, object], among: Collection[str] | None = None
) -> tuple[Tool, ...]:
    """Return the tools of a scope that work with these clients, then those from outside that were
    put into it; for `all`, those of the scopes that `among` permits. Raises `UnknownScope`.
    """
    parts = permitted_scopes(among) if name == ALL else (name,)
    own = (t for each in parts for t in scope(each).tools)
    able = (t for t in own if t.client is None or t.client in clients)
    return _once((*able, *_outside(name, parts, clients)))


def _outside(name: str, parts: Iterable[str], clients: Mapping[type, object]) -> Iterable[Tool]:
    return (t for each in dict.fromkeys((*parts, name)) for t in outside(clients).get(each, ()))


def offering_scopes(clients: Mapping[type, object]) -> list[str]:
    """Return the scopes that have a tool of their own with these clients, such as a mailbox."""
    kinds, own = names_in(clients), outside(clients)
    found = [
        name
        for name in MODULES
        if name not in REQUIRED_CLIENTS or REQUIRED_CLIENTS[name] & kinds or own.get(name)
    ]
    return [*found, ALL] if found or own.get(ALL) else []


def scope_of(handle: str) -> str:
    """Return the scope that reads what a handle names; empty for a server of tools."""
    kind, colon, _ = handle.partition(":")
    if colon:
        return SCOPES_BY_PREFIX.get(kind, "")
    return "slack" if _OF_SLACK.fullmatch(handle) else "email"


def outside(clients: Mapping[type, object]) -> Outside:
    """Return the tools from outside; none if no server is configured."""
    found = clients.get(Outside)
    return found if isinstance(found, Outside) else Outside()


def tools_of(context: str, clients: Mapping[type, object] | None = None) -> tuple[Tool, ...]:
    """Return the tools that a context of this scope, or a `parent`, may have called."""
    if context == "parent":
        return tuple(t for module in PARENT for t in import_module(module).TOOLS)
    parts = MODULES if context == ALL else (context,)
    return _once((*scope(context).tools, *_outside(context, parts, clients or {})))
