"""Gmail's message resource as a mail of ours: its tree of parts goes through the one reduction.

It is read by a program of its own, the `main` of this module, so that a hostile mail takes nothing
down with it: see `scopes.google.gmail`.
"""

from __future__ import annotations

import base64
import codecs
import json
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scopes.confinement import confined
from scopes.extraction.mail_text import reduce_part
from scopes.extraction.mime import KIND, MimePart, words
from scopes.google.gmail_threads import (
    IN_MESSAGE,
    LIMITS,
    MESSAGE,
    UNREADABLE,
    decoded,
    headers_of,
    received_at,
    unread_message,
)
from scopes.mail import MailMessage
from scopes.programs import limit, serve
from scopes.tool import readable

Json = Mapping[str, Any]

MAX_MEMORY, MAX_CPU_S = 512 << 20, 3
"""Bytes of the program, and seconds of computing for one mail."""
NO_SENSE = "what Gmail gave makes no sense"
NO_CONTENT = "Gmail gave it without its content"

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
    elsewhere: str
    """Attachment id of a content that Gmail keeps apart, or empty."""
    id: str
    """Where it stands in its message, as Gmail numbers parts."""

    @property
    def absent(self) -> bool:
        return bool(self.elsewhere) and self.elsewhere not in self.fetched

    @property
    def key(self) -> str:
        return self.elsewhere or f"{IN_MESSAGE}{self.id}"

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
    headers, clipped = headers_of(payload.get("headers") or ())
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
        elsewhere=elsewhere,
        id=str(payload.get("partId") or ""),
    )


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
    text = reduce_part(part, LIMITS)
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
