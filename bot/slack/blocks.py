"""Build rich text blocks and rendered messages; Slack parses no markup in rich text."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from bot.citations import Links, neutralize_links
from bot.slack import markdown
from bot.slack.markdown import Numbers, Prose, harmless, text_blocks, without_addresses
from bot.slack.messages import MessagePart
from bot.storage.requests import BAD, GOOD
from config.sections import ReplySettings
from config.words import phrase
from scopes.clean import printable, redact, unseen
from scopes.slack_items import permalink
from scopes.tool import one_line

Element = Mapping[str, Any]
Block = dict[str, Any]

_MESSAGE = re.compile(r"\b([CGD][A-Z0-9]{2,20})/([0-9]{10}\.[0-9]{6})\b")
_PERSON = re.compile(r"[UW][A-Z0-9]{2,}")


def fill(key: str, **parts: str | Element | Sequence[str | Element]) -> Iterator[str | Element]:
    """Yield the text of a key with elements in place of its names."""
    marks = {name: f"\0{name}\0" for name in parts}
    for number, piece in enumerate(phrase(key, **marks).split("\0")):
        part = parts[piece] if number % 2 else piece
        yield from [part] if isinstance(part, str | Mapping) else part


def rich(*elements: Element) -> Block:
    return {"type": "rich_text", "elements": list(elements)}


def paragraph(*parts: str | Element) -> Element:
    """Return a paragraph of text and elements; text may contain line breaks."""
    elements = [_text(part) if isinstance(part, str) else part for part in parts if part]
    return {"type": "rich_text_section", "elements": elements}


def pre(text: str) -> Element:
    """Return preformatted text."""
    return {"type": "rich_text_preformatted", "elements": [_text(text or phrase("card.empty"))]}


def bold(text: str) -> Element:
    return {**_text(text), "style": {"bold": True}}


def user(id: str) -> Element:
    """Return a mention of a user."""
    return {"type": "user", "user_id": id}


def channel(id: str) -> Element:
    """Return a reference to a channel, which Slack shows by name."""
    return {"type": "channel", "channel_id": id}


def date(at: datetime) -> Element:
    """Return a date that Slack shows in the reader's own time zone."""
    shown = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    form = "{date_short_pretty} {time}"
    return {"type": "date", "timestamp": int(at.timestamp()), "format": form, "fallback": shown}


def format_decider(by: str | None) -> str | Element:
    """Format who decided: a person, or the command-line user by name."""
    return user(by) if by and _PERSON.fullmatch(by) else by or phrase("nobody")


def split_links(text: str, address: str) -> Iterator[str | Element]:
    """Split a text into plain text and links; message ids become links."""
    start = 0
    for found in _MESSAGE.finditer(text):
        yield text[start : found.start()]
        url = permalink(address, found[1], found[2], found[2])
        yield {"type": "link", "url": url, "text": phrase("link.open")} if url else found[0]
        start = found.end()
    yield text[start:]


def _text(text: str) -> Element:
    return {"type": "text", "text": text}


_SPACES = frozenset({"Zl", "Zp", "Zs"})
_NO_LINES = re.compile(r"(?:(?<=\n)|\A)(?: *\n){3,}")
_NO_WORDS = re.compile(" {41,}")


def show_invisible(text: str) -> str:
    """Replace each invisible character by `\\uXXXX`; only line feeds stay.

    A joiner or selector inside an emoji also stays. Empty lines and spaces that would push the
    following text out of sight are replaced by their number.
    """
    return _with_count(_letters(text))


def _with_count(text: str) -> str:
    text = _NO_LINES.sub(_lines_left_out, text)
    return _NO_WORDS.sub(lambda found: f"[{phrase('text.spaces', n=len(found[0]))}]", text)


def _lines_left_out(found: re.Match[str]) -> str:
    return f"[{phrase('text.empty_lines', n=found[0].count(chr(10)))}]\n"


def _letters(text: str) -> str:
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    around = pairwise(f" {text} ")
    befores = [before for before, _ in around]
    afters = [*text[1:], " "]
    return "".join(
        _spell(c) if _is_unseen(c, before, after) else c
        for c, before, after in zip(text, befores, afters, strict=False)
    )


