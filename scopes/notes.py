"""Notes that the assistant keeps for requesters, and past answers; both are found by their words.

A note lies in one space: the requester's own, a conversation's, or the team's. The label of the
context that wrote it stays with it for every later reader.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Protocol

from pydantic import Field

from scopes.effects import OPEN_NOTES, Access, Said
from scopes.label import TRUSTED_LABEL, Label
from scopes.resources import list_resources, read_resource, save_resource
from scopes.slack_items import permalink
from scopes.slack_reader import SlackReader
from scopes.spaces import Space, held_spaces, label_of, may_see, notes_of, space_of
from scopes.tool import Item, ToolContext, ToolError, ToolResult, not_found, tokens_of, tool

MAX_HITS = 15
EXCERPT_CHARS = 300
"""Characters of a note that a search shows."""
MAX_TITLE, MAX_TEXT = 150, 20_000
"""Characters."""

_ID: Final = re.compile(r"(?:note/)?([1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Note:
    """A stored note."""

    id: int
    space: str
    """Name of the space, from `scopes.spaces.space_of`."""
    title: str
    text: str
    label: Label
    """Label of the context that wrote it."""
    at: datetime


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note to store."""

    space: str
    key: str
    title: str
    text: str
    label: Label
    """Label of the context that writes it."""
    run: str
    context: str = ""


class Notes(Protocol):
    """The notes of this workspace; `scopes.spaces.space_of` names the spaces."""

    async def save(self, note: NewNote) -> int:
        """Store a note, once for each key; return its id.

        A note with this title that the same context of this run wrote there gets the new text.
        """

    async def search(self, spaces: Sequence[str], query: str, limit: int) -> Sequence[Note]:
        """Return the notes there that hold words of the query, best first.

        Without a query, return the newest.
        """

    async def get(self, spaces: Sequence[str], id: int) -> Note | None:
        """Return the note of this id if it is in one of the spaces."""


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
    note = NewNote(where, ctx.key, title.strip(), text, ctx.label, ctx.run, ctx.context)
    id = await ctx.client(Notes).save(note)  # type: ignore[type-abstract]
    return ToolResult(note=f"Kept as note/{id} in {space}.")


@tool(client=Notes)
async def search_notes(ctx: ToolContext, query: str = "", space: Space = "") -> ToolResult:
    """Find notes by words, or the newest."""
    spaces = await _spaces(ctx, space, "search_notes")
    limit = MAX_HITS + 1
    found = await ctx.client(Notes).search(list(spaces), query, limit)  # type: ignore[type-abstract]
    found = [each for each in found if await may_see(ctx, each.label)]
    items = [await _item(ctx, each, spaces[each.space]) for each in found[:MAX_HITS]]
    hits = tuple(map(_shorten, items))
    more = "Further notes are left out: use other words." if len(found) > MAX_HITS else ""
    whole = all(hit.text == item.text for hit, item in zip(hits, items, strict=True))
    note = f"{len(hits)} found{'' if whole else '; read_note reads one whole'}."
    note = note if hits else f"No note in {', '.join(spaces.values())} has these words."
    label = TRUSTED_LABEL
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


MAX_TALKS = 10
LOOKED_AT, ROUNDS = 40, 20
"""Hits of one search, and searches of one call: each leaves out the conversations found closed so
far. The result does not show that there are more of those."""
QUESTION, LEAST_ANSWER = 300, 300
"""Characters shown of a question, and at least of an answer."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A request and its answer."""

    run: str
    place: str
    """The conversation of Slack that both are in; empty if only the requester has seen them."""
    question: str
    answer: str
    label: Label
    """Label of the answer."""
    at: datetime
    message: tuple[str, str, str] | None = None
    """Channel, `ts` and `thread_ts` of the request in Slack, if that is still known."""


class Conversations(Protocol):
    """The questions and answers of this workspace."""

    async def search(
        self, owner: str | None, query: str, limit: int, closed: Collection[str]
    ) -> Sequence[Talk]:
        """Return talks that hold words of the query, best first; without a query, the newest.

        They are the owner's own, and those of all conversations that are not `closed`. `owner` is a
        user id, or None at the command line, which has only its own.
        """


