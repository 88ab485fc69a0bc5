"""Headers of a mail as Gmail shows them: unfolded, decoded, none lost and none that raises.

Also which messages are one conversation by them.
"""

import codecs
import re
from collections.abc import Callable, Sequence
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message

Headers = list[tuple[str, str]]
"""Name as it was sent, value on one line."""

MAX_HEADERS = 500_000
"""Bytes of one header block that are read; the rest of it counts as its text."""
MAX_DECODED = 20_000
"""Characters of a value with encoded words."""
MAX_PARAMETERS = 4_000
"""Characters of a Content-Type that are searched for parameters."""

_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:[ \t]*(.*)", re.DOTALL)
_LINE = re.compile(rb"([^\n]*?)\r?(?:\n|\Z)")
_NOT_CHARSETS = frozenset(
    ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
)
"""Codecs of Python's that are no charset of mail: they are slow, or they warn."""


def split_headers(raw: bytes) -> tuple[Headers, bytes]:
    """The headers of a message or a part, not yet decoded, and what they head.

    A line that is no header ends them, and belongs to the body.
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
    return [(name.decode("ascii"), _unfolded(value)) for name, value in fields], raw[at:]


def _take(fields: list[tuple[bytes, list[bytes]]], line: bytes, *, first: bool) -> bool:
    if line[:1] in b" \t" and fields:
        fields[-1][1].append(line)
        return True
    if field := _FIELD.match(line):
        fields.append((field[1], [field[2]]))
        return True
    return first and line.startswith((b"From ", b">From "))


def _unfolded(lines: list[bytes]) -> str:
    return text_of(b"".join(lines)).replace("\r", " ").replace("\0", "").strip()


def first(headers: Headers, name: str) -> str:
    """The first header of this (lower-case) name; empty where there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


def every(headers: Headers, *names: str) -> list[str]:
    """The values of all headers of these (lower-case) names."""
    return [value for key, value in headers if key.lower() in names]


def text_of(content: bytes, charset: str = "") -> str:
    """Bytes as text: UTF-8 if they are, else the charset that is named, else Western European.

    ISO-2022 and HZ spell other letters in the bytes of ASCII, so there the name comes first.
    """
    shifted = b"\x1b" in content or b"~{" in content
    for name in (charset if shifted else "", "utf-8", charset, "windows-1252"):
        try:
            return content.decode(_codec(name))
        except (UnicodeError, LookupError):
            continue
    return content.decode("latin-1")


def in_charset(content: bytes, charset: str) -> bytes:
    """Text in UTF-8, as Gmail gives it; what does not fit the charset named stays as it is."""
    try:
        return content.decode(_codec(charset)).encode()
    except (UnicodeError, LookupError):
        return content


def _codec(label: str) -> str:
    """The codec of a charset's label; LookupError where there is none."""
    try:
        name = codecs.lookup(label).name
    except ValueError:  # a NUL in the label
        raise LookupError(label) from None
    if name in _NOT_CHARSETS:
        raise LookupError(label)
    return name


def decoded(value: str) -> str:
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
    if charset is None:  # `decode_header` has what stood between encoded words in this codec
        return chunk.decode("raw-unicode-escape", "replace")
    return text_of(chunk, charset.partition("*")[0])


class Parameters:
    """What a Content-Type and a Content-Disposition say of a part."""

    def __init__(self, headers: Headers) -> None:
        self._message = Message()
        for name in ("content-type", "content-disposition"):
            if value := first(headers, name):
                self._message[name] = value[:MAX_PARAMETERS]
        self.typed = "content-type" in self._message

    @property
    def kind(self) -> str:
        """`text/plain` in lower case; that too where there is none, or a broken one."""
        return self._message.get_content_type()

    @property
    def boundary(self) -> str:
        return self._said(self._message.get_boundary)

    @property
    def charset(self) -> str:
        return self._said(self._message.get_content_charset)

    @property
    def filename(self) -> str:
        return decoded(self._said(self._message.get_filename))

    @property
    def attached(self) -> bool:
        return self._message.get_content_disposition() == "attachment"

    @staticmethod
    def _said(read: Callable[[], str | None]) -> str:
        try:
            value = read()
        except (ValueError, LookupError, TypeError):  # of broken RFC 2231 parameters
            return ""
        return value or ""


TOLD = "X-GM-THRID "
"""What begins the name of a thread that Google gave."""

_ID = re.compile(r"<([^<>\s]{3,900})>")


def message_id(headers: Headers) -> str:
    """The Message-ID without its brackets; empty where there is none."""
    return next(iter(_ids(first(headers, "message-id"))), "")


def references(headers: Headers) -> list[str]:
    """The ids of the messages that this one follows."""
    return [id for value in every(headers, "references", "in-reply-to") for id in _ids(value)]


def _ids(value: str) -> list[str]:
    return _ID.findall(value)


def threads_of(mails: Sequence[Headers]) -> list[str]:
    """For each message a name of its conversation, the same for all of one conversation.

    A message joins those that it refers to, also over ones that are not there. What carries an
    `X-GM-THRID` is in the thread of that name only. Gmail also looks at subjects and people; those
    guesses are left out, because a wrong one hides a mail under another.
    """
    homes: dict[str, str] = {}
    names = []
    for number, headers in enumerate(mails):
        ids = [id for id in (message_id(headers), *references(headers)) if id]
        known = next((homes[id] for id in ids if id in homes), f"number {number}")
        names.append(_told(headers) or known)
        for id in ids:
            homes.setdefault(id, names[-1])
    return names


def _told(headers: Headers) -> str:
    number = first(headers, "x-gm-thrid")
    return f"{TOLD}{number}" if re.fullmatch(r"[0-9]{1,19}", number) else ""
