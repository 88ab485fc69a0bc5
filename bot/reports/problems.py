"""Rank what a sweep found by urgency; join what waits for one problem over all channels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from bot.reports.documents import KnownIssue, SweepFinding, SweepReport, TrackerEntry
from bot.reports.formats import due
from subagents.contracts import NEEDS_ACTION, State
from subagents.result import CustomerCase
from subagents.summary import SEVERITIES

URGENT = 2
"""Number of the tiers that are called urgent."""
NEAR = 2
"""Days before a deadline from which on it is near."""
LAST = "9999"
"""Sorts what has no time behind everything that has one."""
ACTIVE = (*NEEDS_ACTION, "known", "waiting")
"""States of an issue that is not over, in the order in which they are listed."""
OVER = ("declined", "solved")
_NAMED = re.compile(r"([^\W\d_][\w'’.-]*(?: [^\W\d_][\w'’.-]*){0,3})(?: \([^()]{1,20}\))? ?: ")
"""Who acts, where a next step begins with the name: `Ana Ruiz: tell them the date`, also where it
is marked as a proposal: `Ana Ruiz (proposed): ...`."""

Issue = SweepFinding | KnownIssue


def tier(issue: Issue, at: datetime) -> int:
    """Return how soon it is its turn at this time, the first 0: severe, or with a day that has
    passed or is near; then by severity; what waits for others comes last."""
    if issue.state not in NEEDS_ACTION:
        return len(SEVERITIES) + 1
    if issue.severity != "high" and _has_near_day(issue, at.date()):
        return 1
    return (0, 2, 3)[SEVERITIES.index(issue.severity)]


def is_urgent(issue: Issue, at: datetime) -> bool:
    """Return whether somebody of the team must act, and it is severe or its day is near."""
    return tier(issue, at) < URGENT


def _has_near_day(issue: Issue, today: date) -> bool:
    left = days_left(issue, today) if isinstance(issue, SweepFinding) else None
    return left is not None and left <= NEAR


def days_since(since: str, at: datetime) -> int:
    """Count the days from that of `since` (ISO 8601) to that of `at`, by the calendar in UTC."""
    first = datetime.fromisoformat(since).astimezone(UTC).date()
    return max(0, (at.astimezone(UTC).date() - first).days)


def days_left(finding: SweepFinding, today: date) -> int | None:
    """Return the days until the deadline, below 0 if it is over; None without a day."""
    found = due(finding.deadline, today)
    return found.days if found else None


@dataclass(frozen=True, slots=True)
class Member:
    """A finding and the channel that it is from."""

    market: str
    finding: SweepFinding
    tier: int
    days_left: int | None
    """Days until its day, below 0 if it has passed; None without a day."""

    @property
    def is_urgent(self) -> bool:
        return self.tier < URGENT

    @property
    def since(self) -> str:
        """When it was opened (ISO 8601)."""
        return self.finding.since or LAST

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: by state, what is urgent, what is due, then what was opened first."""
        state = self.finding.state
        place = 0 if state in NEEDS_ACTION else (*ACTIVE, *OVER).index(state)
        return place, self.tier >= URGENT, self.finding.deadline or LAST, self.since

    def cases(self) -> Sequence[CustomerCase]:
        """Return its customers, who waits longest first; who wrote where none is named."""
        finding = self.finding
        link = finding.links[0] if finding.links else None
        told = {each.customer: each for each in finding.cases}
        rest = CustomerCase(
            customer="", since=finding.since, waits_since=finding.waits_since, link=link
        )
        named = finding.customers or ["; ".join(finding.waits)]
        cases = [told.get(n) or rest.model_copy(update={"customer": n}) for n in named]
        return sorted(cases, key=lambda each: each.since or LAST)


