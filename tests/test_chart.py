"""The chart of open issues: a picture that another process draws."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.reports.files import open_issues_chart
from scopes.chart_renderer import PNG, DrawingFailed

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def weekly(*numbers: int) -> list[tuple[datetime, int]]:
    return [(START + timedelta(weeks=n), number) for n, number in enumerate(numbers)]


def size(png: bytes) -> tuple[int, int]:
    assert png.startswith(PNG)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize(
    "points",
    [
        weekly(18, 23, 21),
        weekly(0, 0, 0),
        [(START, 3)] * 3,
        [(START + timedelta(hours=n), n % 9) for n in range(1_000)],
    ],
    ids=["three", "none open", "one time", "a thousand"],
)
async def test_it_is_a_picture_of_the_width_that_slack_shows(
    points: list[tuple[datetime, int]],
) -> None:
    png = await open_issues_chart(points, "Open issues, $x^2$ \N{COW FACE} 課題")
    assert size(png) == (1_200, 480)
    assert len(png) < 200_000


async def test_two_points_are_no_chart() -> None:
    with pytest.raises(DrawingFailed, match="A chart needs 3 reports, there are 2"):
        await open_issues_chart(weekly(1, 2), "Open issues")


async def test_what_cannot_be_drawn_is_said_to_be_so() -> None:
    with pytest.raises(DrawingFailed, match="could not be drawn"):
        await open_issues_chart([*weekly(1, 2), (START, 10**400)], "Open issues")


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(open_issues_chart(weekly(1, 2, 3), "Open issues"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_the_bot_itself_never_loads_what_draws() -> None:
    code = "import sys, bot.serving.serve, bot.reports.files; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.stdout.strip() == "False"
