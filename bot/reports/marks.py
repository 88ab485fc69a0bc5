"""What every face of a report says beside a finding: what became of it, and where it is tracked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.mail.words import said
from bot.reports.words import Words

NAME = 60
"""Characters shown of a name."""

Json = Mapping[str, Any]


def mark(finding: Json, words: Words) -> str:
    """What became of it since the last report; empty where that is not known."""
    change = finding.get("change")
    if change == "open":
        return words("still_open", days=words("days", n=finding.get("age_days") or 0))
    named = {"new": "new", "changed": "changed", "solved": "is_solved", "reopened": "reopened"}
    return words(named[change]) if change in named else ""


def owner(finding: Json, words: Words) -> str:
    """Who has it, or that nobody does."""
    name = said(finding["owner"], NAME)
    return words("nobody") if name.lower() in ("", "nobody") else name


def tracked(finding: Json, words: Words) -> str:
    """What a tracker says of it; empty where none was read."""
    tracker = finding.get("tracker") or {}
    status = tracker.get("status")
    if status not in ("untracked", "tracked", "closed"):
        return ""
    named = " ".join(filter(None, (said(tracker.get(k), NAME) for k in ("key", "title"))))
    return f"{named} ({words(status)})" if named else words(status)
