"""Render charts in a process of their own, as drawing takes much memory."""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from scopes.programs import WorkerDied, WorkerProcess, WorkerTimedOut

SECONDS = 30.0
"""Until a drawing is given up; on a busy machine one takes a few."""
IDLE_S = 60.0
"""Seconds after the last chart until the program ends."""


class DrawingFailed(Exception):
    """There is no picture; its text says why, in a sentence for people."""


@cache
def _renderer() -> WorkerProcess:
    """Return the program; it keeps its list of fonts in a folder that goes with the bot."""
    home = TemporaryDirectory(prefix="chart-")
    atexit.register(home.cleanup)
    env = {"HOME": home.name, "MPLCONFIGDIR": home.name, "OPENBLAS_NUM_THREADS": "1"}
    return WorkerProcess("scopes.chart_program", SECONDS, env=env, idle_s=IDLE_S)


async def render_chart(chart: Mapping[str, Any], what: str) -> bytes:
    """Render a chart, in the form that `chart_program.py` reads, as a PNG.

    `what` names the chart for people.
    Raises DrawingFailed.
    """
    try:
        picture = await _renderer().ask(json.dumps(chart).encode())
    except WorkerTimedOut:
        raise DrawingFailed(f"{what} took too long to draw.") from None
    except WorkerDied:
        picture = b""
    if not picture:
        raise DrawingFailed(f"{what} could not be drawn.")
    return picture
