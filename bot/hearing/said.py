"""What a message of Slack's says, whatever its shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def people_in(messages: Sequence[Message]) -> list[str]:
    """Ids of the people who wrote these messages or are mentioned in them."""
    found: dict[str, None] = {}
    for message in messages:
        if message.get("user"):
            found[str(message["user"])] = None
        found |= dict.fromkeys(re.findall(r"<@([UW][A-Z0-9]+)", words_of(message)))
    return list(found)


def words_of(message: Message) -> str:
    """The text of a message, or what its blocks and attachments say where it has none."""
    text = message.get("text")
    if isinstance(text, str) and text.strip():
        return text
    parts = list(_texts([message.get("blocks"), message.get("attachments")]))
    return " ".join(dict.fromkeys(parts))[:20_000]


def has_words(message: Message) -> bool:
    """Whether there are words that its author typed, beside what is forwarded or attached."""
    text = message.get("text")
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
