"""Make tool calls, and read the items that tools show."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_ITEM = re.compile(
    r"^ *\[(?P<id>[^\]]+)\](?: \d{4}-\d\d-\d\d \d\d:\d\d)? ?(?P<text>.*?)(?: \{[^{}]*\})?$"
)


@dataclass
class Shown:
    """An item as a tool shows it."""

    id: str
    text: str
    """Without its time and the facts behind it; of a file with its lines."""


def counted(number: int, thing: str) -> str:
    """Return a number of things in words: `1 table`, `2 tables`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def use(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a tool call as a content block; the server gives it an id."""
    return {"type": "tool_use", "name": tool, "input": arguments}


def within(findings: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """Return the first findings that a submission of so many bytes has room for."""
    kept: list[dict[str, Any]] = []
    for finding in findings:
        room -= len(json.dumps(finding, ensure_ascii=False).encode()) + 2
        if room < 0:
            break
        kept.append(finding)
    return kept


def items_of(text: str) -> Iterator[Shown]:
    """Return the items of a tool's result; lines behind a bar belong to the item above."""
    item: Shown | None = None
    for line in text.splitlines():
        if line.startswith("|") and item:
            item.text = f"{item.text}\n{line[1:]}" if item.text else line[1:]
        elif found := _ITEM.match(line):
            if item:
                yield item
            item = Shown(found["id"], found["text"])
    if item:
        yield item
