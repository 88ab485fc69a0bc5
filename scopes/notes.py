"""Notes: what a requester has the assistant remember, found again by its words.

A note is its owner's alone, whatever it rests on; the label of the context that wrote it stays with
it, so that what was read from it later is held to the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Protocol

from pydantic import Field

from scopes.effects import Access, Said
from scopes.label import Label
from scopes.tool import Item, ToolContext, ToolError, ToolResult, estimate_tokens, not_found, tool

OPEN_NOTES: Final = "notes:own"
"""Open handle of a context that may keep and search the notes of its requester."""
MAX_HITS = 15
EXCERPT = 300
"""Characters of a note that a search shows."""
MAX_TITLE, MAX_TEXT = 150, 20_000
"""Characters."""

_ID = re.compile(r"(?:note/)?([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was kept."""

    id: int
    title: str
    text: str
    label: Label
    """Of the context that wrote it."""
    at: datetime


class Notes(Protocol):
    """The notes of this workspace. `owner` is a user id, or None at the command line."""

    async def save(
        self, owner: str | None, key: str, title: str, text: str, label: Label, run: str
    ) -> int:
        """Keep a note, once for each key however often it is asked for; its id."""

    async def search(self, owner: str | None, query: str, limit: int) -> Sequence[Note]:
        """The owner's notes that hold words of the query, best first; without one the newest."""

    async def get(self, owner: str | None, id: int) -> Note | None:
        """The note of this id, where it is the owner's."""


@tool(Access.WRITE, needs=OPEN_NOTES)
async def save_note(
    ctx: ToolContext,
    title: Annotated[str, Field(max_length=MAX_TITLE)],
    text: Annotated[Said, Field(max_length=MAX_TEXT)],
) -> ToolResult:
    """Keep a note for the requester."""
    if not title.strip() or not text.strip():
        raise ToolError("A note needs a title and a text.")
    label = ctx.label
    id = await _notes(ctx).save(ctx.requester, ctx.key, title.strip(), text, label, ctx.run)
    return ToolResult(note=f"Kept as note/{id}.")


@tool(needs=OPEN_NOTES)
async def search_notes(ctx: ToolContext, query: str = "") -> ToolResult:
    """Find the requester's notes by words; without any the newest."""
    found = await _notes(ctx).search(ctx.requester, query, MAX_HITS + 1)
    items = tuple(_hit(each, ctx.requester) for each in found[:MAX_HITS])
    more = "Further notes are left out: use other words." if len(found) > MAX_HITS else ""
    note = f"{len(items)} notes; read_note reads one." if items else "No note has these words."
    return ToolResult(items, truncated=more, note=note, label=_own(ctx.requester))


@tool(needs=OPEN_NOTES)
async def read_note(ctx: ToolContext, note: str) -> ToolResult:
    """Read a note, by id."""
    named = _ID.fullmatch(note.strip())
    found = await _notes(ctx).get(ctx.requester, int(named[1])) if named else None
    if found is None:
        raise ToolError(not_found("note", note))
    item = _item(found, ctx.requester)
    room = ctx.max_output_tokens - estimate_tokens(replace(item, text="").line()) - 1
    kept = found.text.encode(errors="replace")[: 3 * room].decode(errors="ignore")
    more = "The end of the note is left out." if len(kept) < len(found.text) else ""
    return ToolResult((replace(item, text=f"{found.title}: {kept}"),), truncated=more)


TOOLS = (save_note, search_notes, read_note)


def _notes(ctx: ToolContext) -> Notes:
    try:
        return ctx.client(Notes)  # type: ignore[type-abstract]
    except KeyError:
        raise ToolError("No notes are kept here. Say so in your result.") from None


def _own(owner: str | None) -> Label:
    return Label(readers=frozenset({owner} if owner else ()), sources=frozenset({"notes:own"}))


def _item(note: Note, owner: str | None) -> Item:
    label = note.label.join(_own(owner))
    text = f"{note.title}: {note.text}"
    return Item(f"note/{note.id}", text, None, label, at=note.at)


def _hit(note: Note, owner: str | None) -> Item:
    whole = len(note.text) <= EXCERPT
    text = f"{note.title}: {note.text[:EXCERPT]}"
    return replace(_item(note, owner), text=text, notes=() if whole else ("beginning",))
