"""What the assistant was asked before, and what it answered: by the rights of who looks for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from scopes.effects import OPEN_NOTES
from scopes.label import Label
from scopes.slack_items import permalink
from scopes.slack_reader import SlackReader
from scopes.spaces import label_of, may_see, notes_of
from scopes.tool import Item, ToolContext, ToolResult, tool

MAX_HITS = 10
LOOKED_AT, ROUNDS = 40, 20
"""Hits of one search, and searches of one call: each leaves out the conversations that were found
closed so far. That there are more of those is not told."""
QUESTION, LEAST_ANSWER = 300, 300
"""Characters shown of a question, and at least of an answer."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A request and its answer."""

    run: str
    place: str
    """The conversation of Slack that both stand in; empty for what only who asked has seen."""
    question: str
    answer: str
    label: Label
    """Of the answer."""
    at: datetime
    message: tuple[str, str, str] | None = None
    """Channel, `ts` and `thread_ts` of the request in Slack, where that is still known."""


class Conversations(Protocol):
    """The questions and answers of this workspace."""

    async def search(
        self, owner: str | None, query: str, limit: int, closed: Collection[str]
    ) -> Sequence[Talk]:
        """Return what holds words of the query, best first; without one the newest.

        Of the owner's own, and of any conversation but those that are `closed`. `owner` is a user
        id, or None at the command line, which has its own alone.
        """


@tool(needs=OPEN_NOTES, client=Conversations)
async def search_conversations(ctx: ToolContext, query: str = "") -> ToolResult:
    """Find what you were asked and answered before, by words, or the newest."""
    talks = await _open(ctx, query)
    room = 3 * ctx.max_output_tokens // max(1, len(talks[:MAX_HITS])) - 2 * QUESTION
    items = tuple([await _item(ctx, each, max(LEAST_ANSWER, room)) for each in talks[:MAX_HITS]])
    more = "Others are left out: use more words." if len(talks) > MAX_HITS else ""
    note = f"{len(items)} conversations." if items else "No conversation has these words."
    label = await label_of(ctx, OPEN_NOTES)
    cut = f"a search in conversations was cut: it shows {len(items)}" if more else ""
    undone = {"search conversations": cut}
    return ToolResult(items, truncated=more, note=note, undone=undone, label=label)


async def _open(ctx: ToolContext, query: str) -> list[Talk]:
    """Return what the requester may read of what is found."""
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


async def _item(ctx: ToolContext, talk: Talk, room: int) -> Item:
    """`room`: bytes for the answer."""
    place = await label_of(ctx, notes_of(talk.place) if talk.place else OPEN_NOTES)
    label = talk.label.join(place).join(Label(untrusted=True))  # who asked may have been another
    answer = talk.answer.encode(errors="replace")[:room].decode(errors="ignore")
    cut = len(answer) < len(talk.answer) or len(talk.question) > QUESTION
    text = f"Asked: {talk.question[:QUESTION]} Answered: {answer}"
    where = (f"in {talk.place}",) if talk.place else ()
    notes = (*where, *(("beginning",) if cut else ()))
    return Item(f"talk/{talk.run}", text, await _link(ctx, talk), label, at=talk.at, notes=notes)


async def _link(ctx: ToolContext, talk: Talk) -> str | None:
    """To the request, below which the answer stands."""
    reader = ctx.clients.get(SlackReader)
    if talk.message is None or not isinstance(reader, SlackReader):
        return None
    return permalink(await reader.team_url(), *talk.message)
