"""The calls that Gmail refuses, and its changes to outgoing mail."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from bot.local.google import gmail_state
from bot.local.google.api import Call, GoogleRefused
from bot.local.google.gmail_mime import (
    Headers,
    base64url,
    decode_words,
    every,
    first,
    message_id,
    references,
    split_headers,
)
from bot.local.google.gmail_state import SYSTEM_LABELS, MailboxMessage
from bot.local.google.mbox import Mailbox, addresses, new_id
from standins.google_faults import invalid, one_of

MAX_BYTES = 36_700_160
"""Of one message (35 MiB): the size of an upload in the discovery document."""
MAX_LABEL = 225
NOT_TO_ADD = frozenset({"CHAT", "DRAFT", "SENT"})
"""Labels that only Gmail itself adds and removes."""
_MESSAGE_ID = re.compile(
    rb"(?:(?<=\n)|\A)Message-ID[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE
)


class GmailState(gmail_state.GmailState):
    """A mailbox that receives mail and forgets old history."""

    def __init__(self, mailbox: Mailbox, now: Callable[[], float]) -> None:
        super().__init__(mailbox)
        self.now = now
        self.oldest_history = self.history_id
        """The API knows no earlier change."""

    @property
    def sent(self) -> list[str]:
        """Return the ids of the messages that the API sent, in order."""
        return [sent["id"] for _, sent in self.history if "SENT" in sent.get("labelIds", ())]

    def add(
        self, raw: bytes, labels: Iterable[str], *, thread: str | None = None
    ) -> MailboxMessage:
        """Add a message; without a `thread` it joins the one that it refers to."""
        ids = set(references(split_headers(raw)[0]))
        threads = (each.thread for each in self.messages.values() if refers(each, ids))
        return super().add(raw, labels, thread=thread or next(threads, None))


GmailCall = Call[GmailState]


def check_call(method: str, call: Call[Any]) -> Call[Any]:
    """Return the call as Gmail executes it; raise GoogleRefused where Gmail refuses it."""
    check = _CHECKS.get(method.removeprefix("gmail.users."))
    return check(call) or call if check else call


def refers(held: MailboxMessage, ids: set[str]) -> bool:
    """Return whether the message has one of these Message-IDs."""
    return bool(ids) and message_id(held.headers) in ids


def subject_of(headers: Headers) -> str:
    """Return the subject without `Re:` and `Fwd:`, by which Gmail distinguishes threads."""
    text = decode_words(first(headers, "subject")).casefold()
    while (cut := text.partition(":"))[1] and cut[0].strip() in ("re", "fwd", "fw", "aw", "sv"):
        text = cut[2]
    return " ".join(text.split())


# ---- outgoing mail


def _draft(call: GmailCall) -> GmailCall:
    raw, thread = _parse_outgoing(call.state, call.body.get("message"))
    return replace(call, body={"message": {"raw": base64url(raw), "threadId": thread}})


def _send(call: GmailCall) -> GmailCall:
    raw, thread = _parse_outgoing(call.state, call.body)
    if not addresses(every(split_headers(raw)[0], "to", "cc", "bcc")):
        invalid("Recipient address required")
    raw = _stamp_headers(call.state, raw)
    return replace(call, body={"raw": base64url(raw), "threadId": thread})


def _parse_outgoing(state: GmailState, message: object) -> tuple[bytes, str]:
    """Return the content of the `Message` in a request body, and the thread that it joins.

    It joins the one that it names only if it refers to a message of that thread and has the same
    subject: the rule of `Message.threadId` in the API's reference. Else it starts a thread.
    """
    if not isinstance(message, dict) or not message.get("raw"):
        raise GoogleRefused("invalidArgument", "'raw' RFC822 payload message string is required")
    raw = _bytes(str(message["raw"]))
    if len(raw) > MAX_BYTES:
        invalid("Message too large")
    raw = re.sub(rb"\r?\n", b"\r\n", raw)
    thread = message.get("threadId")
    if thread and thread not in state.threads:
        raise GoogleRefused("notFound")
    if thread and _belongs(state, raw, thread):
        return raw, thread
    return raw, new_id(f"thread {state.history_id}".encode() + raw)


def _bytes(raw: str) -> bytes:
    try:
        return base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise GoogleRefused("invalidArgument", "Invalid value at 'raw'") from None


def _belongs(state: GmailState, raw: bytes, thread: str) -> bool:
    headers, _ = split_headers(raw)
    ids, messages = set(references(headers)), state.of_thread(thread)
    return any(refers(each, ids) for each in messages) and any(
        subject_of(each.headers) == subject_of(headers) for each in messages
    )


def _stamp_headers(state: GmailState, raw: bytes) -> bytes:
    """Return the message as sent, with Gmail's own Message-ID.

    The API replaces a Message-ID and keeps it nowhere (FlowCrypt/flowcrypt-browser issue 4273).
    """
    _, body = split_headers(raw)
    head = raw[: len(raw) - len(body)]
    own = f"Message-ID: <CA+{new_id(raw + str(state.history_id).encode())}@mail.gmail.com>\r\n"
    return own.encode() + _MESSAGE_ID.sub(b"", head) + body


# ---- reading and labels


def _list(call: GmailCall) -> None:
    _check_labels(call.state, set(call.many("labelIds")))
    _page(call)


def _page(call: GmailCall) -> None:
    limit = call.text("maxResults")
    if limit and not limit.isdecimal():
        invalid("Invalid value at 'max_results'")
    try:
        int(base64.urlsafe_b64decode(call.text("pageToken") or "MA==").decode().partition(":")[0])
    except (binascii.Error, ValueError):
        invalid("Invalid pageToken")


def _get(call: GmailCall) -> None:
    one_of(call, "format", ("full", "metadata"))


def _history(call: GmailCall) -> None:
    start = call.text("startHistoryId")
    if call.many("historyTypes") != ("messageAdded",) or not start.isdecimal():
        invalid("Only the messages that were added after a history id are told here")
    if not call.state.oldest_history <= int(start) <= call.state.history_id:
        raise GoogleRefused("notFound")


def _modify(call: GmailCall) -> None:
    add, remove = _names(call, "addLabelIds"), _names(call, "removeLabelIds")
    if not add | remove:
        invalid("No label add or removes specified")
    if add & remove:
        invalid("Cannot both add and remove the same label")
    _check_labels(call.state, add | remove)
    for label in (add | remove) & NOT_TO_ADD:
        invalid(f"Invalid label: {label}")


def _names(call: GmailCall, name: str) -> set[str]:
    """Return a list of strings in the body."""
    value: Any = call.body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        invalid(f"Invalid value at '{name}'")
    return set(value)


def _check_labels(state: GmailState, labels: set[str]) -> None:
    for label in sorted(labels - state.labels.keys()):
        invalid(f"Invalid label: {label}")


def _label(call: GmailCall) -> GmailCall:
    name = " ".join(str(call.body.get("name") or "").split())
    existing: Mapping[str, str] = {known.casefold(): id for id, known in call.state.labels.items()}
    if not name or len(name) > MAX_LABEL or existing.get(name.casefold()) in SYSTEM_LABELS:
        invalid("Invalid label name")
    if name.casefold() in existing:
        raise GoogleRefused("aborted")
    return replace(call, body={"name": name})


_CHECKS: Mapping[str, Callable[[GmailCall], GmailCall | None]] = {
    "drafts.create": _draft,
    "drafts.list": _page,
    "history.list": _history,
    "labels.create": _label,
    "messages.get": _get,
    "messages.list": _list,
    "messages.send": _send,
    "threads.get": _get,
    "threads.list": _list,
    "threads.modify": _modify,
}
