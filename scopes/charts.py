"""Charts: a table that the run keeps as CSV becomes a picture of it."""

from __future__ import annotations

import asyncio
import atexit
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from tempfile import TemporaryDirectory
from typing import Literal

from rich.cells import cell_len
from rich.text import Text

from scopes.chart_model import Axis, Chart
from scopes.clean import printable
from scopes.effects import Access
from scopes.programs import WorkerDied, WorkerProcess, WorkerTimedOut
from scopes.resources import (
    PNG,
    NewFile,
    Resources,
    file_name,
    parse_name,
    resources_of,
    space_of_run,
)
from scopes.tool import (
    Item,
    SourceFailed,
    ToolContext,
    ToolError,
    ToolResult,
    one_line,
    tool,
    under,
)

MAX_BARS, MAX_POINTS = 40, 5_000
"""Rows of a bar chart, and of any other."""
MAX_SERIES = 8
MAX_TITLE, MAX_NAME = 70, 36
"""Columns of text of a title, and of a name at an axis; wide letters take two."""
MAX_UPRIGHT_BARS = 12
"""Maximum upright bars; more are drawn horizontally."""
UPRIGHT_NAMES = 90
"""Maximum columns of text of their names together."""
HEIGHT, BAR_INCHES = 4.2, 0.36

ChartKind = Literal["bar", "line", "scatter"]

_MONTH = re.compile(r"\d{4}-\d{2}")


@tool(Access.WRITE, client=Resources)
async def make_chart(
    ctx: ToolContext,
    file: str,
    kind: ChartKind,
    x: str,
    y: list[str],
    title: str = "",
) -> ToolResult:
    """Draw columns of a kept CSV as a PNG, which goes with the answer."""
    files = resources_of(ctx)
    name, version = parse_name(file)
    name = file_name(name, "csv")
    found = await files.get(space_of_run(ctx.run), name, version or None)
    if found is None:
        raise ToolError(f"There is no {name}. Keep a result of that name first.")
    with under(found.label):
        table = await asyncio.to_thread(table_of, found.content)
        chart = chart_of(table, kind, x, y, title)
    try:
        picture = await render_chart(chart, "This chart")
    except DrawingFailed as error:
        raise SourceFailed(str(error)) from error
    label = ctx.label.join(found.label)
    name = f"{_stem(title or found.name.removesuffix('.csv'))}.png"
    new_file = NewFile(space_of_run(ctx.run), ctx.key, name, PNG, picture, label, ctx.run)
    kept = await files.save(new_file)
    text = f"{kind} chart of {len(chart.x.values)} rows of {found.id}: {x}; {', '.join(y)}"
    return ToolResult((Item(kept.id, text, None, label),), note="Kept.")


Table = Sequence[Sequence[str]]
"""The lines of a CSV file: the names of its columns, then its rows."""


def _column(table: Table, name: str) -> list[str]:
    """Return the cells of a column. Raises ToolError if it does not exist."""
    wanted, (columns, *rows) = name.strip().casefold(), table
    names = [each.strip().casefold() for each in columns]
    if name not in columns and wanted not in names:
        raise ToolError(f"No column {one_line(name)[:60]!r}. Use the names of the first line.")
    at = columns.index(name) if name in columns else names.index(wanted)
    return [row[at].strip() if at < len(row) else "" for row in rows]


def table_of(content: bytes) -> Table:
    """Return a CSV file as a table. Raises ToolError."""
    try:
        text = content.decode("utf-8-sig")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (UnicodeDecodeError, csv.Error):
        raise ToolError("This file is no CSV in UTF-8. Keep the result again.") from None
    if len(lines) < 2:
        raise ToolError("The file has no rows to draw.")
    return lines


