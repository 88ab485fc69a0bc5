"""Render answers, sweeps and triages as Slack messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bot.reports import frame
from bot.reports.digest import find_section
from bot.reports.digest_actions import MAX_NOTE, MAX_NOTES
from bot.reports.documents import (
    AnswerDocument,
    AnswerPart,
    Document,
    Report,
    TriageReport,
)
from bot.reports.formats import clean_text
from bot.reports.sources import numbers_of
from bot.reports.view import (
    DITTO,
    EMPTY_PLACEHOLDER,
    FINDINGS_FILE,
    Bold,
    Button,
    Code,
    Entry,
    EntryTable,
    Group,
    Highlight,
    Line,
    Link,
    ReportSection,
    ReportView,
    Row,
    view_of,
    with_links,
)
from bot.slack.blocks import (
    MAX_TABLE,
    Block,
    Element,
    actions,
    assemble,
    bold,
    bullet_list,
    context_block,
    cut,
    feedback,
    header,
    numbered_list,
    paragraph,
    plain_text_block,
    quote,
    rich,
    weight,
)
from bot.slack.blocks import button as button_block
from bot.slack.blocks import link as link_to
from bot.slack.markdown import MAX_ROWS, Numbers, Prose
from bot.slack.messages import MessagePart
from config.sections import ReplySettings
from config.words import Words, in_language, phrase


def answer_message(
    document: AnswerDocument,
    key: str,
    settings: ReplySettings,
    requester: str = "",
    *,
    schedule: str = "",
) -> tuple[MessagePart, ...]:
    """Render the answer to the request `key`.

    `requester` is the id of the user who may be mentioned in it. `schedule` is a text about the
    schedule that asked, shown instead of the feedback buttons.
    """
    prose = Prose(document.links, settings, document.question, requester)
    numbers = numbers_of(document)
    answer, how = document.answer.strip(), frame.ending(document)
    text = prose.link_citations(answer or how or phrase("answer.nothing"), numbers)
    foot = [context_block(f"*{how}*")] if answer and how else []
    if not frame.is_small_talk(document):
        foot.append(frame.footer(document, len(numbers.by_source)))
    if schedule:
        foot.append(context_block(schedule))
    elif foot:
        foot.append(feedback(key))
    return assemble(cut(text, settings, foot), prose, foot)


def lead_message(
    document: Report, settings: ReplySettings, requester: str
) -> tuple[MessagePart, ...]:
    """Render the parent's text above a report; no part if there is none."""
    if not isinstance(document, AnswerPart) or not document.lead.strip():
        return ()
    prose = Prose(document.links, settings, document.question, requester)
    linked = prose.link_citations(document.lead.strip(), Numbers(document.links))
    return assemble(cut(linked, settings), prose)


class HeadLimits(NamedTuple):
    """Maximum lines of each list in the first message, references per line, and characters of a
    line about what to do first."""

    rows: int
    references: int
    characters: int = 600


TARGET_CHARS = 8_000
"""Target size of the first message, in characters."""
HEAD_LIMITS = (
    HeadLimits(30, 6),
    HeadLimits(15, 4),
    HeadLimits(12, 2),
    HeadLimits(6, 1),
    HeadLimits(3, 1),
    HeadLimits(3, 1, 120),
)
"""The first entry with which the first message fits is used; all keep what to do first."""
ONE_MESSAGE = 4_000
"""Maximum characters of a report in one message; of a longer one, what can wait comes
separately."""
MOST_NOTES = 5
MOST_NAMED = 6
"""Maximum number of names next to the button that opens a group; the rest is counted."""
MAX_DRAFT = 1_500
"""Maximum characters of a draft that is shown; a longer one has only its button."""
SHORT_TABLE = 3
"""A table with at most so many lines is shown as a list, since a message may have only one
table."""
MAX_LIST = 2_500
"""Maximum characters of a list; a longer one continues in another block."""
MAX_BUTTON = 75
MAX_PACKED = 12_000
"""Maximum characters of one message; Slack rejects more than 13,200 (slackapi/bolt-js#2509)."""
MAX_BLOCKS = 48
"""Maximum blocks of one message; Slack allows 50, and buttons may be added below."""


