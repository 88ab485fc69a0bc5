"""Gmail's resources in the bot's process: the parts of a thread to fetch, and what they contain.

`scopes.google.mail_text` reads messages in a separate process. Repetitions of earlier messages of a
thread are left out; nothing is lost: a line is left out only if an earlier message contains all of
it, word for word and in one piece with its surroundings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.message import Message
from typing import Any

from pydantic import TypeAdapter

from scopes.clean import line
from scopes.mail import (
    MAIL_PROGRAM_ADVICE,
    MAX_BODY,
    MAX_DEPTH,
    MAX_PARTS,
    MailMessage,
    MailText,
    MailThread,
)

QUOTE_PLACEHOLDER = "[quoted text of earlier messages left out]"
MIN_REPEATED_WORDS = 8
"""Words in a row that make a repetition, not a coincidence."""
CONTEXT_LINES = 3
"""Lines of a quotation that are kept above the author's own words, which answer them."""
MAX_WORDS = 300_000
"""Maximum words of one thread that are compared; text after that is unchanged."""

MAX_LOOKED_AT = 300_000
"""Maximum characters of one message; a longer one is unchanged."""

_PREFIX = re.compile(r"[>\s]*")
_HEADER = re.compile(
    r"\b(?:wrote|writes|schrieb|geschrieben|écrit|escribió|scritto|escreveu|schreef|skrev"
    r"|napisał|написала?|пишет|kirjoitti)\b[^:]{0,80}:\s*\Z"
    r"|写道[:\uff1a]\s*\Z|寫道[:\uff1a]\s*\Z"
    r"|\A-{3,}[^-]{3,60}-{3,}\s*\Z|\A_{10,}\s*\Z"
    r"|\A\*?(?:From|Von|De|Da|Van|Fra|Från|Od|От|发件人|寄件者|差出人)\s*\*?\s*:",
    re.IGNORECASE,
)
"""The line above a quotation. A wrong match does no harm: the words decide."""
_FIELD = re.compile(
    r"\*?(?:Sent|Date|To|Cc|Subject|Gesendet|Datum|An|Betreff|Envoyé|À|Objet|Enviado|Fecha|Para"
    r"|Asunto|Inviato|Data|A|Oggetto|Verzonden|Aan|Onderwerp|Quoting)\b[^:]{0,200}:",
    re.IGNORECASE,
)
"""A line of such a header in Outlook's form: `Sent: ...`."""


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    words: tuple[str, ...]
    """Its words, without marks of a quotation."""
    quoted: bool
    """True if marked with `>`."""
    below: bool
    """True if below the first line that heads a quotation."""


