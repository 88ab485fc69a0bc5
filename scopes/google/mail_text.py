"""Reduce a mail, in Gmail's parts, to its readable text, with flags for odd features.

A separate program, the `main` of this module, reads it, so that a hostile mail cannot crash the
bot: see `scopes.google.gmail`.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.message import Message
from email.utils import getaddresses
from itertools import islice
from typing import Any

from scopes.clean import decode_text, line, normalize_unicode, printable, smuggles_text
from scopes.confinement import serve_confined
from scopes.extraction.invite import invitation
from scopes.extraction.visible import visible_text
from scopes.google.gmail_threads import (
    IN_MESSAGE,
    MALFORMED_RESOURCE_ERRORS,
    MESSAGE,
    bytes_of,
    headers_of,
    received_at,
    unread_message,
)
from scopes.mail import MAX_BODY, MAX_DEPTH, MAX_PARTS, Attachment, MailMessage, MailText
from scopes.tool import readable

Json = Mapping[str, Any]

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,80}", re.ASCII)
_SENDER = re.compile(r"(.*[<@\"].*)(<[^<>\s]+@[^<>\s]+>)\s*")
_ADDRESS_SIGNS = re.compile(r"[<>\"\\]")
_STATEFUL = re.compile(r"iso2022|hz|utf-16|utf-32", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MailPart:
    """A part of a message, split into its own parts, with the transfer encoding undone."""

    headers: Message
    kind: str
    """Content type, `text/plain` in lower case."""
    body: bytes
    size: int
    """Bytes, as Gmail counts them."""
    clipped: bool
    """True if a header was too long and was cut."""
    name: str | None
    """File name; None if there is none."""
    key: str
    """Key by which the mailbox returns its content."""
    absent: bool
    """True if its content is stored separately and was not fetched."""
    inside: tuple[Json, ...]
    fetched: Mapping[str, bytes]
    """Attachment id -> bytes, of texts that Gmail stores separately."""

    def header(self, name: str) -> str:
        """Return the first header with this name on one line; empty if there is none."""
        return line(self.raw(name), 1_000)

    def raw(self, name: str) -> str:
        """Return a header. Gmail has decoded it, which may look like a second sender."""
        value = " ".join(str(self.headers.get(name, "")).split())
        sender = _SENDER.fullmatch(value) if name == "from" else None
        return f'"{_ADDRESS_SIGNS.sub("", sender[1])}" {sender[2]}' if sender else value

    @property
    def charset(self) -> str:
        """Return UTF-8 if the bytes are: Gmail converts most texts, but not the charset name."""
        named = self.headers.get_content_charset("")
        return "utf-8" if _is_utf8(self.body, named) else named

    @property
    def attached(self) -> bool:
        return self.headers.get_content_disposition() == "attachment"

    def parts(self) -> Iterator[MailPart]:
        return (part_of(each, self.fetched) for each in self.inside)

    def message(self) -> MailPart:
        """Return the message in it: its one part in Gmail, or the parts of that message."""
        if len(self.inside) == 1:
            return part_of(self.inside[0], self.fetched)
        return replace(self, kind="multipart/mixed" if self.inside else "text/plain")


def part_of(payload: Json, fetched: Mapping[str, bytes]) -> MailPart:
    """Return Gmail's part as one of ours."""
    headers, clipped = headers_of(payload.get("headers") or ())
    kind = str(payload.get("mimeType") or "text/plain").lower()
    body = payload.get("body") or {}
    data = str(body.get("data") or "")
    elsewhere = "" if data else str(body.get("attachmentId") or "")
    content = bytes_of(data) if data else fetched.get(elsewhere, b"")
    return MailPart(
        headers=headers,
        kind=kind if _MEDIA_TYPE.fullmatch(kind) else "text/plain",
        body=content,
        size=len(content) or int(body.get("size") or 0),
        clipped=clipped,
        name=str(payload.get("filename") or "") or None,
        key=elsewhere or f"{IN_MESSAGE}{payload.get('partId') or ''}",
        absent=bool(elsewhere) and elsewhere not in fetched,
        inside=tuple(payload.get("parts") or ()),
        fetched=fetched,
    )


