"""Rules on what is stored where others find it: notes and files of several people."""

from __future__ import annotations

import re

from scopes.effects import FILES, NOTES, OPEN_NOTES, RUN_FOLDER
from scopes.intent import Intent
from scopes.label import is_conversation
from subagents.call import Call, Objection, is_literal

_FILES = "files:"
"""How the handle of a folder begins."""


async def shared(call: Call) -> Objection | None:
    """What is kept in a space of several people is told to all of them."""
    label = call.ctx.label
    if label.is_open and (call.ctx.requester is None or not label.sources):
        return None  # the operator's own, or rests on nothing that was read
    for space in _spaces(call):
        place = space.partition(":")[2]
        place = place if is_conversation(place) else space
        if found := await call.directory.obstacles(label, place):
            named = ", ".join(dict.fromkeys(f"{o.name} ({o.why})" for o in found))
            return Objection(f"It may not be kept there: {named}. Keep it in {OPEN_NOTES}.")
    return None


def for_others(call: Call) -> Objection | None:
    """A folder that several people work in is written where the request names it. What strangers
    wrote is kept for others after a click."""
    ctx = call.ctx
    if call.effect in FILES:
        given = [str(call.values.get(n) or "") for n in call.tool.handle_arguments]
        if not any(given):
            given = [ctx.handles.in_front(str(call.values.get("path") or ""), _FILES)[0]]
        held = [h for h in ctx.handles.titles if h.startswith(_FILES)]
        projects = [h for h in (given if any(given) else held) if h and h != RUN_FOLDER]
        if not projects or any(_is_named(call, h) for h in projects):
            return None
        name = projects[0].partition(":")[2]
        return Objection(
            f"The request does not name {name} as a place to write to. Write into {RUN_FOLDER}, if "
            "you hold it, or say in your result what would have to be written."
        )
    several = call.tool.shared or _spaces(call)
    if not ctx.label.untrusted or not several or is_literal(call):
        return None
    return Objection("What others wrote is kept for several people.", approvable=True)


def _is_named(call: Call, handle: str) -> bool:
    """Whether the requester's own words name what a handle stands for."""
    name = handle.partition(":")[2].casefold()
    said = Intent(call.ctx.intent.text.casefold())
    return said.says(name) or said.says(re.sub("[-_]+", " ", name))


def _spaces(call: Call) -> set[str]:
    """The spaces of several people that a call keeps something in."""
    kinds = call.tool.handle_arguments.items()
    spaces = {str(call.values.get(name) or OPEN_NOTES) for name, kind in kinds if kind == NOTES}
    return spaces - {OPEN_NOTES}
