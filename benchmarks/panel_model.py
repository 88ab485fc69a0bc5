"""The model of the `panel` table: each specialist finds as many lines as MATERIAL marks for it, and
each judge confirms with the given quote."""

from __future__ import annotations

import json
import re
from typing import Any

from engine_kit import call, opening, say

from bot.local.model.answer import Answer
from subagents.brief import SUBMIT

_MARK = re.compile(r"\[(?P<id>[^\]]+)\]\n\|(?P<line># find (?P<who>\w+) (?P<claim>.*))")
_JUDGED = re.compile(r'^\[(F\d+\.\d+)\].*quotes: ("(?:[^"\\]|\\.)*")', re.MULTILINE)
_NAME = re.compile(r"Yours is (\w+)")


def panel(request: dict[str, Any]) -> Answer:
    """Return the answer of a specialist, or of the writer of the first lines."""
    text = opening(request)
    if "CONTRACT: review" in text:
        name = _NAME.search(text)
        marks = [m for m in _MARK.finditer(text) if name and m["who"] == name[1]]
        return call(SUBMIT, points=[_point(n, m) for n, m in enumerate(marks, 1)])
    if "CONTRACT: verdicts" in text:
        found = _JUDGED.findall(text)
        verdicts = [_verdict(id, quote) for id, quote in found]
        return call(SUBMIT, verdicts=verdicts)
    return say("NONE")


def _point(number: int, mark: re.Match[str]) -> dict[str, Any]:
    return {
        "id": str(number),
        "category": mark["who"],
        "severity": "medium",
        "confidence": 0.5,
        "claim": mark["claim"],
        "place": mark["id"],
        "quotes": [mark["line"]],
        "fix": "",
    }


def _verdict(id: str, quote: str) -> dict[str, str]:
    return {"finding": id, "verdict": "confirm", "evidence": json.loads(quote)}