def _is_utf8(data: bytes, charset: str) -> bool:
    """Return whether it is UTF-8, and not a charset with other letters in ASCII bytes."""
    try:
        codec = codecs.lookup(charset).name if charset else ""
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


_ONE_PERSON = re.compile(r"([^<>,\"]*|\s*\"[^<>\"]*\"\s*)<([^<>\s]+@[^<>\s]+)>\s*")
"""The usual form, parsed here: `getaddresses` takes an unquoted address in a name for a person."""


def sender_of(part: MailPart) -> str:
    """Return the author, or the first five of several."""
    return ", ".join(people_in(part.raw("from"))[:5])


def people_in(value: str) -> tuple[str, ...]:
    """Return the people of an address header, each as `Name <address>` or only the address."""
    only = _ONE_PERSON.fullmatch(value)
    try:
        pairs = [(only[1].strip('" '), only[2])] if only else getaddresses([value])
    except (RecursionError, ValueError, IndexError):
        pairs = []
    if not any("@" in address for _, address in pairs):
        rest = line(value, 300)
        return (rest,) if rest else ()
    people, before = [], ""
    for name, address in pairs[:MAX_LISTED]:
        if "@" not in address and not name:  # `Weber, Ann <a@x.example>`, a name that was unquoted
            before += f"{address}, " if address else ""
            continue
        name = re.sub(r"[<>\"]", "", line(before + name, 200)).strip(" ,")
        before = ""
        address = re.sub(r"[<>\s]", "", line(address, 320))
        people.append(f"{name} <{address}>" if name and name != address else address or name)
    return tuple(each for each in people if each)


HIDDEN = "has hidden text"
DIFFER = "plain and HTML differ"
MIN_RUN = 6
"""Words in a row in only one part that make the parts differ."""
MAX_COMPARED = 100_000  # words
MAX_LISTED = 200  # people in one field
MAX_INVITE = 100_000  # bytes
CLIPPED_HEADER_MESSAGE = "A header is too long; its end was left out."
ENCRYPTED, SIGNED, PGP = "encrypted (S/MIME)", "signed and opaque (S/MIME)", "encrypted (PGP)"
TNEF = "packed by Outlook (winmail.dat)"
LONG, DEEP, MANY = "too long", "nested too deeply", "of too many parts"
_URL = re.compile(r"<?(?:https?://|mailto:|www\.)[^\s<>]+>?|\[(?:image|cid)[^\]\n]{0,200}\]", re.I)
_ARMOUR = re.compile(
    r"^-----(?:BEGIN|(?P<end>END)) PGP MESSAGE(?:, PART [\d/]{1,9})?-----[ \t]*$", re.MULTILINE
)
_TERM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")


def reduce_part(part: MailPart) -> MailText:
    """Reduce a mail to its readable text."""
    reading = _MailReader()
    body = reading.strip_armour("\n\n".join(reading.read(part, 0, top=True)))
    return MailText(
        subject=part.header("subject"),
        sender=sender_of(part),
        to=people_in(part.raw("to")),
        cc=people_in(part.raw("cc")),
        body=body.strip(),
        flags=tuple(sorted(reading.flags)),
        attachments=tuple(reading.attachments),
        cut=CLIPPED_HEADER_MESSAGE if reading.clipped else "",
        unread=tuple(dict.fromkeys(reading.unread)),
    )


