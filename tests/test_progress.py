"""Progress: rows in Slack, lines where it is piped, a live table on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from timing import WAIT_S

from bot.cli.command import plan_table
from bot.slack.plan import MAX_TITLE, Plan, clean_line, lines, short_heading, tasks
from subagents.events import (
    AnswerDelta,
    BriefWasRefused,
    SourcesRead,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
    ToolsCalled,
)


def render_plan(plan: Plan) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(plan_table(plan))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_progress_removes_terminal_escape_sequences_and_line_breaks() -> None:
    plan = Plan(clean=clean_line)
    plan.take(SubagentQueued("s1", "Read\n\x1b[2J it", "slack", "fast"))
    plan.take(ToolsCalled("s1", ("x\x1b]0;gone\x07\n",)))
    plan.take(AnswerDelta("\x1b[31mred"))
    line = plan.take(BriefWasRefused("a\nb", "task", "\x1b[2J"))
    assert "\x1b" not in render_plan(plan) + line
    assert len(line.splitlines()) == 1
    assert plan.rows["s1"].title.splitlines() == [plan.rows["s1"].title]


WORK = """
import sys
sys.path.insert(0, {root!r})
from bot.cli.command import show_progress
from subagents.events import SubagentFinished, SubagentQueued, SubagentStarted
with show_progress(sys.stderr) as emit:
    emit(SubagentQueued("s1", "Read #support-es", "slack", "fast"))
    emit(SubagentStarted("s1"))
    sys.stdin.read()
    emit(SubagentFinished("s1", "complete", "none", 3, 0.0012))
print("the result")
"""


def test_terminal_shows_a_live_table_and_stdout_only_the_result() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WORK.format(root=str(Path(__file__).resolve().parent.parent))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "90"},
    )
    os.close(theirs)
    assert process.stdin
    seen = b""
    with suppress(OSError):  # Linux's way to say that the other end is closed
        while part := os.read(ours, 65536):
            seen += part
            if "…".encode() in seen:
                process.stdin.close()  # the table is shown: let it go on
    process.stdin = None
    out, _ = process.communicate(timeout=WAIT_S)
    os.close(ours)
    assert out == "the result\n"
    text = seen.decode()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert plain.rstrip().endswith("3 findings, $0.0012")


def task_states(plan: Plan) -> list[tuple[str, str]]:
    return [(task.title, task.status) for task in tasks(plan, 40)]


def test_plan_counts_the_channels_that_are_read() -> None:
    plan = Plan()
    plan.take(ToolsCalled("p1", ("list_channels",)))
    assert task_states(plan) == [("Channels", "in_progress")]
    plan.take(SourcesRead(3, 12))
    assert task_states(plan) == [("3 of 12 channels read", "in_progress")]
    plan.take(SourcesRead(12, 12))
    plan.take(AnswerDelta("So"))
    assert task_states(plan) == [("12 of 12 channels read", "complete")]


def test_each_question_has_a_row_with_its_status() -> None:
    plan = Plan()
    for n in range(1, 5):
        plan.take(SubagentQueued(f"s{n}", f"Read {n}", "slack", "fast"))
    plan.take(SubagentStarted("s1"))
    plan.take(SubagentStarted("s2"))
    plan.take(ToolsCalled("s1", ("read_thread",)))
    for n, status in ((3, "complete"), (4, "failed"), (5, "complete")):
        plan.take(SubagentFinished(f"s{n}", status, "none", 2, 0.001))
    assert task_states(plan) == [
        ("Read 1 · Slack", "in_progress"),
        ("Read 2 · Slack", "in_progress"),
        ("Read 3 · Slack, 2 findings", "complete"),
        ("Read 4 · Slack, 2 findings, this failed", "error"),
        ("A question · 2 findings", "complete"),
    ]
    assert short_heading(plan) == "3 of 5 done"


def test_plan_titles_are_escaped_and_shortened() -> None:
    plan = Plan()
    plan.take(SubagentQueued("s1", "a\n<!channel> " + "é" * 999, "slack", "fast"))
    (row,) = tasks(plan, 40)
    assert len(row.title) <= MAX_TITLE
    assert "\n" not in row.title
    text = lines(tasks(plan, 40), short_heading(plan))
    assert "&lt;!channel&gt;" in text
    assert "<!" not in text
