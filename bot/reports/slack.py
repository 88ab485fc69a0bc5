"""Render answers, sweeps and triages as Slack messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import accumulate
from typing import NamedTuple

from bot.reports import frame
from bot.reports.digest import digest_view, opened
from bot.reports.digest_actions import MAX_NOTE, MAX_NOTES
from bot.reports.documents import AnswerDocument, AnswerPart, PanelReport, Report, TriageReport
from bot.reports.panel import panel_view
from bot.reports.sweep import FINDINGS_FILE, sweep_view
from bot.reports.view import (
    Bold,
    Button,
    Code,
    Entry,
    Group,
    Highlight,
    Line,
    Link,
    ReportSection,
    ReportView,
)
from bot.slack.blocks import (
    MAX_MESSAGE,
    Block,
    Element,
    MessagePart,
    Rendered,
    assemble,
    bold,
    bullet_list,
    context_block,
    cut,
    feedback,
    numbered_list,
    paragraph,
    plain_text_block,
    quote,
    rich,
    size,
    weight,
)
from bot.slack.blocks import link as link_to
from bot.slack.markdown import Numbers, Prose
from config.sections import ReplySettings
from config.words import Words, in_language, phrase


def answer_message(
    document: AnswerDocument,
    key: str,
    settings: ReplySettings,
    requester: str = "",
    *,
    schedule: str = "",
) -> Rendered:
    """Render the answer to the request `key`.

    `requester` is the id of the user who may be mentioned in it. `schedule` tells of the schedule
    that asked, in place of the feedback buttons.
    """
    prose = Prose(document.links, settings, document.question, requester)
    numbers = Numbers(document.links)
    answer, how = document.answer.strip(), frame.ending(document)
    text = prose.link_citations(answer or how or phrase("answer.nothing"), numbers)
    foot = [context_block(f"*{how}*")] if answer and how else []
    if not frame.is_small_talk(document):
        foot.append(frame.footer(document, numbers))
    if schedule:
        foot.append(context_block(schedule))
    elif foot:
        foot.append(feedback(key))
    return assemble(cut(text, settings, MAX_MESSAGE - size(foot)), prose, tuple(foot))


def lead_message(
    document: Report, settings: ReplySettings, requester: str
) -> tuple[MessagePart, ...]:
    """Render what the parent wrote above a report; no part if it wrote nothing."""
    if not isinstance(document, AnswerPart) or not document.lead.strip():
        return ()
    prose = Prose(document.links, settings, document.question, requester)
    linked = prose.link_citations(document.lead.strip(), Numbers(document.links))
    return assemble(cut(linked, settings, MAX_MESSAGE), prose, ()).parts


class HeadLimits(NamedTuple):
    """Maximum lines of each kind in the first message, and references beside a line."""

    patterns: int
    markets: int
    gaps: int
    references: int


SHORT = 8_000
"""Target size of the first message, in characters."""
HEAD_LIMITS = (
    HeadLimits(4, 30, 5, 6),
    HeadLimits(3, 15, 3, 4),
    HeadLimits(2, 6, 2, 2),
    HeadLimits(1, 0, 1, 1),
)
"""The first one with which the first message fits is used."""
ONE_MESSAGE = 4_000
"""Characters of a report in one message; in a longer one, what can wait comes separately."""
MOST_MARKETS_NAMED = 8
MOST_NOTES = 5
MOST_GAPS = 15
MOST_PATTERNS = 10
MAX_LIST = 2_500
"""Characters of a list; a longer one continues in another block."""
MAX_BUTTON = 75
MAX_PACKED = 12_000
"""Characters of one message; Slack refuses more than 13,200 (slackapi/bolt-js#2509)."""
MAX_BLOCKS = 48
"""Blocks of one message; Slack allows 50, and buttons may come below."""


@dataclass(frozen=True)
class Piece:
    """Blocks that stay together in one message."""

    blocks: tuple[Block, ...]
    is_apart: bool = False
    """Whether it starts a new message."""
    notes: int = 0
    """How many blocks of notes clicks may add."""

    @cached_property
    def weight(self) -> int:
        return weight(self.blocks) + self.notes * MAX_NOTES * MAX_NOTE


Message = list[Piece]


def report_parts(
    document: Report, categories: Iterable[str] = (), place: str = FINDINGS_FILE
) -> tuple[MessagePart, ...]:
    """Render a report as messages: the first stands alone, the others follow in its thread.

    `categories` of mail come in this order, and a verdict can be corrected to them. `place` is
    where readers find all findings of a sweep if there are too many to show.
    """
    document = frame.with_plain_gaps(document)
    if isinstance(document, TriageReport):
        view = digest_view(document, categories)
    elif isinstance(document, PanelReport):
        view = panel_view(document)
    else:
        view = sweep_view(document, place)
    return _rendered(view, _messages(_with_progress(view, document)), view.notification)


def opened_parts(
    document: TriageReport, categories: Iterable[str], button: str
) -> tuple[MessagePart, ...]:
    """Render the section of a digest that the button with this value opens; () if there is none."""
    view = digest_view(document, categories)
    section = opened(view, button)
    return _rendered(view, pack(_pieces([section], view.words)), view.name) if section else ()


def _rendered(view: ReportView, messages: Sequence[Message], text: str) -> tuple[MessagePart, ...]:
    """Return the messages; `text` is that of the first one for notifications."""
    parts = []
    for number, message in enumerate(messages, 1):
        part = view.words("part", n=str(number), of=str(len(messages)))
        said = text if number == 1 else f"{view.name}, {part}"
        parts.append(MessagePart(said, tuple(b for piece in message for b in piece.blocks)))
    return tuple(parts)


def _with_progress(view: ReportView, document: Report) -> ReportView:
    """Say how far a stopped report came, where it would only say that it was stopped."""
    if document.status != "cancelled" or isinstance(document, PanelReport):
        return view
    stopped = view.words("ended_cancelled")
    with in_language(view.words.language):
        told = frame.stopped_line(document)
    return replace(view, lead=tuple(told if line == stopped else line for line in view.lead))


def _messages(view: ReportView) -> list[Message]:
    words, (limits, head) = view.words, _head(view)
    first = [head, *_pieces((each for each in view.sections if each.is_urgent), words)]
    rest = [each for each in view.sections if not each.is_urgent]
    thread, foot = list(_pieces(rest, words)), list(_foot(view, limits))
    if any(section.intro or section.is_apart for section in rest):
        return [*pack(first), *pack(thread), *pack(foot)]
    everything = [*first, *thread, *foot]
    is_short = sum(weight(piece.blocks) for piece in everything) <= ONE_MESSAGE
    if is_short or not thread or len(pack(first)) > 1:
        return pack(everything)
    return [*pack(first), *pack([*thread, *foot])]


def pack(pieces: Iterable[Piece]) -> list[Message]:
    """Pack the pieces into messages, in order."""
    messages: list[Message] = []
    room = blocks = 0
    for piece in pieces:
        size, number = piece.weight, len(piece.blocks) + piece.notes
        room, blocks = room - size, blocks - number
        if not messages or piece.is_apart or room < 0 or blocks < 0:
            messages.append([])
            room, blocks = MAX_PACKED - size, MAX_BLOCKS - number
        messages[-1].append(piece)
    return messages


def _head(view: ReportView) -> tuple[HeadLimits, Piece]:
    """Return as much as fits a short message; at last, as little as fits into one."""
    for most in (SHORT, MAX_PACKED):
        for limits in HEAD_LIMITS:
            head = Piece(tuple(_head_blocks(view, limits)))
            if head.weight <= most:
                return limits, head
    return limits, head


def _head_blocks(view: ReportView, limits: HeadLimits) -> Iterator[Block]:
    words, lead = view.words, "\n".join(view.lead)
    yield {"type": "header", "text": plain_text_block(view.title)}
    parts = [paragraph(bold(view.counts), f"\n{lead}") if view.counts else paragraph(lead)]
    if view.first:
        items = [_highlight(each, limits) for each in view.first]
        parts += [_heading(words("first")), numbered_list(items)]
    if patterns := view.patterns[: limits.patterns]:
        items = [_highlight(each, limits) for each in patterns]
        parts += [_heading(words("patterns")), bullet_list(items)]
    yield rich(*parts)
    gaps = [*view.gaps[: limits.gaps], *_rest(view.gaps, limits.gaps, words)]
    notes = [*_bullets("to_know", view.notes[:MOST_NOTES], words), *_bullets("gaps", gaps, words)]
    if notes:
        yield rich(*notes)
    if limits.markets and view.overview:
        rows = [paragraph(*_parts(line)) for line in view.overview[: limits.markets]]
        rows += map(paragraph, _rest(view.overview, limits.markets, words))
        yield rich(_heading(words("markets")), bullet_list(rows))


def _bullets(title: str, sentences: Sequence[str], words: Words) -> Iterator[Element]:
    if sentences:
        yield _heading(words(title))
        yield bullet_list([paragraph(each) for each in sentences])


def _rest(all: Sequence[object], shown: int, words: Words) -> list[str]:
    return [words("more", n=len(all) - shown)] if len(all) > shown else []


def _highlight(line: Highlight, limits: HeadLimits) -> Element:
    parts: list[str | Element] = [line.text]
    if line.markets:
        more = len(line.markets) - MOST_MARKETS_NAMED
        named = ", ".join(f"#{name}" for name in line.markets[:MOST_MARKETS_NAMED])
        parts += [" · ", bold(f"{named} +{more}" if more > 0 else named)]
    shown = line.references[: limits.references]
    for each in shown:
        parts += [each.before, link_to(each.url, f"[{each.label}]") or f"[{each.label}]"]
    more = line.more + len(line.references) - len(shown)
    return paragraph(*parts, f" +{more}" if more else "")


def _heading(title: str) -> Element:
    return paragraph("\n", bold(title))


def _title(title: str) -> Block:
    return rich(paragraph(bold(title)))


def _pieces(sections: Iterable[ReportSection], words: Words) -> Iterator[Piece]:
    for section in sections:
        if section.fold:
            yield Piece((_folded(section.title, section.fold),))
            continue
        head = [_title(section.title)]
        if section.intro:
            header = {"type": "header", "text": plain_text_block(section.title)}
            head = [header, rich(paragraph("\n".join(section.intro)))]
        is_apart = section.is_apart
        for group in section.groups:
            head += [_title(group.title)] if group.title and group.entries else []
            for blocks in _blocks(group, words):
                yield Piece((*head, *blocks), is_apart, len(blocks) - 1)
                head, is_apart = [], False
        if section.more:
            yield Piece((rich(paragraph(section.more)),))


def _folded(title: str, button: Button) -> Block:
    text = plain_text_block(title)
    return {
        "type": "section",
        "block_id": button.value,
        "text": text,
        "accessory": _button(button),
    }


def _blocks(group: Group, words: Words) -> Iterator[tuple[Block, ...]]:
    """Yield the block of each entry with that of its buttons, or of each list."""
    if group.is_full:
        for entry in group.entries:
            yield rich(*_full(entry, words)), *_actions(entry)
        return
    text = words("link") if group.is_numbered else "↗"
    number = group.entries[0].number if group.entries else 0
    for rows in _lists([paragraph(*_with_link(e.row, e.url, text)) for e in group.entries]):
        yield (rich(numbered_list(rows, number) if group.is_numbered else bullet_list(rows)),)
        number += len(rows)


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
    if entry.draft:
        yield quote(paragraph(entry.draft))


def _with_link(line: Line, url: str, text: str) -> list[str | Element]:
    link = link_to(url, text)
    return [*_parts(line), " · ", link] if link else _parts(line)


def _parts(line: Line) -> list[str | Element]:
    return [_part(each) for each in line]


def _part(part: str | Bold | Code | Link) -> str | Element:
    if isinstance(part, Code):
        return part.text
    if isinstance(part, Bold):
        return bold(part.text)
    return part if isinstance(part, str) else link_to(part.url, part.text) or part.text


def _actions(entry: Entry) -> Iterator[Block]:
    """Yield the block of buttons, with the first one's value as its id."""
    if entry.buttons:
        elements = [_button(each) for each in entry.buttons]
        yield {"type": "actions", "block_id": entry.buttons[0].value, "elements": elements}


def _button(button: Button) -> Block:
    text = plain_text_block(button.text, MAX_BUTTON)
    if not button.options:
        return {
            "type": "button",
            "action_id": button.action,
            "value": button.value,
            "text": text,
        }
    options = [
        {"text": plain_text_block(words, MAX_BUTTON), "value": value}
        for words, value in button.options[:100]
    ]
    return {
        "type": "static_select",
        "action_id": button.action,
        "placeholder": text,
        "options": options,
    }


def _foot(view: ReportView, limits: HeadLimits) -> Iterator[Piece]:
    """Yield what did not fit into the first message; then what was read, and the cost."""
    words, gaps = view.words, view.gaps[limits.gaps :]
    patterns = view.patterns[limits.patterns :][:MOST_PATTERNS]
    missing = [*gaps[:MOST_GAPS], *_rest(gaps, MOST_GAPS, words)]
    rows = {
        "patterns": [_highlight(each, HEAD_LIMITS[0]) for each in patterns],
        "gaps": [paragraph(each) for each in missing],
    }
    for title in rows:
        head = [_title(words(title))]
        for some in _lists(rows[title]):
            yield Piece((*head, rich(bullet_list(some))))
            head = []
    if view.sources:
        ends = accumulate(len(escape(each, quote=False)) for each in view.sources)
        shown = sum(end <= MAX_LIST for end in ends)
        sources = "; ".join([*view.sources[:shown], *_rest(view.sources, shown, words)])
        yield Piece((rich(paragraph(bold(words("sources")), f"\n{sources}")),))
    elements = [plain_text_block(each, 2_000) for each in view.foot]
    yield Piece(({"type": "context", "elements": elements},))
