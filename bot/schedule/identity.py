"""Which finding is which issue: by the threads that it rests on, never by how it is worded."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from subagents.contracts import NEEDS_ACTION
from subagents.evidence import normal

CLOSED = ("solved", "none")
"""States of what is over, or was no issue after all."""
NOBODY = ("", "nobody")


@dataclass(frozen=True, slots=True)
class Trace:
    """Where an issue can be seen."""

    channel: str
    threads: frozenset[str]
    """Ids of the messages that opened the threads of its evidence."""
    messages: frozenset[str] = frozenset()
    """Ids of its evidence: they stay where the message that opened a thread was deleted."""

    @classmethod
    def of(cls, channel: str, finding: Mapping[str, Any]) -> Trace:
        """The trace of a finding of a document, in its own channel where it has one there."""
        threads, evidence = finding["threads"], finding["evidence"]
        mine = frozenset(t for t in threads if t.startswith(f"{channel}/"))
        said = frozenset(e for e in evidence if e.startswith(f"{channel}/"))
        if mine:
            return cls(channel, mine, said)
        return cls(channel, frozenset(threads or evidence), frozenset(evidence))

    @property
    def oldest(self) -> str:
        return min(self.threads, default="")

    @property
    def order(self) -> tuple[list[str], list[str]]:
        """By which traces sort, the oldest first."""
        return sorted(self.threads), sorted(self.messages)

    def shared(self, other: Trace) -> tuple[int, int]:
        """Threads and messages that both have; none in two channels."""
        if self.channel != other.channel:
            return 0, 0
        return len(self.threads & other.threads), len(self.messages & other.messages)

    def joined(self, others: Iterable[Trace]) -> Trace:
        all_of = [self, *others]
        threads = frozenset().union(*(t.threads for t in all_of))
        return Trace(self.channel, threads, frozenset().union(*(t.messages for t in all_of)))


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue as it was last told."""

    id: str
    trace: Trace
    state: str
    severity: str
    owner: str
    first: datetime
    """When it was opened."""
    last: datetime
    """When it was told last."""
    claim: str = ""
    item: str = ""
    """Name of its channel."""
    links: tuple[str, ...] = ()

    @property
    def needs_action(self) -> bool:
        return self.state in NEEDS_ACTION


@dataclass(frozen=True, slots=True)
class Match:
    """What was known before of one finding."""

    issue: Issue | None = None
    """The issue that it is."""
    parent: Issue | None = None
    """The issue that it was a part of; another finding of the report is that one now."""
    absorbed: tuple[Issue, ...] = ()
    """Issues that are told in this finding now, and no more for themselves."""


def matched(traces: Sequence[Trace], known: Sequence[Issue]) -> list[Match]:
    """What is known of each finding of one report; no two of them are one issue.

    Most shared threads first, then most shared messages, what was not over, the older.
    """
    overlaps = _overlaps(traces, known)
    ranked = sorted(overlaps, key=lambda pair: _rank(traces[pair[0]], known[pair[1]], pair))
    mine: dict[int, int] = {}
    told, taken = set[int](), set[int]()
    for k, n in ranked:
        if k not in mine and n not in told:
            mine[k] = n
            told.add(n)
    parents: dict[int, int] = {}
    absorbed: dict[int, list[Issue]] = {}
    for k, n in ranked:
        if n in told:
            parents.setdefault(k, n)
        elif n not in taken:
            taken.add(n)
            absorbed.setdefault(k, []).append(known[n])
    return [
        Match(
            issue=known[mine[k]] if k in mine else None,
            parent=known[parents[k]] if k in parents and k not in mine else None,
            absorbed=tuple(absorbed.get(k, ())),
        )
        for k in range(len(traces))
    ]


def _overlaps(traces: Sequence[Trace], known: Sequence[Issue]) -> set[tuple[int, int]]:
    """Pairs (finding, issue) that share a thread, or a message, in one channel."""
    seen: dict[tuple[str, str], list[int]] = {}
    for n, issue in enumerate(known):
        for place in issue.trace.threads | issue.trace.messages:
            seen.setdefault((issue.trace.channel, place), []).append(n)
    return {
        (k, n)
        for k, trace in enumerate(traces)
        for place in trace.threads | trace.messages
        for n in seen.get((trace.channel, place), ())
    }


def _rank(trace: Trace, issue: Issue, pair: tuple[int, int]) -> tuple[Any, ...]:
    threads, messages = trace.shared(issue.trace)
    known = (issue.state in CLOSED, issue.first, issue.id)
    apart = len(trace.threads ^ issue.trace.threads)
    return (-threads, -messages, *known, apart, *trace.order, pair)


def new_id(trace: Trace, taken: Collection[str]) -> str:
    """The id of an issue that is told for the first time, made of where it began."""
    number = 0
    while True:
        salt = f" {number}" if number else ""
        said = f"{trace.channel} {trace.oldest}{salt}"
        id = f"i-{hashlib.sha256(said.encode()).hexdigest()[:8]}"
        if id not in taken:
            return id
        number += 1


def change_of(state: str, severity: str, owner: str, was: Issue | None) -> str | None:
    """What a report says of an issue beside its state; None = nothing that was not said before."""
    if was is None:
        return {"solved": "solved", "none": None}.get(state, "new")
    if was.state == "solved" and state in NEEDS_ACTION:
        return "reopened"
    if was.state in CLOSED:
        return None if state in CLOSED else "changed"
    if state == "solved":
        return "solved"
    same = (state, severity) == (was.state, was.severity) and _same_owner(owner, was.owner)
    return "open" if same else "changed"


def _same_owner(one: str, other: str) -> bool:
    """Whether two owners are one, such as `Ana` and `Ana Ruiz`."""
    first, second = (set(normal(name).split()) - {*NOBODY} for name in (one, other))
    return first == second or bool(first and second and (first <= second or second <= first))