@dataclass(frozen=True)
class Piece:
    """Blocks that stay together in one message."""

    blocks: tuple[Block, ...]
    is_apart: bool = False
    """Whether it starts a new message."""
    notes: int = 0
    """Number of blocks of notes that clicks may add."""

    @property
    def has_table(self) -> bool:
        """Return whether it has a table; Slack accepts one per message."""
        return any(block["type"] == "table" for block in self.blocks)

    @cached_property
    def weight(self) -> int:
        return weight(self.blocks) + self.notes * MAX_NOTES * MAX_NOTE


Message = list[Piece]


def report_parts(
    document: Report, categories: Iterable[str] = (), place: str = FINDINGS_FILE
) -> tuple[MessagePart, ...]:
    """Render a report as messages: the first in the channel, the others in its thread.

    `categories` and `place` are as in `view_of`.
    """
    view = view_of(document, categories, place)
    with in_language(document.language):
        foot = Piece((frame.footer(document, 0),))
    return _render(view, _messages(view, foot), view.notification)


def details_view(document: Document, settings: ReplySettings, seconds: float) -> Block:
    """Return the modal with the details of an answer or a report; `seconds` is how long it took."""
    with in_language(document.language):
        if isinstance(document, AnswerDocument):
            return frame.details_view(document, settings, seconds)
        return frame.report_details_view(document, view_of(document))


def render_opened(
    document: TriageReport, categories: Iterable[str], button: str
) -> tuple[MessagePart, ...]:
    """Render the section of a digest that the button with this value opens; () if there is none."""
    view = view_of(document, categories)
    section = find_section(view, button)
    return _render(view, pack(_pieces([section], view.words)), view.name) if section else ()


def _render(view: ReportView, messages: Sequence[Message], text: str) -> tuple[MessagePart, ...]:
    """Return the messages; `text` is the notification of the first one."""
    parts = []
    for number, message in enumerate(messages, 1):
        part = view.words("part", n=str(number), of=str(len(messages)))
        notification = text if number == 1 else f"{view.name}, {part}"
        parts.append(MessagePart(notification, tuple(b for piece in message for b in piece.blocks)))
    return tuple(parts)


def _messages(view: ReportView, footer: Piece) -> list[Message]:
    words = view.words
    first = [_head(view), *_pieces((each for each in view.sections if each.is_urgent), words)]
    rest = [each for each in view.sections if not each.is_urgent]
    thread = list(_pieces(rest, words))
    if any(section.is_apart for section in rest):
        return [*pack(first), *pack(thread), *pack([footer])]
    everything = [*first, *thread, footer]
    is_short = sum(weight(piece.blocks) for piece in everything) <= ONE_MESSAGE
    if is_short or not thread or len(pack(first)) > 1:
        return pack(everything)
    return [*pack(first), *pack([*thread, footer])]


def pack(pieces: Iterable[Piece]) -> list[Message]:
    """Pack the pieces into messages, in order."""
    messages: list[Message] = []
    room = blocks = 0
    for piece in pieces:
        size, number = piece.weight, len(piece.blocks) + piece.notes
        room, blocks = room - size, blocks - number
        second = piece.has_table and messages and any(each.has_table for each in messages[-1])
        if not messages or piece.is_apart or second or room < 0 or blocks < 0:
            messages.append([])
            room, blocks = MAX_PACKED - size, MAX_BLOCKS - number
        messages[-1].append(piece)
    return messages


def _head(view: ReportView) -> Piece:
    """Return as much as fits a short message; if nothing does, as much as fits any message."""
    for most in (TARGET_CHARS, MAX_PACKED):
        for limits in HEAD_LIMITS:
            head = Piece(tuple(_head_blocks(view, limits)))
            if head.weight <= most:
                return head
    return head


