"""Read documents of any kind by one program that can be ended: see `scopes.documents.worker`."""

from __future__ import annotations

import json
from typing import Final

from scopes.documents.text import DocumentRefused, DocumentText
from scopes.programs import WorkerDied, WorkerProcess
from scopes.tool import readable

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
