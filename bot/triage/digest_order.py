"""What of a triage comes first, and what belongs together: each verdict stands in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from bot.mail.words import due

PRIORITIES = ("high", "medium", "low")
MOST_FIRST = 3
"""Things to do first."""
FAR = 1_000
"""Days that a verdict without a near deadline counts as."""

Json = Mapping[str, Any]
Matter = tuple[str, Sequence[Json]]
"""What verdicts are about together, empty for one by itself; the most pressing one first."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """The verdicts of a triage in the order in which they are read."""

    pressing: tuple[Matter, ...]
    """Of each the first verdict is asked of the reader, urgent, or among the things to do first."""
    categories: tuple[tuple[str, Sequence[Json]], ...]
    """What can wait, by category."""
    matters: tuple[Matter, ...]
    """What can wait and is of several threads."""


def first_lines(document: Json) -> Sequence[Json]:
    """What the document says to do first."""
    lines: Sequence[Json] = document["top_lines"][:MOST_FIRST]
    return lines


def ordered(document: Json, categories: Iterable[str] = ()) -> Ordered:
    """Every verdict once: threads of one matter together, where its most pressing one would stand.

    Verdicts are ranked by their near deadline, then by priority, then by how long they wait.
    `categories` are told in this order, others after them.
    """
    today = datetime.fromisoformat(document["as_of"]).astimezone(UTC).date()
    named = frozenset(i for line in first_lines(document) for i in line["threads"])
    rank = _Rank(today, named)
    groups = sorted(_groups(document, rank), key=lambda group: rank(group[1][0]))
    waiting = [group for group in groups if not rank.presses(group[1][0])]
    alone = [verdicts[0] for matter, verdicts in waiting if not matter]
    names = dict.fromkeys([*categories, *sorted(v["category"] for v in alone)])
    by_name = [(name, [v for v in alone if v["category"] == name]) for name in names]
    return Ordered(
        pressing=tuple(group for group in groups if rank.presses(group[1][0])),
        categories=tuple((name, verdicts) for name, verdicts in by_name if verdicts),
        matters=tuple(group for group in waiting if group[0]),
    )


@dataclass(frozen=True, slots=True)
class _Rank:
    today: date
    named: frozenset[str] = field(default_factory=frozenset)
    """Threads that the first lines are about."""

    def presses(self, verdict: Json) -> bool:
        asked = bool(verdict["asked_of_me"]) or verdict["priority"] == "high"
        return asked or verdict["thread_id"] in self.named

    def __call__(self, verdict: Json) -> tuple[bool, int, int, str, str]:
        until = due(verdict["deadline"], self.today)
        days = until.days if until and until.near else None
        priority, at = PRIORITIES.index(verdict["priority"]), verdict["at"] or "9999"
        near = FAR if days is None else days
        return not self.presses(verdict), near, priority, at, verdict["thread_id"]


def _groups(document: Json, rank: _Rank) -> list[Matter]:
    left = {verdict["thread_id"]: verdict for verdict in document["verdicts"]}
    groups: list[Matter] = []
    for matter in document["matters"]:
        ids = [i for i in dict.fromkeys(matter["threads"]) if i in left]
        if len(ids) > 1:
            told = matter["text"].strip() or "One matter"
            groups.append((told, sorted((left.pop(i) for i in ids), key=rank)))
    return groups + [("", [verdict]) for verdict in left.values()]
