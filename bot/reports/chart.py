"""The chart of open issues over time, drawn by a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bot.mail_words import said

PROGRAM = Path(__file__).with_name("chart_program.py")
SECONDS = 30
"""Until a drawing is given up; on a busy machine one takes a few."""
FEWEST, MOST = 3, 400
"""Points of a chart; of more the last are drawn."""
TITLE = 70
PNG = b"\x89PNG\r\n\x1a\n"


class ChartFailed(Exception):
    """There is no chart; its text says why, in a sentence for people."""


async def open_issues_chart(points: Sequence[tuple[datetime, int]], title: str) -> bytes:
    """A PNG of how many issues were open at each time; `points` in any order, `FEWEST` or more.

    Raises ChartFailed, also where there are too few points.
    """
    if len(points) < FEWEST:
        raise ChartFailed(f"A chart needs {FEWEST} reports, there are {len(points)}.")
    told = [(at.astimezone(UTC).isoformat(), number) for at, number in sorted(points)[-MOST:]]
    asked = json.dumps({"title": said(title, TITLE), "points": told}).encode()
    with tempfile.TemporaryDirectory(prefix="chart-") as home:  # the list of fonts goes there
        drawn = await _drawn(asked, home)
    if not drawn.startswith(PNG):
        raise ChartFailed("The chart of open issues could not be drawn.")
    return drawn


async def _drawn(asked: bytes, home: str) -> bytes:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(PROGRAM), str(SECONDS)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=home,
        env={"HOME": home, "MPLCONFIGDIR": home, "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await program.communicate(asked)
    except TimeoutError:
        raise ChartFailed("Drawing the chart of open issues took too long.") from None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return out if program.returncode == 0 else b""
