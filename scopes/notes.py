"""Notes: what a requester has the assistant remember, found again by its words.

A note lies in one space: the requester's own, a conversation's, or the team's. The label of the
context that wrote it stays with it, whoever reads it later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Protocol

from pydantic import Field

from scopes.conversations import search_conversations
from scopes.effects import OPEN_NOTES, Access, Said
from scopes.label import TRUSTED, Label
from scopes.resources import list_resources, read_resource, save_resource
from scopes.spaces import Space, held, label_of, may_see, space_of
from scopes.tool import Item, ToolContext, ToolError, ToolResult, not_found, tokens_of, tool

MAX_HITS = 15
EXCERPT = 300
"""Characters of a note that a search shows."""
MAX_TITLE, MAX_TEXT = 150, 20_000
"""Characters."""

_ID: Final = re.compile(r"(?:note/)?([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was kept."""

    id: int
    space: str
    """As `scopes.spaces.space_of` names it."""
    title: str
    text: str
    label: Label
    """Of the context that wrote it."""
    at: datetime


class Notes(Protocol):
    """The notes of this workspace; a space is named as `scopes.spaces.space_of` does it."""

    async def save(
        self,
        space: str,
        key: str,
        title: str,
        text: str,
        label: Label,
        run: str,
        context: str = "",
    ) -> int:
        """Keep a note, once for each key however often it is asked for; its id.

        One that the same context of this run wrote there under this title gets the new text.
        """

    async def search(self, spaces: Sequence[str], query: str, limit: int) -> Sequence[Note]:
        """Return the notes there that hold words of the query, best first.

        Without one the newest.
        """

    async def get(self, spaces: Sequence[str], id: int) -> Note | None:
        """Return the note of this id, where it lies in one of the spaces."""


@tool(Access.WRITE, client=Notes)
async def save_note(
    ctx: ToolContext,
    title: Annotated[str, Field(max_length=MAX_TITLE)],
    text: Annotated[Said, Field(max_length=MAX_TEXT)],
    space: Space = OPEN_NOTES,
) -> ToolResult:
    """Keep a note, in place of this task's own of that title."""
    if not title.strip() or not text.strip():
        raise ToolError("A note needs a title and a text.")
    where = space_of(space, ctx.requester)
    given = (ctx.key, title.strip(), text, ctx.label, ctx.run, ctx.context)
    id = await ctx.client(Notes).save(where, *given)  # type: ignore[type-abstract]
    return ToolResult(note=f"Kept as note/{id} in {space}.")


@tool(client=Notes)
async def search_notes(ctx: ToolContext, query: str = "", space: Space = "") -> ToolResult:
    """Find notes by words, or the newest."""
    spaces = await _spaces(ctx, space, "search_notes")
    limit = MAX_HITS + 1
    found = await ctx.client(Notes).search(list(spaces), query, limit)  # type: ignore[type-abstract]
    found = [each for each in found if await may_see(ctx, each.label)]
    items = [await _item(ctx, each, spaces[each.space]) for each in found[:MAX_HITS]]
    hits = tuple(map(_beginning, items))
    more = "Further notes are left out: use other words." if len(found) > MAX_HITS else ""
    whole = all(hit.text == item.text for hit, item in zip(hits, items, strict=True))
    note = f"{len(hits)} found{'' if whole else '; read_note reads one whole'}."
    note = note if hits else f"No note in {', '.join(spaces.values())} has these words."
    label = TRUSTED
    for handle in spaces.values():
        label = label.join(await label_of(ctx, handle))
    undone = {"search notes": f"a search in notes was cut: it shows {len(hits)}" if more else ""}
    return ToolResult(hits, truncated=more, note=note, undone=undone, label=label)


@tool(client=Notes)
async def read_note(ctx: ToolContext, note: str) -> ToolResult:
    """Read a note, by id."""
    spaces = await _spaces(ctx, "", "read_note")
    named = _ID.fullmatch(note.strip())
    notes = ctx.client(Notes)  # type: ignore[type-abstract]
    found = await notes.get(list(spaces), int(named[1])) if named else None
    if found is None or not await may_see(ctx, found.label):
        raise ToolError(not_found("note", note))
    item = await _item(ctx, found, spaces[found.space])
    room = ctx.max_output_tokens - tokens_of(replace(item, text=""))
    kept = item.text.encode(errors="replace")[: 3 * room].decode(errors="ignore")
    more = "The end of the note is left out." if len(kept) < len(item.text) else ""
    undone = {f"read {item.id}": f"the end of {item.id} was not read" if more else ""}
    return ToolResult((replace(item, text=kept),), truncated=more, undone=undone)


TOOLS = (
    *(save_note, search_notes, read_note, search_conversations),
    *(save_resource, read_resource, list_resources),
)


async def _spaces(ctx: ToolContext, wanted: str, tool: str) -> dict[str, str]:
    """Spaces of the database -> their handles: the one that is wanted, else all that are held."""
    handles = [wanted] if wanted else await held(ctx)
    if not handles:
        raise ToolError(not_found("such thing", tool))
    return {space_of(handle, ctx.requester): handle for handle in handles}


async def _item(ctx: ToolContext, note: Note, handle: str) -> Item:
    label = note.label.join(await label_of(ctx, handle))
    where = () if handle == OPEN_NOTES else (f"in {handle}",)
    text = f"{note.title}: {note.text}"
    return Item(f"note/{note.id}", text, None, label, at=note.at, notes=where)


def _beginning(item: Item) -> Item:
    cut = len(item.text) > EXCERPT
    more = ("beginning",) if cut else ()
    return replace(item, text=item.text[:EXCERPT], notes=(*item.notes, *more))
