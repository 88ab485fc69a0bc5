"""The timeline of a run: the waits of each context, by the times in its record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bot.runs.store import WAITING_STATUS
from bot.storage.database import Database
from bot.storage.tables import StoredRun, StoredSubagent, contexts, replies, requests
from subagents.brief import draft_of
from subagents.prices import Usage

MAX_SILENCE = timedelta(minutes=15)
"""A run without a record for this time may have been killed: its page stops growing."""
SPAN_NAMES = {"wait": "waiting", "model": "model", "tools": "tools", "open": "in progress"}
"""Kind of a span -> its name in the legend."""
TICKS = 4
USAGE = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A stretch of a context's time."""

    kind: str
    """A key of KINDS."""
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


@dataclass(frozen=True, slots=True)
class Bar:
    """One context: its outcome and its spans."""

    id: str
    parent: str | None
    kind: str
    """Either `parent` or `subagent`."""
    scope: str
    model: str
    status: str
    cost_usd: float | None
    calls: int
    """Number of stored model calls."""
    title: str = ""
    stopped_by: str = "none"
    dropped: int = 0
    """Number of claims and quotes that its sources do not support."""
    findings: int | None = None
    """Number of findings; None without a result."""
    spans: tuple[TimelineSpan, ...] = ()
    """Empty if none of its calls is stored."""

    @property
    def begin(self) -> datetime | None:
        return self.spans[0].start if self.spans else None

    def seconds(self, kind: str) -> float | None:
        """Return the seconds in one kind of span; None if no times are known."""
        return sum(s.seconds for s in self.spans if s.kind == kind) if self.spans else None


