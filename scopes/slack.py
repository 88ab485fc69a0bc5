"""The `slack` scope: read channels, threads, lists and people; write messages and reactions.

When a tool that writes runs, the gate has already allowed it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Protocol

from config.words import phrase
from scopes.effects import Access, Channel, Effect, ListId, Part, Person, Said, Thread
from scopes.label import DIRECTORY, TRUSTED_LABEL, WORKSPACE, Label
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_items import SlackPerson
from scopes.slack_reader import ChannelInfo, SlackConversation, SlackReader
from scopes.tool import (
    BEFORE_WINDOW,
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    check_text,
    fit_items,
    most_tokens_of,
    not_found,
    one_line,
    page_start,
    tokens_of,
    tool,
)

TIMESTAMP_PATTERN = re.compile(r"\d{10}\.\d{6}")
EMOJI = re.compile(r"[a-z0-9_+'-]{1,80}")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be posted."""

    text: str
    request: str
    """The words of the request: addresses in the text become links only if they are in it, too."""
    by: str = ""
    """User for whom it is written, named below it; empty = nobody."""


class SlackWriter(Protocol):
    """Writes to Slack, once for each key even after failures; texts are cleaned and never parsed.

    Its methods raise ToolError if Slack refuses, with a sentence that says why.
    """

    async def post(self, key: str, channel: str, thread_ts: str, message: NewMessage) -> str:
        """Post in a conversation or in a thread of it; return the message's id `<channel>/<ts>`."""

    async def message(self, key: str, user: str, message: NewMessage) -> str:
        """Send a direct message; return its id."""

    async def react(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction; it may exist already."""


@tool(Access.EGRESS, Effect.POST, client=SlackReader)
async def post_message(
    ctx: ToolContext,
    channel: Channel,
    text: Said,
    thread: Annotated[str, Part.THREAD] = "",
) -> ToolResult:
    """Post `text` where the request says. `thread`: id of the message that it replies to."""
    ts = thread.rpartition("/")[2]
    if thread and not (TIMESTAMP_PATTERN.fullmatch(ts) and thread in (ts, f"{channel}/{ts}")):
        raise ToolError(f"No thread {thread[:60]!r} in this channel. Leave it out, or give its id.")
    check_text(text)
    sent = await _writer(ctx).post(ctx.key, channel, ts, _for_requester(ctx, text))
    return ToolResult(note=phrase("done.posted", id=sent))


@tool(Access.EGRESS, Effect.POST, client=SlackReader)
async def send_direct_message(ctx: ToolContext, user: Person, text: Said) -> ToolResult:
    """Send `text` to one person, by id, or to who asked (`me`). It says for whom."""
    check_text(text)
    sent = await _writer(ctx).message(ctx.key, user, _for_requester(ctx, text))
    return ToolResult(note=phrase("done.sent", id=sent))


@tool(Access.EGRESS, Effect.REACT, client=SlackReader)
async def add_reaction(ctx: ToolContext, message: Thread, name: str) -> ToolResult:
    """Add a reaction to a message. `name`: of the emoji, without colons."""
    channel, _, ts = message.partition("/")
    name = name.strip(": ").lower()
    if not EMOJI.fullmatch(name) or not TIMESTAMP_PATTERN.fullmatch(ts):
        raise ToolError("Give a message's id and the name of an emoji, like white_check_mark.")
    await _writer(ctx).react(channel, ts, name)
    return ToolResult(note=phrase("done.added"))


def _for_requester(ctx: ToolContext, text: str) -> NewMessage:
    return NewMessage(text, ctx.intent.text, ctx.requester or "")


def _writer(ctx: ToolContext) -> SlackWriter:
    try:
        return ctx.client(SlackWriter)  # type: ignore[type-abstract]
    except KeyError:
        raise ToolError(
            "Nothing can be written from here; put the text into your answer."
        ) from None


OPEN_CHANNELS = "slack:channels"
"""Open handle of a context that may list every channel its requester can see."""

OPEN_SEARCH = "slack:search"
"""Open handle of a context that may search all that its requester can see."""

MAX_HITS = 30
"""Messages that one search returns."""

CUT = " [cut]"

DIRECTORY_LABEL = Label(True, WORKSPACE, frozenset({DIRECTORY}))
"""Label of a list of channels or people."""


@tool(client=SlackReader)
async def list_channels(ctx: ToolContext, match: str = "") -> ToolResult:
    """List the channels you may read. `match`: part of a name or topic."""
    reader = ctx.client(SlackReader)
    channels = await reader.channels()
    # Check all private ones: the time that it takes reveals nothing about named or hidden ones.
    candidates = [c.id for c in channels if c.is_private or _is_listed(ctx, c)]
    readable = set(await _readable(ctx, candidates))
    listed = [c for c in channels if c.id in readable and _is_listed(ctx, c)]
    wanted = match.lstrip("#").casefold()
    hits = [c for c in listed if wanted in f"{c.name} {c.topic}".casefold()]
    labels = await asyncio.gather(*(_label_of(reader, c) for c in hits))
    items = tuple(
        Item(c.id, f"#{c.name}" + (f": {c.topic}" if c.topic else ""), None, label)
        for c, label in zip(hits, labels, strict=True)
    )
    note = f"{len(hits)} channels." if hits else "No channel matches."
    if not _is_alone(ctx):
        note += " Private channels are listed here only if the request names them."
    return ToolResult(items, handles={c.id: f"#{c.name}" for c in hits}, note=note)


@tool(client=SlackReader)
async def read_channel_history(ctx: ToolContext, channel: Channel, cursor: str = "") -> ToolResult:
    """Read a channel's threads in the window, oldest first. Follow `cursor` to the end."""
    found = await _conversations(ctx, channel)
    result = page(found, channel, cursor, ctx.max_output_tokens)
    return replace(result, label=await ctx.client(SlackReader).label(channel))


@tool(client=SlackReader)
async def read_thread(ctx: ToolContext, thread: Thread, cursor: str = "") -> ToolResult:
    """Read one whole thread by the id of any of its messages."""
    channel, _, ts = thread.partition("/")
    try:
        if not re.fullmatch(r"\d+\.\d+", ts):
            raise Absent(thread)
        found = await ctx.client(SlackReader).thread(channel, ts, ctx.window)
    except Absent as absent:
        raise await _unread(ctx, absent, channel, not_found("thread", thread)) from None
    result = page([found], "", cursor, ctx.max_output_tokens)
    return replace(result, handles={found.root.id: "a thread"}, label=found.root.label)


@tool(client=SlackReader)
async def search_messages(ctx: ToolContext, query: str, channel: Channel = "") -> ToolResult:
    """Find messages of the window holding all words of `query`, in one channel or all of yours."""
    words = re.findall(r"\w+", query.casefold())
    if not words:
        raise ToolError("The query holds no word. Give one or more words to look for.")
    reader, hits, label = ctx.client(SlackReader), list[Item](), TRUSTED_LABEL
    held = ctx.handles.ids("C") + ctx.handles.ids("G")
    channels = [channel] if channel else await _readable(ctx, held)
    skipped, undone, more = list[str](), dict[str, str](), False
    if OPEN_SEARCH in ctx.handles.titles and not channel:
        try:
            found_there, more = await reader.search(query, ctx.window)
        except SlackRefused as refused:  # the given channels can be searched without it
            found_there, undone = [], {"search the workspace": f"{refused}"}
        hits = await _own(ctx, found_there)
    for each in channels:
        try:
            found = await _conversations(ctx, each)
        except ToolError as error:
            if channel:
                raise
            skipped.append(each)
            undone |= error.undone
            continue
        items = (i for c in found for i in c.items if BEFORE_WINDOW not in i.notes)
        hits += [i for i in items if _holds(i, words)]
        label = label.join(await reader.label(each))
    hits = list({item.id: item for item in hits}.values())
    hits.sort(key=lambda item: item.at or datetime.min.replace(tzinfo=UTC), reverse=True)
    kept = fit_items(hits[:MAX_HITS], ctx.max_output_tokens)
    note = f"Messages found: {len(hits)}; channels searched: {len(channels) - len(skipped)}."
    note += f" Could not be read: {', '.join(skipped)}." if skipped else ""
    omitted = (
        f"{len(hits) - len(kept)} older ones are left out: add words." if hits[len(kept) :] else ""
    )
    omitted = omitted or ("Slack has older ones, too: add words." if more else "")
    cut = f"a search in Slack was cut: {len(kept)} of {len(hits)} messages were read"
    undone["search messages"] = cut if omitted else ""
    return ToolResult(kept, truncated=omitted, note=note, label=label, undone=undone)


@tool(client=SlackReader)
async def list_slack_list_items(ctx: ToolContext, list: ListId, match: str = "") -> ToolResult:
    """Read a Slack List, e.g. a bug tracker. `match`: text in a row."""
    try:
        rows = await ctx.client(SlackReader).list_rows(list)
    except Absent:
        raise ToolError(not_found("list", list)) from None
    except SlackRefused as refused:  # the rest of a task can be done without a list
        raise ToolError(f"{refused}. Go on without it and name it in not_covered.") from refused
    items = [row for row in rows if match.casefold() in row.text.casefold()]
    kept = fit_items(items, ctx.max_output_tokens)
    omitted = (
        f"{len(items) - len(kept)} further items are left out." if len(kept) < len(items) else ""
    )
    cut = f"{len(kept)} of {len(items)} items of the list {list} were read" if omitted else ""
    note = f"{len(items)} of {len(rows)} list items."
    return ToolResult(kept, truncated=omitted, note=note, undone={f"list {list}": cut})


@tool(client=SlackReader)
async def lookup_user(ctx: ToolContext, user: str) -> ToolResult:
    """Tell who a person is, by id or name."""
    reader = ctx.client(SlackReader)
    wanted = user.lstrip("@").casefold()
    names = await reader.people()
    ids = [
        k
        for k, name in names.items()
        if wanted in (k.casefold(), name.casefold(), name.removesuffix(f" ({k})").casefold())
    ]
    if not ids:
        raise ToolError(not_found("person", user))
    kinds = await reader.kinds()
    people = [_person(await reader.user(i), kinds.get(i) != "member") for i in ids[:5]]
    return ToolResult(tuple(people), handles={i: f"@{names[i]}" for i in ids[:5]})


@tool(client=SlackReader)
async def get_permalink(ctx: ToolContext, message: Thread) -> ToolResult:
    """Get a message's link."""
    channel, _, ts = message.partition("/")
    reader = ctx.client(SlackReader)
    try:
        if not re.fullmatch(r"\d+\.\d+", ts):
            raise Absent(message)
        body = await reader.web.call("chat.getPermalink", channel=channel, message_ts=ts)
        label = await reader.label(channel)
    except Absent:
        raise ToolError(not_found("thread", message)) from None
    return ToolResult(note=str(body["permalink"]), label=label)


TOOLS = (
    *(list_channels, read_channel_history, read_thread, search_messages),
    *(list_slack_list_items, lookup_user, get_permalink),
    *(post_message, send_direct_message, add_reaction),
)


def _is_alone(ctx: ToolContext) -> bool:
    """Return whether only the requester sees the answer."""
    return ctx.intent.home[:1] in ("", "D")


def _is_listed(ctx: ToolContext, channel: ChannelInfo) -> bool:
    """Return whether to list a channel: one that nobody named would narrow the answer's readers."""
    if channel.id in ctx.handles.titles:
        return True
    return OPEN_CHANNELS in ctx.handles.titles and (not channel.is_private or _is_alone(ctx))


async def _readable(ctx: ToolContext, channels: Sequence[str]) -> list[str]:
    """Return the channels that the requester may read; the others seem not to exist."""
    answers = await asyncio.gather(*map(ctx.may_read, channels))
    return [c for c, may in zip(channels, answers, strict=True) if may]


async def _own(ctx: ToolContext, hits: Sequence[Item]) -> list[Item]:
    """Return the hits in channels that the requester may read."""
    channels = {item.id: item.id.partition("/")[0] for item in hits}
    readable = await _readable(ctx, list(dict.fromkeys(channels.values())))
    return [item for item in hits if channels[item.id] in readable]


async def _label_of(reader: SlackReader, channel: ChannelInfo) -> Label:
    """Return the label of a channel's name and topic."""
    label = await reader.label(channel.id) if channel.is_private else DIRECTORY_LABEL
    by_member = not channel.topic or (await reader.kinds()).get(channel.topic_by) == "member"
    return replace(label, outside=not by_member)


async def _conversations(ctx: ToolContext, channel: str) -> list[SlackConversation]:
    if ctx.window is None:
        raise ToolError("This task has no time window, so it can read threads but not channels.")
    try:
        return await ctx.client(SlackReader).conversations(channel, ctx.window)
    except Absent as absent:
        raise await _unread(ctx, absent, channel, not_found("channel", channel)) from None


async def _unread(ctx: ToolContext, absent: Absent, channel: str, unknown: str) -> ToolError:
    """Return the error for a channel that the requester may read, according to the gate, and that
    Slack does not show to the bot."""
    if str(absent) != "not_in_channel":
        return ToolError(unknown)
    title = ctx.handles.titles.get(channel, "")
    sentence = await ctx.client(SlackReader).not_in(title if title.startswith("#") else channel)
    error = ToolError(f"{sentence}. Go on without it; the requester is told.")
    error.undone = {channel: sentence}
    return error


def page(
    found: Sequence[SlackConversation], source: str, cursor: str, max_tokens: int
) -> ToolResult:
    """Return one page of threads that fits `max_tokens`; a cursor says where the next one begins.

    A thread longer than a page continues on the next one, below its root, which is shown again. A
    message longer than a page is cut.
    """
    pairs = [(thread, item) for thread in found for item in thread.items]
    start = page_start(cursor, len(pairs))
    again = [
        _cut(t.root, max_tokens // 3) for t, item in pairs[start : start + 1] if item != t.root
    ]
    room = max_tokens - sum(map(tokens_of, again))
    rest = tuple(item for _, item in pairs[start:])
    kept = rest if sum(map(most_tokens_of, rest)) <= room else fit_items(rest, room)
    end = start + len(kept)
    if end < len(pairs):
        thread, item = pairs[end]
        thread_start = end - thread.items.index(item)
        end = thread_start if thread_start > start else end  # do not split a thread if avoidable
    items = (*again, *(_cut(item, room) for item in kept[:1]), *kept[1 : end - start])
    more = f'More: call again with cursor="{end}".' if end < len(pairs) else ""
    total = sum(c.in_window for c in found)
    last = "" if more else " Last page."
    note = f"{len(found)} threads, {total} messages in window.{last}"
    ids = tuple(item.id for _, item in pairs if BEFORE_WINDOW not in item.notes)
    return ToolResult(items, {source: ids} if source else {}, more, note=note)


def _cut(item: Item, max_tokens: int) -> Item:
    """Return the item with its text cut to fit."""
    over = 3 * (tokens_of(item) - max_tokens)
    if over <= 0:
        return item
    text = one_line(item.text).encode()
    kept = text[: max(0, len(text) - over - len(CUT.encode()))].decode(errors="ignore")
    return replace(item, text=kept + CUT)


def _holds(item: Item, words: Sequence[str]) -> bool:
    text = f"{item.text} {item.by or ''}".casefold()
    return all(w in text for w in words)


def _person(user: SlackPerson, outside: bool) -> Item:
    marks = ("bot" if user.is_bot else "", "deactivated" if user.is_deleted else "")
    facts = (user.real_name, user.title, user.zone, *marks)
    return Item(
        user.id, ", ".join(filter(None, facts)), None, replace(DIRECTORY_LABEL, outside=outside)
    )