def _head_blocks(view: ReportView, limits: HeadLimits) -> Iterator[Block]:
    words, lead = view.words, "\n".join(view.lead)
    yield header(view.title)
    parts = [paragraph(bold(view.counts), f"\n{lead}") if view.counts else paragraph(lead)]
    if view.first:
        items = [_highlight(each, limits) for each in view.first]
        parts += [_heading(words("first")), numbered_list(items)]
    yield rich(*parts)
    if view.notes:
        notes = [paragraph(each) for each in view.notes[:MOST_NOTES]]
        yield rich(_heading(words("to_know")), bullet_list(notes))
    for each in view.lists:
        rows = [paragraph(*_parts(line)) for line in each.lines[: limits.rows]]
        rows += map(paragraph, _rest(each.lines, limits.rows, words))
        yield rich(_heading(each.title), bullet_list(rows))


def _rest(all: Sequence[object], shown: int, words: Words) -> list[str]:
    return [words("more", n=len(all) - shown)] if len(all) > shown else []


def _highlight(line: Highlight, limits: HeadLimits) -> Element:
    most = limits.references
    parts = _parts(with_links(clean_text(line.text, limits.characters), line.places))
    for each in line.references[:most]:
        parts += [each.before, link_to(each.url, f"[{each.label}]") or f"[{each.label}]"]
    more = line.more + len(line.references[most:])
    size = f" · {line.size}" if line.size else ""
    return paragraph(*parts, f" +{more}" if more else "", size)


def _heading(title: str) -> Element:
    return paragraph("\n", bold(title))


def _title(title: str) -> Block:
    return rich(paragraph(bold(title)))


def _pieces(sections: Iterable[ReportSection], words: Words) -> Iterator[Piece]:
    for section in sections:
        if section.fold:
            yield Piece((_fold(section.title, section.fold),))
            continue
        head = [_title(section.title)]
        is_apart = section.is_apart
        for group in section.groups:
            head += _heads(group, words) if group.entries else []
            if group.fold:
                names = ", ".join(each.name for each in group.entries[:MOST_NAMED])
                more = _rest(group.entries, MOST_NAMED, words)
                fold_block = _fold(" ".join([names, *more]), group.fold)
                yield Piece((*head, fold_block), is_apart)
                head, is_apart = [], False
                continue
            for blocks in _blocks(group, words):
                yield Piece((*head, *blocks), is_apart, len(blocks) - 1)
                head, is_apart = [], False
        if section.more:
            yield Piece((*head, rich(paragraph(section.more))))


def _heads(group: Group, words: Words) -> list[Block]:
    """Return the title of a group, and its introduction."""
    known = [bullet_list([_highlight(each, HEAD_LIMITS[0]) for each in group.intro])]
    parts = [paragraph(bold(group.title))] if group.title else []
    parts += known if group.intro else []
    return [rich(*parts)] if parts else []


def _fold(title: str, button: Button) -> Block:
    text = plain_text_block(title)
    block = {"type": "section", "block_id": button.value, "text": text}
    return {**block, "accessory": _button(button)}


def _blocks(group: Group, words: Words) -> Iterator[tuple[Block, ...]]:
    """Yield the block of each entry with the block of its buttons, or the block of each list."""
    if group.is_full:
        for entry in group.entries:
            first, *rest = _tables(entry.table) if entry.table else ((),)
            yield rich(*_full(entry, words)), *_actions(entry), *first
            yield from rest
        return
    text = words("link") if group.is_numbered else "↗"
    number = group.entries[0].number if group.entries else 0
    for rows in _lists([paragraph(*_with_link(e.row, e.url, text)) for e in group.entries]):
        yield (rich(numbered_list(rows, number) if group.is_numbered else bullet_list(rows)),)
        number += len(rows)


