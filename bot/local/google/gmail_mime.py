"""A mail as Gmail shows it: all headers, unfolded and decoded, and the tree of parts. Both can be
read from any broken message.
"""

import codecs
import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64, a2b_qp
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from html import escape, unescape
from typing import Any

Headers = list[tuple[str, str]]
"""Name as sent, and value on one line."""

MAX_HEADERS = 500_000
"""Bytes of one header block that are read; the rest counts as text."""
MAX_DECODED = 20_000
"""Characters of a value with encoded words."""
MAX_PARAMETERS = 4_000
"""Characters of a Content-Type that are searched for parameters."""

_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[ \t]*(.*)", re.DOTALL)
_LINE = re.compile(rb"([^\n]*?)\r?(?:\n|\Z)")
_NOT_CHARSETS = frozenset(
    ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
)
"""Python codecs that are not a charset of mail: they are slow, or they warn."""


def split_headers(raw: bytes) -> tuple[Headers, bytes]:
    """Return the headers of a message or a part, not yet decoded, and its body.

    The first line that is not a header ends them and belongs to the body.
    """
    fields: list[tuple[bytes, list[bytes]]] = []
    at = 0
    while at < len(raw) and at < MAX_HEADERS:
        line = _LINE.match(raw, at)
        assert line
        if not line[1].strip(b"\r"):
            at = line.end()
            break
        if not _take(fields, line[1], first=at == 0):
            break
        at = line.end()
    return [(name.decode("ascii"), _unfold(value)) for name, value in fields], raw[at:]


def _take(fields: list[tuple[bytes, list[bytes]]], line: bytes, *, first: bool) -> bool:
    if line[:1] in b" \t" and fields:
        fields[-1][1].append(line)
        return True
    if field := _FIELD.match(line):
        fields.append((field[1], [field[2]]))
        return True
    return first and line.startswith((b"From ", b">From "))


def _unfold(lines: list[bytes]) -> str:
    return text_of(b"".join(lines)).replace("\r", " ").replace("\0", "").strip()


def first(headers: Headers, name: str) -> str:
    """Return the first header with this (lower-case) name; empty if there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


def every(headers: Headers, *names: str) -> list[str]:
    """Return the values of all headers with these (lower-case) names."""
    return [value for key, value in headers if key.lower() in names]


def text_of(content: bytes, charset: str = "") -> str:
    """Decode bytes as UTF-8 if they are valid, else as the named charset, else as Western European.

    ISO-2022 and HZ encode other letters in ASCII bytes, so for them the named charset comes first.
    """
    shifted = b"\x1b" in content or b"~{" in content
    for name in (charset if shifted else "", "utf-8", charset, "windows-1252"):
        try:
            return content.decode(_codec(name))
        except (UnicodeError, LookupError):
            continue
    return content.decode("latin-1")


def in_charset(content: bytes, charset: str) -> bytes:
    """Convert text to UTF-8, as Gmail does; keep the bytes if they do not fit the named charset."""
    try:
        return content.decode(_codec(charset)).encode()
    except (UnicodeError, LookupError):
        return content


def _codec(label: str) -> str:
    """Return the codec for a charset label. Raises LookupError if there is none."""
    try:
        name = codecs.lookup(label).name
    except ValueError:  # a NUL in the label
        raise LookupError(label) from None
    if name in _NOT_CHARSETS:
        raise LookupError(label)
    return name


def decode_words(value: str) -> str:
    """Return a value with encoded words (RFC 2047) decoded; broken ones and long values stay."""
    if "=?" not in value or len(value) > MAX_DECODED:
        return value
    try:
        chunks = decode_header(value)
    except (HeaderParseError, ValueError):
        return value
    return "".join(
        chunk if isinstance(chunk, str) else _word(chunk, charset) for chunk, charset in chunks
    )


def _word(chunk: bytes, charset: str | None) -> str:
    if charset is None:  # text between encoded words, which `decode_header` returns in this codec
        return chunk.decode("raw-unicode-escape", "replace")
    return text_of(chunk, charset.partition("*")[0])


def _content_headers(headers: Headers) -> Message:
    """Return the Content-Type and the Content-Disposition of a part."""
    message = Message()
    for name in ("content-type", "content-disposition"):
        if value := first(headers, name):
            message[name] = value[:MAX_PARAMETERS]
    return message


def _parameter(read: Callable[[], str | None]) -> str:
    try:
        return read() or ""
    except (ValueError, LookupError, TypeError):  # of broken RFC 2231 parameters
        return ""


_ID = re.compile(r"<([^<>\s]{3,900})>")


def message_id(headers: Headers) -> str:
    """Return the Message-ID without its brackets; empty if there is none."""
    return next(iter(_ID.findall(first(headers, "message-id"))), "")


def references(headers: Headers) -> list[str]:
    """Return the ids of the messages that this one follows."""
    return [
        id for value in every(headers, "references", "in-reply-to") for id in _ID.findall(value)
    ]


# ---- parts

Json = dict[str, Any]

MAX_DEPTH = 20
"""Depth of nested parts; a deeper one is shown as one file."""
MAX_PARTS = 500
"""Parts of one message; further ones are left out."""
INLINE_BYTES = 1_000_000
"""A longer text becomes an attachment (Gmail does not publish its limit)."""
MAX_SNIPPET_CHARS = 200

_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")
_TOKEN = re.compile(r"<(/?)([a-zA-Z]*)[^<>]*>|[^<]+|<")
_HIDDEN_ELEMENTS = ("head", "script", "style", "title")


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message: its type and, unless it is a container, its content."""

    id: str
    """Position: "" is the message, "0" its first part, "1.0" the first part of its second."""
    kind: str
    filename: str
    headers: Headers
    content: bytes
    """Without the transfer encoding; a text with a known charset is in UTF-8."""
    parts: tuple["Part", ...] = ()
    attached: bool = False
    """True = its content has to be fetched by `attachments.get`."""

    def walk(self) -> Iterator["Part"]:
        """Yield this part and all parts within it, in order."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def json(self, message: str) -> Json:
        """Return the part as `format=full` shows it."""
        headers = [
            {
                "name": name,
                "value": value if name[:8].lower() == "content-" else decode_words(value),
            }
            for name, value in self.headers
        ]
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


def base64url(content: bytes) -> str:
    return urlsafe_b64encode(content).decode()


def attachment_id(message: str, part: str) -> str:
    """Return the id of a part's content, which is valid for this message only."""
    return f"ANGjdJ{base64url(f'{message}/{part}'.encode()).rstrip('=')}"


