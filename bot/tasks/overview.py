"""Parse a parent's text about a report: first steps, problems, tracker rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bot.citations import BARE, SPACED_CITATION_PATTERN, CitedStatement, ids_in, statements
from bot.reports.documents import SharedPattern, SharedTopic, TriageLine
from bot.tasks.tracker import TrackerReader, TrackerRow
from subagents.contracts import TriageVerdict
from subagents.result import SubagentResult, verdict
from subagents.summary import SEVERITIES

MAX_FIRST: Final = 10
MAX_JOBS: Final = 40
"""Lines of a sweep: up to ten problems with several jobs each."""
MAX_PROBLEMS: Final = 20
MAX_DECISIONS: Final = 3
_MARKED_LINE: Final = re.compile(
    r"[\s>*•_-]*(PROBLEM|DECIDE|MAIN|TRACKED)\W*?:\**\s*(.*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Overview:
    """The verified part of a parent's lines."""

    headline: CitedStatement | None = None
    """The statement that joins the problems."""
    first: tuple[CitedStatement, ...] = ()
    problems: tuple[SharedPattern, ...] = ()
    """Each has at least two findings, and no finding is in two problems."""
    decisions: tuple[CitedStatement, ...] = ()
    """Decisions that only the reader can make."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Id of a finding, and the key or id of its matching row according to the parent."""


def read_overview(text: str, channels: Mapping[str, str]) -> Overview:
    """Parse the lines that rest on findings; `channels`: id of a finding -> its channel."""
    marked = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        found = _MARKED_LINE.match(line)
        marked[found[1].upper() if found else ""].append(found[2] if found else line)

    def cited(mark: str, most: int) -> tuple[CitedStatement, ...]:
        parsed = statements("\n".join(marked[mark]), channels)
        return tuple([each for each in parsed if each.findings][:most])

    headline: CitedStatement | None = None
    for entry in marked["MAIN"]:
        findings = list(dict.fromkeys(id for id in ids_in(entry) if id in channels))
        headline = (
            CitedStatement(text=SPACED_CITATION_PATTERN.sub("", entry).strip(), findings=findings)
            if findings
            else headline
        )
    problems: list[SharedPattern] = []
    placed: set[str] = set()
    for entry in marked["PROBLEM"]:
        own = dict.fromkeys(i for i in ids_in(entry) if i in channels.keys() - placed)
        name = SPACED_CITATION_PATTERN.sub("", entry).strip(" .")
        if name and len(own) > 1:
            markets = list(dict.fromkeys(channels[id] for id in own))
            problems.append(SharedPattern(text=name, findings=list(own), markets=markets))
            placed.update(own)
    pairs: list[tuple[str, str]] = []
    for entry in marked["TRACKED"]:
        ids, _, row = entry.rpartition("=")
        pairs += [(id, row.strip(" .*[]()")) for id in ids_in(ids) if id in channels]
    return Overview(
        headline,
        cited("", MAX_JOBS),
        tuple(problems[:MAX_PROBLEMS]),
        cited("DECIDE", MAX_DECISIONS),
        tuple(pairs),
    )


def pair_rows(
    overview: Overview, tracker: TrackerReader, channels: Mapping[str, str]
) -> dict[str, TrackerRow]:
    """Return the rows that the parent named, if they exist and their market fits.

    A finding that the parent pairs with several rows matches none.
    """
    found: dict[str, set[TrackerRow]] = {}
    for id, name in overview.pairs:
        row = tracker.by_name(name)
        if row and tracker.fits(row, channels[id]):
            found.setdefault(id, set()).add(row)
    return {id: rows.pop() for id, rows in found.items() if len(rows) == 1}


MAX_RELATED: Final = 3
MAX_KNOWN: Final = 2
"""Maximum lines about the threads of one topic together."""
SAME, TOGETHER, NEXT = "SAME:", "KNOWN:", "NEXT:"


@dataclass(slots=True)
class TriageLines:
    """Lines supported by verdicts."""

    first: list[TriageLine] = field(default_factory=list)
    matters: list[SharedTopic] = field(default_factory=list)
    """Topics; no thread is in two of them."""
    dropped: int = 0
    """Number of lines on a topic whose figures no cited verdict contains."""


