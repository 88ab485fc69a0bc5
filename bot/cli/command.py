"""Run a reading command, from its checked options to its exit code, with a live plan."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bot.context import App, open_app
from bot.errors import SetupError
from bot.options import Options
from bot.reports.documents import AnswerDocument, Document
from bot.runs.store import Store
from bot.slack.plan import MARKS, UNFINISHED_STATES, Plan, clean_line
from bot.storage.encryption import cipher_of
from bot.storage.tables import StoredRun
from bot.terminal import DONE, INCOMPLETE, dump, say, tell
from config.settings import Settings, load_settings
from subagents.events import Emit, Event

D = TypeVar("D", bound=Document)
Work = Callable[[App], Awaitable[D]]
TextRenderer = Callable[[D], str]


def run_reading(options: Options, work: Work[D], text: TextRenderer[D], as_json: bool) -> int:
    """Run one reading command from its checked options to its exit code."""
    document, fault = read(load_settings(), options, work)
    dump(document.to_json()) if as_json else say(text(document))
    return report_outcome(document, fault)


def read(settings: Settings, options: Options, work: Work[D]) -> tuple[D, str]:
    """Return the document, and why it was not stored; empty = it was stored."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)

    async def go() -> tuple[D, str]:
        with show_progress(sys.stderr) as emit:
            async with open_app(settings, options, emit) as app:
                _stop_by_ctrl_c(app)
                for problem in app.problems:
                    tell(f"warning: {problem}")
                return await work(app), app.store_fault

    try:
        return asyncio.run(go())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def report_outcome(document: Document, fault: str) -> int:
    """Report what is wrong with a shown document; return its exit code."""
    if fault:
        tell(f"warning: the run was not stored: {fault}")
    if why := _model_fault(document):
        hint = (
            "Check ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and `models`, or run `assistant doctor`."
        )
        tell(f"error: The model answered nothing: {why}. {hint}")
    return DONE if document.status == "complete" and not fault else INCOMPLETE


def _stop_by_ctrl_c(app: App) -> None:
    """Make the first Ctrl-C end the run with partial results, and the second end the process.

    An exception at an arbitrary place of the loop could lose a task, and then wait for it.
    """
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work

    def stop() -> None:
        loop.add_signal_handler(signal.SIGINT, work.cancel)
        tell("stopping with what there is; Ctrl-C again to end at once")
        app.stop.set()

    loop.add_signal_handler(signal.SIGINT, stop)


def _model_fault(document: Document) -> str:
    """Return the reason why no model call succeeded; empty unless there is exactly one."""
    own = [document] if isinstance(document, AnswerDocument) else []
    parts = [*own, *document.subagents]
    faults = {p.reason for p in parts if p.stopped_by in ("model_error", "rate_limit")}
    return faults.pop() if document.status == "failed" and len(faults) == 1 else ""


async def run_to_resume(settings: Settings, id: str, kind: str) -> StoredRun:
    """Return an interrupted run of this kind. Raises SetupError for any other."""
    opened = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
    async with aclosing(opened) as store:
        stored = await store.run(id)
    if stored.kind != kind:
        hint = "`assistant runs` lists them."
        raise SetupError(f"no_{kind}", f"The run {stored.id} is no {kind}.", hint)
    if stored.result is not None:
        hint = f"`assistant show {stored.id}` shows its result."
        raise SetupError("complete", f"The {kind} {stored.id} has ended: {stored.status}.", hint)
    if not stored.question:
        raise SetupError(
            "deleted", f"What the {kind} {stored.id} had read is deleted.", "Start anew."
        )
    return stored


STYLES = {"queued": "dim", "working": "cyan", "complete": "green", "failed": "red"}
"""Styles by state; the others are yellow."""
MAX_ROWS = 40
"""Maximum rows of a live plan; above this number the finished ones are counted instead."""


def plan_table(plan: Plan) -> Table:
    """Return the plan as a table for a terminal."""
    grid = Table.grid(padding=(0, 1))
    if plan.sources:
        grid.add_row(Text("…", style="cyan"), Text(plan.sources), "")
    rows = list(plan.rows.values())
    if len(rows) > MAX_ROWS:
        done = [r for r in rows if r.state not in UNFINISHED_STATES]
        rows = [r for r in rows if r.state in UNFINISHED_STATES][:MAX_ROWS]
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
    plan = Plan(clean=clean_line)
    if not stream.isatty():

        def write(event: Event) -> None:
            if line := plan.take(event):
                print(line, file=stream, flush=True)

        yield write
        return
    console = Console(file=stream)
    with Live(plan_table(plan), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            if (line := plan.take(event)) and line[0] not in "✓◐✗■…·":
                live.console.print(Text(line))
            live.update(plan_table(plan))

        yield show
    if plan.rows:
        plan.answer = ""
        console.print(plan_table(plan))
