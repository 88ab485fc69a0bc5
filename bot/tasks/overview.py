"""Parse what a parent wrote about a report: what to do first, problems, tracker rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.citations import SPACED, Statement, ids_in, statements
from bot.reports.documents import SharedPattern, SharedTopic, TriageLine
from bot.tasks.tracker import TrackerReader, TrackerRow
from subagents.result import SubagentResult, verdict
from subagents.summary import SEVERITIES

MAX_FIRST: Final = 7
MAX_PROBLEMS: Final = 20
_PROBLEM: Final = re.compile(r"[\s>*•_-]*PROBLEM\W*?:\**\s*(?P<said>.*)", re.IGNORECASE)
_TRACKED: Final = re.compile(r"[\s>*•_-]*TRACKED\W*?:\**\s*(?P<said>.*)", re.IGNORECASE)
_PAIR: Final = re.compile(r"(?P<id>F\d+\.\d+)|=\s*\**(?P<name>[^\s,;\]\[*]+)|(?P<else>[^\s,;\]\[])")
"""One step of `F1.1, [F2.3] = row`; anything else ends a list of ids."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The verified part of a parent's lines."""

    first: tuple[Statement, ...] = ()
    problems: tuple[Statement, ...] = ()
    """Each cites at least two findings, and none is in two of them."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Id of a finding, and the key or id of the row that it is said to match."""

    def shared_patterns(self, channels: Mapping[str, str]) -> list[SharedPattern]:
        """Return the problems; `channels`: id of a finding -> name of its channel."""
        return [
            SharedPattern(
                text=each.text,
                findings=list(each.findings),
                markets=list(dict.fromkeys(channels[id] for id in each.findings)),
            )
            for each in self.problems
        ]


def read_overview(text: str, channels: Mapping[str, str]) -> Overview:
    """Parse the lines that rest on findings; `channels`: id of a finding -> its channel."""
    rest: list[str] = []
    problems: list[Statement] = []
    placed: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        if found := _PROBLEM.match(line):
            for problem in _problem(found["said"], channels.keys() - placed):
                problems.append(problem)
                placed.update(problem.findings)
        elif tracked := _TRACKED.match(line):
            pairs += _pairs(tracked["said"], channels)
        else:
            rest.append(line)
    first = [s for s in statements("\n".join(rest), channels) if s.findings]
    return Overview(tuple(first[:MAX_FIRST]), tuple(problems[:MAX_PROBLEMS]), tuple(pairs))


def _problem(said: str, known: Collection[str]) -> list[Statement]:
    cited = tuple(dict.fromkeys(id for id in ids_in(said) if id in known))
    text = SPACED.sub("", said).strip(" .")
    return [Statement(text, cited)] if text and len(cited) > 1 else []


def _pairs(said: str, channels: Mapping[str, str]) -> list[tuple[str, str]]:
    pairs, ids = list[tuple[str, str]](), list[str]()
    for step in _PAIR.finditer(said):
        finding, name = step.group("id", "name")
        if finding:
            ids.append(finding)
        else:
            pairs += [(id, name) for id in ids if name and id in channels]
            ids = []
    return pairs


def pair_rows(
    overview: Overview, tracker: TrackerReader, channels: Mapping[str, str]
) -> dict[str, TrackerRow]:
    """Return the rows that the parent named, if they exist and their market fits.

    A finding that is said to match several rows matches none.
    """
    found: dict[str, set[TrackerRow]] = {}
    for id, name in overview.pairs:
        row = tracker.by_name(name)
        if row and tracker.fits(row, channels[id]):
            found.setdefault(id, set()).add(row)
    return {id: rows.pop() for id, rows in found.items() if len(rows) == 1}


MAX_RELATED = 3
SAME = "SAME:"


@dataclass(frozen=True, slots=True)
class TriageLines:
    """Lines that rest on verdicts, by the ids of their findings."""

    first: tuple[Statement, ...] = ()
    matters: tuple[Statement, ...] = ()
    """Each is about at least two threads, and no thread is in two of them."""

    def with_first(self, lines: Sequence[Statement]) -> TriageLines:
        return replace(self, first=tuple(lines))

    def top_lines(self, threads: Mapping[str, str]) -> list[TriageLine]:
        """Return what to do first; `threads`: id of a finding -> id of its thread."""
        return [
            TriageLine(text=s.text, findings=list(s.findings), threads=_threads(s, threads))
            for s in self.first
        ]

    def topics(self, threads: Mapping[str, str]) -> list[SharedTopic]:
        """Return what several threads are about."""
        return [SharedTopic(text=s.text, threads=_threads(s, threads)) for s in self.matters]


def _threads(said: Statement, threads: Mapping[str, str]) -> list[str]:
    return [threads[i] for i in said.findings if i in threads]


def read_triage_lines(text: str, known: Collection[str]) -> TriageLines:
    """Parse the lines that cite known findings; a thread belongs to its first topic only."""
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
        elif said and cited and len(first) < MAX_RELATED:
            first.append(Statement(said, cited))
    return TriageLines(tuple(first), tuple(matters))


def urgency(result: SubagentResult) -> tuple[bool, str, int]:
    """Sort verdicts by what to do first: asked of the reader, due soonest, high priority."""
    value = verdict(result)
    if value is None:
        return (True, "9999", len(SEVERITIES))
    priority = SEVERITIES.index(value.priority)
    return (not (value.asked_of_me or priority == 0), value.deadline or "9999", priority)


def by_urgency(results: Sequence[SubagentResult]) -> list[Statement]:
    """Return what to do first without a model: asked of the reader, or urgent and due."""
    ranked = [r for r in sorted(results, key=urgency) if _is_to_do(r) and r.findings]
    return [Statement(_act(r), (r.findings[0].id,)) for r in ranked[:MAX_RELATED]]


def _is_to_do(result: SubagentResult) -> bool:
    value = verdict(result)
    return bool(value and (value.asked_of_me or (value.priority == "high" and value.deadline)))


def _act(result: SubagentResult) -> str:
    finding = result.findings[0]
    return finding.next_step or finding.claim
