"""Runs that gave no report: why, in a sentence, and whether and when one is tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bot.schedule.records import Tick
from config.schedules import Schedule

BACKOFF = tuple(timedelta(minutes=m) for m in (1, 5, 15, 60))
"""From one try of a run to the next; the last one again and again."""
PASSING = ("model_error", "rate_limit")
"""Why subagents end early, and would not an hour later."""
GAVE_NOTHING = "It could read nothing."
LONGEST_REASON = 300
STOPS = {
    "cost": "Its budget was spent.",
    "tokens": "Its tokens were spent.",
    "time": "Its time was up.",
    "model_error": "The model gave no answer.",
    "rate_limit": "The model had no room for it.",
    "user": "It was stopped.",
}
"""Why subagents end early -> what an owner is told. Nothing that was read is in it."""


def next_try(
    spec: Schedule, tick: Tick, now: datetime, backoff: Sequence[timedelta]
) -> datetime | None:
    """When the tick is tried again after this try failed; None where the schedule's next time has
    come by then, which covers it, or it would be too late."""
    at = now + backoff[min(tick.tries, len(backoff) - 1)]
    if at > tick.at + timedelta(hours=spec.missed_hours):
        return None
    following = spec.timetable.after(tick.at)
    return None if following and following <= at else at


def is_passing(document: Mapping[str, Any]) -> bool:
    """Whether a report that failed would not at another time: the model was away for a part."""
    return any(each["stopped_by"] in PASSING for each in document["subagents"])


def why_nothing(document: Mapping[str, Any]) -> str:
    """Why a run gave nothing, in a sentence."""
    stops = Counter(each["stopped_by"] for each in document["subagents"])
    known = [STOPS[stop] for stop, _ in stops.most_common() if stop in STOPS]
    reason = known[0] if known else str(document.get("reason") or "")[:LONGEST_REASON]
    return f"{GAVE_NOTHING} {reason}".strip()
