"""Read documents and pages by programs that can be ended: see `scopes.documents.worker`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from scopes.programs import WorkerDied, WorkerProcess
from scopes.tool import format_count, readable


class DocumentRefused(Exception):
    """A document or page that is not read; the text says why.

    It continues a sentence after its name; advice for its sender follows a colon.
    """


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document."""

    text: str
    facts: str
    """Its kind, and facts on the text: `Excel workbook, 2 sheets; 1 hidden`."""
    cut: bool
    """Whether the document has more text."""
    title: str = ""
    """Title of a page."""
    date: str = ""
    """Day of publication that a page states, ISO 8601; empty = none."""


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
    """Return the fact that a document has pictures; empty if it has none."""
    if not count:
        return ""
    return f"{format_count(count, 'picture')}, whose text I do not read"


def facts_of(*facts: str) -> str:
    return "; ".join(filter(None, facts))


DOCUMENT_S: Final = 20.0
"""Seconds until the program is ended: more than its CPU seconds, for a busy machine."""
READER: Final = WorkerProcess("scopes.documents.worker", DOCUMENT_S, idle_s=60.0)
"""Reads the documents of this process: only this program parses text of strangers."""
DAMAGED_MESSAGE: Final = (
    "cannot be read, as it is damaged or incomplete: save it again, or send it as PDF"
)
TOO_MUCH: Final = "takes too much to open: send the part of it that matters, or its text"


async def read_document(data: bytes, max_chars: int, *, source: bool = False) -> DocumentText:
    """Return the text of a document, cut at `max_chars`; plain text may be longer.

    HTML becomes its visible text, or with `source` its source. Raises DocumentRefused.
    """
    options = {"max_chars": max_chars, "source": source}
    return await ask_reader(READER, data, **options)


async def ask_reader(worker: WorkerProcess, data: bytes, **options: Any) -> DocumentText:
    """Return a program's answer by `json_reply` for these bytes. Raises DocumentRefused."""
    try:
        found = json.loads(await worker.ask(json.dumps(options).encode() + b"\n" + data))
    except WorkerDied:
        raise DocumentRefused(TOO_MUCH) from None
    match found:
        case {"refused": str(why)}:
            raise DocumentRefused(why)
    return DocumentText(**readable(found))


def json_reply(read: Callable[..., DocumentText]) -> Callable[[bytes], bytes]:
    """Return a function that answers requests: a line of JSON, the arguments of `read`, then bytes.

    An answer is JSON: the fields of the result of `read`, or `{"refused"}`, the reason for none.
    """

    def reply(request: bytes) -> bytes:
        head, _, data = request.partition(b"\n")
        try:
            found = asdict(read(data, **json.loads(head)))
        except DocumentRefused as refusal:
            found = {"refused": str(refusal)}
        except MemoryError:
            raise  # the program ends, and the next request starts a new one
        except Exception:  # top-level boundary: damaged files make libraries raise anything
            found = {"refused": DAMAGED_MESSAGE}
        return json.dumps(found).encode()

    return reply
