"""Clicks on cards and what was typed into their forms, as Slack's signed payloads tell of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.hearing.payload import first, id_of, mapping, storable, ts_of

APPROVE, DENY, EDIT = "approve", "deny", "edit"
ACTIONS = {
    "action_approve": APPROVE,
    "action_deny": DENY,
    "action_edit": EDIT,
    "action_approve_all": APPROVE,
    "action_deny_all": DENY,
}
"""Action id of a button -> what it is for."""
FORM = "action_edited"
"""Callback id of the form in which a text is changed."""
MAX_TYPED = 3_000
"""Characters that a field of a form takes (docs.slack.dev, plain-text input)."""

_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class Clicked:
    """A button of a card was clicked."""

    team: str
    """Home of the person who clicked; empty where the payload does not say it."""
    user: str
    what: str
    """`approve`, `deny` or `edit`."""
    all: bool
    """A button for a whole batch."""
    id: str
    """What the button carries; empty where that is no id of an action."""
    channel: str
    ts: str
    """The message that the button stands in."""
    thread_ts: str = ""
    trigger: str = ""
    """With which a form can be opened, within three seconds."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The form of a card was sent in."""

    team: str
    user: str
    id: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name of an argument -> what was typed."""


def card_click(body: Mapping[str, Any]) -> Clicked | None:
    """A click on a card; None for a click on anything else, or by nobody."""
    action, person = first(body.get("actions")), mapping(body.get("user"))
    name, user = action.get("action_id"), id_of(person.get("id"), "UW")
    if not isinstance(name, str) or name not in ACTIONS or not user:
        return None
    place, message = mapping(body.get("container")), mapping(body.get("message"))
    channel = id_of(place.get("channel_id"), "CDG")
    ts, trigger = ts_of(place.get("message_ts")), body.get("trigger_id")
    told = id_of(mapping(body.get("channel")).get("id"), "CDG"), ts_of(message.get("ts"))
    if told != (channel, ts) or place.get("is_ephemeral"):
        ts = ""  # two places in one payload: it is none that we showed
    return Clicked(
        team=id_of(person.get("team_id"), "TE"),
        user=user,
        what=ACTIONS[name],
        all=name.endswith("_all"),
        id=_action_id(action.get("value")),
        channel=channel,
        ts=ts,
        thread_ts=ts_of(place.get("thread_ts")) or ts_of(message.get("thread_ts")),
        trigger=trigger if isinstance(trigger, str) else "",
    )


def submission(body: Mapping[str, Any]) -> Submitted | None:
    """What was typed into a form of ours; None for any other view, or by nobody."""
    view, person = mapping(body.get("view")), mapping(body.get("user"))
    user = id_of(person.get("id"), "UW")
    if view.get("callback_id") != FORM or not user:
        return None
    texts = {}
    for name, inputs in mapping(mapping(view.get("state")).get("values")).items():
        typed = mapping(mapping(inputs).get(FORM)).get("value")
        if isinstance(typed, str) and isinstance(name, str) and _NAME.fullmatch(name):
            texts[name] = storable(typed)
    team = id_of(person.get("team_id"), "TE")
    return Submitted(team, user, _action_id(view.get("private_metadata")), texts)


def _action_id(value: Any) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""