@dataclass(slots=True)
class _Text:
    """The text parts of an alternative, joined by kind."""

    plain: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _MailReader:
    """One pass over a mail."""

    flags: set[str] = field(default_factory=set)
    attachments: list[Attachment] = field(default_factory=list)
    clipped: bool = False
    unread: list[str] = field(default_factory=list)
    invites: list[str] = field(default_factory=list)
    parts: int = 0
    room: int = MAX_BODY

    def strip_armour(self, body: str) -> str:
        """Return the body without messages in PGP's armour."""
        kept, at, start = [], 0, -1
        for mark in _ARMOUR.finditer(body):
            if start >= 0 and mark["end"]:
                kept.append(body[at:start])
                at, start = mark.end(), -1
            elif start < 0 and not mark["end"]:
                start = mark.start()
        self.unread += [PGP] if at else []
        return "".join([*kept, body[at:]])

    def read(self, part: MailPart, depth: int, top: bool = False) -> list[str]:
        """Return the texts of a part and of the parts in it, one for each place with a text."""
        self.clipped = self.clipped or part.clipped
        if why := _reason_unread(part):
            self.unread.append(why)
        if part.kind.startswith("multipart/"):
            return self.read_all(part, depth)
        if part.kind not in ("text/plain", "text/html") or (
            not top and (part.attached or part.name is not None)
        ):
            if part.kind == "text/calendar":
                return self.read_invitation(part)
            self.attach(part)
            return self.read_forwarded(part, depth) if part.kind == "message/rfc822" else []
        text = _Text()
        self.take(part, text)
        return self.choose_text(text)

    def read_all(self, part: MailPart, depth: int) -> list[str]:
        """Return the texts of a multipart; of alternatives the one that mail programs show."""
        if not part.inside:
            found = _Text()
            self.take(replace(part, kind="text/plain"), found)
            return self.choose_text(found)
        children = self.children(part, depth)
        if part.kind != "multipart/alternative":
            return [text for each in children for text in self.read(each, depth + 1)]
        found, rest = _Text(), []
        for each in children:
            rest += self.gather(each, depth + 1, found)
        return self.choose_text(found) + rest

    def gather(self, part: MailPart, depth: int, found: _Text) -> list[str]:
        """Sort the text in one alternative by its kind; return other texts."""
        if part.kind in ("text/plain", "text/html") and not part.attached:
            self.take(part, found)
            return []
        if not (part.kind.startswith("multipart/") and part.inside):
            return self.read(part, depth)
        children = self.children(part, depth)
        return [text for each in children for text in self.gather(each, depth + 1, found)]

    def children(self, part: MailPart, depth: int) -> list[MailPart]:
        if depth >= MAX_DEPTH:
            self.unread.append(DEEP)
            return []
        room = max(0, MAX_PARTS - self.parts)
        self.parts += len(part.inside)
        if self.parts > MAX_PARTS:
            self.unread.append(MANY)
        return list(islice(part.parts(), room))

    def read_invitation(self, part: MailPart) -> list[str]:
        """Return the facts of a calendar invitation, which some mails contain twice."""
        if part.absent:
            self.unread.append(LONG)
        facts = invitation(part.body[:MAX_INVITE], part.charset)
        if part.name is not None or not facts:  # an invitation read whole is not listed as a file
            self.attach(part)
        if not facts or facts in self.invites:
            return []
        self.invites.append(facts)
        return [facts]

    def read_forwarded(self, part: MailPart, depth: int) -> list[str]:
        """Return the text of an attached message, headed by its author."""
        if depth >= MAX_DEPTH or self.parts >= MAX_PARTS:
            self.unread.append(DEEP)
            return []
        self.parts += 1
        inner = part.message()
        texts = self.read(inner, depth + 1, top=True)
        sender = sender_of(inner) or "nobody"
        head = f"Attached message from {sender}: {inner.header('subject')}".rstrip(": ")
        return ["\n\n".join([head, *texts])]

    def attach(self, part: MailPart) -> None:
        name = re.split(r"[/\\]", line(part.name or "", 2_000).strip("\"' "))[-1].strip(". ")
        name = name if len(name) <= 150 else f"{name[:130]}...{name[-17:]}"
        self.attachments.append(Attachment(name or "unnamed", part.kind, part.size, part.key))

    def take(self, part: MailPart, found: _Text) -> None:
        """Read a text part within the remaining room."""
        if part.absent:
            self.unread.append(LONG)
            return
        if len(part.body) > self.room:
            self.unread.append(LONG)
        data = part.body[: self.room]
        self.room -= len(data)
        text = decode_text(data, part.charset) if part.charset or part.kind != "text/html" else data
        if part.kind == "text/html":
            visible = visible_text(text)
            self.flags |= {HIDDEN} if visible.hidden else set()
            if visible.cut:
                self.unread.append(LONG)
            found.html.append(visible.text)
        else:
            assert isinstance(text, str)
            self.flags |= {HIDDEN} if smuggles_text(text) else set()
            found.plain.append(printable(text).strip("\n"))

    def choose_text(self, found: _Text) -> list[str]:
        """Return the plain text, or the HTML's if it differs: mail programs show that."""
        plain, html = "\n\n".join(found.plain), "\n\n".join(found.html)
        if plain.strip() and found.html and differ(plain, html):
            self.flags.add(DIFFER)
            return [html if html.strip() else plain]
        return [plain if plain.strip() else html]


