"""What a call means that leaves open which of the things it holds."""

from __future__ import annotations

from collections.abc import Container

from scopes.tool import ToolContext, ToolError


async def open_to(ctx: ToolContext, things: Container[str]) -> list[str]:
    """Return those of these things that the context holds and its requester may read."""
    held = [each for each in ctx.handles.titles if each in things]
    return [each for each in held if await ctx.may_read(each)]


def only(kind: str, things: list[str]) -> str:
    """Return the one of them. Raises ToolError where it is none or several."""
    if not things:
        raise ToolError(f"No {kind} is open to this task. Say so in your result.")
    if len(things) > 1:
        raise ToolError(f"Name a {kind}: {', '.join(sorted(things))}.")
    return things[0]