def _tables(table: EntryTable) -> Iterator[tuple[Block, ...]]:
    """Yield a table in parts that Slack accepts, a short one as a list; the note of a row is in its
    first line."""
    if table.size <= SHORT_TABLE:
        lines = [
            paragraph(" · ".join(filter(None, cells)), *_note(row, "\n" if row.note else " "))
            if number == len(row.cells) - 1
            else paragraph(" · ".join(filter(None, cells)))
            for row in table.rows
            for number, cells in enumerate(row.cells)
        ]
        yield (rich(bullet_list(lines)),)
        return
    head = [_cell(paragraph(bold(each))) for each in table.columns]
    rows, room = [head], MAX_TABLE - weight([{"rows": [head]}])
    for row in table.rows:
        for number, cells in enumerate(row.cells):
            note = [DITTO] if number else [*_note(row)] or [EMPTY_PLACEHOLDER]
            line = [
                *(_cell(paragraph(each or EMPTY_PLACEHOLDER)) for each in cells),
                _cell(paragraph(*note)),
            ]
            size = weight([{"rows": [line]}])
            if len(rows) > 1 and (size > room or len(rows) > MAX_ROWS):
                yield ({"type": "table", "rows": rows},)
                rows, room = [head], MAX_TABLE - weight([{"rows": [head]}])
            rows.append(line)
            room -= size
    yield ({"type": "table", "rows": rows},)


def _note(row: Row, before: str = "") -> Iterator[str | Element]:
    """Yield the note of a row and its links, with numbers if there are several."""
    if row.note:
        yield f"{before}{row.note}"
    for number, each in enumerate(row.links, 1):
        if link := link_to(each.url, f"[{number}]" if len(row.links) > 1 else "↗"):
            yield from (" ", link)


def _cell(text: Element) -> Block:
    return {"type": "rich_text", "elements": [text]}


def _lists(rows: Sequence[Element]) -> Iterator[Sequence[Element]]:
    """Split the rows of a list into as few lists as possible."""
    start, room = 0, MAX_LIST
    for number, row in enumerate(rows):
        size = weight([rich(row)])
        if number > start and size > room:
            yield rows[start:number]
            start, room = number, MAX_LIST
        room -= size
    if rows:
        yield rows[start:]


def _full(entry: Entry, words: Words) -> Iterator[Element]:
    title, details = _with_link(entry.title, entry.url, words("link")), _parts(entry.details)
    if entry.quotes:
        yield paragraph(*title)
        yield from (quote(paragraph(each)) for each in entry.quotes)
        first, *rest = details
        yield paragraph(first.lstrip("\n") if isinstance(first, str) else first, *rest)
    else:
        yield paragraph(*title, *details)
    if len(entry.draft) > MAX_DRAFT:
        yield paragraph(words("digest.draft_ready"))
    elif entry.draft:
        yield quote(paragraph(entry.draft))


def _with_link(line: Line, url: str, text: str) -> list[str | Element]:
    link = link_to(url, text)
    return [*_parts(line), " · ", link] if link else _parts(line)


def _parts(line: Line) -> list[str | Element]:
    shown: list[str | Element] = []
    for part in line:
        is_mark = isinstance(part, Link) and not part.text
        shown += [" ", _part(part)] if is_mark else [_part(part)]
    return shown


def _part(part: str | Bold | Code | Link) -> str | Element:
    if isinstance(part, Code):
        return part.text
    if isinstance(part, Bold):
        return bold(part.text)
    return part if isinstance(part, str) else link_to(part.url, part.text or "↗") or part.text


def _actions(entry: Entry) -> Iterator[Block]:
    """Yield the block of buttons; its id is the value of the first one."""
    if entry.buttons:
        yield actions([*map(_button, entry.buttons)], block_id=entry.buttons[0].value)


def _button(button: Button) -> Block:
    block = button_block(button.action, button.text, value=button.value)
    if not button.options:
        return block
    options = [
        {"text": plain_text_block(words, MAX_BUTTON), "value": value}
        for words, value in button.options[:100]
    ]
    place = {"action_id": button.action, "placeholder": block.pop("text")}
    return {"type": "static_select", **place, "options": options}
