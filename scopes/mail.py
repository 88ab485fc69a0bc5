"""Mail as values: the readable text of a message, a thread, and a mailbox's changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from scopes.label import Label
from scopes.tool import Item

MAX_SHOWN_RECIPIENTS = 5
"""Maximum recipients of each kind that are named."""
MAX_LISTED_ATTACHMENTS = 10
"""Maximum attachments of a message that are listed."""
MAIL_PROGRAM_ADVICE = "open it in your mail program"
"""Advice for content that is not read here."""
INVITATIONS = {
    "REQUEST": "Calendar invitation",
    "CANCEL": "Calendar cancellation",
    "REPLY": "Reply to a calendar invitation",
    "COUNTER": "Proposal of another time for a calendar invitation",
    "DECLINECOUNTER": "Proposal of another time declined",
}
"""METHOD of a calendar -> what it is (RFC 5546, 1.4)."""
DEFAULT_INVITATION_KIND = "Calendar event"
"""Name of a calendar with any other METHOD."""
MAX_BODY = 5_000_000
"""Maximum bytes of text read from one mail, all parts together."""
MAX_PARTS, MAX_DEPTH = 200, 10
"""Maximum parts of one mail and depth of nesting, attached messages included."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment in a list; `read_attachment` opens it."""

    name: str
    type: str
    size: int
    """Bytes, decoded."""
    key: str = field(default="", compare=False)
    """Key by which the mailbox returns its content, a new one each time that the mail is fetched;
    empty if it returns none."""


@dataclass(frozen=True, slots=True)
class MailText:
    """A mail as a person sees it; no text contains control or format characters."""

    subject: str
    sender: str
    """`Name <address>` or the address; the address comes last, whatever the name claims."""
    to: tuple[str, ...]
    cc: tuple[str, ...]
    body: str
    flags: tuple[str, ...]
    attachments: tuple[Attachment, ...]
    cut: str
    """What of its headers was left out, in a sentence; empty when nothing was."""
    unread: tuple[str, ...] = ()
    """Why its text was not read, or not whole, in a few words each; empty when all was."""

    @property
    def gap(self) -> str:
        """Return why its text was not read, or not whole, and what to do; empty when all was."""
        return f"{'; '.join(self.unread)}: {MAIL_PROGRAM_ADVICE}" if self.unread else ""

    @property
    def fault(self) -> str:
        """Return the gap if nothing was read; empty if something was, or if there is no gap."""
        return "" if self.body else self.gap


@dataclass(frozen=True, slots=True)
class MailMessage:
    """One message of a mailbox; parts that could not be read have a reason."""

    id: str
    thread: str
    at: datetime | None
    """When it arrived in the mailbox, UTC."""
    text: MailText
    headers: Mapping[str, str]
    """Lower-case name -> its first value on one line, encoded words decoded."""
    labels: frozenset[str] = frozenset()
    """Ids of Gmail labels: `INBOX`, `SENT`, `DRAFT`, `SPAM`, or `Label_7` for a user's own."""
    fault: str = ""
    """Why it could not be read, in words; empty when it was."""

    @property
    def item_id(self) -> str:
        return f"{self.thread}/{self.id}"


@dataclass(frozen=True, slots=True)
class MailThread:
    """A conversation by mail, oldest message first; it has at least one message."""

    id: str
    messages: tuple[MailMessage, ...]
    history: str = ""
    """The mailbox's history id when it last changed."""

    @property
    def subject(self) -> str:
        return next((m.text.subject for m in self.messages if m.text.subject), "(no subject)")

    @property
    def last(self) -> MailMessage:
        return self.messages[-1]


@dataclass(frozen=True, slots=True)
class ThreadRef:
    """A thread in the results of a search."""

    id: str
    snippet: str
    history: str


@dataclass(frozen=True, slots=True)
class MailLabel:
    id: str
    name: str
    own: bool
    """Whether the user made it; the others are the system's."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The messages that have arrived in a mailbox since a history id."""

    history: str
    """The id from which to ask next time."""
    threads: tuple[str, ...] = ()
    """Ids of threads that got a message, oldest change first, each once."""


def label_of(thread: str, owner: str) -> Label:
    """Return the label of a mail thread, written by strangers and read by its owner alone."""
    return Label(True, frozenset({owner}), frozenset({f"mail:{thread}"}), outside=True)


def link_of(message: str, address: str) -> str:
    """Return the address at which Gmail shows a message to the user of this mailbox."""
    return f"https://mail.google.com/mail/?authuser={address}#all/{message}"


def item_of(message: MailMessage, owner: str, address: str, opens: str) -> Item:
    """Return a message as an item; `opens` is the item id of the thread's first message."""
    text, subject = message.text, message.text.subject
    first = message.item_id == opens
    return Item(
        id=message.item_id,
        text=f"Subject: {subject}. {text.body}" if first else text.body,
        link=link_of(message.id, address),
        label=label_of(message.thread, owner),
        author=text.sender or None,
        at=message.at,
        by=text.sender or "unknown sender",
        thread=None if first else opens,
        notes=notes_of(message, address),
        unread=message.fault or message.text.gap,
    )


def notes_of(message: MailMessage, address: str) -> tuple[str, ...]:
    """Return facts that code adds: a draft, other recipients, attachments, oddities."""
    text = message.text
    files = [
        f"{a.name} ({a.type}, {a.size:,} bytes)" for a in text.attachments[:MAX_LISTED_ATTACHMENTS]
    ]
    if len(text.attachments) > 1:
        files = [f"{number}. {file}" for number, file in enumerate(files, 1)]
    if (more := len(text.attachments) - MAX_LISTED_ATTACHMENTS) > 0:
        files.append(f"and {more} more")
    notes = ["a draft, not sent"] if "DRAFT" in message.labels else []
    notes += [f"to {_name_people(text.to, address)}"] if text.to else []
    notes += [f"cc {_name_people(text.cc, address)}"] if text.cc else []
    notes += [f"attached, not opened: {', '.join(files)}"] if files else []
    notes += [*text.flags]
    # In other words than those of a gap: a gap goes to a parent, and this is source text.
    if why := ", nor whole: ".join(text.unread) or message.fault:
        notes.append(f"could not be read: {why}; it may ask for something")
    elif text.cut:
        notes.append(text.cut)
    return tuple(notes)


def _name_people(people: Sequence[str], address: str) -> str:
    """Return the first few, with the mailbox's owner, and the number of the others."""
    shown = [
        p for k, p in enumerate(people) if k < MAX_SHOWN_RECIPIENTS or address.lower() in p.lower()
    ]
    more = len(people) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)