def _reason_unread(part: MailPart) -> str:
    """Return why a part holds text that is not read here; empty if it holds none.

    A file that somebody signed and attached (`bill.pdf.p7m`) is a file.
    """
    name = (part.name or "").lower()
    if part.kind in ("application/ms-tnef", "application/vnd.ms-tnef") or name == "winmail.dat":
        return TNEF
    if part.kind in ("application/pgp-encrypted", "multipart/encrypted"):
        return PGP
    if part.kind not in ("application/pkcs7-mime", "application/x-pkcs7-mime"):
        return ""
    if name not in ("", "smime.p7m"):
        return ""
    signed = str(part.headers.get_param("smime-type", "")).lower() == "signed-data"
    return SIGNED if signed else ENCRYPTED


def differ(plain: str, html: str) -> bool:
    """Return whether one of two texts has MIN_RUN words in a row that the other has not."""
    one, two = _terms(plain), _terms(html)
    return _says_more(one, two) or _says_more(two, one)


def _terms(text: str) -> list[str]:
    text = normalize_unicode(_URL.sub(" ", text), "NFKC").casefold()
    return _TERM.findall(text)[:MAX_COMPARED]


def _says_more(one: list[str], two: list[str]) -> bool:
    """Return whether `one` has MIN_RUN words in a row of which `two` has no three in a row."""
    triples = set(zip(two, two[1:], two[2:], strict=False))
    found = [three in triples for three in zip(one, one[1:], one[2:], strict=False)]
    run = 0
    for at in range(len(one)):
        run = 0 if any(found[max(0, at - 2) : at + 1]) else run + 1
        if run >= MIN_RUN:
            return True
    return False


MAX_CPU_S = 3
"""Seconds of computing for one mail."""
NO_SENSE = "what Gmail gave makes no sense"
NO_CONTENT = "Gmail gave it without its content"


def message_of(resource: Json, fetched: Mapping[str, bytes] | None = None) -> MailMessage:
    """Return a message as Gmail gives it in full; raises nothing. An unreadable one says why."""
    fetched = fetched or {}
    try:
        resource = readable(dict(resource))
        return _read(resource, fetched)
    except MALFORMED_RESOURCE_ERRORS:
        return unread_message(resource, NO_SENSE)


def _read(resource: Json, fetched: Mapping[str, bytes]) -> MailMessage:
    payload = resource.get("payload")
    if not payload:
        return unread_message(resource, NO_CONTENT)
    part = part_of(payload, fetched)
    text = reduce_part(part)
    return MailMessage(
        id=str(resource["id"]),
        thread=str(resource["threadId"]),
        at=received_at(resource.get("internalDate")),
        text=text,
        headers={name.lower(): part.header(name) for name in reversed(part.headers.keys())},
        labels=frozenset(map(str, resource.get("labelIds") or ())),
        fault=text.fault,
    )


def reply(request: bytes) -> bytes:
    """Read the message of a request; return it as JSON."""
    resource, coded = json.loads(request)
    texts = {id: base64.b64decode(text) for id, text in coded.items()}
    return MESSAGE.dump_json(message_of(resource, texts))


def main() -> None:
    serve_confined(reply, MAX_CPU_S)
