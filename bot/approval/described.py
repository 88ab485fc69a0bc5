"""What an action would do, in words made by code of its stored arguments alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import scopes
from bot.approval.clicks import MAX_TYPED
from bot.approval.exact import spelled, told, visible
from scopes.effects import Effect, Part
from scopes.tool import Tool
from subagents.action import Action

INLINE = 300
"""Characters of a value that stands in the line of its name."""
RECIPIENTS = (
    *("to", "cc", "bcc", "recipient", "recipients", "attendees", "people", "emails", "email"),
    *("user", "users", "channel", "channels", "address", "url", "sheet", "table", "range"),
)
"""Arguments that are shown first, beside those that are handles."""
SCHEDULED = {
    "schedule_create": "Set up",
    "schedule_pause": "Pause",
    "schedule_delete": "Delete",
}
"""Tool -> what it does to a schedule."""


def tool_of(action: Action) -> Tool | None:
    """The tool that would run; None where there is none any more."""
    try:
        tools = scopes.tools_of(action.scope)
    except scopes.UnknownScope:
        return None
    return next((tool for tool in tools if tool.name == action.tool), None)


def editable(action: Action) -> dict[str, str]:
    """The texts that may be changed before they are sent, by argument; none if one is too long."""
    tool = tool_of(action)
    names = [n for n, role in tool.parts.items() if role is Part.SAID] if tool else []
    texts = {name: action.args.get(name) for name in names}
    if not all(isinstance(text, str) and len(text) <= MAX_TYPED for text in texts.values()):
        return {}
    return {name: str(text) for name, text in texts.items()}


def title(action: Action) -> str:
    """What would happen, in a line."""
    tool = tool_of(action)
    if verb := SCHEDULED.get(action.tool):
        what = "Resume" if action.args.get("resume") else verb
        return f"{what} the schedule {spelled(str(action.args.get('name', '')))}"
    goals = [_named(action, str(action.args[n])) for n in _handles(tool) if action.args.get(n)]
    if not goals:
        found = (action.args.get(name) for name in ("to", "recipient", "recipients"))
        goals = [spelled(_short(value)) for value in found if value]
    to = f" to {goals[0]}" if goals else ""
    if tool and tool.effect is Effect.POST:
        return f"Send a message{to}"
    if tool and tool.effect is Effect.REACT:
        return f"Add a reaction{to}"
    if tool and tool.effect is Effect.DRAFT:
        return "Put a reply into your drafts"
    words = visible(action.tool.replace("_", " ")).strip()
    return f"{words[:1].upper()}{words[1:]}{to}"


def _handles(tool: Tool | None) -> Mapping[str, str]:
    return tool.handle_arguments if tool else {}


def _named(action: Action, value: str) -> str:
    """A thing by its id, then by its name, which anybody may choose; a message by that of its
    conversation."""
    name = action.handles.get(value) or action.handles.get(value.partition("/")[0])
    return f"{spelled(value)} ({spelled(name)})" if name else spelled(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else ", ".join(map(str, value))
    return text if len(text) <= INLINE else f"{text[:INLINE]}…"


def arguments(action: Action) -> Iterator[tuple[str, str, bool]]:
    """Name, value and whether it is a text, of all arguments: who gets it first, texts last.

    What others would read stands as it is, each other text with what it is made of beside it. What
    need not be given and is not is left out.
    """
    tool = tool_of(action)
    handles, parts = _handles(tool), tool.parts if tool else {}

    def rank(name: str) -> int:
        if parts.get(name) is Part.SAID:
            return 3
        return 0 if name in handles else 1 if name.lower() in RECIPIENTS else 2

    for name in sorted(action.args, key=rank):
        value = action.args[name]
        if _is_left_out(tool, name, value):
            continue
        if name in handles and isinstance(value, str):
            yield name, _named(action, value) if value else "(empty)", False
        elif isinstance(value, str) and rank(name) == 3:
            yield name, visible(value), True
        else:
            text = _told(value)
            yield name, text, len(text) > INLINE


def _told(value: Any) -> str:
    if isinstance(value, str):
        return spelled(value) or "(empty)"
    if _is_list_of_text(value):
        return ", ".join(map(spelled, value)) or "(none)"
    return told(value)


def _is_left_out(tool: Tool | None, name: str, value: Any) -> bool:
    known = tool.input_model.model_fields.get(name) if tool else None
    if known is None or known.is_required() or value not in (None, "", [], {}):
        return False
    return bool(known.get_default() == value)


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
