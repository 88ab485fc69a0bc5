"""Gmail's resources in the bot's process: what to fetch of a thread, and what was read of it.

Messages are read by `scopes.google.gmail_payload`, in a process of its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.message import Message
from typing import Any

from pydantic import TypeAdapter

from scopes.extraction.characters import line
from scopes.extraction.mime import MAX_HEADER
from scopes.extraction.quotations import without_repeats
from scopes.mail import ELSEWHERE, MailMessage, MailText, MailTextLimits, MailThread

Json = Mapping[str, Any]

LIMITS = MailTextLimits()
MAX_APART = 8
"""Texts of one message that are fetched from where Gmail keeps them apart."""
MAX_HEADERS = 500
"""Headers of one part."""
EMPTY = MailText("", "", (), (), None, "", (), (), (), "")
NEVER = datetime.min.replace(tzinfo=UTC)
TOO_MUCH = f"takes too much to read: {ELSEWHERE}"
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a resource of a wrong shape may raise."""
MESSAGE = TypeAdapter(MailMessage)
IN_MESSAGE = "part:"
"""Beginning of the key of a part whose content stands in its message: Gmail keeps only what has a
file name apart."""


def apart(resource: Json) -> list[str]:
    """Attachment ids of the texts of a message that Gmail keeps apart for their length, as many as
    are read; the reduction tells of the others."""
    found, room = list[str](), LIMITS.body
    try:
        for payload in _walk(resource.get("payload") or {}):
            body = payload.get("body") or {}
            id, size = str(body.get("attachmentId") or ""), int(body.get("size") or 0)
            if id and not body.get("data") and _is_text(payload) and size <= room:
                found.append(id)
                room -= size
    except UNREADABLE:
        return []  # `message_of` says that it cannot be read
    return found[:MAX_APART]


def _walk(payload: Json) -> Iterator[Json]:
    todo, seen = [(payload, 0)], 0
    while todo and seen < LIMITS.parts:
        each, depth = todo.pop(0)
        seen += 1
        yield each
        if depth < LIMITS.depth:
            todo += [(inner, depth + 1) for inner in each.get("parts") or ()]


def content_of(resource: Json, id: str) -> bytes:
    """Return the content of the part with this id; empty where it has none. Raises ValueError."""
    parts = (p for p in _walk(resource.get("payload") or {}) if str(p.get("partId") or "") == id)
    return decoded(str((next(parts, {}).get("body") or {}).get("data") or ""))


def _is_text(payload: Json) -> bool:
    """Return whether it is read: an attached text is listed only, an invitation is read in any
    case.
    """
    kind = str(payload.get("mimeType") or "").lower()
    if kind not in ("text/plain", "text/html"):
        return kind == "text/calendar"
    headers, _ = headers_of(payload.get("headers") or ())
    return not payload.get("filename") and headers.get_content_disposition() != "attachment"


def thread_of(id: str, history: str, found: Iterable[MailMessage]) -> MailThread:
    """Return a thread of these messages, oldest first, each with its own words."""
    messages = sorted(found, key=lambda m: m.at or NEVER)
    bodies = without_repeats([m.text.body for m in messages])
    shown = [
        replace(m, thread=id, text=replace(m.text, body=body))
        for m, body in zip(messages, bodies, strict=True)
    ]
    return MailThread(id, tuple(shown), history)


def request_of(resource: Json, texts: Mapping[str, bytes]) -> bytes:
    """Return the request that has another process read a message, by `reply`."""
    coded = {id: base64.b64encode(text).decode() for id, text in texts.items()}
    return json.dumps([resource, coded]).encode()


def message_in(answer: bytes) -> MailMessage:
    """Return the message of a `reply`."""
    return MESSAGE.validate_json(answer)


def unread_message(resource: Any, why: str) -> MailMessage:
    given = resource if isinstance(resource, Mapping) else {}
    labels = given.get("labelIds")
    return MailMessage(
        id=line(str(given.get("id") or ""), 40),
        thread=line(str(given.get("threadId") or ""), 40),
        at=received_at(given.get("internalDate")),
        text=EMPTY,
        headers={},
        labels=frozenset(map(str, labels)) if isinstance(labels, list) else frozenset(),
        fault=why,
    )


def received_at(milliseconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def headers_of(given: Sequence[Json]) -> tuple[Message, bool]:
    headers, clipped = Message(), len(given) > MAX_HEADERS
    for each in given[:MAX_HEADERS]:
        value = str(each["value"])
        headers[str(each["name"])] = value[:MAX_HEADER]
        clipped = clipped or len(value) > MAX_HEADER
    return headers, clipped


def decoded(data: str) -> bytes:
    """Return the bytes of base64 in its alphabet for URLs, which Gmail pads or does not."""
    return base64.urlsafe_b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4))
