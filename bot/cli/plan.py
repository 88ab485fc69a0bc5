"""Show the progress of a command on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bot.slack.plan import MARKS, OPEN, Plan, clean_line
from subagents.events import Emit, Event

STYLES = {
    "queued": "dim",
    "working": "cyan",
    "complete": "green",
    "failed": "red",
}
"""Styles by state; the others are yellow."""
MAX_ROWS = 40
"""Rows of a live plan; above this number the finished ones are counted instead."""


def plan_table(plan: Plan) -> Table:
    """Return the plan as a table for a terminal."""
    grid = Table.grid(padding=(0, 1))
    if plan.sources:
        grid.add_row(Text("…", style="cyan"), Text(plan.sources), "")
    rows = list(plan.rows.values())
    if len(rows) > MAX_ROWS:
        done = [r for r in rows if r.state not in OPEN]
        rows = [r for r in rows if r.state in OPEN][:MAX_ROWS]
        grid.add_row("", Text(f"{len(done)} of {len(plan.rows)} done"), "")
    for row in rows:
        mark = Text(MARKS.get(row.state, "?"), style=STYLES.get(row.state, "yellow"))
        grid.add_row(mark, Text(row.label), Text(row.note, style="dim"))
    if plan.answer:
        grid.add_row("", Text(plan.answer[-400:], style="italic"), "")
    return grid


@contextmanager
def show_progress(stream: TextIO) -> Iterator[Emit]:
    """Show events inside the context: a live table on a terminal, otherwise important lines."""
    known = Plan(clean=clean_line)
    if not stream.isatty():

        def write(event: Event) -> None:
            if line := known.take(event):
                print(line, file=stream, flush=True)

        yield write
        return
    console = Console(file=stream)
    with Live(plan_table(known), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            if (line := known.take(event)) and line[0] not in "✓◐✗■…·":
                live.console.print(Text(line))
            live.update(plan_table(known))

        yield show
    if known.rows:
        known.answer = ""
        console.print(plan_table(known))
