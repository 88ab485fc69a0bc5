"""Draw charts in a program of its own, because drawing takes much memory.

It answers the requests of a `scopes.programs.WorkerProcess`: a `Chart` as JSON. The answer is a
PNG, or empty if nothing can be drawn.
"""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from typing import Any

import matplotlib
from cycler import cycler

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.axis import Axis as Scale
from matplotlib.dates import DateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scopes.chart_model import Axis, Chart
from scopes.confinement import serve_confined

MAX_MEMORY = 2 << 30
"""Bytes of address space, most of it unused."""
MAX_CPU_S = 30
"""Seconds of computing for one chart."""
WIDTH, DOTS = 8.0, 150
"""Inches, and dots per inch: 1,200 dots wide. Slack shows half as many, sharp on any screen."""
INK, FAINT = "#1d1c1d", "#dddddd"
COLOURS = "#1264a3 #e8912d #2eb67d #e01e5a #7c4dbe #36c5f0 #8d6e63 #616061".split()
FONTS = (
    *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "WenQuanYi Zen Hei", "Unifont"),
)
"""Tried in this order for each letter, if they are installed."""
STYLE: Any = {
    "axes.axisbelow": True, "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.labelsize": 10,
    "axes.prop_cycle": cycler(color=COLOURS), "axes.spines.bottom": False,
    "axes.spines.left": False, "axes.spines.right": False, "axes.spines.top": False,
    "axes.titlecolor": INK, "axes.titlelocation": "left", "axes.titlesize": 13,
    "axes.titleweight": "bold", "axes.xmargin": 0.04, "axes.ymargin": 0.15, "grid.color": FAINT,
    "legend.fontsize": 10, "legend.frameon": False, "legend.labelcolor": "black",
    "lines.linewidth": 2.2, "lines.markersize": 6, "text.color": INK, "text.parse_math": False,
    "xtick.color": INK, "xtick.labelsize": 10, "xtick.major.size": 0, "ytick.color": INK,
    "ytick.labelsize": 10, "ytick.major.size": 0,
}  # fmt: skip
MOST_DATES = 8
MAX_LABELLED_POINTS = 12
"""Maximum points of a line with a number at each; with more, only the last point has one."""
NAMED_BARS = 24
BAR_GROUP_SHARE = 0.8
"""Share of its space that a group of bars fills."""
LARGE_NUMBER_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))
"""Units of large numbers."""
YEARS = (1_000, 3_000)
"""Whole numbers along an axis are shown as years if all are between these."""


