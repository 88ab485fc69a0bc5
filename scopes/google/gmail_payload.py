"""The program that reads the mails of Gmail, so that a hostile one takes nothing down with it: see
`scopes.google.gmail`.
"""

from __future__ import annotations

import base64
import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any

from scopes.confinement import confined
from scopes.extraction.mail_text import part_of, reduce_part
from scopes.google.gmail_threads import MESSAGE, UNREADABLE, received_at, unread_message
from scopes.mail import MailMessage
from scopes.programs import limit, serve
from scopes.tool import readable

Json = Mapping[str, Any]

MAX_MEMORY, MAX_CPU_S = 512 << 20, 3
"""Bytes of the program, and seconds of computing for one mail."""
NO_SENSE = "what Gmail gave makes no sense"
NO_CONTENT = "Gmail gave it without its content"


def message_of(resource: Json, fetched: Mapping[str, bytes] | None = None) -> MailMessage:
    """Return a message as Gmail gives it in full; raises nothing. What cannot be read says why."""
    fetched = fetched or {}
    try:
        resource = readable(dict(resource))
        return _read(resource, fetched)
    except UNREADABLE:
        return unread_message(resource, NO_SENSE)


def _read(resource: Json, fetched: Mapping[str, bytes]) -> MailMessage:
    payload = resource.get("payload")
    if not payload:
        return unread_message(resource, NO_CONTENT)
    part = part_of(payload, fetched)
    text = reduce_part(part)
    return MailMessage(
        id=str(resource["id"]),
        thread=str(resource["threadId"]),
        at=received_at(resource.get("internalDate")),
        text=text,
        headers={name.lower(): part.header(name) for name in reversed(part.headers.keys())},
        labels=frozenset(map(str, resource.get("labelIds") or ())),
        size=int(resource.get("sizeEstimate") or 0),
        fault=text.fault,
    )


def reply(request: bytes) -> bytes:
    """Read the message of a request; return it as JSON."""
    limit(seconds=MAX_CPU_S)
    resource, coded = json.loads(request)
    texts = {id: base64.b64decode(text) for id, text in coded.items()}
    return MESSAGE.dump_json(message_of(resource, texts))


def main() -> None:
    limit(memory=MAX_MEMORY, file_bytes=0)
    confined()
    logging.disable()
    warnings.simplefilter("ignore")
    serve(reply)
