"""The files that go with a report: its findings as a table, and how the open ones came and went."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.reports.chart import FEWEST, open_issues_chart
from bot.reports.findings_csv import findings_csv
from bot.schedule.records import Tick
from bot.schedule.ticks import Ticks
from scopes.drawing import DrawingFailed
from scopes.google.gmail_compose import Attached

log = logging.getLogger(__name__)

MOST = 60
"""Reports that the chart goes back."""
OPEN = "open"


async def attached(ticks: Ticks, tick: Tick, document: Mapping[str, Any]) -> tuple[Attached, ...]:
    """Those of a sweep; a digest has none. Raises StoreError."""
    if "sections" not in document:
        return ()
    table = await asyncio.to_thread(findings_csv, document)  # of thousands it takes seconds
    files = [Attached("findings.csv", "text/csv", table)]
    points = await _points(ticks, tick, document)
    if len(points) >= FEWEST:
        title = f"Open issues: {document['title'] or tick.schedule}"
        try:
            drawn = await open_issues_chart(points, title)
            files.append(Attached("chart.png", "image/png", drawn))
        except DrawingFailed as error:  # the report is whole without it
            log.warning("there is no chart of %s: %s", tick.schedule, error)
    return tuple(files)


async def _points(
    ticks: Ticks, tick: Tick, document: Mapping[str, Any]
) -> list[tuple[datetime, int]]:
    """When reports were made and how many issues were open then, this one last."""
    before = await ticks.delivered_to_readers(tick.schedule, MOST)
    found = {d.at: d.figures[OPEN] for d in before if d.figures and OPEN in d.figures}
    return sorted({**found, tick.at: int(document["counts"][OPEN])}.items())
