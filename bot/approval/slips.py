"""Pieces of rich text, made by code: Slack parses nothing in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from scopes.slack_items import permalink

Element = Mapping[str, Any]
Block = dict[str, Any]

_MESSAGE = re.compile(r"\b([CGD][A-Z0-9]{2,20})/([0-9]{10}\.[0-9]{6})\b")
_PERSON = re.compile(r"[UW][A-Z0-9]{2,}")


def rich(*elements: Element) -> Block:
    return {"type": "rich_text", "elements": list(elements)}


def paragraph(*parts: str | Element) -> Element:
    """Text and elements in a row; text may break lines."""
    leaves = [_text(part) if isinstance(part, str) else part for part in parts if part]
    return {"type": "rich_text_section", "elements": leaves}


def pre(text: str) -> Element:
    """Text as it is, in type of one width."""
    return {"type": "rich_text_preformatted", "elements": [_text(text or "(empty)")]}


def bold(text: str) -> Element:
    return {**_text(text), "style": {"bold": True}}


def user(id: str) -> Element:
    """A mention."""
    return {"type": "user", "user_id": id}


def channel(id: str) -> Element:
    """A conversation, by the name that Slack knows it by."""
    return {"type": "channel", "channel_id": id}


def date(at: datetime) -> Element:
    """A moment in the reader's own time zone."""
    shown = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    form = "{date_short_pretty} {time}"
    return {"type": "date", "timestamp": int(at.timestamp()), "format": form, "fallback": shown}


def said(by: str | None) -> str | Element:
    """Who decided: a person, or whoever gave the command."""
    return user(by) if by and _PERSON.fullmatch(by) else by or "nobody"


def linked(text: str, address: str) -> Iterator[str | Element]:
    """A text in which ids of messages are links to them."""
    start = 0
    for found in _MESSAGE.finditer(text):
        yield text[start : found.start()]
        url = permalink(address, found[1], found[2], found[2])
        yield {"type": "link", "url": url, "text": "open it"} if url else found[0]
        start = found.end()
    yield text[start:]


def length(element: Element) -> int:
    """Characters of an element as Slack may count them: `&`, `<` and `>` are escaped."""
    leaves: Sequence[Element] = element.get("elements") or ()
    return sum(len(escape(str(leaf.get("text", " " * 20)), quote=False)) for leaf in leaves)


def _text(text: str) -> Element:
    return {"type": "text", "text": text}