def draw_chart(chart: Chart) -> Figure:
    """Return the chart, under its title."""
    figure = Figure((WIDTH, chart.height), DOTS, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    series = {
        name: [math.nan if v is None else float(v) for v in values]
        for name, values in chart.series.items()
    }
    if chart.kind in ("bar", "across"):
        _bars(axes, chart.x, series, lying=chart.kind == "across")
    else:
        {"line": _line, "scatter": _scatter}[chart.kind](axes, chart.x, series)
    if chart.kind == "line":
        _ground(axes, _bounds(series), chart.from_zero)
    axes.set_title(chart.title)
    if len(series) > 1:
        figure.legend(loc="outside lower left", ncols=4)
    return figure


def _line(axes: Axes, x: Axis, series: dict[str, list[float]]) -> None:
    """Draw a line from point to point."""
    at = _places(axes, x)
    for name, values in series.items():
        axes.plot(at, values, label=name, marker="o" if len(at) <= MAX_LABELLED_POINTS else None)
    if len(series) == 1:
        (values,) = series.values()
        for place, value in [*zip(at, values, strict=True)][
            -1 if len(at) > MAX_LABELLED_POINTS else 0 :
        ]:
            if not math.isnan(value):
                where = (place, value), (0, 8)
                axes.annotate(
                    _format_number(value), *where, textcoords="offset points", ha="center"
                )
    _quieten(axes, axes.yaxis, series)
    _label(axes, x, series)


def _ground(axes: Axes, bounds: tuple[float, float], always: bool) -> None:
    """Start the axis at zero, unless all lines are far above it; then shade below a single line."""
    low, high = bounds
    if not always and not 0 <= low < 0.6 * high and not low == high >= 0:
        return
    axes.set_ylim(0, max(4, high * 1.18) if always else high * 1.18 or 1)
    if len(axes.lines) == 1:
        at, values = axes.lines[0].get_data()
        axes.fill_between(at, values, color=COLOURS[0], alpha=0.08, linewidth=0)


def _scatter(axes: Axes, x: Axis, series: dict[str, list[float]]) -> None:
    at = _places(axes, x)
    for name, values in series.items():
        axes.scatter(at, values, s=26, alpha=0.65, linewidths=0, label=name)
    _quieten(axes, axes.yaxis, series)
    axes.grid(axis="x")
    _label(axes, x, series)


def _bars(axes: Axes, x: Axis, series: dict[str, list[float]], *, lying: bool = False) -> None:
    """Draw a group of bars for each name; if horizontal, the first one is on top."""
    wide, count = BAR_GROUP_SHARE / len(series), len(x.values)
    draw = axes.barh if lying else axes.bar
    for number, (name, values) in enumerate(series.items()):
        at = [k - BAR_GROUP_SHARE / 2 + wide * (number + 0.5) for k in range(count)]
        bars = draw(at, values, wide * 0.94, label=name)
        if lying or count * len(series) <= NAMED_BARS:
            axes.bar_label(bars, fmt=_format_number, padding=4)
    _quieten(axes, axes.xaxis if lying else axes.yaxis, series)
    if not lying:
        axes.set_xticks(range(count), x.values)
        axes.margins(x=0.02)
        _label(axes, x, series)
        return
    axes.set_yticks(range(count), x.values)
    axes.set_ylim(count - 0.5, -0.5)
    axes.margins(x=0.16)
    if len(series) == 1:
        axes.set_xlabel(next(iter(series)))


def _places(axes: Axes, x: Axis) -> list[float]:
    """Set the ticks of the axis; return the positions of the points along it."""
    if x.type == "time":
        found = [datetime.fromisoformat(each) for each in x.values]
        days = [float(date2num(at)) for at in found]  # type: ignore[no-untyped-call]
        span = max(days) - min(days)
        form = "%-d %b %H:%M" if span < 3 else "%-d %b" if span < 300 else "%b %Y"
        axes.xaxis.set_major_formatter(DateFormatter(form, tz=UTC))  # type: ignore[no-untyped-call]
        axes.set_xticks(days[:: 1 + len(days) // (MOST_DATES + 1)])
        return days
    if x.type == "number":
        numbers = [float(each) for each in x.values]
        years = all(n.is_integer() and YEARS[0] <= n < YEARS[1] for n in numbers)
        tell = (
            (lambda value, _: f"{value:.0f}") if years else (lambda value, _: _format_number(value))
        )
        axes.xaxis.set_major_formatter(FuncFormatter(tell))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=years))
        return numbers
    axes.set_xticks(range(len(x.values)), x.values)
    return [float(number) for number in range(len(x.values))]


def _quieten(axes: Axes, scale: Scale, series: dict[str, list[float]]) -> None:
    """Reduce the frame to a faint grid and to readable numbers."""
    scale.set_major_locator(MaxNLocator(nbins=5, integer=_whole(series)))
    scale.set_major_formatter(FuncFormatter(lambda value, _: _format_number(value)))
    scale.grid(True)
    if _bounds(series)[0] < 0:
        (axes.axhline if scale is axes.yaxis else axes.axvline)(0, color=INK, linewidth=0.8)
    axes.spines["bottom" if scale is axes.yaxis else "left"].set_visible(True)


def _label(axes: Axes, x: Axis, series: dict[str, list[float]]) -> None:
    axes.set_xlabel(x.name)
    if len(series) == 1:
        axes.set_ylabel(next(iter(series)))


def _format_number(value: float) -> str:
    """Return a number as people read it."""
    for least, unit in LARGE_NUMBER_UNITS:
        if abs(value) >= least:
            return f"{value / least:,.4g}{unit}"
    return f"{value:,.0f}" if abs(value) >= 1e5 or value.is_integer() else f"{value:,.6g}"


def _bounds(series: dict[str, list[float]]) -> tuple[float, float]:
    numbers = [v for values in series.values() for v in values if not math.isnan(v)]
    return min(numbers), max(numbers)


def _whole(series: dict[str, list[float]]) -> bool:
    return all(v.is_integer() for values in series.values() for v in values if not math.isnan(v))


def reply(request: bytes) -> bytes:
    """Return the answer to a request."""
    picture = io.BytesIO()
    try:
        draw_chart(Chart.of(request)).savefig(picture, format="png")
    except MemoryError:
        raise  # the program ends, and the next chart starts a new one
    except Exception:  # top-level boundary: odd numbers make the libraries raise anything
        return b""
    return picture.getvalue()


def main() -> None:
    installed = {font.name for font in fontManager.ttflist}
    fonts = [name for name in FONTS if name in installed]
    matplotlib.rcParams.update(STYLE | {"font.family": fonts})
    serve_confined(reply, MAX_CPU_S, MAX_MEMORY, reads=True)
