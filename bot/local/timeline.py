"""The messages of one channel, ordered by time and indexed by thread."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from bot.local.workspace import SLACKBOT, TOMBSTONE_TEXT, Message, micros, timestamp


class Timeline:
    """Finds a page of history or a thread without looking at the other messages.

    Replies whose root is not there get a tombstone as their root, as Slack keeps one when the
    root of a thread is deleted.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages: dict[int, Message] = {micros(m.ts): m for m in messages}
        self._replies: dict[int, list[int]] = {}
        self._top: list[int] = []
        self._newest = max(self._messages, default=0)
        for at in sorted(self._messages):
            self._index(at, self._messages[at])
        for root in self._replies.keys() - self._messages.keys():
            ts = timestamp(root)
            self.add(_tombstone(ts))

    def get(self, at: int) -> Message | None:
        return self._messages.get(at)

    def __getitem__(self, at: int) -> Message:
        return self._messages[at]

    def newest(self) -> int:
        """When the last message was written, in microseconds; 0 when there is none."""
        return self._newest

    def top(self, oldest: int, latest: int) -> list[int]:
        """Times of the top-level messages and broadcasts in [oldest, latest], oldest first."""
        return self._top[bisect_left(self._top, oldest) : bisect_right(self._top, latest)]

    def replies(self, root: int) -> list[int]:
        """Times of the replies to a root, oldest first."""
        return self._replies.get(root, [])

    def all(self) -> Iterable[Message]:
        return self._messages.values()

    def add(self, message: Message) -> None:
        at = micros(message.ts)
        self._messages[at] = message
        self._newest = max(self._newest, at)
        self._index(at, message)

    def remove(self, at: int) -> None:
        """Delete a message; a root with replies leaves a tombstone above them."""
        message = self._messages[at]
        if self._replies.get(at):
            self._messages[at] = _tombstone(message.ts)
            return
        del self._messages[at]
        if message.is_reply:
            self._replies[micros(message.thread_ts)].remove(at)
        if at in self._top:
            self._top.remove(at)

    def replace(self, message: Message) -> None:
        """Put a changed message in the place of the one with its timestamp."""
        self._messages[micros(message.ts)] = message

    def _index(self, at: int, message: Message) -> None:
        if message.is_reply:
            insort(self._replies.setdefault(micros(message.thread_ts), []), at)
        if not message.is_reply or message.subtype == "thread_broadcast":
            insort(self._top, at)


def _tombstone(ts: str) -> Message:
    return Message(ts, TOMBSTONE_TEXT, SLACKBOT, thread_ts=ts, subtype="tombstone")