@dataclass(frozen=True, slots=True)
class SweepProblem:
    """All issues that one bug or one cause makes in all channels, or an issue that stands alone."""

    members: tuple[Member, ...]
    """The most urgent first."""
    title: str = ""
    """Name of a cause that several findings share; empty for an issue that stands alone."""
    tracker: TrackerEntry | None = None
    """Its row in the tracker."""

    @property
    def id(self) -> str:
        """Id of its most urgent finding."""
        return self.members[0].finding.id

    @property
    def findings(self) -> list[SweepFinding]:
        return [member.finding for member in self.members]

    @property
    def active(self) -> list[Member]:
        return [member for member in self.members if member.finding.state in ACTIVE]

    @property
    def open(self) -> list[Member]:
        return [member for member in self.members if member.finding.state in NEEDS_ACTION]

    @property
    def is_shared(self) -> bool:
        """Return whether several issues have one cause; one of them may be over."""
        return len(self.members) > 1

    @property
    def is_untracked(self) -> bool:
        """Return whether a tracker was read and has no row for it."""
        read = any(finding.tracker for finding in self.findings)
        return read and not self.is_tracked

    @property
    def is_tracked(self) -> bool:
        """Return whether the tracker has a row for one of its issues."""
        entries = [finding.tracker for finding in self.findings]
        return any(each and each.status != "untracked" for each in entries)

    @property
    def customers(self) -> dict[str, State]:
        """Return each customer once, with the most urgent of its states."""
        return customers_of(self.members)

    @property
    def tier(self) -> int:
        return min(member.tier for member in self.members)

    @property
    def is_urgent(self) -> bool:
        return self.tier < URGENT

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: what needs an act first: severe, with a day that is near, with one that has
        passed, open for longest, with most customers. The report tells its readers this rule."""
        shown = self.open or self.active or self.members
        opened = min(member.since for member in shown)[:10]
        days = [member.days_left for member in self.open if member.days_left is not None]
        is_near, is_late = any(0 <= n <= NEAR for n in days), any(n < 0 for n in days)
        many = sum(len(member.cases()) for member in shown)
        return not self.open, self.tier, not is_near, not is_late, opened, -many


def customers_of(members: Iterable[Member]) -> dict[str, State]:
    """Return each customer once, with the most urgent of its states."""
    states: dict[str, State] = {}
    for member in sorted(members, key=lambda member: member.order):
        for case in member.cases():
            states.setdefault(case.customer or member.finding.id, member.finding.state)
    return states


def problems_of(document: SweepReport) -> list[SweepProblem]:
    """Return every issue of a report in one problem each, the most urgent first.

    Findings with one row of the tracker, or of one pattern that the parent named, are one problem.
    """
    at = datetime.fromisoformat(document.window.latest)
    members: dict[str, Member] = {}
    for section in document.sections:
        for finding in section.findings:
            if finding.state in (*ACTIVE, *OVER):
                left = days_left(finding, at.date())
                members[finding.id] = Member(section.item, finding, tier(finding, at), left)
    groups: dict[str, list[Member]] = {}
    titles: dict[str, str] = {}
    alone = dict(members)
    for member in members.values():
        if key := _key(member.finding):
            groups.setdefault(key, []).append(alone.pop(member.finding.id))
    stands = {id: m.finding.id for m in members.values() for id in m.finding.ids}
    for number, pattern in enumerate(document.patterns):
        cited = list(dict.fromkeys(stands[id] for id in pattern.findings if id in stands))
        keys = {_key(members[id].finding) for id in cited} - {""}
        place = keys.pop() if len(keys) == 1 else f"pattern {number}"
        rest = [alone.pop(id) for id in cited if id in alone]
        groups.setdefault(place, []).extend(rest)
        titles[place] = pattern.text
    problems = [_problem(each, titles.get(k, "")) for k, each in groups.items() if each]
    problems += [_problem([member], "") for member in alone.values()]
    return sorted(problems, key=lambda problem: problem.order)


def _key(finding: SweepFinding) -> str:
    """Return the key of its bug in the tracker; empty if it is in none."""
    return finding.tracker.key if finding.tracker else ""


def _problem(members: Iterable[Member], pattern: str) -> SweepProblem:
    ranked = sorted(members, key=lambda member: (member.tier, member.order))
    rows = (member.finding.tracker for member in ranked)
    known = next((row for row in rows if row and row.key), None)
    named = f"{known.key} {known.title}".strip() if known else pattern
    return SweepProblem(tuple(ranked), named if len(ranked) > 1 else "", known)


def actor(finding: SweepFinding, people: Sequence[str]) -> str:
    """Return who acts next: whom the next step names, else who took it; empty = nobody.

    `people`: names of the team.
    """
    step, owner = finding.next_step, finding.owner
    if step.casefold().startswith(tuple(map(str.casefold, _parts(owner)))):
        return owner
    if (found := _NAMED.match(step)) and is_name(first := found[1], finding):
        return next((p for p in people if first in (p, p.split()[0])), first)
    if named := next((name for name in people if step.startswith(name)), ""):
        return named
    return owner if owner.casefold() != "nobody" else ""


def acting(line: str) -> str:
    """Return the name with which a line begins, as `Ana Ruiz: ...`; empty without one."""
    found = _NAMED.match(line)
    return found[1] if found else ""


def is_name(text: str, finding: SweepFinding) -> bool:
    """Return whether it is a name alone, and not `Answer Ana Ruiz` of somebody who waits."""
    others = [name for name in finding.waits if name != text]
    is_told = any(name in text for name in (*others, *finding.customers))
    return all(word[0].isupper() for word in text.split()) and not is_told


def _parts(owner: str) -> Iterator[str]:
    """Yield the whole name and the first name of each owner."""
    for name in filter(None, map(str.strip, owner.split(","))):
        yield name
        yield name.split()[0]


def team(document: SweepReport) -> list[str]:
    """Return the names of all who own an issue, each once."""
    owners = (name.strip() for f in document.findings() for name in f.owner.split(","))
    return [name for name in dict.fromkeys(owners) if name and name.casefold() != "nobody"]
