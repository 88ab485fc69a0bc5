"""Convert Slack's messages and list rows to items: names for ids, markup as people see it."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Literal

from scopes.label import Label
from scopes.tool import BEFORE_WINDOW, Item, Window

NOT_MESSAGES = frozenset(
    """channel_join channel_leave channel_topic channel_purpose channel_name channel_archive
    channel_unarchive channel_convert_to_private group_join group_leave group_topic group_purpose
    group_name bot_add bot_remove pinned_item unpinned_item tombstone reminder_add
    channel_canvas_updated message_changed message_deleted""".split()
)
"""Subtypes of messages that no person wrote: not read and not counted."""


@lru_cache(maxsize=8_192)
def at_of(ts: str) -> datetime:
    """Return the UTC time of a Slack timestamp (`1740498077.000100`)."""
    seconds, _, micros = ts.partition(".")
    return datetime.fromtimestamp(int(seconds), UTC) + timedelta(
        microseconds=int((micros or "0")[:6].ljust(6, "0"))
    )


def ts_of(at: datetime) -> str:
    """Return the Slack timestamp of a time, with six decimals."""
    whole = at.replace(microsecond=0)
    return f"{int(whole.timestamp())}.{at.microsecond:06d}"


Json = Mapping[str, Any]
UserKind = Literal["member", "guest", "external", "bot", "deleted"]
SLACKBOT = "USLACKBOT"


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A Slack message from the API; missing fields are empty.

    Fields are read on access, because most messages of a channel are skipped.
    """

    raw: Json

    @property
    def ts(self) -> str:
        return str(self.raw["ts"])

    @property
    def at(self) -> datetime:
        return at_of(self.ts)

    @property
    def text(self) -> str:
        return str(self.raw.get("text") or "")

    @property
    def user(self) -> str:
        return str(self.raw.get("user") or "")

    @property
    def bot(self) -> str:
        """Return the id of the bot or the app that wrote it."""
        return str(self.raw.get("bot_id") or "")

    @property
    def username(self) -> str:
        return str(self.raw.get("username") or "")

    @property
    def subtype(self) -> str:
        return str(self.raw.get("subtype") or "")

    @property
    def is_said(self) -> bool:
        """Return whether somebody wrote it, rather than Slack."""
        return self.subtype not in NOT_MESSAGES

    @property
    def thread(self) -> str:
        """Return the time of its thread's first message; empty if it belongs to no thread."""
        return str(self.raw.get("thread_ts") or "")

    @property
    def is_reply(self) -> bool:
        """Return whether it answers another one, even if it was also sent to the channel."""
        return self.thread not in ("", self.ts)

    @property
    def last_at(self) -> datetime:
        """Return the time of its latest reply, or its own without one."""
        return at_of(self.raw.get("latest_reply") or self.ts)

    @property
    def has_replies(self) -> bool:
        return bool(self.raw.get("reply_count"))

    @property
    def is_edited(self) -> bool:
        return bool(self.raw.get("edited"))

    @property
    def link(self) -> str | None:
        """Return the link that a search gives."""
        return self.raw.get("permalink")

    @property
    def files(self) -> Sequence[Json]:
        return self.raw.get("files") or ()

    @property
    def reactions(self) -> Sequence[Json]:
        return self.raw.get("reactions") or ()

    @property
    def has_attachments(self) -> bool:
        """Return whether a file, a link preview or another message is attached to it."""
        return bool(self.raw.get("attachments") or self.files)


@dataclass(frozen=True, slots=True)
class SlackPerson:
    """A Slack user from the API."""

    raw: Json

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def name(self) -> str:
        real = self.profile.get("real_name") or self.raw.get("real_name")
        name = real or self.profile.get("display_name") or self.raw.get("name")
        return clean_name(name or self.id)

    @property
    def real_name(self) -> str:
        own = self.raw.get("real_name") or self.profile.get("real_name")
        return str(own or self.raw.get("name"))

    @property
    def profile(self) -> Json:
        return self.raw.get("profile") or {}

    @property
    def title(self) -> str:
        return str(self.profile.get("title") or "")

    @property
    def zone(self) -> str:
        return str(self.raw.get("tz") or "")

    @property
    def is_bot(self) -> bool:
        return bool(self.raw.get("is_bot"))

    @property
    def is_deleted(self) -> bool:
        return bool(self.raw.get("deleted"))

    def kind(self, team: str) -> UserKind:
        """Return their kind in this workspace."""
        home = self.raw.get("team_id")
        if self.is_deleted:
            return "deleted"
        if self.is_bot or self.raw.get("is_workflow_bot") or self.id == SLACKBOT:
            return "bot"
        if self.raw.get("is_stranger") or (home != team and team not in self._teams()):
            return "external"
        if self.raw.get("is_restricted") or self.raw.get("is_ultra_restricted"):
            return "guest"
        return "member"

    def _teams(self) -> list[str]:
        """Return the workspaces of an Enterprise Grid user, with one `team_id` for them all."""
        enterprise = self.raw.get("enterprise_user")
        teams = enterprise.get("teams") if isinstance(enterprise, Mapping) else None
        return [str(team) for team in teams] if isinstance(teams, list) else []


