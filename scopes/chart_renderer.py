"""Render charts in a process of their own, as drawing takes much memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scopes.programs import output_of

SECONDS = 30
"""Until a drawing is given up; on a busy machine one takes a few."""
PNG = b"\x89PNG\r\n\x1a\n"


class DrawingFailed(Exception):
    """There is no picture; its text says why, in a sentence for people."""


async def render_chart(chart: Mapping[str, Any], what: str) -> bytes:
    """Render a chart, in the form that `chart_program.py` reads, as a PNG.

    `what` names the chart for people.
    Raises DrawingFailed.
    """
    asked, program = json.dumps(chart).encode(), "scopes.chart_program"
    with tempfile.TemporaryDirectory(prefix="chart-") as home:  # the list of fonts goes there
        env = {"HOME": home, "MPLCONFIGDIR": home, "OPENBLAS_NUM_THREADS": "1"}
        try:
            out = await output_of(
                program, SECONDS, given=asked, seconds=SECONDS, folder=Path(home), env=env
            )
        except TimeoutError:
            raise DrawingFailed(f"{what} took too long to draw.") from None
    if not out.startswith(PNG):
        raise DrawingFailed(f"{what} could not be drawn.")
    return out
