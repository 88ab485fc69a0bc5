"""The records of the local Slack other than messages: streams, uploads, views, whispers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
StreamEnd = Literal["", "stopped", "expired", "stopped_by_user"]


@dataclass(slots=True)
class Row:
    """A task of a plan."""

    id: str
    title: str = ""
    status: str = "pending"
    """ "pending", "in_progress", "complete" or "error"."""


@dataclass(slots=True)
class Stream:
    """A message that is or was streamed."""

    channel: str
    ts: str
    started: float
    """Seconds since 1970."""
    text: str = ""
    title: str = ""
    """Title of the plan."""
    rows: dict[str, Row] = field(default_factory=dict)
    ended: StreamEnd = ""


@dataclass(frozen=True, slots=True)
class Whisper:
    """A message to one person only."""

    channel: str
    user: str
    ts: str
    text: str
    thread_ts: str = ""
    blocks: tuple[Mapping[str, Any], ...] = ()


@dataclass(slots=True)
class Upload:
    """A file that is being uploaded."""

    id: str
    name: str
    length: int
    """Announced size in bytes."""
    user: str
    content: bytes = b""
    """Empty until the upload."""
    completed: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A published App Home or an open modal."""

    id: str
    user: str
    """The person who sees it."""
    body: Mapping[str, Any]
    """As sent: type, blocks, ..."""
