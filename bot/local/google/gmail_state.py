"""The state of a running local Gmail: one mailbox and its changes."""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cached_property

from bot.local.google.gmail_mime import Headers, Json, Part, parts_of, snippet, texts
from bot.local.google.mbox import Mailbox, StoredMessage, new_id

SYSTEM_LABELS = tuple(
    """CHAT SENT INBOX IMPORTANT TRASH DRAFT SPAM CATEGORY_FORUMS CATEGORY_UPDATES CATEGORY_PERSONAL
    CATEGORY_PROMOTIONS CATEGORY_SOCIAL STARRED UNREAD""".split()
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

    def reference_json(self) -> Json:
        """Return the message by its ids only."""
        return {"id": self.id, "threadId": self.thread}

    def labelled_json(self) -> Json:
        """Return the message by its ids and labels."""
        labels = {"labelIds": sorted(self.labels)} if self.labels else {}
        return self.reference_json() | labels


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
        self.history: list[tuple[int, Json]] = []
        """The messages that arrived, each with its history id."""
        self.history_id = FIRST_HISTORY
        for stored in mailbox.messages:
            self._hold(stored)

    def _hold(self, stored: StoredMessage) -> MailboxMessage:
        labels = {name if name in self.labels else self.label(name) for name in stored.labels}
        held = self.messages[stored.id] = MailboxMessage(stored, labels)
        ids = self.threads.setdefault(stored.thread, [])
        ids.append(stored.id)
        ids.sort(key=lambda id: self.messages[id].at)
        self.count_change(held)
        if "DRAFT" in labels:
            self.drafts[f"r-{held.id}"] = held.id
        return held

    def label(self, name: str) -> str:
        """Return the id of a label; create a user label if there is none."""
        for id, label in self.labels.items():
            if label.casefold() == name.casefold():
                return id
        id = f"Label_{len(self.labels) - len(SYSTEM_LABELS) + 1}"
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
            held = self._hold(StoredMessage(id, thread or id, when, raw, frozenset(labels)))
            self.history.append((held.history, held.labelled_json()))
            return held

    def relabel(self, ids: Iterable[str], add: Iterable[str], remove: Iterable[str]) -> None:
        """Change labels (ids) of messages."""
        with self.lock:
            for held in (self.messages[id] for id in ids):
                labels = (held.labels | set(add)) - set(remove)
                if labels != held.labels:
                    held.labels = labels
                    self.count_change(held)

    def of_thread(self, id: str) -> list[MailboxMessage]:
        """Return the messages of a thread, oldest first."""
        return [self.messages[each] for each in self.threads[id]]

    def thread_history(self, id: str) -> int:
        return max(held.history for held in self.of_thread(id))

    def count_change(self, held: MailboxMessage) -> None:
        """Count a change of a message."""
        self.history_id += 1
        held.history = self.history_id
