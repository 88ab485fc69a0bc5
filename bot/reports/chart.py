"""The chart of open issues over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bot.mail.words import said
from scopes.drawing import DrawingFailed, drawn

HEIGHT = 3.2
"""Inches."""
FEWEST, MOST = 3, 400
"""Points of a chart; of more the last are drawn."""
TITLE = 70
WHAT = "The chart of open issues"


async def open_issues_chart(points: Sequence[tuple[datetime, int]], title: str) -> bytes:
    """A PNG of how many issues were open at each time; `points` in any order, `FEWEST` or more.

    Raises DrawingFailed, also where there are too few points.
    """
    if len(points) < FEWEST:
        raise DrawingFailed(f"A chart needs {FEWEST} reports, there are {len(points)}.")
    shown = sorted(points)[-MOST:]
    times = [at.astimezone(UTC).isoformat() for at, _ in shown]
    chart = {
        "kind": "line",
        "title": said(title, TITLE),
        "height": HEIGHT,
        "from_zero": True,
        "x": {"name": "", "type": "time", "values": times},
        "series": [{"name": "", "values": [number for _, number in shown]}],
    }
    return await drawn(chart, WHAT)
