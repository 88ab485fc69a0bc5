"""A message as the tree of parts that Gmail shows; no message is too broken for one."""

import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64, a2b_qp
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any

from bot.local.google.gmail_headers import (
    Headers,
    Parameters,
    decoded,
    first,
    in_charset,
    split_headers,
    text_of,
)

Json = dict[str, Any]

MAX_DEPTH = 20
"""Parts within parts; what lies deeper is shown as one file."""
MAX_PARTS = 500
"""Parts of one message; those behind are left out."""
INLINE_BYTES = 1_000_000
"""A text that is longer comes as an attachment (what Gmail's limit is, it tells nowhere)."""
SNIPPET = 200

_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")
_TOKEN = re.compile(r"<(/?)([a-zA-Z]*)[^<>]*>|[^<]+|<")
_UNSEEN = ("head", "script", "style", "title")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message: what it is and, where it is no container, what it holds."""

    id: str
    """Where it stands: "" is the message, "0" its first part, "1.0" the first of its second."""
    kind: str
    filename: str
    headers: Headers
    content: bytes
    """The transfer encoding undone; a text is in UTF-8, where its charset told what it is."""
    parts: tuple["Part", ...] = ()
    attached: bool = False
    """Whether its content has to be fetched by `attachments.get`."""

    def walk(self) -> Iterator["Part"]:
        """It and all within it, in order."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def json(self, message: str) -> Json:
        """As `format=full` shows it."""
        headers = [{"name": name, "value": shown(name, value)} for name, value in self.headers]
        body: Json = {"size": len(self.content)}
        if self.attached:
            body["attachmentId"] = attachment_id(message, self.id)
        elif self.content:
            body["data"] = base64url(self.content)
        shape = {
            "partId": self.id,
            "mimeType": self.kind,
            "filename": self.filename,
            "headers": headers,
            "body": body,
        }
        return shape | ({"parts": [p.json(message) for p in self.parts]} if self.parts else {})


def shown(name: str, value: str) -> str:
    """A header's value as Gmail shows it: encoded words decoded, but for how parts are built."""
    return value if name.lower().startswith("content-") else decoded(value)


def base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).decode()


def attachment_id(message: str, part: str) -> str:
    """The id of a part's content, which is only good for this message."""
    return f"ANGjdJ{base64url(f'{message}/{part}'.encode()).rstrip('=')}"


def parts_of(raw: bytes) -> Part:
    """The tree of a message."""
    return _Reader().part(raw, "", "text/plain", 0)


class _Reader:
    """Reads one message and counts its parts."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def part(self, raw: bytes, id: str, default: str, depth: int) -> Part:
        headers, body = split_headers(raw)
        said = Parameters(headers)
        kind = said.kind if said.typed else default
        container = kind.startswith("multipart/") and depth < MAX_DEPTH
        if container and (pieces := between(body, said.boundary)):
            inner = "message/rfc822" if kind == "multipart/digest" else "text/plain"
            parts = self._parts(pieces, id, inner, depth)
            return Part(id, kind, said.filename, headers, b"", parts)
        kind = "text/plain" if container else kind
        content = transferred(body, first(headers, "content-transfer-encoding"))
        if kind == "message/rfc822" and depth < MAX_DEPTH:
            parts = self._parts([content], id, "text/plain", depth)
            return Part(id, kind, said.filename, headers, content, parts, attached=True)
        return self._leaf(Part(id, kind, said.filename, headers, content), said)

    def _parts(self, pieces: list[bytes], id: str, default: str, depth: int) -> tuple[Part, ...]:
        parts = []
        for number, piece in enumerate(pieces):
            if not self._left:
                break
            self._left -= 1
            parts.append(self.part(piece, f"{id}.{number}".lstrip("."), default, depth + 1))
        return tuple(parts)

    def _leaf(self, part: Part, said: Parameters) -> Part:
        text = part.kind.startswith("text/") and not (part.filename or said.attached)
        content = in_charset(part.content, said.charset) if text and said.charset else part.content
        apart = bool(content) and (not text or len(content) > INLINE_BYTES)
        return Part(part.id, part.kind, part.filename, part.headers, content, attached=apart)


def between(body: bytes, boundary: str) -> list[bytes]:
    """The parts of a multipart body; none when its boundary is nowhere."""
    if not boundary:
        return []
    mark = re.escape(boundary.encode("utf-8", "surrogateescape"))
    lines = re.compile(rb"(?:\A|(?<=\n))--" + mark + rb"(--)?[ \t]*(?:\r?\n|\Z)")
    pieces, start = [], -1
    for found in lines.finditer(body):
        if start >= 0:
            pieces.append(re.sub(rb"\r?\n\Z", b"", body[start : found.start()]))
        start = found.end()
        if found[1]:
            return pieces
    return [*pieces, body[start:]] if start >= 0 else []


def transferred(body: bytes, encoding: str) -> bytes:
    """The content behind a transfer encoding; what is broken in it is passed over."""
    match encoding.strip().lower():
        case "base64":
            sent = _BASE64.sub(b"", body)
            rest = len(sent) % 4
            return a2b_base64(sent[:-1] if rest == 1 else sent + b"=" * (-len(sent) % 4))
        case "quoted-printable":
            return a2b_qp(body)
    return body


def texts(root: Part) -> Iterator[str]:
    """What a person can read in a message: its texts, those of HTML without the tags."""
    for part in root.walk():
        if part.kind.startswith("text/") and not part.filename and not part.parts:
            text = text_of(part.content)
            yield "".join(_seen(text)) if part.kind == "text/html" else text


def _seen(html: str) -> Iterator[str]:
    """The texts between tags, in one pass over whatever it is."""
    within = ""
    for token in _TOKEN.finditer(html):
        name = (token[2] or "").lower()
        if within:
            within = "" if token[1] and name == within else within
        elif name in _UNSEEN and not token[1]:
            within = name
        else:
            yield unescape(token[0]) if token[2] is None else " "


def snippet(root: Part) -> str:
    """The beginning of a message on one line, escaped as in HTML."""
    text = next((t for t in (" ".join(text.split()) for text in texts(root)) if t), "")
    return "".join(_ESCAPES.get(character, character) for character in text[:SNIPPET])