@dataclass(slots=True)
class _EarlierWords:
    """The words of the messages so far, and the last position of each run of them."""

    words: list[str] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)

    def add(self, words: Sequence[str]) -> None:
        start = len(self.words)
        self.words += [*words[: max(0, MAX_WORDS - start)], "\n"]  # not a word: no run spans it
        for at in range(start, len(self.words) - MIN_REPEATED_WORDS):
            self.places[hash(tuple(self.words[at : at + MIN_REPEATED_WORDS]))] = at

    def runs(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield start and end of runs in `words` that repeat earlier ones, longest per start."""
        at = 0
        while at + MIN_REPEATED_WORDS <= len(words):
            length = self.length(words, at)
            if length:
                yield at, at + length
            at += length or 1

    def length(self, words: Sequence[str], at: int) -> int:
        place = self.places.get(hash(tuple(words[at : at + MIN_REPEATED_WORDS])))
        if place is None:
            return 0
        same = 0
        for one, two in zip(_from(words, at), _from(self.words, place), strict=False):
            if one != two:
                break
            same += 1
        return same if same >= MIN_REPEATED_WORDS else 0


def _from(words: Sequence[str], at: int) -> Iterator[str]:
    return (words[n] for n in range(at, len(words)))


def without_repeats(bodies: Sequence[str]) -> list[str]:
    """Return the texts of a thread's messages, oldest first, without their quotes of others."""
    history, reduced = _EarlierWords(), []
    for body in bodies:
        lines = list(_lines(body[:MAX_LOOKED_AT]))
        compares = history.places and len(body) <= MAX_LOOKED_AT
        reduced.append(_join_remaining(lines, _find_repeated(lines, history)) if compares else body)
        history.add([word for line in lines for word in line.words])
    return reduced


def _lines(body: str) -> Iterator[_Line]:
    below = False
    for text in body.split("\n"):
        start = _PREFIX.match(text)
        assert start is not None
        rest = text[start.end() :]
        words = tuple(word for word in rest.split() if word.strip(">"))
        yield _Line(text, words, ">" in start[0], below)
        below = below or _heads(rest[-400:])


def _heads(text: str) -> bool:
    """Return whether it is the line above a quotation; try the pattern last."""
    may = ":" in text or "\uff1a" in text or text.startswith(("-", "_"))
    return may and _HEADER.search(text) is not None


def _find_repeated(lines: Sequence[_Line], history: _EarlierWords) -> set[int]:
    """Return the numbers of the lines that an earlier message contains whole."""
    candidates = [n for n, line in enumerate(lines) if (line.quoted or line.below) and line.words]
    words = [word for n in candidates for word in lines[n].words]
    runs = list(history.runs(words))
    found, start, run = set(), 0, 0
    for n in candidates:
        end = start + len(lines[n].words)
        while run < len(runs) and runs[run][1] < end:
            run += 1
        if run < len(runs) and runs[run][0] <= start:
            found.add(n)
        start = end
    return found


def _join_remaining(lines: Sequence[_Line], repeated: set[int]) -> str:
    """Return the remaining lines; one mark replaces each gap, if it is shorter."""
    out: list[str] = []
    dropped: list[str] = []
    for n, each in enumerate([*lines, _Line("", (), False, False)]):
        last = n == len(lines)
        if not last and (n in repeated or (dropped and not each.text.strip("> "))):
            dropped.append(each.text)
            continue
        kept = dropped[_end_of(dropped) :] if dropped and not last and _is_own(each) else []
        _close(out, dropped[: len(dropped) - len(kept)])
        out += kept if last else [*kept, each.text]
        dropped = []
    return "\n".join(out).strip()


def _is_own(line: _Line) -> bool:
    """Return whether it may answer a quotation above it."""
    rest = line.text.strip()
    return bool(rest and not line.quoted and not _heads(rest) and not _FIELD.match(rest))


def _end_of(dropped: Sequence[str]) -> int:
    """Return the start of the last lines with words."""
    full = [n for n, text in enumerate(dropped) if text.strip("> ")]
    return full[-CONTEXT_LINES:][0] if full else 0


def _close(out: list[str], dropped: Sequence[str]) -> None:
    if len("\n".join(dropped)) <= len(QUOTE_PLACEHOLDER):
        out.extend(dropped)
    elif not out or out[-1] != QUOTE_PLACEHOLDER:
        out.append(QUOTE_PLACEHOLDER)


Json = Mapping[str, Any]

MAX_APART = 8
"""Maximum separately stored texts of one message that are fetched."""
MAX_HEADERS, MAX_HEADER = 500, 4_000
"""Maximum headers of one part, and characters of one header."""
EMPTY = MailText("", "", (), (), "", (), (), "")
EARLIEST_TIME = datetime.min.replace(tzinfo=UTC)
TOO_MUCH = f"takes too much to read: {MAIL_PROGRAM_ADVICE}"
MALFORMED_RESOURCE_ERRORS = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Errors that a resource of a wrong shape may cause."""
MESSAGE = TypeAdapter(MailMessage)
IN_MESSAGE = "part:"
"""Prefix of the key of a part whose content is in its message: Gmail stores only parts with a file
name separately."""


def apart(resource: Json) -> list[str]:
    """Return the attachment ids of long texts of a message that Gmail stores separately, up to the
    limit; the reduction reports the others."""
    found, room = list[str](), MAX_BODY
    try:
        for payload in _walk(resource.get("payload") or {}):
            body = payload.get("body") or {}
            id, size = str(body.get("attachmentId") or ""), int(body.get("size") or 0)
            if id and not body.get("data") and _is_text(payload) and size <= room:
                found.append(id)
                room -= size
    except MALFORMED_RESOURCE_ERRORS:
        return []  # `message_of` reports that it cannot be read
    return found[:MAX_APART]


def _walk(payload: Json) -> Iterator[Json]:
    todo, seen = [(payload, 0)], 0
    while todo and seen < MAX_PARTS:
        each, depth = todo.pop(0)
        seen += 1
        yield each
        if depth < MAX_DEPTH:
            todo += [(inner, depth + 1) for inner in each.get("parts") or ()]


def content_of(resource: Json, id: str) -> bytes:
    """Return the content of the part with this id; empty if it has none. Raises ValueError."""
    parts = (p for p in _walk(resource.get("payload") or {}) if str(p.get("partId") or "") == id)
    return bytes_of(str((next(parts, {}).get("body") or {}).get("data") or ""))


def _is_text(payload: Json) -> bool:
    """Return whether it is read: never an attached text, always an invitation."""
    kind = str(payload.get("mimeType") or "").lower()
    if kind not in ("text/plain", "text/html"):
        return kind == "text/calendar"
    headers, _ = headers_of(payload.get("headers") or ())
    return not payload.get("filename") and headers.get_content_disposition() != "attachment"


def thread_of(id: str, history: str, found: Iterable[MailMessage]) -> MailThread:
    """Return a thread of these messages, oldest first, each with only its own words."""
    messages = sorted(found, key=lambda m: m.at or EARLIEST_TIME)
    bodies = without_repeats([m.text.body for m in messages])
    shown = [
        replace(m, thread=id, text=replace(m.text, body=body))
        for m, body in zip(messages, bodies, strict=True)
    ]
    return MailThread(id, tuple(shown), history)


def unread_message(resource: Any, why: str) -> MailMessage:
    data = resource if isinstance(resource, Mapping) else {}
    labels = data.get("labelIds")
    return MailMessage(
        id=line(str(data.get("id") or ""), 40),
        thread=line(str(data.get("threadId") or ""), 40),
        at=received_at(data.get("internalDate")),
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


def headers_of(fields: Sequence[Json]) -> tuple[Message, bool]:
    headers, clipped = Message(), len(fields) > MAX_HEADERS
    for each in fields[:MAX_HEADERS]:
        value = str(each["value"])
        headers[str(each["name"])] = value[:MAX_HEADER]
        clipped = clipped or len(value) > MAX_HEADER
    return headers, clipped


def bytes_of(data: str) -> bytes:
    """Return the bytes of URL-safe base64, with or without padding."""
    return base64.urlsafe_b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4))