@dataclass(frozen=True)
class Maker:
    """Makes items of one channel's messages."""

    channel: str
    people: Mapping[str, str]
    url: str
    label: Label
    window: Window | None
    kinds: Mapping[str, str] = field(default_factory=dict)
    """User id -> kind (`SlackPerson.kind`)."""

    @cached_property
    def outside(self) -> Label:
        """Return the channel's label for text that somebody from outside may have written."""
        return replace(self.label, outside=True)

    def item(self, message: SlackMessage, root: str) -> Item:
        ts, at = message.ts, message.at
        notes = list(notes_of(message))
        if self.window and not self.window.holds(at):
            notes.append(BEFORE_WINDOW)
        author = message.user or message.bot or None
        return Item(
            id=f"{self.channel}/{ts}",
            text=plain(message.text, self.people),
            link=permalink(self.url, self.channel, ts, root),
            label=self.outside if is_outside(message, self.kinds) else self.label,
            author=author,
            at=at,
            by=self.people.get(author or "") or clean_name(message.username or author or "unknown"),
            thread=None if ts == root else f"{self.channel}/{root}",
            notes=tuple(notes),
        )


def is_outside(message: SlackMessage, kinds: Mapping[str, str]) -> bool:
    """Return whether anybody except full members may have written text that a message shows: its
    author, of an attachment or a link preview, or a guest whose name is in it."""
    if message.bot or message.has_attachments or kinds.get(message.user) != "member":
        return True
    marks = MARKUP_PATTERN.finditer(message.text) if "<" in message.text else ()
    return any(m[1] == "@" and kinds.get(m[2]) not in ("member", "bot") for m in marks)


def notes_of(message: SlackMessage) -> list[str]:
    """Return facts that code adds to the text of a message."""
    notes = []
    if reactions := message.reactions:
        listed = ", ".join(f"{r.get('name')} {r.get('count', 1)}" for r in reactions)
        notes.append(f"reactions: {listed[:200]}")
    if message.is_edited:
        notes.append("edited")
    names = [str(f.get("name") or f.get("title") or "file") for f in message.files]
    if names:
        notes.append("files: " + re.sub(r"[{};]", "_", ", ".join(names))[:200])
    if message.bot or message.subtype == "bot_message":
        notes.append("bot")
    return notes


def permalink(url: str, channel: str, ts: str, root: str) -> str | None:
    """Return the link that Slack itself gives for a message; None without a workspace address."""
    if not url:
        return None
    link = f"{url.rstrip('/')}/archives/{channel}/p{ts.replace('.', '')}"
    return link if ts == root else f"{link}?thread_ts={root}&cid={channel}"


def clean_name(name: object) -> str:
    """Return a name that cannot pass for the end of a line's head: `name: text`."""
    return re.sub(r"[\s:]+", " ", str(name)).strip() or "unknown"


MARKUP_PATTERN = re.compile(r"<([@#!]?)([^<>|]+)(?:\|([^<>]*))?>")


def plain(text: str, people: Mapping[str, str]) -> str:
    """Return Slack's markup as people see it: names for ids, bare addresses, no entities."""

    def put(match: re.Match[str]) -> str:
        sign, target, label = match.groups()
        if sign == "@":
            return "@" + people.get(target, label or target)
        if sign == "#":
            return "#" + (label or target)
        if sign == "!":
            return "@" + (label or target.split("^")[0])
        return f"{label} ({target})" if label and label != target else target

    return html.unescape(MARKUP_PATTERN.sub(put, text))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a Slack List: their names, and the labels of their options."""

    names: Mapping[str, str]
    labels: Mapping[str, str]
    """Option id -> label."""

    @classmethod
    def of(cls, schema: Sequence[Mapping[str, Any]]) -> Columns:
        names = {str(c.get("id")): str(c.get("name") or c.get("key")) for c in schema}
        choices = [o for c in schema for o in (c.get("options") or {}).get("choices") or ()]
        return cls(names, {(v := str(o["value"])): str(o.get("label") or v) for o in choices})


def row_text(row: Mapping[str, Any], columns: Columns, people: Mapping[str, str]) -> str:
    """Return a Slack List item on one line: `title: ... | status: ...`."""

    def text_of(value: Any) -> str:
        values = value if isinstance(value, list) else [value]
        return ", ".join(columns.labels.get(str(v), people.get(str(v), str(v))) for v in values)

    cells = []
    for cell in row.get("fields") or ():
        name = columns.names.get(str(cell.get("column_id")), str(cell.get("key") or ""))
        cells.append(f"{name}: {text_of(cell.get('text') or cell.get('value') or '')}")
    return " | ".join(cells)
