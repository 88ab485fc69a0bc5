"""A digest as Slack shows it: messages of blocks that code makes, in which no mail acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.approval.slips import Block, Element, bold, paragraph, rich
from bot.cli.report import DOTS, OFFLINE
from bot.replies.render import Part, size
from bot.triage.digest import Digest, First, Group, Line, digest_of, summary
from bot.triage.digest_clicks import (
    ASKED,
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    MAX_NOTE,
    MAX_NOTES,
    NOT_ASKED,
    NOT_URGENT,
    PRIORITY,
    SNOOZE,
    correction,
    names,
)

MAX_MESSAGE = 12_000
"""Characters of one message, after clicks in it, too; Slack refuses more than 13,200
(slackapi/bolt-js#2509)."""
SHORT = 4_000
"""Characters of a digest that is one message; of a longer one what can wait stands apart."""
MAX_BLOCKS = 50
MAX_BLOCK = 2_500
"""Characters of a list or paragraph; a longer one goes on in another block."""
MAX_BUTTON = 75
MOST_GAPS = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks that stay together."""

    blocks: tuple[Block, ...]
    room: int = 0
    """Blocks of notes that clicks may add to it."""


def fallback(document: Mapping[str, Any]) -> str:
    """A digest in one line, for notifications: numbers alone, nothing that a stranger wrote."""
    return f"Mail triage. {summary(document)}"


def digest_parts(document: Mapping[str, Any], categories: Iterable[str] = ()) -> tuple[Part, ...]:
    """A digest as messages: the first stands by itself, the others follow in its thread.

    `categories` are told in this order, and are what a verdict can be corrected to.
    """
    known = tuple(categories)
    digest = digest_of(document, known)
    first = [_head(digest), *_pressing(digest, str(document["run_id"]), known)]
    rest = [*_resting(digest), *_foot(digest)]
    is_short = _weight([block for piece in (*first, *rest) for block in piece.blocks]) <= SHORT
    apart = not is_short and len(_messages(first)) == 1
    groups = [first, rest] if apart else [[*first, *rest]]
    messages = [message for group in groups for message in _messages(group)]
    more = range(2, len(messages) + 1)
    texts = [fallback(document), *(f"Mail triage, part {n} of {len(messages)}" for n in more)]
    return tuple(Part(text, blocks) for text, blocks in zip(texts, messages, strict=True))


def _messages(pieces: Iterable[Piece]) -> list[tuple[Block, ...]]:
    """The pieces in their order, in as few messages as they fit into."""
    messages: list[list[Piece]] = []
    for piece in pieces:
        if not messages or not _fits([*messages[-1], piece]):
            messages.append([])
        messages[-1].append(piece)
    return [tuple(block for piece in message for block in piece.blocks) for message in messages]


def _fits(pieces: Sequence[Piece]) -> bool:
    blocks = [block for piece in pieces for block in piece.blocks]
    room = sum(piece.room for piece in pieces)
    notes = room * MAX_NOTES * MAX_NOTE
    return len(blocks) + room <= MAX_BLOCKS and _weight(blocks) + notes <= MAX_MESSAGE


def _weight(blocks: Sequence[Block]) -> int:
    """Characters as Slack may count them: `&`, `<` and `>` are escaped."""
    written = json.dumps(blocks, ensure_ascii=False)
    return size(blocks) + 4 * sum(map(written.count, "&<>"))


# ---- what comes first


def _head(digest: Digest) -> Piece:
    header = {"type": "header", "text": _plain(digest.title)}
    told = [digest.period, digest.summary, digest.ended, OFFLINE if digest.offline else ""]
    lines: list[Element] = [paragraph("\n".join(filter(None, told)))]
    if digest.first:
        lines.append(paragraph("\n", bold("Do first")))
        items = [paragraph(each.text, *_references(each)) for each in digest.first]
        lines.append(_list(items, 1))
    return Piece((header, rich(*lines)))


def _references(first: First) -> Iterator[str | Element]:
    for space, line in first.named:
        yield space
        yield _opened(line, f"[{line.number}]") or f"[{line.number}]"
    yield first.more


def _pressing(digest: Digest, run: str, categories: Sequence[str]) -> Iterator[Piece]:
    title = _title("Asked of you, or urgent", digest.pressing)
    for number, group in enumerate(digest.pressing):
        heads = [] if number else [title]
        if group.matter:
            heads.append(rich(paragraph(bold(group.told))))
        for line in group.lines:
            blocks = [*heads, rich(*_told(line)), _buttons(line, run, categories)]
            yield Piece(tuple(blocks), room=1)
            heads = []


def _told(line: Line) -> Iterator[Element]:
    named = f"{DOTS[line.priority]} {line.number}. {line.sender.full}"
    asks = " · asks you" if line.asked else ""
    parts: list[str | Element] = [bold(named), f": {line.subject} · {line.age}{asks}"]
    if link := _opened(line, "open"):
        parts += [" · ", link]
    for warning in line.warnings:
        parts += [f"\n⚠ {warning}"]
    if line.due:
        parts += ["\n", bold(line.due.told)]
    parts += [f"\n{line.facts}"] if line.facts else []
    parts += [f"\n→ {line.action}"] if line.action else []
    yield paragraph(*parts)
    if line.draft:
        yield {"type": "rich_text_quote", "elements": paragraph(line.draft)["elements"]}


def _buttons(line: Line, run: str, categories: Sequence[str]) -> Block:
    carried = names(run, line.id)

    def button(action: str, words: str) -> Block:
        text = _plain(words, MAX_BUTTON)
        return {"type": "button", "action_id": action, "value": carried, "text": text}

    elements = [button(DRAFT, "Create draft")] if line.draft else []
    elements += [button(LABEL, f"Label it {line.category}")] if line.category else []
    elements += [button(SNOOZE, "Snooze 1 day"), *_corrections(line, run, categories)]
    return {"type": "actions", "block_id": carried, "elements": elements}


def _corrections(line: Line, run: str, categories: Sequence[str]) -> Iterator[Block]:
    choices = [("Not urgent", PRIORITY, NOT_URGENT)] if line.priority == "high" else []
    choices += [("Not asked of me", ASKED, NOT_ASKED)] if line.asked else []
    choices += [(f"It is: {name}", CATEGORY, name) for name in categories if name != line.category]
    told = [(words, correction(run, line.id, field, value)) for words, field, value in choices]
    options = [{"text": _plain(words, MAX_BUTTON), "value": to} for words, to in told if to]
    if options:
        yield {
            "type": "static_select",
            "action_id": CORRECT,
            "placeholder": _plain("Correct …"),
            "options": options[:100],
        }


# ---- what can wait


def _resting(digest: Digest) -> Iterator[Piece]:
    for name, lines in digest.categories:
        yield from _listed(_title(name, [Group("", lines)]), lines)
    title = _title("Several threads, one matter", digest.matters)
    for number, group in enumerate(digest.matters):
        heads = () if number else (title,)
        head = rich(paragraph(bold(group.told)))
        pieces = list(_listed(head, group.lines))
        yield Piece((*heads, *pieces[0].blocks))
        yield from pieces[1:]


def _listed(head: Block, lines: Sequence[Line]) -> Iterator[Piece]:
    """The head with as much of the list as one block takes, then the rest of it."""
    for number, block in enumerate(_blocks(lines, _rows)):
        yield Piece((block,) if number else (head, block))


def _blocks(all: Sequence[T], make: Callable[[Sequence[T]], Block]) -> Iterator[Block]:
    """All in as few blocks as they fit into."""
    start = 0
    while start < len(all):
        end = start + 1
        while end < len(all) and _weight([make(all[start : end + 1])]) <= MAX_BLOCK:
            end += 1
        yield make(all[start:end])
        start = end


def _rows(lines: Sequence[Line]) -> Block:
    return rich(_list([_row(line) for line in lines], lines[0].number))


def _row(line: Line) -> Element:
    parts: list[str | Element] = [bold(line.who), f" · {line.age} · {line.fact}"]
    parts[1:1] = [f" · ⚠ {warning}" for warning in line.warnings]
    todo = [line.due.told] if line.due else []
    todo += [f"→ {line.action}"] if line.action else []
    parts += [f"\n{'. '.join(todo)}"] if todo else []
    if link := _opened(line, "open"):
        parts += [" · ", link]
    return paragraph(*parts)


def _foot(digest: Digest) -> Iterator[Piece]:
    filtered = [each.told for each in digest.filtered]
    yield from _paragraphs("Filtered, not shown to a model", filtered)
    yield from _paragraphs("Could not be read", [each.told for each in digest.unread])
    gaps = list(digest.not_covered[:MOST_GAPS])
    more = len(digest.not_covered) - MOST_GAPS
    gaps += [f"and {more:,} more"] if more > 0 else []
    yield from _paragraphs("Not covered", gaps)
    foot = [_plain(digest.coverage, 2_000), _plain(digest.cost, 2_000)]
    yield Piece(({"type": "context", "elements": foot},))


def _paragraphs(title: str, lines: Sequence[str]) -> Iterator[Piece]:
    for number, block in enumerate(_blocks(lines, _bullets)):
        head = rich(paragraph(bold(title)))
        yield Piece((block,) if number else (head, block))


def _bullets(lines: Sequence[str]) -> Block:
    items = [paragraph(line) for line in lines]
    return rich({"type": "rich_text_list", "style": "bullet", "elements": items})


# ---- elements


def _title(words: str, groups: Iterable[Group]) -> Block:
    number = sum(len(group.lines) for group in groups)
    return rich(paragraph(bold(f"{words[:1].upper()}{words[1:]} ({number:,})")))


def _list(items: Sequence[Element], first: int) -> Element:
    """A numbered list that begins with `first`."""
    offset = {"offset": first - 1} if first > 1 else {}
    return {"type": "rich_text_list", "style": "ordered", "elements": list(items), **offset}


def _opened(line: Line, words: str) -> Element | None:
    return {"type": "link", "url": line.link, "text": words} if line.link else None


def _plain(text: str, most: int = 150) -> Block:
    """A text in which Slack reads no markup and no emoji."""
    shown = text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
    return {"type": "plain_text", "text": shown, "emoji": False}
