"""Whether a report says anything that its readers do not know: by this a quiet one is not sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEWS = ("new", "changed", "solved", "reopened")


def is_news(document: Mapping[str, Any]) -> bool:
    """What is not complete is news, too: nobody is to take silence for "all clear"."""
    if document["status"] != "complete" or document.get("notes"):
        return True
    if "verdicts" in document:
        return bool(document["verdicts"] or document.get("unreadable"))
    if document["channels_added"] or document["channels_gone"]:
        return True
    return any(document["counts"][each] for each in NEWS)
