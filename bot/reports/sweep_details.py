"""Show each problem of a sweep whole: its customers, where they stand, who acts next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress, groupby

from bot.reports.documents import KnownIssue, SweepFinding
from bot.reports.formats import clean_text, prose
from bot.reports.problems import Member, SweepProblem, is_urgent
from bot.reports.sweep_facts import (
    AMOUNT,
    CLAIM,
    FEW_WORDS,
    MOST_CUSTOMERS,
    NAME,
    QUOTE,
    SENTENCE,
    SweepFacts,
    first_clause,
    slack_link,
    thread_links,
    unanswered,
)
from bot.reports.sweep_jobs import SweepJobs
from bot.reports.view import (
    NOTHING,
    Bold,
    Entry,
    EntryTable,
    Group,
    Link,
    ReportSection,
    Row,
    entries_of,
)
from subagents.contracts import NEEDS_ACTION
from subagents.result import CustomerCase

MOST_QUOTES = 1
MOST_LINES = 40
"""Lines of a table."""
MOST_FINDINGS = 300
"""Findings that a report shows; a table of all of them is attached."""
MOST_QUIET = 100
MOST_MARKETS = 12


class SweepDetails:
    """The problems of one sweep as sections."""

    def __init__(self, facts: SweepFacts, jobs: SweepJobs) -> None:
        self.facts, self.jobs = facts, jobs
        self.words = facts.words
        self.kept, self.left_out = list[tuple[int, SweepProblem]](), 0
        """The problems for which there is room, and how many findings the others have."""
        room = MOST_FINDINGS
        for number, problem in enumerate(facts.problems, 1):
            room -= len(problem.active)
            if room >= 0:
                self.kept.append((number, problem))
            else:
                self.left_out += len(problem.active)

    def sections(self) -> Iterator[ReportSection]:
        """Yield what is open in the order of the numbers, what rests, and what has no news."""
        for is_open, run in groupby(self.kept, key=lambda each: bool(each[1].open)):
            entries = tuple((self._shared if p.is_shared else self._alone)(n, p) for n, p in run)
            title = self.words("open" if is_open else "resting")
            groups = (Group(entries, is_full=True),)
            yield ReportSection(title, groups, is_apart=True, is_detail=is_open)
        yield from self._quiet()

    def _quiet(self) -> Iterator[ReportSection]:
        """Yield the section of issues that are still open although the window has no news."""
        issues = self.facts.document.still_open
        if not issues:
            return
        more = len(issues) - MOST_QUIET
        rest = [self.words("more", n=more)] if more > 0 else []
        entries = (*map(self._known, issues[:MOST_QUIET]), *entries_of(rest))
        groups = (Group(entries),)
        yield ReportSection(self.words("no_news"), groups, is_apart=True, is_detail=True)

    def _known(self, issue: KnownIssue) -> Entry:
        words = self.words
        age, state = words("days", n=issue.age_days), words(issue.state)
        claim = prose(issue.claim, CLAIM) or NOTHING
        owner = clean_text(issue.owner, NAME)
        owner = words("nobody") if owner.lower() in ("", "nobody") else owner
        row = (
            f"{self.facts.dot(issue)} ",
            Bold(f"#{clean_text(issue.item, NAME)}"),
            f" · {age} · {state} · {claim} · {owner}",
        )
        return Entry(row, slack_link(issue.links))

    # ---- an issue that stands alone

    def _alone(self, number: int, problem: SweepProblem) -> Entry:
        """Return an issue that stands alone: who waits, since when, who acts next."""
        facts, member = self.facts, problem.active[0]
        finding = member.finding
        claim = facts.title(problem)
        mark = " ".join(filter(None, (facts.dot(finding), f"{number}.", facts.change(finding))))
        is_pressing = is_urgent(finding, facts.at)
        claim = claim if is_pressing else first_clause(claim)
        said = finding.quotes[-MOST_QUOTES:] if is_pressing else []
        details: list[str | Bold | Link] = [f"\n{self._who(number, member)}"]
        if finding.tracker:
            named = (clean_text(x, NAME) for x in (finding.tracker.key, finding.tracker.title))
            name = " ".join(filter(None, named))
            details += [" · ", facts.tracker_link(finding.tracker, name)]
        details.append(f"\n{self._note(finding)}")
        head = Bold(mark)
        return Entry(
            row=(head,),
            url=slack_link(finding.links),
            id=finding.id,
            number=number,
            title=(head, " ", Bold(claim)),
            quotes=tuple(filter(None, (clean_text(each, QUOTE) for each in said))),
            details=tuple(details),
        )

    def _who(self, number: int, member: Member) -> str:
        """Return who waits where, since when, and for how much."""
        facts, cases, finding = self.facts, member.cases(), member.finding
        found = filter(None, (clean_text(case.customer, NAME) for case in cases))
        names = [facts.also(name, number) for name in dict.fromkeys(found)]
        more = f" +{len(names) - MOST_CUSTOMERS}" if names[MOST_CUSTOMERS:] else ""
        named = ", ".join(names[:MOST_CUSTOMERS]) + more
        named = named or self.words("customers", n=finding.people)
        amounts = [clean_text(c.amount, AMOUNT) for c in cases] if len(cases) == 1 else []
        whose = clean_text(cases[0].customer, NAME) if len(names) > 1 else ""
        place = f"#{clean_text(member.market, NAME)}"
        told = named, place, facts.waits(finding, whose), *amounts
        return " · ".join(filter(None, told))

    def _note(self, finding: SweepFinding, *what: str) -> str:
        """Return where an issue stands, its day, what it is about, and who acts next."""
        is_open = finding.state in NEEDS_ACTION
        day = self.facts.due(finding) if is_open or not self.facts.is_over(finding) else ""
        told = " · ".join(dict.fromkeys(filter(None, (self.facts.state(finding), day, *what))))
        step = self.jobs.step(finding) if is_open or finding.state == "known" or not what else ""
        return " ".join(filter(None, (told, step)))

    # ---- a problem that several share

    def _shared(self, number: int, problem: SweepProblem) -> Entry:
        """Return a problem with a table of all who wait for it."""
        facts, lead = self.facts, problem.active[0]
        markets = list(dict.fromkeys(clean_text(m.market, NAME) for m in problem.members))
        more = f" +{len(markets) - MOST_MARKETS}" if markets[MOST_MARKETS:] else ""
        places = ", ".join(f"#{market}" for market in markets[:MOST_MARKETS]) + more
        details: list[str | Bold | Link] = [f"\n{facts.states(problem.members, f', {places}')}"]
        if problem.tracker:
            details += [" · ", facts.tracker_link(problem.tracker)]
        elif problem.is_untracked:
            details.append(f" · {self.words('untracked')}")
        head = Bold(f"{facts.dot(lead.finding)} {number}. {facts.title(problem)}")
        return Entry(
            row=(head,),
            id=lead.finding.id,
            number=number,
            title=(head,),
            details=tuple(details),
            table=self._table(number, problem),
        )

    def _table(self, number: int, problem: SweepProblem) -> EntryTable:
        """Return the customers of a problem, each once, urgent ones first, what is over last."""
        words, since = self.words, unanswered(problem)
        placed, row_of, left = list[tuple[Member, list[CustomerCase]]](), dict[str, int](), 0
        moved: dict[int, list[Link]] = {}
        for member in sorted(problem.members, key=lambda member: member.order):
            cases = [case for case in member.cases() if case.customer not in row_of]
            again = [case for case in member.cases() if case not in cases] if cases else []
            cases = cases or list(member.cases())
            if placed and len(row_of) + len(cases) > MOST_LINES:
                left += len(cases)
                continue
            for case in filter(lambda case: slack_link([case.link]), again):
                link = Link(clean_text(case.customer, NAME), slack_link([case.link]))
                moved.setdefault(row_of[case.customer], []).append(link)
            row_of |= {case.customer: len(placed) for case in cases}
            placed.append((member, cases))
        rows = []
        for place, (member, cases) in enumerate(placed):
            links = (*thread_links(member.finding), *moved.get(place, ()))
            note = self._row_note(member.finding)
            rows.append(Row(self._cells(number, member, cases, since), note, links))
        columns = ["customer", "market", "opened", "unanswered", "amount"]
        lines = [line for row in rows for line in row.cells]
        markets = {line[1] for line in lines}
        has_later, has_amounts = (any(line[n] for line in lines) for n in (3, 4))
        kept = [True, len(markets) > 1, True, has_later, has_amounts]
        return EntryTable(
            columns=tuple(words(f"column.{name}") for name in (*compress(columns, kept), "next")),
            rows=tuple(
                replace(row, cells=tuple(tuple(compress(line, kept)) for line in row.cells))
                for row in rows
            ),
            more=words("more", n=left) if left else "",
        )

    def _row_note(self, finding: SweepFinding) -> str:
        """Return the note of a row: of what is open how it hurts and what they want."""
        wants = prose(finding.wants, SENTENCE)
        reason = first_clause(prose(finding.severity_reason, SENTENCE), FEW_WORDS).rstrip(".")
        is_told = finding.severity == "high" or not wants
        reason = reason if finding.state in NEEDS_ACTION and is_told else ""
        what = (reason, wants) if reason or wants else (first_clause(self.facts.claim(finding)),)
        note = self._note(finding, *what)
        return " · ".join(filter(None, (self.facts.change(finding), note)))

    def _cells(
        self, number: int, member: Member, cases: Sequence[CustomerCase], since: dict[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return the line of each of these customers.

        `since`: from when on each of them has had no reply.
        """
        facts, market = self.facts, f"#{clean_text(member.market, NAME)}"
        waiting = since if member.finding.state in NEEDS_ACTION else {}
        cells = []
        for case in cases[:MOST_LINES]:
            name = facts.also(clean_text(case.customer, NAME), number) or NOTHING
            opened = facts.day(case.since) if case.since else NOTHING
            at = waiting.get(case.customer)
            day, amount = facts.day(at) if at else "", clean_text(case.amount, AMOUNT)
            cells.append((f"{facts.dot(member.finding)} {name}", market, opened, day, amount))
        return tuple(cells)
