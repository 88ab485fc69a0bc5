"""What a digest says over all its threads: what to do first, and which threads are one matter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.replies.cite import SPACED, Statement, ids_in
from subagents.result import SubagentResult

MAX_FIRST = 3
SAME = "SAME:"
PRIORITIES = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that rest on verdicts, by the ids of their findings."""

    first: tuple[Statement, ...] = ()
    matters: tuple[Statement, ...] = ()
    """Each is about two threads or more, and no thread is in two of them."""

    def with_first(self, lines: Sequence[Statement]) -> Lines:
        return replace(self, first=tuple(lines))

    def first_json(self, threads: Mapping[str, str]) -> list[dict[str, Any]]:
        """`threads`: id of a finding -> id of its thread."""
        return [
            {"text": s.text, "findings": list(s.findings), "threads": _threads(s, threads)}
            for s in self.first
        ]

    def matters_json(self, threads: Mapping[str, str]) -> list[dict[str, Any]]:
        return [{"text": s.text, "threads": _threads(s, threads)} for s in self.matters]


def _threads(said: Statement, threads: Mapping[str, str]) -> list[str]:
    return [threads[i] for i in said.findings if i in threads]


def read_lines(text: str, known: Collection[str]) -> Lines:
    """The lines of a parent that cite what is known; a thread belongs to one matter, the first."""
    first: list[Statement] = []
    matters: list[Statement] = []
    placed: set[str] = set()
    for line in text.splitlines():
        cited = tuple(dict.fromkeys(i for i in ids_in(line) if i in known))
        said = SPACED.sub("", line).strip(" -*•").rstrip(" ,;")
        if said.upper().startswith(SAME):
            rest = tuple(i for i in cited if i not in placed)
            if len(rest) > 1:
                placed.update(rest)
                matters.append(Statement(said[len(SAME) :].strip(), rest))
        elif said and cited and len(first) < MAX_FIRST:
            first.append(Statement(said, cited))
    return Lines(tuple(first), tuple(matters))


def urgency(result: SubagentResult) -> tuple[bool, str, int]:
    """Sorts verdicts by what to do first: asked of the reader, due soonest, of high priority."""
    value = result.value or {}
    priority = PRIORITIES.index(value.get("priority", "low"))
    asked = bool(value.get("asked_of_me")) or priority == 0
    return (not asked, str(value.get("deadline") or "9999"), priority)


def shown_first(results: Sequence[SubagentResult], room: int) -> list[SubagentResult]:
    """As many verdicts as a parent has room for, the urgent ones first; all, if they fit."""
    return list(results) if len(results) <= room else sorted(results, key=urgency)[:room]


def by_urgency(results: Sequence[SubagentResult]) -> list[Statement]:
    """What to do first without a model: what is asked of the reader or urgent, ranked by code."""
    ranked = [r for r in sorted(results, key=urgency) if not urgency(r)[0] and r.findings]
    return [Statement(_act(r), (r.findings[0].id,)) for r in ranked[:MAX_FIRST]]


def _act(result: SubagentResult) -> str:
    finding = result.findings[0]
    return finding.next_step or finding.claim
