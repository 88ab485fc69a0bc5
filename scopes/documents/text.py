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

    It continues a sentence after its name; what its sender can do stands behind a colon.
    """


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document."""

    text: str
    facts: str
    """Its kind, and what is to be known of the text: `Excel workbook, 2 sheets; 1 hidden`."""
    cut: bool
    """Whether the document goes on behind the text."""
    title: str = ""
    """Of a page."""
    date: str = ""
    """The day on which a page says that it was published, ISO 8601; empty = it does not say."""


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
    return f"{format_count(count, 'picture')}, whose text I do not read"


def facts_of(*facts: str) -> str:
    return "; ".join(filter(None, facts))


DOCUMENT_S: Final = 20.0
"""Seconds until the program is ended; a busy machine takes longer for what the program may
compute."""
READER: Final = WorkerProcess("scopes.documents.worker", DOCUMENT_S, idle_s=60.0)
"""Reads the documents of this process: what strangers wrote is parsed in no other one."""
DAMAGED: Final = "cannot be read, as it is damaged or incomplete: save it again, or send it as PDF"
TOO_MUCH: Final = "takes too much to open: send the part of it that matters, or its text"


async def read_document(data: bytes, max_chars: int, *, source: bool = False) -> DocumentText:
    """Return the text of a document, cut at `max_chars`; plain text may be longer.

    HTML is what a person sees of it, or, with `source`, as it is written. Raises DocumentRefused.
    """
    asked = {"max_chars": max_chars, "source": source}
    return await ask_reader(READER, data, **asked)


async def ask_reader(worker: WorkerProcess, data: bytes, **asked: Any) -> DocumentText:
    """Return what a program says of these bytes by `json_reply`. Raises DocumentRefused."""
    try:
        found = json.loads(await worker.ask(json.dumps(asked).encode() + b"\n" + data))
    except WorkerDied:
        raise DocumentRefused(TOO_MUCH) from None
    match found:
        case {"refused": str(why)}:
            raise DocumentRefused(why)
    return DocumentText(**readable(found))


def json_reply(read: Callable[..., DocumentText]) -> Callable[[bytes], bytes]:
    """Return what answers requests: a line of JSON, the arguments of `read`, and behind it bytes.

    An answer is JSON: the fields of what `read` returns, or `{"refused"}`, why there are none.
    """

    def reply(request: bytes) -> bytes:
        head, _, data = request.partition(b"\n")
        try:
            found = asdict(read(data, **json.loads(head)))
        except DocumentRefused as refusal:
            found = {"refused": str(refusal)}
        except MemoryError:
            raise  # the program ends, and the next request gets a fresh one
        except Exception:  # the seam: what is damaged raises whatever libraries meet
            found = {"refused": DAMAGED}
        return json.dumps(found).encode()

    return reply
