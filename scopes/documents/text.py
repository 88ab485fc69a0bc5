"""What was read of a document, and why one was not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class DocumentRefused(Exception):
    """A document that is not read; the text continues the sentence after its name."""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document."""

    text: str
    facts: str
    """Its kind, and what is to be known of the text: `Excel workbook, 2 sheets; 1 hidden`."""
    cut: bool
    """Whether the document goes on behind the text."""


def beginning(lines: Iterable[str], max_chars: int) -> tuple[str, bool]:
    """Return the first lines up to so many characters, and whether there is more."""
    kept, room = list[str](), max_chars
    for each in lines:
        kept.append(each)
        room -= len(each) + 1
        if room < 0:
            return "\n".join(kept)[:max_chars], True
    return "\n".join(kept), False


def pictures(count: int) -> str:
    """Return the fact that a document has pictures; empty where it has none."""
    if not count:
        return ""
    return f"{count} picture{'s' * (count > 1)}, whose text I do not read"


def facts_of(*facts: str) -> str:
    return "; ".join(filter(None, facts))
