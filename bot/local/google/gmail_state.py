"""The state of a running local Gmail: one mailbox and its changes."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import count

from bot.local.google.gmail_mime import (
    Headers,
    Part,
    parts_of,
    snippet,
    texts,
)
from bot.local.google.mbox import Mailbox, StoredMessage, new_id

SYSTEM_LABELS = (
    "CHAT",
    "SENT",
    "INBOX",
    "IMPORTANT",
    "TRASH",
    "DRAFT",
    "SPAM",
    "CATEGORY_FORUMS",
    "CATEGORY_UPDATES",
    "CATEGORY_PERSONAL",
    "CATEGORY_PROMOTIONS",
    "CATEGORY_SOCIAL",
    "STARRED",
    "UNREAD",
)
FIRST_HISTORY = 1_000_000
"""History id of the mailbox before its first message."""


class MailboxMessage:
    """A message in the mailbox, with its changing labels."""

    def __init__(self, stored: StoredMessage, labels: set[str]) -> None:
        self.id, self.thread, self.raw = stored.id, stored.thread, stored.raw
        self.at = stored.at
        self.labels = labels
        """Ids."""
        self.history = 0
        """Id of its last change."""
        self.bags: dict[str, str] = {}
        """Normalized words by search operator."""

    @cached_property
    def root(self) -> Part:
        """Return the tree of parts."""
        return parts_of(self.raw)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Return the readable texts of the body."""
        return tuple(texts(self.root))

    @property
    def headers(self) -> Headers:
        return self.root.headers

    @property
    def snippet(self) -> str:
        return snippet(self.root)

    @property
    def ms(self) -> int:
        """Return the time of arrival in milliseconds since 1970."""
        return int(self.at.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of a message, as the mailbox's history records it."""

    id: int
    message: str
    thread: str
    labels: tuple[str, ...]


class GmailState:
    """One mailbox, served from a separate thread: hold `lock` while you read it.

    `add` and `relabel` may change it at any time.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.address = mailbox.address
        self.now: Callable[[], float] = time.time
        self.lock = threading.RLock()
        self.messages: dict[str, MailboxMessage] = {}
        self.threads: dict[str, list[str]] = {}
        """Thread id -> ids of its messages, oldest first."""
        self.labels: dict[str, str] = {name: name for name in SYSTEM_LABELS}
        """Id -> name."""
        self.drafts: dict[str, str] = {}
        """Id of the draft -> id of its message."""
        self.history: list[Arrival] = []
        self.history_id = FIRST_HISTORY
        self._label_numbers = count(1)
        self._draft_numbers = count(1)
        for stored in mailbox.messages:
            self._load(stored)

    def _load(self, stored: StoredMessage) -> None:
        held = self._hold(stored, {self.label(name) for name in stored.labels})
        self.count_change(held)
        if "DRAFT" in held.labels:
            self.put_draft(held.id)

    def _hold(self, stored: StoredMessage, labels: set[str]) -> MailboxMessage:
        held = self.messages[stored.id] = MailboxMessage(stored, labels)
        ids = self.threads.setdefault(stored.thread, [])
        ids.append(stored.id)
        ids.sort(key=lambda id: self.messages[id].at)
        return held

    def label(self, name: str) -> str:
        """Return the id of a label; create a user label if there is none."""
        for id, label in self.labels.items():
            if label.casefold() == name.casefold():
                return id
        id = f"Label_{next(self._label_numbers)}"
        self.labels[id] = name
        return id

    def add(
        self, raw: bytes, labels: Iterable[str], *, thread: str | None = None
    ) -> MailboxMessage:
        """Add a message that arrives now, to `thread` or a new one; labels are ids or names."""
        with self.lock:
            seconds = self.now()
            id = new_id(raw + str((self.history_id, seconds)).encode())
            when = datetime.fromtimestamp(round(seconds, 3), UTC)
            ids = {label if label in self.labels else self.label(label) for label in labels}
            held = self._hold(StoredMessage(id, thread or id, when, raw, frozenset()), ids)
            self.count_change(held)
            label_ids = tuple(sorted(held.labels))
            self.history.append(Arrival(held.history, held.id, held.thread, label_ids))
            return held

    def relabel(self, ids: Iterable[str], add: Iterable[str], remove: Iterable[str]) -> None:
        """Change labels (ids) of messages."""
        with self.lock:
            for held in (self.messages[id] for id in ids):
                labels = (held.labels | set(add)) - set(remove)
                if labels != held.labels:
                    held.labels = labels
                    self.count_change(held)

    def put_draft(self, message: str) -> str:
        """Make a message a draft; return the id of the draft."""
        id = f"r-{4_000_000_000_000_000_000 + next(self._draft_numbers)}"
        self.drafts[id] = message
        return id

    def of_thread(self, id: str) -> list[MailboxMessage]:
        """Return the messages of a thread, oldest first."""
        return [self.messages[each] for each in self.threads[id]]

    def thread_history(self, id: str) -> int:
        return max(held.history for held in self.of_thread(id))

    def count_change(self, held: MailboxMessage) -> None:
        """Count a change of a message."""
        self.history_id += 1
        held.history = self.history_id