@tool(needs=OPEN_NOTES, client=Conversations)
async def search_conversations(ctx: ToolContext, query: str = "") -> ToolResult:
    """Find what you were asked and answered before, by words, or the newest."""
    talks = await _open(ctx, query)
    room = 3 * ctx.max_output_tokens // max(1, len(talks[:MAX_TALKS])) - 2 * QUESTION
    items = tuple(
        [await _answer_item(ctx, each, max(LEAST_ANSWER, room)) for each in talks[:MAX_TALKS]]
    )
    more = "Others are left out: use more words." if len(talks) > MAX_TALKS else ""
    note = f"{len(items)} conversations." if items else "No conversation has these words."
    label = await label_of(ctx, OPEN_NOTES)
    cut = f"a search in conversations was cut: it shows {len(items)}" if more else ""
    undone = {"search conversations": cut}
    return ToolResult(items, truncated=more, note=note, undone=undone, label=label)


async def _open(ctx: ToolContext, query: str) -> list[Talk]:
    """Return the talks found that the requester may read."""
    store = ctx.client(Conversations)  # type: ignore[type-abstract]
    opened: set[str] = {""}
    closed: set[str] = set()
    found: Sequence[Talk] = ()
    for _ in range(ROUNDS):
        found = await store.search(ctx.requester, query, LOOKED_AT, sorted(closed))
        for place in {talk.place for talk in found} - opened:
            (opened if await ctx.may_read(place) else closed).add(place)
        if all(talk.place in opened for talk in found):
            break
    there = [talk for talk in found if talk.place in opened]
    return [talk for talk in there if await may_see(ctx, talk.label)]


async def _answer_item(ctx: ToolContext, talk: Talk, room: int) -> Item:
    """Return a talk as an item; `room` = bytes for the answer."""
    place = await label_of(ctx, notes_of(talk.place) if talk.place else OPEN_NOTES)
    label = talk.label.join(place).join(Label(untrusted=True))  # another person may have asked
    answer = talk.answer.encode(errors="replace")[:room].decode(errors="ignore")
    cut = len(answer) < len(talk.answer) or len(talk.question) > QUESTION
    text = f"Asked: {talk.question[:QUESTION]} Answered: {answer}"
    where = (f"in {talk.place}",) if talk.place else ()
    notes = (*where, *(("beginning",) if cut else ()))
    return Item(f"talk/{talk.run}", text, await _link(ctx, talk), label, at=talk.at, notes=notes)


async def _link(ctx: ToolContext, talk: Talk) -> str | None:
    """Return the link to the request, with the answer below it."""
    reader = ctx.clients.get(SlackReader)
    if talk.message is None or not isinstance(reader, SlackReader):
        return None
    return permalink(await reader.team_url(), *talk.message)


TOOLS = (
    *(save_note, search_notes, read_note, search_conversations),
    *(save_resource, read_resource, list_resources),
)


async def _spaces(ctx: ToolContext, wanted: str, tool: str) -> dict[str, str]:
    """Map spaces of the database to their handles: the wanted one, else all that are held."""
    handles = [wanted] if wanted else await held_spaces(ctx)
    if not handles:
        raise ToolError(not_found("such thing", tool))
    return {space_of(handle, ctx.requester): handle for handle in handles}


async def _item(ctx: ToolContext, note: Note, handle: str) -> Item:
    label = note.label.join(await label_of(ctx, handle))
    where = () if handle == OPEN_NOTES else (f"in {handle}",)
    text = f"{note.title}: {note.text}"
    return Item(f"note/{note.id}", text, None, label, at=note.at, notes=where)


def _shorten(item: Item) -> Item:
    cut = len(item.text) > EXCERPT_CHARS
    more = ("beginning",) if cut else ()
    return replace(item, text=item.text[:EXCERPT_CHARS], notes=(*item.notes, *more))
