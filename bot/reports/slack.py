"""Render answers, sweeps and triages as Slack messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
from bot.reports.markdown import Piece, ReportMarkdown
from bot.reports.sources import numbers_of
from bot.reports.view import Button, view_of
from bot.slack.blocks import (
    Block,
    actions,
    assemble,
    context_block,
    cut,
    feedback,
    header,
    plain_text_block,
    weight,
)
from bot.slack.blocks import button as button_block
from bot.slack.markdown import Numbers, Prose, blocks
from bot.slack.messages import MessagePart
from config.sections import ReplySettings
from config.words import in_language, phrase


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


MOST_ROWS = 25
"""Maximum rows of each list above the sections."""
MAX_BUTTON = 75
MAX_PACKED = 12_000
"""Maximum characters of one message; Slack rejects more than 13,200 (slackapi/bolt-js#2509)."""
OTHER_BLOCKS = 2
"""Blocks at the end of a message: text without buttons, and what is below the last one."""
MAX_BLOCKS = 48
"""Maximum blocks of one message; Slack allows 50, and buttons may be added below."""


def report_parts(document: Report, categories: Iterable[str] = ()) -> tuple[MessagePart, ...]:
    """Render a report as messages: the first in the channel, the others in its thread.

    `categories` are as in `view_of`.
    """
    view = view_of(document, categories)
    text = ReportMarkdown(view, "slack")
    with in_language(document.language):
        foot = frame.footer(document, 0)
    pieces = (*text.head(MOST_ROWS), *text.sections(view.sections))
    return _messages(text, pieces, view.notification, [header(view.title)], [foot])


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
    text, section = ReportMarkdown(view, "slack"), find_section(view, button)
    return _messages(text, text.sections([section]), view.name) if section else ()


def _messages(
    text: ReportMarkdown,
    pieces: Iterable[Piece],
    notification: str,
    above: Sequence[Block] = (),
    below: Sequence[Block] = (),
) -> tuple[MessagePart, ...]:
    """Pack the pieces into messages, in order; `notification` is that of the first one."""
    links, messages = text.links(), [[*above]]
    room, free = MAX_PACKED - weight(above), MAX_BLOCKS - len(above) - OTHER_BLOCKS
    markdown = ""
    for piece in pieces:
        buttons = list(_buttons(piece))
        own = weight([*blocks(piece.text, links), *buttons])
        own += MAX_NOTES * MAX_NOTE if piece.buttons else 0
        number = 3 if piece.buttons else 2 * len(buttons)  # with its text, and a block of notes
        room, free = room - own, free - number
        is_full = piece.is_apart or room < 0 or free < 0
        if is_full and (markdown or messages[-1]):
            messages[-1] += blocks(markdown, links)
            messages.append([])
            markdown, room, free = "", MAX_PACKED - own, MAX_BLOCKS - OTHER_BLOCKS - number
        markdown += f"{piece.text}\n"
        if buttons:
            messages[-1] += (*blocks(markdown, links), *buttons)
            markdown = ""
    messages[-1] += (*blocks(markdown, links), *below)
    parts = []
    for number, message in enumerate(messages, 1):
        part = text.words("part", n=str(number), of=str(len(messages)))
        name = notification if number == 1 else f"{text.view.name}, {part}"
        parts.append(MessagePart(name, tuple(message)))
    return tuple(parts)


def _buttons(piece: Piece) -> Iterator[Block]:
    """Yield the block below a piece; the id of a row of buttons is the value of the first one."""
    if piece.fold:
        yield _fold(*piece.fold)
    elif piece.buttons:
        yield actions([*map(_button, piece.buttons)], block_id=piece.buttons[0].value)


def _fold(title: str, button: Button) -> Block:
    text = plain_text_block(title)
    block = {"type": "section", "block_id": button.value, "text": text}
    return {**block, "accessory": _button(button)}


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