def _is_unseen(letter: str, before: str, after: str) -> bool:
    if letter in "\n ":
        return False
    if letter == "\ufe0f":
        return unicodedata.category(before) != "So"
    if letter == "\u200d":
        return not (_is_emoji(before) and unicodedata.category(after) == "So")
    return unseen(letter) or unicodedata.category(letter) in _SPACES


def _is_emoji(letter: str) -> bool:
    return unicodedata.category(letter) in ("So", "Sk") or letter == "\ufe0f"


def with_spelling(text: str) -> str:
    """Append the ASCII spelling to a name or address that is not plain ASCII."""
    return show_invisible(text).replace("\n", "\\n") + _spell_ascii(text)


def format_json(value: Any, indent: str = "") -> str:
    """Format a JSON value over several lines, with the ASCII spelling of each text in it."""
    inner = f"{indent} "
    if isinstance(value, str):
        return show_invisible(json.dumps(value, ensure_ascii=False)) + _spell_ascii(value)
    if isinstance(value, Mapping):
        lines = [f"{inner}{format_json(str(k))}: {format_json(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        lines = [f"{inner}{format_json(each, inner)}" for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value)


def _spell_ascii(text: str) -> str:
    """Return the ASCII spelling of a text that is not plain ASCII."""
    if text.isascii():
        return ""
    plain = "".join(c if c.isascii() and c.isprintable() else _spell(c) for c in text)
    return f" [{phrase('text.written_out')} {_with_count(plain)}]"


def _spell(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


MAX_MARKDOWN = 12_000
"""Characters of all markdown blocks of a message (docs.slack.dev, markdown block)."""
MAX_MESSAGE = 12_900
"""Characters of all blocks; Slack refuses more than about 13,200 (slackapi/bolt-js#2509)."""
MAX_TABLE = 9_900
"""Characters of the cells of a message's table; Slack allows 10,000."""

MAX_SECTION = 2_900
"""Characters of a section; Slack allows 3,000 (docs.slack.dev, section block)."""

FEEDBACK = "answer_feedback"
"""Action id of the feedback buttons; they are one element, so they share it."""


def assemble(
    bodies: Sequence[str], prose: Prose, foot: Sequence[Block] = ()
) -> tuple[MessagePart, ...]:
    """Return the messages of an answer; `foot` goes below the last one."""
    links, last = prose.collect_links(), len(bodies) - 1
    return tuple(
        MessagePart(
            prose.for_stream(without_addresses(body)),
            (*markdown.blocks(body, links, prose.requester), *(foot if n == last else ())),
            prose.for_stream(body),
        )
        for n, body in enumerate(bodies)
    )


def sentence(text: str, reference: str = "") -> MessagePart:
    """Render one plain sentence as a whole reply, with a reference id for support."""
    clean = Links().defang(redact(printable(text.strip())))
    body = harmless(clean or phrase("answer.failed"))[: MAX_MARKDOWN // 4]
    foot = [phrase("answer.reference", id=escape_mrkdwn(reference))] if reference else []
    shown = (*markdown.blocks(body, Links()), *map(context_block, foot))
    return MessagePart(neutralize_links(body), shown)


def message(
    text: str, request: str, settings: ReplySettings, by: str = ""
) -> tuple[MessagePart, ...]:
    """Render a text that a tool posts; addresses become links only if they occur in `request`.

    `by` is the user on whose behalf it is posted, shown to readers.
    """
    foot = (context_block(phrase("message.for", who=f"<@{by}>")),) if by else ()
    prose = Prose({}, settings, request, "")
    linked = prose.link_citations(text.strip() or phrase("answer.nothing"), Numbers({}))
    return assemble(cut(linked, settings, foot), prose, foot)


def size(blocks: Sequence[Block]) -> int:
    """Count the characters in blocks, as Slack counts them for a message."""
    return sum(map(_size, blocks))


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        own = [value.get("text"), value.get("title")]
        own += [value.get("url")] if value.get("type") == "link" else []
        inner = sum(_size(each) for each in value.values() if isinstance(each, Mapping | list))
        return inner + sum(len(each) for each in own if isinstance(each, str))
    return sum(map(_size, value)) if isinstance(value, list) else 0


def parse_feedback(value: str) -> tuple[str, str] | None:
    """Return the request key and `good` or `bad` of a feedback button's value; None if invalid."""
    verdict, _, key = value.partition(":")
    return (key, verdict) if key and verdict in (GOOD, BAD) else None


def cut(text: str, settings: ReplySettings, foot: Sequence[Block] = ()) -> list[str]:
    """Cut the text of `Prose.link_citations` into messages; `foot` will stand below the last one.

    Each has at most one table (else Slack answers `only_one_table_allowed`). A fence or table that
    does not fit continues in the next one.
    """
    blocks = list(text_blocks(text))
    limit = min(settings.message_chars, MAX_MESSAGE - size(foot))
    limit = min(limit, MAX_TABLE) if any(block.is_table for block in blocks) else limit
    parts, has_table = [""], False
    for block in blocks:
        for piece in block.pieces(limit):
            is_full = len(parts[-1]) + len(piece.rstrip()) > limit
            if parts[-1] and (is_full or (block.is_table and has_table)):
                parts.append("")
                has_table = False
            parts[-1] += piece
            has_table = has_table or block.is_table
    return [bare for part in parts if (bare := part.strip("\n")).strip()] or [
        phrase("answer.nothing")
    ]


def feedback(key: str) -> Block:
    def button(words: str, verdict: str) -> Block:
        return {"text": {"type": "plain_text", "text": words}, "value": f"{verdict}:{key}"}

    buttons = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": button(phrase("button.good"), GOOD),
        "negative_button": button(phrase("button.bad"), BAD),
    }
    return {"type": "context_actions", "elements": [buttons]}


def context_block(text: str) -> Block:
    """Return a context block; with `verbatim`, Slack makes no links or mentions of words."""
    element = {"type": "mrkdwn", "text": text[:MAX_SECTION], "verbatim": True}
    return {"type": "context", "elements": [element]}


def escape_mrkdwn(text: str) -> str:
    """Escape a text by others for use inside our mrkdwn line."""
    safe = neutralize_links(Links().defang(redact(printable(text))))
    calm = one_line(re.sub(r"@(?=\w)", "@\N{WORD JOINER}", safe))
    return calm.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def weight(blocks: Sequence[Block]) -> int:
    """Count the characters as Slack may count them: `&`, `<` and `>` are escaped."""
    written = json.dumps(blocks, ensure_ascii=False)
    return size(blocks) + 4 * sum(map(written.count, "&<>"))


def button(action: str, words: str, **more: Any) -> Block:
    """Return a button; `more` may be its value, its style, its address, its confirmation."""
    return {"type": "button", "action_id": action, **more, "text": plain_text_block(words, 75)}


def actions(elements: Iterable[Block], **more: Any) -> Block:
    """Return a row of buttons and menus."""
    return {"type": "actions", **more, "elements": list(elements)}


def header(text: str) -> Block:
    return {"type": "header", "text": plain_text_block(text)}


def section(markup: str) -> Block:
    """Return a section in which Slack makes no links or mentions of words."""
    element = {"type": "mrkdwn", "text": markup[:MAX_SECTION], "verbatim": True}
    return {"type": "section", "text": element}


def plain_section(text: str, **more: Any) -> Block:
    """Return a section that Slack does not parse."""
    return {"type": "section", **more, "text": plain_text_block(text, MAX_SECTION)}


def field(name: str, label: str, element: Block, **more: Any) -> Block:
    """Return a field of a form; `name` is the id of block and element."""
    element = {"action_id": name, **element}
    label_block = plain_text_block(label)
    return {"type": "input", "block_id": name, **more, "label": label_block, "element": element}


def modal(title: str, close: str, blocks: Sequence[Block], **more: Any) -> Block:
    """Return a view in front of the conversation; `more` makes a form of it."""
    labels = {"title": plain_text_block(title), "close": plain_text_block(close)}
    return {"type": "modal", **more, **labels, "blocks": list(blocks)}


def plain_text_block(text: str, most: int = 150) -> Block:
    """Return a text in which Slack reads no markup and no emoji."""
    shown = text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
    return {"type": "plain_text", "text": shown, "emoji": False}
