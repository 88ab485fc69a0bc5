"""Parse what a parent wrote about a report: what to do first, problems, tracker rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.citations import BARE, SPACED, Statement, ids_in, statements
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
_PROBLEM: Final = re.compile(r"[\s>*•_-]*PROBLEM\W*?:\**\s*(.*)", re.IGNORECASE)
_DECIDE: Final = re.compile(r"[\s>*•_-]*DECIDE\W*?:\**\s*(.*)", re.IGNORECASE)
_TRACKED: Final = re.compile(r"[\s>*•_-]*TRACKED\W*?:\**\s*(.*)", re.IGNORECASE)
_PAIR: Final = re.compile(r"(?P<id>F\d+\.\d+)|=\s*\**(?P<name>[^\s,;\]\[*]+)|(?P<else>[^\s,;\]\[])")
"""One step of `F1.1, [F2.3] = row`; anything else ends a list of ids."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The verified part of a parent's lines."""

    first: tuple[Statement, ...] = ()
    problems: tuple[Statement, ...] = ()
    """Each cites at least two findings, and none is in two of them."""
    decisions: tuple[Statement, ...] = ()
    """What only the reader can decide."""
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
    decided: list[str] = []
    problems: list[Statement] = []
    placed: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        if found := _PROBLEM.match(line):
            for problem in _problem(found[1], channels.keys() - placed):
                problems.append(problem)
                placed.update(problem.findings)
        elif tracked := _TRACKED.match(line):
            pairs += _pairs(tracked[1], channels)
        elif decision := _DECIDE.match(line):
            decided.append(decision[1])
        else:
            rest.append(line)
    first, decisions = (
        [s for s in statements("\n".join(lines), channels) if s.findings]
        for lines in (rest, decided)
    )
    return Overview(
        tuple(first[:MAX_JOBS]),
        tuple(problems[:MAX_PROBLEMS]),
        tuple(decisions[:MAX_DECISIONS]),
        tuple(pairs),
    )


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


MAX_RELATED: Final = 3
MAX_KNOWN: Final = 2
"""Maximum lines of what the threads of one topic say together."""
SAME, TOGETHER, NEXT = "SAME:", "KNOWN:", "NEXT:"


@dataclass(frozen=True, slots=True)
class Topic:
    """A subject of at least two threads."""

    text: str
    findings: tuple[str, ...]
    known: tuple[Statement, ...] = ()
    """What they say together; each cites the threads that say it."""
    steps: tuple[Statement, ...] = ()
    """Next steps that other threads of the topic answer in part: the first finding is that of the
    thread whose step it is, the others are those that answer it."""


@dataclass(frozen=True, slots=True)
class TriageLines:
    """Lines that rest on verdicts, by the ids of their findings."""

    first: tuple[Statement, ...] = ()
    matters: tuple[Topic, ...] = ()
    """No thread is in two of them."""
    dropped: int = 0
    """Lines on a topic whose figures no cited verdict holds."""

    def with_first(self, lines: Sequence[Statement]) -> TriageLines:
        return replace(self, first=tuple(lines))

    def top_lines(self, threads: Mapping[str, str]) -> list[TriageLine]:
        """Return what to do first; `threads`: id of a finding -> id of its thread."""
        return _lines(self.first, threads)

    def topics(self, threads: Mapping[str, str]) -> list[SharedTopic]:
        """Return what several threads are about."""
        return [
            SharedTopic(
                text=topic.text,
                threads=_threads(topic.findings, threads),
                known=_lines(topic.known, threads),
                steps=_lines(topic.steps, threads),
            )
            for topic in self.matters
        ]


def _lines(said: Sequence[Statement], threads: Mapping[str, str]) -> list[TriageLine]:
    return [
        TriageLine(text=s.text, findings=list(s.findings), threads=_threads(s.findings, threads))
        for s in said
    ]


def _threads(findings: Sequence[str], threads: Mapping[str, str]) -> list[str]:
    return [threads[i] for i in findings if i in threads]


def read_triage_lines(text: str, told: Mapping[str, str]) -> TriageLines:
    """Parse the lines that cite known findings; `told`: id of a finding -> what its verdict says.

    A thread belongs to its first topic only. What is said of a topic cites threads of that topic
    alone, and each of its figures occurs in what they say.
    """
    first: list[Statement] = []
    matters: list[Topic] = []
    further: list[tuple[str, Statement]] = []
    placed: set[str] = set()
    for line in text.splitlines():
        cited = tuple(dict.fromkeys(i for i in ids_in(line) if i in told))
        said = SPACED.sub("", line).strip(" -*•").rstrip(" ,;")
        mark = next((m for m in (SAME, TOGETHER, NEXT) if said.upper().startswith(m)), "")
        statement = Statement(said[len(mark) :].strip(), cited)
        if mark == SAME:
            rest = tuple(i for i in cited if i not in placed)
            if len(rest) > 1:
                placed.update(rest)
                matters.append(Topic(statement.text, rest))
        elif mark and statement.text and cited:
            further.append((mark, statement))
        elif said and cited and len(first) < MAX_RELATED:
            first.append(statement)
    true = [each for each in further if _is_told(each[1], told) and not BARE.search(each[1].text)]
    topics = [_with_lines(topic, true) for topic in matters]
    return TriageLines(tuple(first), tuple(topics), len(further) - len(true))


def _with_lines(topic: Topic, further: Sequence[tuple[str, Statement]]) -> Topic:
    own = [(mark, said) for mark, said in further if set(said.findings) <= set(topic.findings)]
    steps: dict[str, Statement] = {}
    for mark, said in own:
        if mark == NEXT and len(said.findings) > 1:
            steps.setdefault(said.findings[0], said)
    known = [said for mark, said in own if mark == TOGETHER]
    return replace(topic, known=tuple(known[:MAX_KNOWN]), steps=tuple(steps.values()))


def _is_told(said: Statement, told: Mapping[str, str]) -> bool:
    """Return whether the verdicts that a line cites hold each figure of it, short ones too."""
    known = {int(d) for id in said.findings for d in _DIGITS.findall(_ungrouped(told[id]))}
    return {int(d) for d in _DIGITS.findall(_ungrouped(said.text))} <= known


_DIGITS: Final = re.compile(r"[0-9]+")
_GROUP: Final = re.compile(r"(?<=[0-9])[ '.,\u00a0\u202f](?=[0-9]{3}(?![0-9]))")
"""What separates thousands: `3,412`, `2.940`, `2 940`."""


def _ungrouped(text: str) -> str:
    return _GROUP.sub("", text)


def verdict_text(value: TriageVerdict) -> str:
    """Return what a verdict says, for the figures of lines that cite it."""
    return "\n".join([*value.key_facts, value.proposed_action, value.deadline])


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
