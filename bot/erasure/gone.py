"""What Slack says no longer exists: a channel, a file, a person's account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.erasure.targets import Target
from bot.hearing.payload import id_of, mapping, ts_of


@dataclass(frozen=True, slots=True)
class Gone:
    """Something was deleted with all that it held."""

    target: Target


def gone(event: Mapping[str, Any]) -> Gone | None:
    """What an event says was deleted; None where it says nothing of the kind.

    A message that is deleted is told by an event of its channel: see bot/hearing/heard.py. An
    account that is deactivated is `deleted` in Slack's own words.
    """
    kind, id = "", ""
    match event.get("type"):
        case "channel_deleted" | "group_deleted":
            kind, id = "channel", id_of(event.get("channel"), "CDG")
        case "file_deleted":
            kind, id = "source", id_of(event.get("file_id"), "F")
        case "user_change":
            user = mapping(event.get("user"))
            kind, id = "author", id_of(user.get("id"), "UW") if user.get("deleted") is True else ""
    return Gone(Target(kind, id)) if id else None


def edited_at(message: Mapping[str, Any]) -> datetime | None:
    """When a message was edited last; None where it never was."""
    ts = ts_of(mapping(message.get("edited")).get("ts"))
    return datetime.fromtimestamp(float(ts), UTC) if ts else None