def chart_of(table: Table, kind: ChartKind, x: str, y: Sequence[str], title: str) -> Chart:
    """Return the chart of these columns. Raises ToolError for what cannot be drawn."""
    if not 1 <= len(y) <= MAX_SERIES:
        raise ToolError(f"Give 1 to {MAX_SERIES} columns as y.")
    most, count = MAX_BARS if kind == "bar" else MAX_POINTS, len(table) - 1
    if count > most:
        raise ToolError(
            f"{count} rows are too many for a {kind} chart, which shows {most}. "
            "Group them, or keep the top ones."
        )
    series = {_cut(name, MAX_NAME): _numbers(name, _column(table, name)) for name in y}
    if len(series) < len(set(y)):
        raise ToolError("Some of these columns begin alike: give them short names in the query.")
    axis = _axis(_cut(x, MAX_NAME), _column(table, x), kind)
    if axis.type != "name":
        order = sorted(range(len(axis.values)), key=lambda k: axis.values[k])
        axis = replace(axis, values=[axis.values[k] for k in order])
        series = {name: [values[k] for k in order] for name, values in series.items()}
    if kind == "bar" and (
        len(axis.values) > MAX_UPRIGHT_BARS or sum(map(cell_len, axis.values)) > UPRIGHT_NAMES
    ):
        height = max(2.4, 1.2 + BAR_INCHES * count * max(1, len(series) * 0.6))
        return Chart("across", _cut(title, MAX_TITLE), height, axis, series)
    return Chart(kind, _cut(title, MAX_TITLE), HEIGHT, axis, series)


def _numbers(name: str, cells: Sequence[str]) -> list[float | None]:
    """Return the cells as numbers, None for empty ones. Raises ToolError."""
    found = [number_of(cell) if cell else None for cell in cells]
    wrong = sum(cell != "" and value is None for cell, value in zip(cells, found, strict=True))
    if wrong or not any(value is not None for value in found):
        what = f"{wrong} cells of it are no numbers" if wrong else "it holds no number"
        raise ToolError(f"{one_line(name)[:60]!r} cannot be y: {what}.")
    return found


def number_of(cell: str) -> float | None:
    """Parse `1234.5`, `-3e6` or `12%`; None for anything else, or if too large for a chart."""
    try:
        value = float(cell.removeprefix("'").removesuffix("%"))
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def time_of(cell: str) -> datetime | None:
    """Return a day, a month or a time as ISO 8601 writes them, in UTC if it has no zone."""
    try:
        found = datetime.fromisoformat(f"{cell}-01" if _MONTH.fullmatch(cell) else cell)
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _axis(name: str, cells: Sequence[str], kind: ChartKind) -> Axis:
    """Return the axis with the positions of the rows: numbers, times, or names."""
    if kind != "bar":
        times = [time_of(cell) if "-" in cell else None for cell in cells]
        if all(times):
            return Axis(name, "time", [at.isoformat() for at in times if at])
        numbers = [number_of(cell) for cell in cells]
        if all(number is not None for number in numbers):
            return Axis(name, "number", numbers)
    if len(cells) > MAX_BARS:
        raise ToolError(f"More than {MAX_BARS} names do not fit on an axis. Group them.")
    return Axis(name, "name", [_cut(cell, MAX_NAME) or "–" for cell in cells])


def _cut(text: str, most: int) -> str:
    """Return a text on one line of at most so many columns."""
    plain = Text(one_line(printable(text)))
    plain.truncate(most, overflow="ellipsis")
    return plain.plain


def _stem(text: str) -> str:
    """Return a text as the name of a file: letters and figures with dashes between them."""
    plain = one_line(printable(text)).casefold()
    return re.sub(r"[^\w]+", "-", plain).strip("-_")[:50].rstrip("-_") or "chart"


DRAWING_TIMEOUT_S = 30.0
"""Maximum seconds of a drawing; on a busy machine it takes a few."""
IDLE_S = 60.0
"""Seconds after the last chart until the program ends."""


class DrawingFailed(Exception):
    """A chart could not be drawn; the text says why, in a sentence for people."""


@cache
def _renderer() -> WorkerProcess:
    """Return the program; it keeps its list of fonts in a folder that is deleted with the bot."""
    home = TemporaryDirectory(prefix="chart-")
    atexit.register(home.cleanup)
    env = {"HOME": home.name, "MPLCONFIGDIR": home.name, "OPENBLAS_NUM_THREADS": "1"}
    return WorkerProcess("scopes.chart_program", DRAWING_TIMEOUT_S, env=env, idle_s=IDLE_S)


async def render_chart(chart: Chart, what: str) -> bytes:
    """Render a chart as a PNG; `what` names it for people. Raises DrawingFailed."""
    try:
        picture = await _renderer().ask(chart.to_json())
    except WorkerTimedOut:
        raise DrawingFailed(f"{what} took too long to draw.") from None
    except WorkerDied:
        picture = b""
    if not picture:
        raise DrawingFailed(f"{what} could not be drawn.")
    return picture
