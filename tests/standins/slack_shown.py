"""What a person sees in a channel: every message as text, with its plan and its state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from bot.local.slack.records import Row
from bot.local.slack.state import SlackState
from bot.local.workspace import File, Message, Reaction, micros

_PARTS = ("text", "title", "subtitle", "body", "fields", "elements", "rows", "child_blocks")


@dataclass(frozen=True, slots=True)
class Shown:
    """One message as its readers see it."""

    ts: str
    user: str
    text: str
    """The text of the blocks where there are blocks, else the text; rich text as markdown, so that
    links, lists and bold differ from plain words."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    streaming: bool = False
    metadata: Mapping[str, Any] | None = None
    plan: tuple[Row, ...] = ()
    """The tasks of a plan, in their order."""
    thread_ts: str = ""
    """The root of its thread; empty for a top-level message."""
    files: tuple[File, ...] = ()
    reactions: tuple[Reaction, ...] = ()


def visible(state: SlackState, channel: str, thread_ts: str | None = None) -> list[Shown]:
    """The messages of a channel, or of one thread of it with its root, oldest first."""
    timeline = state.timelines[channel]
    if thread_ts is None:
        return [_shown_message(timeline[at]) for at in sorted(micros(m.ts) for m in timeline.all())]
    root = micros(thread_ts)
    messages = [timeline.get(root), *(timeline[at] for at in timeline.replies(root))]
    return [_shown_message(message) for message in messages if message]


def _shown_message(message: Message) -> Shown:
    prose = "\n".join(
        part
        for block in message.blocks
        if block.get("type") != "plan"
        for part in [flat(block)]
        if part
    )
    plans = [block for block in message.blocks if block.get("type") == "plan"]
    cards = [task for plan in plans for task in plan.get("tasks") or ()]
    return Shown(
        message.ts,
        message.user or message.bot_id,
        prose or ("" if cards else message.text),
        message.blocks,
        message.streaming == "in_progress",
        message.metadata,
        tuple(_row(card) for card in cards),
        message.thread_ts if message.is_reply else "",
        message.files,
        message.reactions,
    )


def flat(block: Mapping[str, Any]) -> str:
    """The words of a block: lines for its parts, cells of a row apart by " | "."""
    if block.get("type") == "table":
        rows = ([flat(cell) for cell in row] for row in block.get("rows") or ())
        return "\n".join(" | ".join(row) for row in rows)
    words = list(_words(block))
    match block.get("type"):
        case "rich_text_list":
            first = int(block.get("offset") or 0) + 1
            ordered, indent = block.get("style") == "ordered", "  " * int(block.get("indent") or 0)
            marks = (f"{number}. " if ordered else "- " for number in count(first))
            return "\n".join(indent + mark + word for mark, word in zip(marks, words, strict=False))
        case "rich_text_quote":
            return "> " + "".join(words).replace("\n", "\n> ")
        case "rich_text_preformatted":
            return "```\n" + "".join(words) + "\n```"
        case "rich_text_section":
            return "".join(words)
    return "\n".join(words)


def _words(value: Mapping[str, Any]) -> Iterator[str]:
    match value.get("type"):
        case "text":
            yield _style_text(str(value.get("text") or ""), value.get("style") or {})
            return
        case "link":
            text, url = str(value.get("text") or ""), str(value.get("url") or "")
            label = text if text.startswith("[") else f"[{text}]"
            yield f"{label}({url})" if text else url
            return
        case "user":
            yield f"<@{value.get('user_id')}>"
            return
        case "channel":
            yield f"<#{value.get('channel_id')}>"
            return
        case "date":
            yield str(value.get("fallback") or "")
            return
        case "emoji":
            yield f":{value.get('name')}:"
            return
    for key in _PARTS:
        yield from _part(value.get(key))


def _style_text(text: str, style: Mapping[str, Any]) -> str:
    bare = text.strip()
    if not bare:
        return text
    for name, mark in (("code", "`"), ("strike", "~~"), ("italic", "_"), ("bold", "**")):
        bare = f"{mark}{bare}{mark}" if style.get(name) else bare
    start = len(text) - len(text.lstrip())
    return text[:start] + bare + text[len(text.rstrip()) :]


def _part(part: Any) -> Iterator[str]:
    if isinstance(part, str | int | float):
        yield str(part)
    elif isinstance(part, Mapping):
        if words := flat(part):
            yield words
    elif isinstance(part, list | tuple):
        for each in part:
            yield from _part(each)


def _row(card: Mapping[str, Any]) -> Row:
    return Row(
        str(card.get("task_id") or ""),
        str(card.get("title") or ""),
        str(card.get("status") or ""),
    )