@dataclass(frozen=True)
class Timeline:
    """The bars of a run between its start and its end, or now."""

    start: datetime
    end: datetime
    bars: tuple[Bar, ...]
    live: bool
    """True if the run is in progress."""
    usage: Usage
    """Tokens of all calls."""

    @property
    def seconds(self) -> float:
        return max(0.001, (self.end - self.start).total_seconds())

    @property
    def is_timed(self) -> bool:
        return any(bar.spans for bar in self.bars)

    @property
    def cached(self) -> float | None:
        """Return the share of the prompts that was read from the cache; None without a call."""
        return self.usage.cache_read / self.usage.prompt if self.usage.prompt else None

    def left_percent(self, span: TimelineSpan) -> str:
        """Return the start of a span, in percent of the width."""
        return _percent((span.start - self.start).total_seconds() / self.seconds)

    def width(self, span: TimelineSpan) -> str:
        return _percent(max(span.seconds / self.seconds, 0.001))

    def ticks(self) -> list[tuple[str, str]]:
        """Return place and label of the marks on the axis."""
        at = [n / TICKS for n in range(TICKS)]
        return [(_percent(share), seconds_text(share * self.seconds)) for share in at]


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def seconds_text(seconds: float | None) -> str:
    """Return a duration as readable text; a dash if it is not known."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


@dataclass(frozen=True, slots=True)
class TimedCall:
    """One request to a model, and its reply, if one was stored."""

    sent: datetime
    answered: datetime | None
    outcome: Mapping[str, Any] | None

    @property
    def failed(self) -> bool:
        return self.outcome is None or bool(self.outcome.get("error"))


async def timeline_of(
    database: Database, run: StoredRun, subagents: Sequence[StoredSubagent]
) -> Timeline:
    """Read the times of a run. Raises StoreError."""
    declared = await database.read(
        sa.select(contexts).where(contexts.c.run == run.id).order_by(contexts.c.seq)
    )
    calls = await _calls(database, run.id)
    times = [at for each in calls.values() for call in each for at in (call.sent, call.answered)]
    last = max(filter(None, times), default=run.started)
    now = datetime.now(UTC)
    live = run.finished is None and now - last < MAX_SILENCE
    end = run.finished or (now if live else last)
    stored = {each.id: each for each in subagents}
    declared_by_id = {row.id: row for row in declared}
    bars = [
        _bar(id, declared_by_id.get(id), stored.get(id), calls.get(id, []), end if live else None)
        for id in [*declared_by_id, *(id for id in stored if id not in declared_by_id)]
    ]
    usages = [(c.outcome or {}).get("usage") or {} for m in calls.values() for c in m]
    usage = Usage(**{name: sum(each.get(name, 0) for each in usages) for name in USAGE})
    spans = [span for bar in bars for span in bar.spans]
    start = min([run.started, *(span.start for span in spans)])
    end = max([end, *(span.end for span in spans)])
    ordered = sorted(
        bars, key=lambda bar: (bar.kind != "parent", bar.begin or end, _number(bar.id))
    )
    return Timeline(start, end, tuple(ordered), live, usage)


def _number(id: str) -> int:
    digits = "".join(filter(str.isdigit, id))
    return int(digits or 0)


async def _calls(database: Database, run: str) -> dict[str, list[TimedCall]]:
    """Return the model calls of each context, in order."""
    c, r = requests.c, replies.c
    same = sa.and_(r.run == c.run, r.context == c.context, r.seq == c.seq, r.attempt == c.attempt)
    query = sa.select(c.context, c.at, r.at.label("answered"), r.outcome)
    query = query.select_from(requests.outerjoin(replies, same)).where(c.run == run)
    found = defaultdict[str, list[TimedCall]](list)
    for row in await database.read(query.order_by(c.seq, c.attempt)):
        found[row.context].append(TimedCall(row.at, row.answered, row.outcome))
    return dict(found)


def _bar(
    id: str,
    context: sa.Row[Any] | None,
    stored: StoredSubagent | None,
    calls: Sequence[TimedCall],
    until: datetime | None,
) -> Bar:
    """Return the bar of a context; `until` is now if its run is in progress."""
    paid = [cost for call in calls if (cost := (call.outcome or {}).get("cost_usd"))]
    queued = context.created if context and context.kind != "parent" else None
    bar = Bar(
        id=id,
        parent=context.parent if context else None,
        kind=context.kind if context else "subagent",
        scope=context.scope if context else "",
        model=context.model if context else "",
        status="" if until is None else "running",
        cost_usd=sum(paid) if paid else None,
        calls=len(calls),
    )
    if stored is None:
        return replace(bar, spans=tuple(spans_of(queued, calls, until)))
    brief, draft, ended = stored.brief, draft_of(stored.brief), stored.status != WAITING_STATUS
    if frozen_at := brief.get("frozen_at"):
        queued = datetime.fromisoformat(frozen_at)
    return replace(
        bar,
        parent=bar.parent if context else brief.get("parent"),
        title=draft.description or draft.task[:80],
        scope=draft.scope,
        model=bar.model or str(brief.get("model", "")),
        status=stored.status if ended or context is None else "running",
        stopped_by=stored.stopped_by,
        cost_usd=stored.cost_usd if ended else bar.cost_usd,
        dropped=len(stored.dropped),
        findings=len((stored.result or {}).get("findings") or ()) if ended else None,
        spans=tuple(spans_of(queued, calls, None if ended else until)),
    )


def spans_of(
    queued: datetime | None, calls: Sequence[TimedCall], until: datetime | None
) -> list[TimelineSpan]:
    """Return the spans of a context that waits since `queued`, until now or its end.

    A pause after a failed call is waiting; any other pause is the time of tools or, in a parent, of
    its subagents.
    """
    found, at, pause = list[TimelineSpan](), queued, "wait"
    for number, call in enumerate(calls):
        if at:
            found.append(TimelineSpan(pause, at, max(at, call.sent)))
        later = calls[number + 1].sent if number + 1 < len(calls) else until
        at = call.answered or later or call.sent
        found.append(TimelineSpan("model", call.sent, max(at, call.sent)))
        pause = "wait" if call.failed else "tools"
    if until and at and at < until:
        found.append(TimelineSpan("open" if calls else "wait", at, until))
    return found
