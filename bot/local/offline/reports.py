"""Plain orders for a sweep or a triage: the offline model calls the tool for them.

Of a sweep only a verb, channels and perhaps how far back count; any other word makes it a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.local.offline.calls import use
from bot.local.offline.conversation import Conversation

SWEEP, TRIAGE = "sweep_channels", "triage_inbox"
NOTHING_TO_ADD = "NONE"
_POLITE = r"\W*(?:(?:<@[UW]\w+(?:\|[^>]*)?>|@\w+|hi|hello|hey|please|(?:could|can|would) you)\W+)*"
_ORDER = re.compile(
    rf"{_POLITE}(?:(?:bug )?sweep(?: across)?|scan|go through)\s+(?P<rest>.+)", re.IGNORECASE | re.S
)
_CHANNEL = re.compile(
    r"<#(?P<id>[CG][A-Z0-9]+)(?:\|[^>]*)?>|(?P<glob>#?[\w-]*\*)|#(?P<name>[\w-]+)"
    r"|(?P<bare>\w+(?:-\w+)+)"
)
_WINDOW = re.compile(
    r"\b(?:(?:last|past) (?:(?P<count>\d{1,3}) )?|(?P<bare>\d{1,3}) ?)(?P<unit>day|week|month)s?\b",
    re.IGNORECASE,
)
_NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_UNITS = {"day": 1, "week": 7, "month": 30}
_FILL = re.compile(
    r"\b(?:in|of|for|over|from|the|all|and|also|channels?|please|now|again|my|our)\b|[\s,;.!?&+]+",
    re.IGNORECASE,
)
_MAIL = r"(?:in-?box|e-?mails?|mails?|mailbox)"
_TRIAGE = re.compile(
    rf"{_POLITE}(?:triage\s+(?:all\s+)?(?:of\s+)?(?:my|the)\s+(?:new\s+|unread\s+)?{_MAIL}\b"
    rf"|{_MAIL}\s+triage\W*(?:please\W*)?$)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SweepOrder:
    """What a request for a sweep says."""

    channels: tuple[str, ...]
    """Ids, names without `#`, and patterns such as `csm-*`, as written."""
    days: int | None = None
    """How far back; None = as usual."""


def report_turn(text: str, talk: Conversation, free: bool) -> dict[str, Any] | str | None:
    """Return the call that a request for a report needs, or what to say after it; else None."""
    for exchange in talk.exchanges:
        if exchange.name in (SWEEP, TRIAGE):
            return exchange.text if exchange.is_error else NOTHING_TO_ADD
    if free and TRIAGE in talk.tools and wants_triage(text):
        return use(TRIAGE)
    order = sweep_order(text) if free and SWEEP in talk.tools else None
    if order is None:
        return None
    return use(SWEEP, channels=list(order.channels), **since(order.days, talk))


def days_of(text: str) -> int | None:
    """Return how many days back a text says to look: "the last 3 days"; None = it does not say."""
    found = next((each for each in _WINDOW.finditer(text) if not each["bare"]), None)
    return _days(found) if found else None


def _days(found: re.Match[str]) -> int:
    count = int(found["count"] or found["bare"] or 1)
    return max(1, min(count * _UNITS[found["unit"].lower()], 366))


def since(days: int | None, talk: Conversation) -> dict[str, str]:
    """Return the argument that asks for so many days before now, by the requester's clock."""
    now = _NOW.search(talk.section("NOW"))
    if not (days and now):
        return {}
    return {"since": f"{datetime.fromisoformat(now[0]) - timedelta(days=days):%Y-%m-%dT%H:%M}"}


def wants_triage(text: str) -> bool:
    """Return whether a request asks for a triage of the requester's own mail."""
    return _TRIAGE.match(text) is not None


def sweep_order(text: str) -> SweepOrder | None:
    """Return what a text orders to sweep; None where it asks for something else."""
    order = _ORDER.match(text)
    if not order:
        return None
    rest, days = order["rest"], None
    if window := _WINDOW.search(rest):
        days = _days(window)
        rest = rest[: window.start()] + rest[window.end() :]
    found = [m["id"] or m["glob"] or m["name"] or m["bare"] for m in _CHANNEL.finditer(rest)]
    if not found or _FILL.sub("", _CHANNEL.sub("", rest)):
        return None
    return SweepOrder(tuple(dict.fromkeys(name.lstrip("#") for name in found)), days)
