"""Read parts of Slack payloads safely: return a value of the right type, or an empty one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scopes.slack_items import SlackMessage

MAX_TEXT = 40_000
"""Maximum characters kept of any text; Slack itself cuts a message's text there."""
MAX_DEPTH = 40
"""Maximum levels of nesting kept of an event; Slack's own have fewer than 15."""

_TS = re.compile(r"[0-9]{10}\.[0-9]{6}")
_ID = re.compile(r"[A-Z][A-Z0-9]{1,40}")


def sanitize_json(value: Any, depth: int = 0) -> Any:
    """Make JSON storable in every database: no NUL, no NaN, limited depth and length."""
    if isinstance(value, str):
        return value[:MAX_TEXT].replace("\0", "")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list):
        return value
    if depth >= MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [sanitize_json(each, depth + 1) for each in value]
    return {sanitize_json(str(k)): sanitize_json(each, depth + 1) for k, each in value.items()}


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def first(value: Any) -> Mapping[str, Any]:
    """Return the first object of a list."""
    return mapping(value[0]) if isinstance(value, list) and value else {}


def id_of(value: Any, kinds: str = "") -> str:
    """Return an id of one of these kinds (first letters), or an empty string."""
    fits = isinstance(value, str) and _ID.fullmatch(value) and (not kinds or value[0] in kinds)
    return value if fits else ""


def ts_of(value: Any) -> str:
    return value if isinstance(value, str) and _TS.fullmatch(value) else ""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """The content of one of our messages."""

    text: str
    """Text for notifications, search and clients that show no blocks."""
    blocks: tuple[dict[str, Any], ...] = ()
    streamed: str = ""
    """The markdown at the end of a stream, before this part replaces it."""


EVENT_TYPE = "assistant_reply"
"""Metadata type of our messages."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark in the metadata of our messages, by which they are found again."""

    key: str
    """Key of its request, with `#2` for the second part of an answer."""
    run: str = ""
    of: int = 0
    """The number of parts of the finished answer that it belongs to."""

    @property
    def part(self) -> int:
        number = self.key.partition("#")[2]
        return int(number) if number.isdecimal() else 1

    def metadata(self) -> dict[str, Any]:
        """Return the arguments of a write that mark its message."""
        payload = {"key": self.key, "part": self.part, "run": self.run}
        payload |= {"of": self.of} if self.of else {}
        return {"metadata": {"event_type": EVENT_TYPE, "event_payload": payload}}


def mark_of(message: SlackMessage) -> Mark:
    """Return the mark of a message; it is empty if the message has none. Any app may set one."""
    metadata = mapping(message.raw.get("metadata"))
    is_ours = metadata.get("event_type") == EVENT_TYPE
    payload = mapping(metadata.get("event_payload")) if is_ours else {}
    key, run, of = payload.get("key"), payload.get("run"), payload.get("of")
    return Mark(str(key or ""), run if isinstance(run, str) else "", of if type(of) is int else 0)


def people_in(messages: Sequence[SlackMessage]) -> list[str]:
    """Return the ids of the people who wrote these messages or are mentioned in them."""
    found: dict[str, None] = {}
    for message in messages:
        if message.user:
            found[message.user] = None
        found |= dict.fromkeys(re.findall(r"<@([UW][A-Z0-9]+)", words_of(message)))
    return list(found)


def words_of(message: SlackMessage) -> str:
    """Return the text of a message, or that of its blocks and attachments if it has none."""
    if has_words(message):
        return message.text
    parts = list(_texts([message.raw.get("blocks"), message.raw.get("attachments")]))
    return " ".join(dict.fromkeys(parts))[:20_000]


def has_words(message: SlackMessage) -> bool:
    """Return whether the author typed any words, besides forwarded and attached content."""
    text = message.raw.get("text")
    return isinstance(text, str) and bool(text.strip())


def dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _texts(value: Any, depth: int = 12) -> Iterable[str]:
    if isinstance(value, list) and depth:
        for each in value:
            yield from _texts(each, depth - 1)
    elif isinstance(value, dict) and depth:
        for key in ("title", "pretext", "text", "fallback", "fields", "elements", "blocks", "rows"):
            inner = value.get(key)
            if isinstance(inner, str) and inner.strip():
                yield inner
            elif inner is not None:
                yield from _texts(inner, depth - 1)


def edited_at(message: Mapping[str, Any]) -> datetime | None:
    """Return when a message was last edited; None if it never was."""
    ts = ts_of(mapping(message.get("edited")).get("ts"))
    return datetime.fromtimestamp(float(ts), UTC) if ts else None


@dataclass(frozen=True, slots=True)
class Bot:
    """Our identity, as `auth.test` returns it."""

    user: str
    id: str
    """The bot id in our own messages (B...)."""
    team: str
    """The workspace where we are installed; payloads without a team belong to it."""
