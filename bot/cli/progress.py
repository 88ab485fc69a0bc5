"""The live plan: a row a subagent on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bot.replies import plan
from bot.replies.plan import MARKS, OPEN
from subagents.events import Emit, Event

STYLES = {
    "queued": "dim",
    "working": "cyan",
    "complete": "green",
    "failed": "red",
}
"""Of the others: yellow."""
MAX_ROWS = 40
"""Rows of a live plan; above it the finished ones are counted instead."""


class Plan(plan.Plan):
    """A plan that can be shown on a terminal."""

    def calm(self, text: str) -> str:
        """Nothing on a terminal is a link or a mention: names stand as they are."""
        return plan.calm(text)

    def table(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        if self.sources:
            grid.add_row(Text("…", style="cyan"), Text(self.sources), "")
        rows = list(self.rows.values())
        if len(rows) > MAX_ROWS:
            done = [r for r in rows if r.state not in OPEN]
            rows = [r for r in rows if r.state in OPEN][:MAX_ROWS]
            grid.add_row("", Text(f"{len(done)} of {len(self.rows)} done"), "")
        for row in rows:
            mark = Text(MARKS.get(row.state, "?"), style=STYLES.get(row.state, "yellow"))
            grid.add_row(mark, Text(row.label), Text(row.note, style="dim"))
        if self.answer:
            grid.add_row("", Text(self.answer[-400:], style="italic"), "")
        return grid


@contextmanager
def showing(stream: TextIO) -> Iterator[Emit]:
    """Shows events while inside: a live table on a terminal, otherwise a line for what matters."""
    known = Plan()
    if not stream.isatty():

        def write(event: Event) -> None:
            if line := known.take(event):
                print(line, file=stream, flush=True)

        yield write
        return
    console = Console(file=stream)
    with Live(known.table(), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            if (line := known.take(event)) and line[0] not in "✓◐✗■…·":
                live.console.print(Text(line))
            live.update(known.table())

        yield show
    if known.rows:
        known.answer = ""
        console.print(known.table())
