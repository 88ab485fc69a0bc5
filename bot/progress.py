"""The live plan: a row a subagent on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bot.report import printable
from scopes.tool import one_line
from subagents.events import (
    AnswerDelta,
    AnswerRestarted,
    BriefWasRefused,
    Emit,
    Event,
    ParentHandedOver,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
    ToolsCalled,
)

MARKS = {
    "queued": ("·", "dim"),
    "working": ("…", "cyan"),
    "complete": ("✓", "green"),
    "partial": ("◐", "yellow"),
    "failed": ("✗", "red"),
    "cancelled": ("■", "yellow"),
    "refused": ("–", "yellow"),
}
MAX_ROWS = 40
"""Rows of a live plan; above it the finished ones are counted instead."""


@dataclass
class Row:
    title: str
    state: str = "queued"
    note: str = ""


@dataclass
class Plan:
    """What is known of the run so far."""

    rows: dict[str, Row] = field(default_factory=dict)
    answer: str = ""

    def take(self, event: Event) -> str:
        """Note an event; a line for those who read lines, or nothing."""
        match event:
            case SubagentQueued(child, title, _scope, model):
                self.rows[child] = Row(printable(one_line(f"{child} {title} ({model})")))
            case SubagentStarted(child):
                self.rows[child].state = "working"
            case ToolsCalled(context, names) if context in self.rows:
                self.rows[context].note = printable(one_line(", ".join(dict.fromkeys(names))))
            case SubagentFinished(child, status, stopped_by, findings, cost):
                row = self.rows[child]
                why = "" if stopped_by == "none" else f", {stopped_by}"
                price = "" if cost is None else f", ${cost:.4f}"
                row.state, row.note = status, f"{findings} findings{why}{price}"
                return f"{MARKS[status][0]} {row.title}: {status}, {row.note}"
            case BriefWasRefused(title, field_name, reason):
                return printable(one_line(f"– brief refused ({title}): {field_name}: {reason}"))
            case ParentHandedOver(session):
                return f"↻ the parent's context is full; session {session} goes on"
            case AnswerRestarted():
                self.answer = ""
            case AnswerDelta(text):
                self.answer += printable(text)
        return ""

    def table(self) -> Table:
        grid = Table.grid(padding=(0, 1))
        rows = list(self.rows.values())
        if len(rows) > MAX_ROWS:
            done = [r for r in rows if r.state not in ("queued", "working")]
            rows = [r for r in rows if r.state in ("queued", "working")][:MAX_ROWS]
            grid.add_row("", Text(f"{len(done)} of {len(self.rows)} done"), "")
        for row in rows:
            mark, style = MARKS[row.state]
            grid.add_row(Text(mark, style=style), Text(row.title), Text(row.note, style="dim"))
        if self.answer:
            grid.add_row("", Text(self.answer[-400:], style="italic"), "")
        return grid


@contextmanager
def showing(stream: TextIO) -> Iterator[Emit]:
    """Shows events while inside: a live table on a terminal, otherwise a line for what matters."""
    plan = Plan()
    if not stream.isatty():

        def write(event: Event) -> None:
            if line := plan.take(event):
                print(line, file=stream, flush=True)

        yield write
        return
    console = Console(file=stream)
    with Live(plan.table(), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            if (line := plan.take(event)) and line[0] not in "✓◐✗■":
                live.console.print(Text(line))
            live.update(plan.table())

        yield show
    if plan.rows:
        plan.answer = ""
        console.print(plan.table())
