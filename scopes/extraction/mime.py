"""A message in parts, cut along MIME's lines within limits that the standard library has not.

`email` parses whole trees: its time grows with depth times lines, and it raises for some headers
(RecursionError for a thousand brackets). So only the headers of each part are given to it, and
never by `policy.default`, whose parsers of structured headers are the ones that raise.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import policy
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import Parser

from scopes.extraction.characters import decoded, line

MAX_HEADERS = 200_000  # bytes of all headers of one part
MAX_HEADER = 4_000  # characters of one header

_BLANK_LINE = re.compile(rb"\r?\n[ \t]*\r?\n|\r\r")
KIND = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,80}", re.ASCII)
_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")
_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          b"abcdefghijklmnopqrstuvwxyz0123456789+/"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class MimePart:
    """Headers and what they head, as it was sent."""

    headers: Message
    body: bytes
    kind: str
    """Content type, `text/plain` in lower case."""
    clipped: bool
    """Whether a header was longer than is read."""

    def header(self, name: str, most: int = 1_000) -> str:
        """Return the first header of a name, decoded, on one line; empty where there is none."""
        return line(words(self.raw(name)), most)

    def raw(self, name: str) -> str:
        """Return the first header of a name on one line, its encoded words as they are."""
        return " ".join(str(self.headers.get(name, "")).split())

    @property
    def charset(self) -> str:
        return self.headers.get_content_charset("")

    @property
    def name(self) -> str | None:
        """File name as it was sent; None where there is none."""
        name = self.headers.get_filename()
        return None if name is None else words(name)

    @property
    def attached(self) -> bool:
        return self.headers.get_content_disposition() == "attachment"

    @property
    def absent(self) -> bool:
        """Return whether its content is kept elsewhere and was not fetched."""
        return False

    @property
    def key(self) -> str:
        """Return what its content is handed out for where it is kept elsewhere, or empty."""
        return ""

    def content(self, most: int) -> bytes:
        """At least `most` bytes of the decoded content, where there are so many."""
        encoding = self.raw("content-transfer-encoding").lower()
        if encoding == "base64":
            sent = self.body[: most * 2].translate(None, _NOT_BASE64)
            return binascii.a2b_base64(sent[: len(sent) // 4 * 4] + _rest(sent))
        if encoding == "quoted-printable":
            return binascii.a2b_qp(self.body[: most * 4])
        return self.body[:most]

    def parts(self, default: str = "text/plain") -> Iterator[MimePart] | None:
        """Yield the parts of a multipart, one after another, of type `default` where they name
        none.

        None if it has no boundary or none is found.
        """
        found = _bodies_in(self)
        return None if found is None else (part_of(raw, default) for raw in found)

    def message(self, most: int) -> MimePart:
        """Return the message that a `message/rfc822` carries, of at most `most` bytes."""
        return part_of(self.content(most))

    @property
    def size(self) -> int:
        """Return the bytes of the decoded content."""
        if self.raw("content-transfer-encoding").lower() == "base64":
            return len(self.body.translate(None, _NOT_BASE64)) * 3 // 4
        return len(self.content(len(self.body)))


def _rest(sent: bytes) -> bytes:
    rest = sent[len(sent) // 4 * 4 :]
    return rest.ljust(4, b"=") if len(rest) > 1 else b""


def words(text: str) -> str:
    """Return a header with its encoded words decoded (RFC 2047); what is broken stays as it is."""
    if "=?" not in text:
        return text
    try:
        chunks = decode_header(text)
    except (HeaderParseError, ValueError):
        return text
    return "".join(
        chunk if isinstance(chunk, str) else _word(chunk, name) for chunk, name in chunks
    )


def _word(chunk: bytes, charset: str | None) -> str:
    if charset is None:  # `decode_header` has what stood between encoded words in this codec
        return chunk.decode("raw-unicode-escape", "replace")
    return decoded(chunk, charset.partition("*")[0])


def part_of(raw: bytes, default: str = "text/plain") -> MimePart:
    """Return headers and body of a message or a part; `default` is its type where it names none."""
    head, body = _halves(raw)
    lines = [decoded(each) for each in re.split(rb"\r\n|\r|\n", head[:MAX_HEADERS])]
    headers: Message = Parser(policy=policy.compat32).parsestr(
        "\n".join(lines) + "\n\n", headersonly=True
    )
    clipped = len(head) > MAX_HEADERS
    for name, value in headers.items():
        if len(value) > MAX_HEADER:
            clipped = True
            headers.replace_header(name, value[:MAX_HEADER])
    kind = headers.get_content_type() if "content-type" in headers else default
    kind = kind if KIND.fullmatch(kind) else "text/plain"
    return MimePart(headers, body, kind, clipped)


def _halves(raw: bytes) -> tuple[bytes, bytes]:
    """Return headers and body.

    A line that is no header begins the body, as in the standard library.
    """
    if raw.startswith((b"\n", b"\r")):
        return b"", raw.lstrip(b"\r\n")
    blank = _BLANK_LINE.search(raw)
    head, body = (raw[: blank.start()], raw[blank.end() :]) if blank else (raw, b"")
    for each in re.finditer(rb"[^\r\n]+(?:\r\n|\r|\n)?", head[:MAX_HEADERS]):
        first = each.start() == 0 and each[0].startswith((b"From ", b">From "))
        if not first and each[0][:1] not in b" \t" and not _FIELD.match(each[0]):
            return head[: each.start()], raw[each.start() :]
    return head, body


def _bodies_in(part: MimePart) -> Iterator[bytes] | None:
    boundary = part.headers.get_boundary("")
    if not boundary or len(boundary) > 200:
        return None
    mark = re.escape(boundary.encode("utf-8", "replace"))
    found = re.compile(rb"(?:\A|(?<=[\r\n]))--" + mark + rb"(--)?[ \t]*(?:\r\n|\r|\n|\Z)")
    if found.search(part.body) is None:
        return None
    return _between(part.body, found)


def _between(body: bytes, mark: re.Pattern[bytes]) -> Iterator[bytes]:
    start = -1
    for match in mark.finditer(body):
        if start >= 0:
            yield re.sub(rb"(?:\r\n|\r|\n)\Z", b"", body[start : match.start()])
        start = match.end()
        if match[1]:
            return
    if start >= 0:
        yield body[start:]
