"""Slack's messages and list rows as items: names for ids, markup as people see it."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from scopes.label import Label
from scopes.tool import BEFORE_WINDOW, Item, Window

NOT_MESSAGES = frozenset(
    """channel_join channel_leave channel_topic channel_purpose channel_name channel_archive
    channel_unarchive channel_convert_to_private group_join group_leave group_topic group_purpose
    group_name bot_add bot_remove pinned_item unpinned_item tombstone reminder_add
    channel_canvas_updated message_changed message_deleted""".split()
)
"""Subtypes that people did not say: not read and not counted."""


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


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes items of one channel's messages."""

    channel: str
    people: Mapping[str, str]
    url: str
    label: Label
    window: Window | None
    kinds: Mapping[str, str] = field(default_factory=dict)
    """User id -> what they are here (`kind_of_person`)."""
    outside: Label = field(init=False)
    """The channel's label, for what somebody from outside may have worded."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outside", replace(self.label, outside=True))

    def item(self, message: Mapping[str, Any], root: str) -> Item:
        ts = str(message["ts"])
        at = at_of(ts)
        notes = list(notes_of(message))
        if self.window and not self.window.holds(at):
            notes.append(BEFORE_WINDOW)
        author = str(message.get("user") or message.get("bot_id") or "") or None
        return Item(
            id=f"{self.channel}/{ts}",
            text=plain(str(message.get("text") or ""), self.people),
            link=permalink(self.url, self.channel, ts, root),
            label=self.outside if is_outside(message, self.kinds) else self.label,
            author=author,
            at=at,
            by=self.people.get(author or "")
            or shown(message.get("username") or author or "unknown"),
            thread=None if ts == root else f"{self.channel}/{root}",
            notes=tuple(notes),
        )


SLACKBOT = "USLACKBOT"
Kind = Literal["member", "guest", "external", "bot", "deleted"]


def kind_of_person(user: Mapping[str, Any], team: str) -> Kind:
    """Return what a user, as Slack describes them, is in this workspace."""
    home = user.get("team_id")
    if user.get("deleted"):
        return "deleted"
    if user.get("is_bot") or user.get("is_workflow_bot") or user["id"] == SLACKBOT:
        return "bot"
    if user.get("is_stranger") or (home != team and team not in _teams(user)):
        return "external"
    if user.get("is_restricted") or user.get("is_ultra_restricted"):
        return "guest"
    return "member"


def _teams(user: Mapping[str, Any]) -> list[str]:
    """Return the workspaces of an Enterprise Grid user, who has one `team_id` for all of them."""
    enterprise = user.get("enterprise_user")
    teams = enterprise.get("teams") if isinstance(enterprise, Mapping) else None
    return [str(team) for team in teams] if isinstance(teams, list) else []


def is_outside(message: Mapping[str, Any], kinds: Mapping[str, str]) -> bool:
    """Return whether anybody but full members may have worded what a message shows: its author,
    what is attached to it or unfurled in it, or a guest whose name stands in it."""
    if message.get("bot_id") or message.get("attachments") or message.get("files"):
        return True
    if kinds.get(str(message.get("user"))) != "member":
        return True
    marks = MARK.finditer(str(message.get("text") or ""))
    return any(m[1] == "@" and kinds.get(m[2]) not in ("member", "bot") for m in marks)


def notes_of(message: Mapping[str, Any]) -> list[str]:
    """Return what code can say of a message beside its text."""
    notes = []
    reactions = message.get("reactions") or ()
    if reactions:
        listed = ", ".join(f"{r.get('name')} {r.get('count', 1)}" for r in reactions)
        notes.append(f"reactions: {listed[:200]}")
    if message.get("edited"):
        notes.append("edited")
    names = [str(f.get("name") or f.get("title") or "file") for f in message.get("files") or ()]
    if names:
        notes.append("files: " + re.sub(r"[{};]", "_", ", ".join(names))[:200])
    if message.get("bot_id") or message.get("subtype") == "bot_message":
        notes.append("bot")
    return notes


def permalink(url: str, channel: str, ts: str, root: str) -> str | None:
    """Return the link that Slack itself gives for a message; None without a workspace address."""
    if not url:
        return None
    link = f"{url.rstrip('/')}/archives/{channel}/p{ts.replace('.', '')}"
    return link if ts == root else f"{link}?thread_ts={root}&cid={channel}"


def name_of(user: Mapping[str, Any]) -> str:
    profile = user.get("profile") or {}
    name = profile.get("real_name") or user.get("real_name") or profile.get("display_name")
    return shown(name or user.get("name") or user["id"])


def shown(name: object) -> str:
    """Return a name that cannot pass for the end of a line's head: `name: text`."""
    return re.sub(r"[\s:]+", " ", str(name)).strip() or "unknown"


MARK = re.compile(r"<([@#!]?)([^<>|]+)(?:\|([^<>]*))?>")


def plain(text: str, people: Mapping[str, str]) -> str:
    """Slack's markup as people see it: names for ids, addresses bare, entities resolved."""

    def put(match: re.Match[str]) -> str:
        sign, target, label = match.groups()
        if sign == "@":
            return "@" + people.get(target, label or target)
        if sign == "#":
            return "#" + (label or target)
        if sign == "!":
            return "@" + (label or target.split("^")[0])
        return f"{label} ({target})" if label and label != target else target

    return html.unescape(MARK.sub(put, text))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a Slack List: their names, and the labels of what can be chosen."""

    names: Mapping[str, str]
    labels: Mapping[str, str]
    """Option id -> label."""

    @classmethod
    def of(cls, schema: Sequence[Mapping[str, Any]]) -> Columns:
        names = {str(c.get("id")): str(c.get("name") or c.get("key")) for c in schema}
        choices = [o for c in schema for o in (c.get("options") or {}).get("choices") or ()]
        return cls(names, {str(o["value"]): str(o.get("label") or o["value"]) for o in choices})


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
