"""Compose mails: their recipients, and a mark by which each one is recognized."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from scopes.clean import line
from scopes.mail import MailMessage, MailThread
from scopes.tool import readable

MARK = "X-Assistant-Key"
"""The header that identifies a mail: the API replaces our Message-ID (gauteh/lieer#198), and keeps
headers that begin with X-."""
MAX_SUBJECT = 900  # characters
MAX_REFERENCES = 20

_ADDRESS = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z0-9-]{2,63}"
)
"""An address that browsers accept (WHATWG HTML, valid e-mail address), with at least one dot."""
_ID = re.compile(r"<[^<>\s]{1,250}>")


class NoRecipient(ValueError):
    """The mail has no recipient's address."""


@dataclass(frozen=True, slots=True)
class ComposedMail:
    """A mail that was composed but not yet sent or stored."""

    mark: str
    """The same for the same key."""
    raw: str
    """In the form of the API: base64 for URLs."""
    to: tuple[str, ...]
    answers: bool
    """True if it names the message that it answers, so that Gmail puts it into that thread."""


@dataclass(frozen=True, slots=True)
class Letter:
    """The recipients and the text of a mail."""

    to: Sequence[str]
    subject: str
    body: str


@dataclass(frozen=True, slots=True)
class MailAttachment:
    """A file that is attached to a mail."""

    name: str
    kind: str
    """Type of its content, such as `text/csv`."""
    content: bytes


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The parts of a mail that code adds to its text."""

    html: str
    files: tuple[MailAttachment, ...] = ()


def is_address(text: str) -> bool:
    """Return whether it is the bare address of one mailbox."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def address_in(shown: str) -> str:
    """Return the address at the end of `Name <address>`, in lower case; or empty."""
    found = shown.rpartition("<")[2].removesuffix(">").strip()
    return found.lower() if is_address(found) else ""


def compose(
    sender: str,
    letter: Letter,
    key: str,
    answers: MailMessage | None = None,
    report: DeliveryReport | None = None,
) -> ComposedMail:
    """Return a mail to only these addresses: plain text, except for a report.

    Line breaks are removed from the subject, so that no text becomes a header. Raises NoRecipient.
    """
    to = letter.to
    if not to or not all(map(is_address, to)):
        raise NoRecipient("not the address of a mailbox")
    mark = mark_of(sender, key)
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Subject"] = line(readable(letter.subject), MAX_SUBJECT)
    mail["Date"] = format_datetime(datetime.now(UTC))
    mail[MARK] = mark
    before = _references(answers) if answers else []
    if before:
        mail["In-Reply-To"], mail["References"] = before[-1], " ".join(before)
    mail.set_content(readable(letter.body).replace("\r\n", "\n").replace("\r", "\n"))
    if report:
        _add(mail, report)
    raw = base64.urlsafe_b64encode(mail.as_bytes()).decode()
    return ComposedMail(mark, raw, tuple(to), bool(before))


def _add(mail: EmailMessage, report: DeliveryReport) -> None:
    mail["Auto-Submitted"] = "auto-generated"  # no program should answer it: RFC 3834, 5
    mail.add_alternative(readable(report.html), subtype="html")
    for file in report.files:
        main, _, sub = file.kind.partition("/")
        mail.add_attachment(file.content, maintype=main, subtype=sub, filename=file.name)


def mark_of(sender: str, key: str) -> str:
    return hashlib.sha256(f"{sender}\n{key}".encode(errors="replace")).hexdigest()[:40]


def _references(message: MailMessage) -> list[str]:
    """Return the ids of messages that a reply has to name (RFC 5322, 3.6.4)."""
    found = _ID.findall(message.headers.get("references", ""))
    own = _ID.findall(message.headers.get("message-id", ""))[:1]
    before = list(dict.fromkeys([*found, *own]))
    return [*before[:1], *before[1:][1 - MAX_REFERENCES :]] if own else []


def find_answered(thread: MailThread, own: str) -> tuple[MailMessage, str]:
    """Return the message that a reply answers, and the one address that it goes to.

    The address is that of the last writer except the mailbox's owner, or the owner's recipient if
    only the owner wrote. A Reply-To is ignored: a reply goes to the shown sender. Raises
    NoRecipient.
    """
    messages = [m for m in thread.messages if not m.fault and "DRAFT" not in m.labels]
    for message in reversed(messages):
        by = address_in(message.text.sender)
        if by and by != own.lower() and "SENT" not in message.labels:
            return message, by
    for message in reversed(messages):
        for shown in message.text.to:
            if (to := address_in(shown)) and to != own.lower():
                return message, to
    raise NoRecipient("no address that could be answered")


def reply_subject(subject: str) -> str:
    return subject if re.match(r"(?i)\s*re\s*:", subject) else f"Re: {subject}"
