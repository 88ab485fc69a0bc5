"""The values of a local Slack workspace, and the order of a channel's messages."""

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

Id = Annotated[str, Field(min_length=1)]
Ts = Annotated[str, Field(pattern=r"^\d{1,12}\.\d{1,6}$")]
OptionalTs = Annotated[str, Field(pattern=r"^(\d{1,12}\.\d{1,6})?$")]
"""Slack timestamps, as a loader checks them."""
SLACKBOT = "USLACKBOT"
TOMBSTONE_TEXT = "This message was deleted."


def micros(ts: str) -> int:
    """Convert a Slack timestamp to microseconds: "1740498077.000100", or "1740498077".

    Raises ValueError.
    """
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 1_000_000 + int((fraction + "000000")[:6])


def timestamp(at: int) -> str:
    """Return microseconds as a Slack timestamp, the inverse of `micros`."""
    return f"{at // 1_000_000}.{at % 1_000_000:06d}"


@dataclass(frozen=True, slots=True)
class Team:
    id: str = "T0LOCAL"
    name: str = "local"
    domain: str = "local"
    """Permalinks are https://<domain>.slack.com/archives/..."""


@dataclass(frozen=True, slots=True)
class User:
    id: Id
    name: str = ""
    """Slack's handle, like "ana.ruiz"."""
    real_name: str = ""
    display_name: str = ""
    title: str = ""
    tz: str = "Etc/UTC"
    is_bot: bool = False
    deleted: bool = False
    is_restricted: bool = False
    """A guest."""
    is_ultra_restricted: bool = False
    """A guest of one channel; Slack sets `is_restricted` as well."""
    is_stranger: bool = False
    """A member of another company, in a shared channel."""
    team_id: str = ""
    """The workspace of an external user; empty = this one."""
    locale: str = "en-US"
    """Language of Slack's interface for them."""


@dataclass(frozen=True, slots=True)
class UserGroup:
    id: str
    handle: str
    users: tuple[str, ...] = ()
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Reaction:
    name: str
    """The emoji without colons."""
    count: int
    """May be larger than `users`: an export can hold anonymous votes."""
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    id: str = ""
    name: str = ""
    title: str = ""
    mimetype: str = ""
    filetype: str = ""
    size: int = 0
    """Bytes; 0 = not known."""
    mode: str = "hosted"
    """"tombstone" and "hidden_by_limit" are files whose content Slack no longer has."""
    content: bytes = field(default=b"", repr=False)
    """Content of a download; files loaded from an export have none."""


@dataclass(frozen=True, slots=True)
class Message:
    ts: Ts
    text: str = ""
    user: str = ""
    """Empty for bots that have no user."""
    bot_id: str = ""
    username: str = ""
    """The name under which a bot posted."""
    thread_ts: OptionalTs = ""
    """The root of this reply's thread; empty (or its own ts) for a top-level message."""
    subtype: str = ""
    edited: OptionalTs = ""
    """Timestamp of the last edit; empty = never edited."""
    reactions: tuple[Reaction, ...] = ()
    files: tuple[File, ...] = ()
    attachments: tuple[Mapping[str, Any], ...] = ()
    """Legacy attachments and unfurls, as Slack sends them."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] | None = None
    """{"event_type": ..., "event_payload": {...}}"""
    streaming: str = ""
    """"in_progress" or "completed" for a message that began as a stream."""

    @property
    def is_reply(self) -> bool:
        return bool(self.thread_ts) and self.thread_ts != self.ts


@dataclass(frozen=True, slots=True)
class Channel:
    id: Id
    name: str
    """Empty for a direct message."""
    messages: tuple[Message, ...] = ()
    """In any order; `Timeline` sorts them."""
    members: tuple[str, ...] = ()
    topic: str = ""
    creator: str = ""
    is_private: bool = False
    is_archived: bool = False
    is_im: bool = False
    is_mpim: bool = False
    is_ext_shared: bool = False
    """Shared with another company (Slack Connect)."""

    @property
    def kind(self) -> str:
        """Return the word that conversations.list uses in `types`."""
        if self.is_im:
            return "im"
        if self.is_mpim:
            return "mpim"
        return "private_channel" if self.is_private else "public_channel"


@dataclass(frozen=True, slots=True)
class ListColumn:
    id: str
    key: str
    name: str
    type: Literal["text", "select", "user", "date", "number"] = "text"
    options: Mapping[str, str] = field(default_factory=dict)
    """For `select`: option id -> label."""


@dataclass(frozen=True, slots=True)
class ListItem:
    id: str
    values: Mapping[str, Any]
    """Column key -> str, number or bool; `select` holds the option id; a list holds several."""
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SlackList:
    id: str
    name: str
    columns: tuple[ListColumn, ...]
    """The first column is the primary one."""
    items: tuple[ListItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Workspace:
    """The content of a workspace when the local Slack starts; the server stores later changes."""

    team: Team = Team()
    users: tuple[User, ...] = ()
    channels: tuple[Channel, ...] = ()
    lists: tuple[SlackList, ...] = ()
    problems: tuple[str, ...] = ()
    """One sentence for each part of the source that could not be read."""
    usergroups: tuple[UserGroup, ...] = ()


class Timeline:
    """The messages of one channel, indexed by time and by thread.

    Replies without a root get a tombstone as their root, because Slack keeps one when the root of a
    thread is deleted.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages: dict[int, Message] = {}
        self._replies: dict[int, list[int]] = {}
        for message in messages:
            self.add(message)
        for root in self._replies.keys() - self._messages.keys():
            self.add(_tombstone(timestamp(root)))

    def get(self, at: int) -> Message | None:
        return self._messages.get(at)

    def __getitem__(self, at: int) -> Message:
        return self._messages[at]

    def newest(self) -> int:
        """Return the time of the last message in microseconds; 0 if there is none."""
        return max(self._messages, default=0)

    def top(self, oldest: int, latest: int) -> list[int]:
        """Return times of top-level messages and broadcasts in [oldest, latest], oldest first."""
        return sorted(
            at
            for at, message in self._messages.items()
            if oldest <= at <= latest
            if not message.is_reply or message.subtype == "thread_broadcast"
        )

    def replies(self, root: int) -> list[int]:
        """Return the times of the replies to a root, oldest first."""
        return self._replies.get(root, [])

    def all(self) -> Iterable[Message]:
        return self._messages.values()

    def add(self, message: Message) -> None:
        at = micros(message.ts)
        self._messages[at] = message
        if message.is_reply:
            insort(self._replies.setdefault(micros(message.thread_ts), []), at)

    def remove(self, at: int) -> None:
        """Delete a message; a root with replies leaves a tombstone above them."""
        message = self._messages[at]
        if self._replies.get(at):
            self._messages[at] = _tombstone(message.ts)
            return
        del self._messages[at]
        if message.is_reply:
            self._replies[micros(message.thread_ts)].remove(at)

    def replace(self, message: Message) -> None:
        """Replace the message that has the same timestamp."""
        self._messages[micros(message.ts)] = message


def _tombstone(ts: str) -> Message:
    return Message(ts, TOMBSTONE_TEXT, SLACKBOT, thread_ts=ts, subtype="tombstone")
