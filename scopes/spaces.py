"""Spaces of notes and files: a requester's own, those of a conversation, those of the team."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

from scopes.effects import NOTES, OPEN_NOTES, HandleArgument
from scopes.label import WORKSPACE, Label, Readers, is_conversation
from scopes.slack_client import Absent
from scopes.slack_reader import SlackReader
from scopes.tool import ToolContext

TEAM_NOTES: Final = f"{NOTES}:team"
"""Notes of all full members of the workspace."""
OPERATOR = "operator"
"""The space of the command line."""

Space = Annotated[str, HandleArgument(NOTES)]


def notes_of(whose: str) -> str:
    """Return the handle of a conversation's notes, or the source of a user's own."""
    return f"{NOTES}:{whose}"


def space_of(handle: str, owner: str | None) -> str:
    """Return its space in the database; `owner` is a user id, or None at the command line."""
    if handle == OPEN_NOTES:
        return f"user:{owner}" if owner else OPERATOR
    what = handle.partition(":")[2]
    return f"channel:{what}" if is_conversation(what) else what


async def held_spaces(ctx: ToolContext) -> list[str]:
    """Return the spaces that a context holds and its requester may read now, their own first."""
    others = [h for h in ctx.handles.titles if h.startswith(f"{NOTES}:") and h != OPEN_NOTES]
    own = [OPEN_NOTES] if OPEN_NOTES in ctx.handles.titles else []
    return own + [handle for handle in others if await ctx.may_read(handle)]


async def label_of(ctx: ToolContext, handle: str) -> Label:
    """Return a space's label; text that others may have put there is untrusted."""
    alone: Readers = frozenset({ctx.requester} if ctx.requester else ())
    if handle == OPEN_NOTES:
        own = notes_of(ctx.requester or OPERATOR)
        return Label(readers=alone, sources=frozenset({own}))
    channel = handle.partition(":")[2]
    if not is_conversation(channel):
        return Label(True, WORKSPACE, frozenset({handle}))
    reader = ctx.clients.get(SlackReader)
    if isinstance(reader, SlackReader):
        with suppress(Absent):
            return replace(await reader.label(channel), outside=True)  # a guest may write there
    return Label(True, alone, frozenset({channel}), outside=True)


async def may_see(ctx: ToolContext, label: Label) -> bool:
    """Return whether the requester may now read what was stored with this label.

    The gate lets nothing else pass; a tool asks before it counts, so that nobody learns how much
    there is.
    """
    if ctx.requester is None:
        return True
    if not isinstance(label.readers, str) and ctx.requester not in label.readers:
        return False
    return all([await ctx.may_read(each) for each in label.sources if is_conversation(each)])
