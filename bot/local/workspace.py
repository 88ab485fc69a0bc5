"""The values that a local Slack workspace is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SLACKBOT = "USLACKBOT"
TOMBSTONE_TEXT = "This message was deleted."

ColumnType = Literal["text", "select", "user", "date", "number", "checkbox", "link", "channel"]


def micros(ts: str) -> int:
    """A Slack timestamp ("1740498077.000100", also "1740498077") in microseconds; ValueError."""
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 1_000_000 + int((fraction + "000000")[:6])


def timestamp(at: int) -> str:
    """Microseconds as a Slack timestamp, the inverse of `micros`."""
    return f"{at // 1_000_000}.{at % 1_000_000:06d}"


@dataclass(frozen=True, slots=True)
class Team:
    id: str = "T0LOCAL"
    name: str = "local"
    domain: str = "local"
    """Permalinks are https://<domain>.slack.com/archives/..."""


@dataclass(frozen=True, slots=True)
class User:
    id: str
    name: str = ""
    """Slack's handle, like "ana.ruiz"."""
    real_name: str = ""
    display_name: str = ""
    title: str = ""
    email: str = ""
    tz: str = "Etc/UTC"
    is_bot: bool = False
    deleted: bool = False
    is_restricted: bool = False
    """A guest."""
    is_ultra_restricted: bool = False
    """A guest of one channel; Slack sets `is_restricted` as well."""
    is_stranger: bool = False
    """Of another company, met in a shared channel."""
    team_id: str = ""
    """The workspace of somebody from outside; empty = this one."""
    locale: str = "en-US"
    """What Slack shows itself in to them."""


@dataclass(frozen=True, slots=True)
class UserGroup:
    id: str
    handle: str
    users: tuple[str, ...] = ()
    name: str = ""
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
    id: str
    name: str = ""
    title: str = ""
    mimetype: str = ""
    filetype: str = ""
    size: int = 0
    """Bytes; 0 = not known."""
    mode: str = "hosted"
    """"tombstone" and "hidden_by_limit" are files whose content Slack no longer has."""
    content: bytes = field(default=b"", repr=False)
    """What a download gives; files loaded from an export have none."""


@dataclass(frozen=True, slots=True)
class Message:
    ts: str
    text: str = ""
    user: str = ""
    """Empty for bots that have no user."""
    bot_id: str = ""
    username: str = ""
    """The name a bot posted under."""
    thread_ts: str = ""
    """The root of the thread this replies to; empty (or its own ts) for a top-level message."""
    subtype: str = ""
    edited: str = ""
    """Timestamp of the last edit; empty = never edited."""
    edited_by: str = ""
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
    id: str
    name: str
    """Empty for a direct message."""
    messages: tuple[Message, ...] = ()
    """In any order; `Timeline` sorts them."""
    members: tuple[str, ...] = ()
    topic: str = ""
    purpose: str = ""
    creator: str = ""
    created: int = 0
    """Seconds since 1970."""
    is_private: bool = False
    is_archived: bool = False
    is_general: bool = False
    is_im: bool = False
    is_mpim: bool = False
    is_ext_shared: bool = False
    """Shared with another company (Slack Connect)."""

    @property
    def kind(self) -> str:
        """The word that conversations.list uses in `types`."""
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
    type: ColumnType = "text"
    options: Mapping[str, str] = field(default_factory=dict)
    """For `select`: option id -> label."""


@dataclass(frozen=True, slots=True)
class ListItem:
    id: str
    values: Mapping[str, Any]
    """Column key -> str, number or bool; `select` holds the option id; a list holds several."""
    created: int = 0
    """Seconds since 1970, like `updated`; `updated` 0 = never changed."""
    created_by: str = ""
    updated: int = 0
    updated_by: str = ""
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SlackList:
    id: str
    name: str
    columns: tuple[ListColumn, ...]
    """The first column is the primary one."""
    items: tuple[ListItem, ...] = ()
    created: int = 0
    created_by: str = ""


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a workspace holds when the local Slack starts; what happens later is the server's."""

    team: Team = Team()
    users: tuple[User, ...] = ()
    channels: tuple[Channel, ...] = ()
    lists: tuple[SlackList, ...] = ()
    problems: tuple[str, ...] = ()
    """One sentence for each part of the source that could not be read."""
    usergroups: tuple[UserGroup, ...] = ()
