"""Keep the progress of a run, and show it in Slack as rows of a plan, live or as blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.citations import Links, neutralize_links
from bot.terminal import printable
from config.words import current, phrase
from scopes.clean import redact
from scopes.tool import one_line
from subagents.events import (
    AnswerDelta,
    AnswerRestarted,
    BriefWasRefused,
    Event,
    ParentHandedOver,
    SourcesRead,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
    ToolsCalled,
)

MARKS = {
    "queued": "·",
    "working": "…",
    "complete": "✓",
    "partial": "◐",
    "failed": "✗",
    "cancelled": "■",
    "refused": "–",
}
UNFINISHED_STATES = ("queued", "working")
"""States of an unfinished subagent."""
STATUSES = {"queued": "pending", "working": "in_progress", "complete": "complete"} | {
    "partial": "complete"
}
"""Slack's word for a state; for the others it is `error`."""
MAX_TITLE = 120
"""Characters of a row. A streamed message may have about 10,000 bytes, plan and text together
(measured: github.com/openclaw/openclaw/pull/143882)."""
PARENT_ROW = "request"
"""The row of the parent's own look-ups."""
SCOPES = ("slack", "email", "data", "web", "notes", "files", "all")
"""Scopes whose sources we name in a row; an MCP server names its own."""
LOOKUPS = ("list_channels", "read_thread", "lookup_user", "search_notes")
"""The parent's own tools that are shown as a row; the others are not."""
ENDINGS = ("partial", "failed", "cancelled", "refused")
"""States of a subagent that its row shows."""


def clean_line(text: str) -> str:
    """Return one line without secrets and terminal control characters."""
    return printable(redact(one_line(text)))


def clean_for_slack(text: str) -> str:
    """Return the same line, with no active links."""
    return neutralize_links(Links().defang(clean_line(text)))


@dataclass
class PlanRow:
    """One subagent."""

    child: str
    title: str
    scope: str = ""
    model: str = ""
    state: str = "queued"
    note: str = ""
    """Text next to it in a terminal: its last tools, or its findings and cost."""
    found: int | None = None
    """Number of findings; None while it works."""

    @property
    def label(self) -> str:
        return f"{self.child} {self.title} ({self.model})"


@dataclass
class Plan:
    """The progress of a run so far."""

    rows: dict[str, PlanRow] = field(default_factory=dict)
    own: str = ""
    """The last look-up of the parent itself; empty = none."""
    sources: str = ""
    """Number of sources read, while some remain."""
    answer: str = ""
    clean: Callable[[str], str] = clean_for_slack
    """Cleans a text by others for the place where the plan is shown."""

    def take(self, event: Event) -> str:
        """Record an event; return a line for text output, or an empty string."""
        match event:
            case SourcesRead():
                return self._read(event)
            case SubagentQueued(child, title, scope, model):
                self.rows[child] = PlanRow(child, self.clean(title), scope, self.clean(model))
            case SubagentStarted(child) if child in self.rows:
                self.rows[child].state = "working"
            case ToolsCalled(context, names):
                self._call(context, names)
            case SubagentFinished():
                return self._finish(event)
            case BriefWasRefused(title, field_name, reason):
                return self.clean(f"– brief refused ({title}): {field_name}: {reason}")
            case ParentHandedOver(session):
                return f"↻ the parent's context is full; session {session} goes on"
            case AnswerRestarted():
                self.answer = ""
            case AnswerDelta(text):
                self.answer += printable(text)
        return ""

    def _read(self, event: SourcesRead) -> str:
        text = phrase("plan.channels_read", n=event.total, read=current().number(event.read))
        self.sources = text if event.read < event.total else ""
        self.own = text
        return "" if event.read else f"· {text}"

    def _call(self, context: str, names: Sequence[str]) -> None:
        if context in self.rows:
            self.rows[context].note = self.clean(", ".join(dict.fromkeys(names)))
            return
        lookups = [name for name in names if name in LOOKUPS]
        self.own = phrase(f"plan.{lookups[-1]}") if lookups else self.own

    def _finish(self, event: SubagentFinished) -> str:
        row = self.rows.setdefault(event.child, PlanRow(event.child, ""))
        why = "" if event.stopped_by == "none" else f", {event.stopped_by}"
        price = "" if event.cost_usd is None else f", ${event.cost_usd:.4f}"
        found = "finding" if event.findings == 1 else "findings"
        row.state, row.note = event.status, f"{event.findings} {found}{why}{price}"
        row.found = event.findings
        return f"{MARKS.get(row.state, '?')} {row.label}: {row.state}, {row.note}"


