"""Gmail's message resource as a mail of ours: its tree of parts goes through the one reduction."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.message import Message
from typing import Any

from scopes.extraction.characters import line
from scopes.extraction.mail_text import MailText, MailTextLimits, reduce_part
from scopes.extraction.mime import KIND, MAX_HEADER, MimePart, words
from scopes.extraction.quotations import without_repeats
from scopes.mail import MailMessage, MailThread
from scopes.tool import readable

Json = Mapping[str, Any]

LIMITS = MailTextLimits()
MAX_APART = 8
"""Texts of one message that are fetched from where Gmail keeps them apart."""
MAX_HEADERS = 500
"""Headers of one part."""
EMPTY = MailText("", "", (), (), None, "", (), (), (), "")
NEVER = datetime.min.replace(tzinfo=UTC)
NO_SENSE = "what Gmail gave makes no sense"
NO_CONTENT = "Gmail gave it without its content"
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a resource of a wrong shape may raise."""

_SENDER = re.compile(r"(.*[<@\"].*)(<[^<>\s]+@[^<>\s]+>)\s*")
_MARKS = re.compile(r"[<>\"\\]")
_STATEFUL = re.compile(r"iso2022|hz|utf-16|utf-32", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PayloadPart(MimePart):
    """A part as Gmail gives it: cut into its own parts, its transfer encoding undone."""

    inside: tuple[Json, ...]
    fetched: Mapping[str, bytes]
    """Attachment id -> bytes, of texts that Gmail keeps apart."""
    file: str
    listed: int
    """Bytes, as Gmail counts them."""
    apart: bool
    """Gmail keeps its content elsewhere, and it was not fetched."""

    @property
    def absent(self) -> bool:
        return self.apart

    @property
    def charset(self) -> str:
        """UTF-8 where the bytes are: Gmail converts most texts, and leaves the old name on them."""
        named = self.headers.get_content_charset("")
        return "utf-8" if _is_utf8(self.body, named) else named

    @property
    def name(self) -> str | None:
        return words(self.file) if self.file else None

    @property
    def size(self) -> int:
        return self.listed

    def raw(self, name: str) -> str:
        """Return a header.

        Gmail has decoded what it encoded, which may look like a second sender.
        """
        value = " ".join(str(self.headers.get(name, "")).split())
        sender = _SENDER.fullmatch(value) if name == "from" else None
        return f'"{_MARKS.sub("", sender[1])}" {sender[2]}' if sender else value

    def content(self, most: int) -> bytes:
        return self.body[:most]

    def parts(self, default: str = "text/plain") -> Iterator[MimePart] | None:
        return (part_of(each, self.fetched) for each in self.inside) if self.inside else None

    def message(self, most: int) -> MimePart:
        """Return what it carries: Gmail gives the inner message as its one part, or that one's
        parts.
        """
        if len(self.inside) == 1:
            return part_of(self.inside[0], self.fetched)
        return replace(self, kind="multipart/mixed" if self.inside else "text/plain")


def part_of(payload: Json, fetched: Mapping[str, bytes]) -> PayloadPart:
    """Return a part of Gmail's as one of ours."""
    headers, clipped = _headers(payload.get("headers") or ())
    kind = str(payload.get("mimeType") or "text/plain").lower()
    body = payload.get("body") or {}
    data = str(body.get("data") or "")
    elsewhere = "" if data else str(body.get("attachmentId") or "")
    content = decoded(data) if data else fetched.get(elsewhere, b"")
    return PayloadPart(
        headers=headers,
        body=content,
        kind=kind if KIND.fullmatch(kind) else "text/plain",
        clipped=clipped,
        inside=tuple(payload.get("parts") or ()),
        fetched=fetched,
        file=str(payload.get("filename") or ""),
        listed=len(content) or int(body.get("size") or 0),
        apart=bool(elsewhere) and elsewhere not in fetched,
    )


def _headers(given: Sequence[Json]) -> tuple[Message, bool]:
    headers, clipped = Message(), len(given) > MAX_HEADERS
    for each in given[:MAX_HEADERS]:
        value = str(each["value"])
        headers[str(each["name"])] = value[:MAX_HEADER]
        clipped = clipped or len(value) > MAX_HEADER
    return headers, clipped


def decoded(data: str) -> bytes:
    """Return the bytes of base64 in its alphabet for URLs, which Gmail pads or does not."""
    return base64.urlsafe_b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4))


def _is_utf8(data: bytes, named: str) -> bool:
    """Not of charsets that spell other letters in the bytes of ASCII, where such letters are."""
    try:
        codec = codecs.lookup(named).name if named else ""
    except (LookupError, ValueError):
        codec = ""
    if _STATEFUL.match(codec.replace("_", "")) and (b"\x1b" in data or b"~{" in data):
        return False
    if codec.startswith(("utf-16", "utf-32")) and b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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


def _is_text(payload: Json) -> bool:
    """Return whether it is read: an attached text is listed only, an invitation is read in any
    case.
    """
    kind = str(payload.get("mimeType") or "").lower()
    if kind not in ("text/plain", "text/html"):
        return kind == "text/calendar"
    headers, _ = _headers(payload.get("headers") or ())
    return not payload.get("filename") and headers.get_content_disposition() != "attachment"


def thread_of(id: str, resource: Json, texts: Sequence[Mapping[str, bytes]]) -> MailThread:
    """Return a thread as Gmail gives it in full, oldest message first, each with its own words.

    It has as many messages as the resource, at least one; those that cannot be read say why.
    `texts` are those that Gmail keeps apart, by attachment id, for each message.
    """
    messages = [message_of(m, t) for m, t in zip(resource["messages"], texts, strict=True)]
    messages.sort(key=lambda m: m.at or NEVER)
    bodies = without_repeats([m.text.body for m in messages])
    shown = [
        replace(m, thread=id, text=replace(m.text, body=body))
        for m, body in zip(messages, bodies, strict=True)
    ]
    return MailThread(id, tuple(shown), str(resource.get("historyId") or ""))


def message_of(resource: Json, fetched: Mapping[str, bytes] | None = None) -> MailMessage:
    """Return a message as Gmail gives it in full; raises nothing. What cannot be read says why."""
    fetched = fetched or {}
    try:
        resource = readable(dict(resource))
        return _read(resource, fetched)
    except UNREADABLE:
        return _unread(resource, NO_SENSE)


def _read(resource: Json, fetched: Mapping[str, bytes]) -> MailMessage:
    payload = resource.get("payload")
    if not payload:
        return _unread(resource, NO_CONTENT)
    part = part_of(payload, fetched)
    text = reduce_part(part, LIMITS)
    return MailMessage(
        id=str(resource["id"]),
        thread=str(resource["threadId"]),
        at=_time(resource.get("internalDate")),
        text=text,
        headers={name.lower(): part.header(name) for name in reversed(part.headers.keys())},
        labels=frozenset(map(str, resource.get("labelIds") or ())),
        size=int(resource.get("sizeEstimate") or 0),
        fault=text.fault,
    )


def _unread(resource: Any, why: str) -> MailMessage:
    given = resource if isinstance(resource, Mapping) else {}
    labels = given.get("labelIds")
    return MailMessage(
        id=line(str(given.get("id") or ""), 40),
        thread=line(str(given.get("threadId") or ""), 40),
        at=_time(given.get("internalDate")),
        text=EMPTY,
        headers={},
        labels=frozenset(map(str, labels)) if isinstance(labels, list) else frozenset(),
        fault=why,
    )


def _time(milliseconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
