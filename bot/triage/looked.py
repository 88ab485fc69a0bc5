"""What a triage knows of a thread after looking at it once, as values that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.mail.addresses import address_of
from bot.mail.state import seen_of
from bot.triage.briefing import Reader
from scopes.mail import MailThread, ThreadRef, item_of, link_of
from scopes.tool import Item, Window, iso

UNCHANGED = "nothing new since the last triage"
FILE = "in:anywhere"
"""What is looked at in a file: everything, so that each message is accounted for."""
INBOX = "{in:inbox in:spam}"
"""What is looked at in an account; spam is counted and shown to no model."""
_GMAIL_BEGAN = datetime(2004, 4, 1, tzinfo=UTC)


def query_of(where: str, window: Window) -> str:
    """The threads of a place that have a message in the window, in Gmail's search language."""
    begins = f" after:{_epoch(window.oldest)}" if window.oldest > _GMAIL_BEGAN else ""
    return f"{where}{begins} before:{_epoch(window.latest)}"


def _epoch(at: datetime) -> int:
    return int(at.timestamp())


@dataclass(frozen=True, slots=True)
class Looked:
    """A thread of the mailbox, and what is to become of it."""

    id: str
    subject: str
    sender: str = ""
    """Who wrote last: `Name <address>`."""
    at: datetime | None = None
    """When the last message came, UTC."""
    link: str = ""
    flags: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    """The others who wrote, the last one last: what the reader set right holds for their mails."""
    items: tuple[Item, ...] = ()
    """Its messages, oldest first; none for a thread that no model may see."""
    history: str = ""
    """The mailbox's history id when it last changed."""
    seen: tuple[str, ...] = ()
    """Ids of all its messages."""
    filtered: str = ""
    """Why no model may see it; empty when one may."""
    fault: str = ""
    """Why it could not be read; empty when it was."""
    lasting: bool = False
    """It cannot be read another time either."""

    @property
    def is_open(self) -> bool:
        """Whether a subagent is to read it."""
        return not (self.filtered or self.fault)

    def heading(self) -> dict[str, Any]:
        """The thread as it is listed."""
        return {"thread_id": self.id, "subject": self.subject, "sender": self.sender}

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "at": iso(self.at) if self.at else None,
            "lasting": self.lasting,
            "flags": list(self.flags),
            "senders": list(self.senders),
            "seen": list(self.seen),
            "items": [item.to_json() for item in self.items],
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Looked:
        """What `to_json` gave."""
        at = stored["at"]
        return cls(
            **{name: stored[name] for name in _PLAIN},
            at=datetime.fromisoformat(at) if at else None,
            lasting=bool(stored.get("lasting")),  # earlier versions have none
            flags=tuple(stored["flags"]),
            senders=tuple(stored["senders"]),
            seen=tuple(stored["seen"]),
            items=tuple(map(Item.of, stored["items"])),
        )


_PLAIN = ("id", "subject", "sender", "link", "history", "filtered", "fault")


def looked_at(thread: MailThread, reader: Reader, filtered: str) -> Looked:
    """What is kept of a thread; its text only where a model may read it."""
    last, opens = thread.last, thread.messages[0].item_id
    faults = [m.fault for m in thread.messages]
    fault = "; ".join(dict.fromkeys(faults)) if all(faults) else ""
    items = [item_of(m, reader.owner, reader.address, opens) for m in thread.messages]
    latest = dict.fromkeys(m.text.sender for m in reversed(thread.messages))
    return Looked(
        id=thread.id,
        subject=thread.subject,
        sender=last.text.sender,
        at=last.at,
        link=link_of(last.id, reader.address),
        flags=tuple(sorted({flag for m in thread.messages for flag in m.text.flags})),
        senders=tuple(s for s in reversed(latest) if address_of(s) != reader.address.lower()),
        items=() if filtered else tuple(items),
        history=thread.history,
        seen=tuple(seen_of(thread)),
        filtered=filtered,
        fault="" if filtered else fault,
        lasting=all(m.text.fault for m in thread.messages),
    )


def unread(ref: ThreadRef, fault: str) -> Looked:
    """A thread that could not be fetched."""
    return Looked(ref.id, ref.snippet[:80] or "(unknown)", history=ref.history, fault=fault)