@dataclass(frozen=True, slots=True)
class PlanTask:
    """A row as Slack shows it. Details and output are unused: a stream appends to them."""

    id: str
    title: str
    status: str
    """`pending`, `in_progress`, `complete` or `error`."""

    def chunk(self) -> dict[str, Any]:
        return {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}

    def card(self) -> dict[str, Any]:
        fields = {"task_id": self.id, "title": self.title, "status": self.status}
        return {"type": "task_card", **fields}


def tasks(
    plan: Plan, max_rows: int, shown: Collection[str] = (), *, over: bool = False
) -> list[PlanTask]:
    """Return the rows: one for each question, or one for each kind of source above `max_rows`.

    There is none before the first look-up.

    Rows in `shown` stay, because a stream cannot remove them; groups then count the rest. `over` =
    nothing is running any more, even if the events say otherwise.
    """
    one_each = len(plan.rows) <= max_rows
    single = [r for r in plan.rows.values() if one_each or r.child in shown]
    grouped: dict[str, list[PlanRow]] = {}
    for row in plan.rows.values():
        if not one_each and row.child not in shown:
            grouped.setdefault(row.scope or "other", []).append(row)
    result = [*_own(plan), *map(_task, single)]
    result += [_group(scope, rows, bool(single)) for scope, rows in grouped.items()]
    return [_end(task) for task in result] if over else result


def short_heading(plan: Plan, *, over: bool = False) -> str:
    """Return a short heading for the plan."""
    if len(plan.rows) < 2:
        return phrase("plan.done" if over else "plan.at_work")
    done = sum(row.state not in UNFINISHED_STATES for row in plan.rows.values())
    return phrase("plan.some_done", done=str(done), of=str(len(plan.rows)))


def block(rows: Iterable[PlanTask], title: str) -> dict[str, Any]:
    """Return the plan as a block for a message that is not streamed."""
    return {"type": "plan", "title": title, "tasks": [row.card() for row in rows]}


def lines(rows: Iterable[PlanTask], title: str) -> str:
    """Return the plan as plain text."""
    marks = {"pending": "·", "in_progress": "…", "complete": "✓", "error": "✗"}
    text = "\n".join([title, *(f"{marks[row.status]} {row.title}" for row in rows)])
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _own(plan: Plan) -> Iterator[PlanTask]:
    if plan.own:
        at_work = plan.sources or not (plan.rows or plan.answer)
        yield PlanTask(PARENT_ROW, shorten(plan.own), "in_progress" if at_work else "complete")


def _task(row: PlanRow) -> PlanTask:
    parts = [_sources(row.scope)]
    parts += [phrase("count.finding", n=row.found)] if row.found else []
    parts += [phrase(f"plan.{row.state}")] if row.state in ENDINGS else []
    note = f" · {', '.join(filter(None, parts))}"
    title = shorten(row.title or phrase("plan.question"), MAX_TITLE - min(len(note), 60))
    return PlanTask(row.child, shorten(title + note), STATUSES.get(row.state, "error"))


def _group(scope: str, rows: list[PlanRow], more: bool) -> PlanTask:
    done = [row for row in rows if row.state not in UNFINISHED_STATES]
    failed = sum(STATUSES.get(row.state) is None for row in done)
    bad = f", {phrase('plan.some_failed', n=failed)}" if failed else ""
    key = "plan.more_done" if more else "plan.some_done"
    title = f"{_sources(scope)}: {phrase(key, done=str(len(done)), of=str(len(rows)))}{bad}"
    if len(done) == len(rows):
        status = "error" if failed == len(rows) else "complete"
    else:
        is_started = done or any(row.state == "working" for row in rows)
        status = "in_progress" if is_started else "pending"
    return PlanTask(f"scope-{scope}", shorten(title), status)


def _sources(scope: str) -> str:
    return phrase(f"plan.{scope}") if scope in SCOPES else scope


def _end(task: PlanTask) -> PlanTask:
    """Mark an unfinished row as ended, so that Slack stops animating it."""
    if task.status in ("pending", "in_progress"):
        return PlanTask(task.id, task.title, "error")
    return task


def shorten(text: str, length: int = MAX_TITLE) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