def parts_of(raw: bytes) -> Part:
    """Return the tree of parts of a message."""
    return _Reader().part(raw, "", "text/plain", 0)


class _Reader:
    """Reads one message and counts its parts."""

    def __init__(self) -> None:
        self._remaining = MAX_PARTS

    def part(self, raw: bytes, id: str, default: str, depth: int) -> Part:
        headers, body = split_headers(raw)
        declared = _content_headers(headers)
        kind = declared.get_content_type() if "content-type" in declared else default
        filename = decode_words(_parameter(declared.get_filename))
        container = kind.startswith("multipart/") and depth < MAX_DEPTH
        if container and (pieces := between(body, _parameter(declared.get_boundary))):
            inner = "message/rfc822" if kind == "multipart/digest" else "text/plain"
            parts = self._parts(pieces, id, inner, depth)
            return Part(id, kind, filename, headers, b"", parts)
        kind = "text/plain" if container else kind
        content = decode_transfer(body, first(headers, "content-transfer-encoding"))
        if kind == "message/rfc822" and depth < MAX_DEPTH:
            parts = self._parts([content], id, "text/plain", depth)
            return Part(id, kind, filename, headers, content, parts, attached=True)
        is_file = filename or declared.get_content_disposition() == "attachment"
        text = kind.startswith("text/") and not is_file
        if text and (charset := _parameter(declared.get_content_charset)):
            content = in_charset(content, charset)
        attached = bool(content) and (not text or len(content) > INLINE_BYTES)
        return Part(id, kind, filename, headers, content, attached=attached)

    def _parts(self, pieces: list[bytes], id: str, default: str, depth: int) -> tuple[Part, ...]:
        parts = []
        for number, piece in enumerate(pieces):
            if not self._remaining:
                break
            self._remaining -= 1
            parts.append(self.part(piece, f"{id}.{number}".lstrip("."), default, depth + 1))
        return tuple(parts)


def between(body: bytes, boundary: str) -> list[bytes]:
    """Return the parts of a multipart body; none if its boundary does not occur."""
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


def decode_transfer(body: bytes, encoding: str) -> bytes:
    """Undo a transfer encoding; skip its broken parts."""
    match encoding.strip().lower():
        case "base64":
            data = _BASE64.sub(b"", body.partition(b"=")[0])  # a footer may follow the padding
            rest = len(data) % 4
            return a2b_base64(data[:-1] if rest == 1 else data + b"=" * (-len(data) % 4))
        case "quoted-printable":
            return a2b_qp(body)
    return body


def texts(root: Part) -> Iterator[str]:
    """Yield the readable texts of a message; the texts of HTML come without tags."""
    for part in root.walk():
        if part.kind.startswith("text/") and not part.filename and not part.parts:
            text = text_of(part.content)
            yield "".join(_visible_texts(text)) if part.kind == "text/html" else text


def _visible_texts(html: str) -> Iterator[str]:
    """Yield the texts between tags, in one pass."""
    within = ""
    for token in _TOKEN.finditer(html):
        name = (token[2] or "").lower()
        if within:
            within = "" if token[1] and name == within else within
        elif name in _HIDDEN_ELEMENTS and not token[1]:
            within = name
        else:
            yield unescape(token[0]) if token[2] is None else " "


def snippet(root: Part) -> str:
    """Return the beginning of a message on one line, escaped as in HTML."""
    text = next((t for t in (" ".join(text.split()) for text in texts(root)) if t), "")
    return escape(text[:MAX_SNIPPET_CHARS]).replace("&#x27;", "&#39;")