def read_triage_lines(
    text: str, verdicts: Mapping[str, str], threads: Mapping[str, str]
) -> TriageLines:
    """Parse the lines that cite known findings.

    `verdicts` and `threads`: id of a finding -> the text of its verdict, and the id of its thread.
    A thread belongs to its first topic only. A line on a topic cites only threads of that topic,
    and each of its figures occurs in their verdicts.
    """
    lines = TriageLines()
    further: list[tuple[str, TriageLine]] = []
    placed: set[str] = set()
    for line in text.splitlines():
        cited = list(dict.fromkeys(i for i in ids_in(line) if i in verdicts))
        content = SPACED_CITATION_PATTERN.sub("", line).strip(" -*•").rstrip(" ,;")
        mark = next((m for m in (SAME, TOGETHER, NEXT) if content.upper().startswith(m)), "")
        content = content[len(mark) :].strip()
        if mark == SAME:
            rest = [threads[i] for i in cited if threads[i] not in placed]
            if len(rest) > 1:
                placed.update(rest)
                lines.matters.append(SharedTopic(text=content, threads=rest))
        elif content and cited:
            read = TriageLine(text=content, findings=cited, threads=[threads[i] for i in cited])
            if mark:
                further.append((mark, read))
            elif len(lines.first) < MAX_RELATED:
                lines.first.append(read)
    for mark, read in further:
        if BARE.search(read.text) or not _is_told(read, verdicts):
            lines.dropped += 1
            continue
        _add(mark, read, lines.matters)
    return lines


def _add(mark: str, line: TriageLine, matters: Sequence[SharedTopic]) -> None:
    """Add a line to the topic that all its threads belong to; a thread has one step."""
    topic = next((t for t in matters if set(line.threads) <= set(t.threads)), None)
    if topic is None:
        return
    stepped = {step.threads[0] for step in topic.steps}
    if mark == TOGETHER and len(topic.known) < MAX_KNOWN:
        topic.known.append(line)
    elif mark == NEXT and len(line.threads) > 1 and line.threads[0] not in stepped:
        topic.steps.append(line)


def _is_told(line: TriageLine, verdicts: Mapping[str, str]) -> bool:
    """Return whether the verdicts that a line cites contain each figure in it, even short ones."""
    figures = {int(d) for id in line.findings for d in _DIGITS.findall(_strip_groups(verdicts[id]))}
    return {int(d) for d in _DIGITS.findall(_strip_groups(line.text))} <= figures


_DIGITS: Final = re.compile(r"[0-9]+")
_GROUP: Final = re.compile(r"(?<=[0-9])[ '.,\u00a0\u202f](?=[0-9]{3}(?![0-9]))")
"""Separators of thousands: `3,412`, `2.940`, `2 940`."""


def _strip_groups(text: str) -> str:
    return _GROUP.sub("", text)


def verdict_text(value: TriageVerdict) -> str:
    """Return the text of a verdict, to check the figures of lines that cite it."""
    return "\n".join([*value.key_facts, value.proposed_action, value.deadline])


def urgency(result: SubagentResult) -> tuple[bool, str, int]:
    """Sort verdicts by urgency: asked of the reader, due soonest, high priority."""
    value = verdict(result)
    if value is None:
        return (True, "9999", len(SEVERITIES))
    priority = SEVERITIES.index(value.priority)
    return (not (value.asked_of_me or priority == 0), value.deadline or "9999", priority)


def by_urgency(results: Sequence[SubagentResult], threads: Mapping[str, str]) -> list[TriageLine]:
    """Return the first steps without a model: asked of the reader, or urgent and due."""
    judged = ((r, verdict(r)) for r in sorted(results, key=urgency) if r.findings)
    first = [
        result.findings[0]
        for result, v in judged
        if v and (v.asked_of_me or (v.priority == "high" and v.deadline))
    ]
    return [
        TriageLine(text=f.next_step or f.claim, findings=[f.id], threads=[threads[f.id]])
        for f in first[:MAX_RELATED]
    ]
