"""Google's batch requests: several calls in one multipart body, answered in the same order."""

from dataclasses import dataclass
from email.message import Message
from urllib.parse import unquote

from bot.local.google.errors import GoogleRefused
from bot.local.google.gmail_headers import first, split_headers
from bot.local.google.gmail_mime import between

MAX_CALLS = 100
"""Calls in one batch: developers.google.com/gmail/api/guides/batch."""
BOUNDARY = "batch_local"


@dataclass(frozen=True, slots=True)
class Sent:
    """One HTTP request as it came, alone or within a batch."""

    http: str
    target: str
    """Path and query, still encoded, without the leading slash."""
    authorization: str
    body: bytes
    content_id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered to one request."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def calls_in(content_type: str, body: bytes, authorization: str) -> list[Sent]:
    """The requests of a batch; each has the outer authorization unless it brings its own."""
    outer = Message()
    outer["Content-Type"] = content_type
    parts = between(body, outer.get_boundary("") or "")
    if not parts:
        raise GoogleRefused("parseError", "Failed to parse batch request, error: no parts found")
    if len(parts) > MAX_CALLS:
        raise GoogleRefused("invalidArgument", f"The batch request exceeds {MAX_CALLS} calls.")
    return [_call(part, authorization) for part in parts]


def _call(part: bytes, authorization: str) -> Sent:
    headers, inner = split_headers(part)
    line, _, rest = inner.lstrip(b"\r\n").partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) < 2:
        raise GoogleRefused("parseError", "Failed to parse batch request, error: no request line")
    own, body = split_headers(rest)
    target = words[1].lstrip("/")
    return Sent(
        words[0],
        target,
        first(own, "authorization") or authorization,
        body,
        unquote(first(headers, "content-id")),
    )


def batched(calls: list[Sent], answers: list[Answer]) -> Answer:
    """The answers as one body."""
    parts = b"".join(_part(call, answer) for call, answer in zip(calls, answers, strict=True))
    kind = ("content-type", f"multipart/mixed; boundary={BOUNDARY}")
    return Answer(200, parts + f"--{BOUNDARY}--\r\n".encode(), (kind,))


def _part(call: Sent, answer: Answer) -> bytes:
    id = call.content_id.removeprefix("<")
    label = f"Content-ID: <response-{id}\r\n" if id else ""
    lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    head = (
        f"--{BOUNDARY}\r\nContent-Type: application/http\r\n{label}\r\n"
        f"HTTP/1.1 {answer.status} {'OK' if answer.status < 300 else 'Error'}\r\n{lines}"
        f"Content-Length: {len(answer.body)}\r\n\r\n"
    )
    return head.encode() + answer.body + b"\r\n"
