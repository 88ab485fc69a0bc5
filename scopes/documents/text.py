"""Read documents of any kind by one program that can be ended: see `scopes.documents.worker`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scopes.programs import WorkerDied, WorkerProcess
from scopes.tool import readable


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


DOCUMENT_S: Final = 20.0
"""Seconds until the program is ended; a busy machine takes longer for what the program may
compute."""
READER: Final = WorkerProcess("scopes.documents.worker", DOCUMENT_S, idle_s=60.0)
"""Reads the documents of this process: what strangers wrote is parsed in no other one."""
TOO_MUCH: Final = "takes too much to open: send the part of it that matters, or its text"


async def read_document(data: bytes, max_chars: int, *, source: bool = False) -> DocumentText:
    """Return the text of a document, cut at `max_chars`; plain text may be longer.

    HTML is what a person sees of it, or, with `source`, as it is written. Raises DocumentRefused.
    """
    asked = {"max_chars": max_chars, "source": source}
    try:
        found = json.loads(await READER.ask(json.dumps(asked).encode() + b"\n" + data))
    except WorkerDied:
        raise DocumentRefused(TOO_MUCH) from None
    if "refused" in found:
        raise DocumentRefused(found["refused"])
    return DocumentText(**readable(found))
