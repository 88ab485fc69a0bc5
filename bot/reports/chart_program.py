"""A chart of open issues over time: a program of its own, for what drawing takes of memory.

`python -I chart_program.py SECONDS < chart.json > chart.png` reads `{"title", "points": [[ISO 8601
time, number], ...]}`. It limits its own memory and time.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import warnings
from datetime import UTC, datetime
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

MAX_MEMORY = 2 << 30
"""Of addresses, most of which nothing is kept at."""
INCHES, DOTS = (8.0, 3.2), 150
"""A picture of 1,200 by 480 dots: Slack shows it at half of that, sharp on any screen."""
INK, LINE, FAINT = "#1d1c1d", "#1264a3", "#dddddd"
MOST_DATES = 8
NAMED = 12
"""Points up to which each has its number beside it; of more only the last has."""


def limit(seconds: int) -> None:
    """Bind this process: what goes on for too long or grows too large is ended by the system."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def drawn(title: str, points: list[tuple[datetime, int]]) -> Figure:
    """The chart: a line from report to report over a base of zero."""
    figure = Figure(figsize=INCHES, dpi=DOTS, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    days: list[float] = [float(date2num(at)) for at, _ in points]  # type: ignore[no-untyped-call]
    numbers = [number for _, number in points]
    named = list(zip(days, numbers, strict=True))[-1 if len(points) > NAMED else 0 :]
    axes.plot(days, numbers, color=LINE, linewidth=2.2)
    axes.plot([day for day, _ in named], [n for _, n in named], "o", color=LINE, markersize=6)
    axes.fill_between(days, numbers, color=LINE, alpha=0.08, linewidth=0)
    for day, number in named:
        told = axes.annotate(f"{number:,}", (day, number), (0, 8), textcoords="offset points")
        told.set(ha="center", color=INK, fontsize=11)
    axes.set_title(title, loc="left", color=INK, fontsize=13, fontweight="bold", parse_math=False)
    _quieten(axes, max(numbers))
    _date(axes, days)
    return figure


def _quieten(axes: Axes, most: int) -> None:
    """Nothing but a grid of faint lines, and numbers that people count in."""
    axes.set_ylim(0, max(4, most * 1.18))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=10, length=0)
    axes.margins(x=0.04)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)


def _date(axes: Axes, days: list[float]) -> None:
    """The day of each report; of many that of some."""
    span = days[-1] - days[0]
    form = "%-d %b %H:%M" if span < 3 else "%-d %b" if span < 300 else "%b %Y"
    axes.xaxis.set_major_formatter(DateFormatter(form, tz=UTC))  # type: ignore[no-untyped-call]
    few = days[:: 1 + len(days) // (MOST_DATES + 1)]
    axes.set_xticks(few)


def main() -> None:
    limit(int(sys.argv[1]))
    logging.disable()
    warnings.simplefilter("ignore")  # of letters that the font does not have
    asked: dict[str, Any] = json.load(sys.stdin)
    points = [(datetime.fromisoformat(at), int(number)) for at, number in asked["points"]]
    drawn(asked["title"], points).savefig(sys.stdout.buffer, format="png")


if __name__ == "__main__":
    main()
