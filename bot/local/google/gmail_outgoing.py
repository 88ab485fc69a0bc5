"""Mail that leaves, or waits as a draft, as Gmail takes and changes it."""

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from bot.local.google.api import GoogleRefused, invalid
from bot.local.google.gmail_headers import every, first, split_headers
from bot.local.google.gmail_state import Draft, GmailState, Held, refers, subject_of
from bot.local.google.gmail_threading import references
from bot.local.google.mbox import addresses, new_id

MAX_BYTES = 36_700_160
"""Of one message (35 MiB), as the discovery document says of its upload."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that was handed in."""

    raw: bytes
    thread: str | None
    """The thread that it joins; None = a new one."""


def outgoing(state: GmailState, message: object) -> Outgoing:
    """The `Message` of a request body: `raw`, and the thread it shall join.

    It joins only if it refers to a message of that thread and has the same subject: the rule of
    `Message.threadId` in the API's reference. Else it begins a thread of its own.
    """
    if not isinstance(message, dict) or not message.get("raw"):
        raise GoogleRefused("invalidArgument", "'raw' RFC822 payload message string is required")
    raw = _bytes(str(message["raw"]))
    if len(raw) > MAX_BYTES:
        invalid("Message too large")
    raw = re.sub(rb"\r?\n", b"\r\n", raw)
    wanted = message.get("threadId")
    if wanted and wanted not in state.threads:
        raise GoogleRefused("notFound")
    return Outgoing(raw, wanted if wanted and _belongs(state, raw, wanted) else None)


def _bytes(raw: str) -> bytes:
    try:
        return base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise GoogleRefused("invalidArgument", "Invalid value at 'raw'") from None


def _belongs(state: GmailState, raw: bytes, thread: str) -> bool:
    headers, _ = split_headers(raw)
    followed, held = set(references(headers)), state.of_thread(thread)
    return any(refers(each, followed) for each in held) and any(
        subject_of(each.headers) == subject_of(headers) for each in held
    )


def sent(state: GmailState, message: Outgoing) -> Held:
    """Send a message: it stands in SENT, and in the inbox too where it goes to oneself."""
    headers, _ = split_headers(message.raw)
    to = addresses(every(headers, "to", "cc", "bcc"))
    if not to:
        invalid("Recipient address required")
    labels = {"SENT", "INBOX", "UNREAD"} if state.address in to else {"SENT"}
    held = state.add(_stamped(state, message.raw), labels, thread=_home(state, message))
    state.sent.append(held.id)
    return held


def drafted(state: GmailState, message: Outgoing) -> Draft:
    """Keep a message as a new draft."""
    held = state.add(message.raw, {"DRAFT"}, thread=_home(state, message))
    return state.put_draft(held.id)


def _home(state: GmailState, message: Outgoing) -> str:
    return message.thread or new_id(f"thread {state.history_id}".encode() + message.raw)


def _stamped(state: GmailState, raw: bytes) -> bytes:
    """The message as it leaves: from this mailbox, dated, with a Message-ID of Gmail's own.

    The API replaces a Message-ID and keeps it nowhere (FlowCrypt/flowcrypt-browser issue 4273).
    """
    headers, body = split_headers(raw)
    head = raw[: len(raw) - len(body)] if headers else b""
    drop = [b"Message-ID"]
    added = f"Message-ID: <CA+{new_id(raw + str(state.history_id).encode())}@mail.gmail.com>\r\n"
    if state.address not in addresses(every(headers, "from")):
        drop.append(b"From")
        added += f"From: {state.address}\r\n"
    if not first(headers, "date"):
        at = datetime.fromtimestamp(state.now(), UTC)
        added += f"Date: {format_datetime(at)}\r\n"
    names = b"|".join(drop)
    kept = re.sub(
        rb"(?:(?<=\n)|\A)(?:" + names + rb")[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*",
        b"",
        head,
        flags=re.IGNORECASE,
    )
    return added.encode() + (kept or b"\r\n") + body
