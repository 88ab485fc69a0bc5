"""Gmail's resources in the bot's process: the parts of a thread to fetch, and what they contain.

Messages are read by `scopes.google.mail_text`, in a process of its own. What a message only
repeats from earlier ones of its thread is left out; nothing is lost: a line goes only where all of
it stands, word for word and in one piece with what surrounds it, in an earlier message.
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
    ELSEWHERE,
    MAX_BODY,
    MAX_DEPTH,
    MAX_PARTS,
    MailMessage,
    MailText,
    MailThread,
)

MARK = "[quoted text of earlier messages left out]"
RUN = 8
"""So many words in a row are a repetition and no coincidence."""
CONTEXT = 3
"""Lines of a quotation that stay above words of the author's own: what those answer."""
MAX_WORDS = 100_000
"""Of one thread that are remembered; what goes beyond is left as it is."""

MAX_LOOKED_AT = 300_000
"""Characters of one message; a longer one is left as it is."""

_PREFIX = re.compile(r"[>\s]*")
_HEADER = re.compile(
    r"\b(?:wrote|writes|schrieb|geschrieben|écrit|escribió|scritto|escreveu|schreef|skrev"
    r"|napisał|написала?|пишет|kirjoitti)\b[^:]{0,80}:\s*\Z"
    r"|写道[:\uff1a]\s*\Z|寫道[:\uff1a]\s*\Z"
    r"|\A-{3,}[^-]{3,60}-{3,}\s*\Z|\A_{10,}\s*\Z"
    r"|\A\*?(?:From|Von|De|Da|Van|Fra|Från|Od|От|发件人|寄件者|差出人)\s*\*?\s*:",
    re.IGNORECASE,
)
"""The line above a quotation. One too many does no harm: the words decide."""
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
    """Without what marks a quotation."""
    quoted: bool
    """Marked with `>`."""
    below: bool
    """Below the first line that heads a quotation."""


@dataclass(slots=True)
class _Heard:
    """The words of the messages so far, and the last position of each run of them."""

    words: list[str] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)

    def add(self, words: Sequence[str]) -> None:
        start = len(self.words)
        self.words += [*words[: max(0, MAX_WORDS - start)], "\n"]  # no word: no run crosses it
        for at in range(start, len(self.words) - RUN):
            self.places[hash(tuple(self.words[at : at + RUN]))] = at

    def runs(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield from and to where `words` repeat what was said, longest first from each start."""
        at = 0
        while at + RUN <= len(words):
            length = self.length(words, at)
            if length:
                yield at, at + length
            at += length or 1

    def length(self, words: Sequence[str], at: int) -> int:
        place = self.places.get(hash(tuple(words[at : at + RUN])))
        if place is None:
            return 0
        same = 0
        for one, two in zip(_from(words, at), _from(self.words, place), strict=False):
            if one != two:
                break
            same += 1
        return same if same >= RUN else 0


def _from(words: Sequence[str], at: int) -> Iterator[str]:
    return (words[n] for n in range(at, len(words)))


def without_repeats(bodies: Sequence[str]) -> list[str]:
    """Return the texts of a thread's messages, oldest first, without what they quote of others."""
    heard, left = _Heard(), []
    for body in bodies:
        lines = list(_lines(body[:MAX_LOOKED_AT]))
        asked = heard.places and len(body) <= MAX_LOOKED_AT
        left.append(_join_remaining(lines, _find_repeated(lines, heard)) if asked else body)
        heard.add([word for line in lines for word in line.words])
    return left


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
    """Return whether it is the line above a quotation; the pattern is asked last."""
    may = ":" in text or "\uff1a" in text or text.startswith(("-", "_"))
    return may and _HEADER.search(text) is not None


def _find_repeated(lines: Sequence[_Line], heard: _Heard) -> set[int]:
    """Return the numbers of the lines that stand whole in an earlier message."""
    asked = [n for n, line in enumerate(lines) if (line.quoted or line.below) and line.words]
    words = [word for n in asked for word in lines[n].words]
    runs = list(heard.runs(words))
    found, start, run = set(), 0, 0
    for n in asked:
        end = start + len(lines[n].words)
        while run < len(runs) and runs[run][1] < end:
            run += 1
        if run < len(runs) and runs[run][0] <= start:
            found.add(n)
        start = end
    return found


def _join_remaining(lines: Sequence[_Line], repeated: set[int]) -> str:
    """Return the lines that stay; each stretch of the others is one mark, if that is shorter."""
    out: list[str] = []
    gone: list[str] = []
    for n, each in enumerate([*lines, _Line("", (), False, False)]):
        last = n == len(lines)
        if not last and (n in repeated or (gone and not each.text.strip("> "))):
            gone.append(each.text)
            continue
        kept = gone[_end_of(gone) :] if gone and not last and _is_own(each) else []
        _close(out, gone[: len(gone) - len(kept)])
        out += kept if last else [*kept, each.text]
        gone = []
    return "\n".join(out).strip()


def _is_own(line: _Line) -> bool:
    """Return whether it may answer what is quoted above it."""
    rest = line.text.strip()
    return bool(rest and not line.quoted and not _heads(rest) and not _FIELD.match(rest))


def _end_of(gone: Sequence[str]) -> int:
    """Return where the last lines with words begin."""
    full = [n for n, text in enumerate(gone) if text.strip("> ")]
    return full[-CONTEXT:][0] if full else 0


def _close(out: list[str], gone: Sequence[str]) -> None:
    if len("\n".join(gone)) <= len(MARK):
        out.extend(gone)
    elif not out or out[-1] != MARK:
        out.append(MARK)


Json = Mapping[str, Any]

MAX_APART = 8
"""Texts of one message that are fetched from where Gmail keeps them apart."""
MAX_HEADERS, MAX_HEADER = 500, 4_000
"""Headers of one part, and characters of one."""
EMPTY = MailText("", "", (), (), "", (), (), "")
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
    found, room = list[str](), MAX_BODY
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
    while todo and seen < MAX_PARTS:
        each, depth = todo.pop(0)
        seen += 1
        yield each
        if depth < MAX_DEPTH:
            todo += [(inner, depth + 1) for inner in each.get("parts") or ()]


def content_of(resource: Json, id: str) -> bytes:
    """Return the content of the part with this id; empty where it has none. Raises ValueError."""
    parts = (p for p in _walk(resource.get("payload") or {}) if str(p.get("partId") or "") == id)
    return bytes_of(str((next(parts, {}).get("body") or {}).get("data") or ""))


def _is_text(payload: Json) -> bool:
    """Return whether it is read: an attached text is not, an invitation always."""
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


def bytes_of(data: str) -> bytes:
    """Return the bytes of base64 in its alphabet for URLs, which Gmail pads or does not."""
    return base64.urlsafe_b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4))
