"""Show who does what about the problems of a sweep, and each problem in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bot.reports.documents import KnownIssue, SweepFinding, TopLine
from bot.reports.formats import clean_text, prose
from bot.reports.problems import (
    AMOUNT,
    CLAIM,
    FEW_WORDS,
    FINISHED_STATES,
    LINE,
    MAX_LISTED_CHARS,
    MOST_FULL,
    NAME,
    QUOTE,
    SENTENCE,
    STEP,
    Member,
    SweepFacts,
    SweepProblem,
    actor,
    customer_links,
    find_actor,
    first_clause,
    is_name,
    is_urgent,
    slack_link,
    thread_links,
    unanswered,
)
from bot.reports.view import (
    EMPTY_PLACEHOLDER,
    Bold,
    Entry,
    Group,
    Highlight,
    Line,
    Link,
    Reference,
    ReportSection,
    entries_of,
    with_links,
)
from subagents.contracts import NEEDS_ACTION

MOST_FIRST = 6
"""Maximum number of lines at the top of a report."""
FEW_FIRST = 3
"""Maximum number of jobs at the top if none is urgent."""
FEW_FINDINGS = 3
"""Maximum number of findings of a job that shows since when customers have had no reply."""
MOST_LINKS = 6
"""Maximum number of links after a job."""
MOST_QUOTES = 1
MOST_FINDINGS = 300
"""Maximum number of findings that a report shows; a table of all of them is attached."""
MOST_QUIET = 100
MOST_MARKETS = 12


@dataclass(frozen=True, slots=True)
class TeamJob:
    """A line by the parent: what a person has to do."""

    text: str
    name: str
    """Who does it; empty if the line names nobody."""
    mark: str
    """Mark of the name in the line, such as `(proposed)`; empty if it is not a proposal."""
    act: str
    """What they do; the whole text if there is no name."""
    findings: tuple[SweepFinding, ...]
    """Those that are not over, the most urgent first."""
    numbers: tuple[int, ...]
    """Numbers of its problems; the one with most of its findings first."""

    @property
    def who(self) -> str:
        return f"{self.name} {self.mark}".strip()


class SweepDetails:
    """The jobs of one sweep by person, and each of its problems in full."""

    def __init__(self, facts: SweepFacts) -> None:
        self.facts, self.words = facts, facts.words
        found = (self._job(line) for line in facts.document.top_lines)
        self.all = [job for job in found if job.numbers]
        pressing = [job for job in self.all if any(is_urgent(f, facts.at) for f in job.findings)]
        self.first = pressing[:MOST_FIRST] or self.all[:FEW_FIRST]
        """Jobs at the top."""
        self.others = [job for job in self.all if job not in self.first]
        self.jobs_of: dict[str, list[TeamJob]] = {}
        """The jobs about each finding, by its id."""
        for job in self.all:
            for finding in job.findings:
                self.jobs_of.setdefault(finding.id, []).append(job)
        self.actors = {
            number: clean_text(self._actor(number, problem), NAME)
            for number, problem in enumerate(facts.problems, 1)
        }
        """Who acts for most of each problem, even if only proposed; empty = nobody."""
        self.kept, self.left_out = list[tuple[int, SweepProblem]](), 0
        """The problems that fit, and the number of findings of the others."""
        room = MOST_FINDINGS
        for number, problem in enumerate(facts.problems, 1):
            room -= len(problem.active)
            if room >= 0:
                self.kept.append((number, problem))
            else:
                self.left_out += len(problem.active)

    def _job(self, line: TopLine) -> TeamJob:
        facts, cited = self.facts, {*line.findings}
        findings = [m.finding for p in facts.problems for m in p.active if {*m.finding.ids} & cited]
        numbers = Counter(facts.numbers[finding.id] for finding in findings)
        text = prose(line.text, LINE)
        who, _, act = text.partition(": ")
        name = find_actor(text)
        is_ours = name in facts.team or all(is_name(name, finding) for finding in findings)
        ranked = tuple(number for number, _ in numbers.most_common())
        if not name or not is_ours:
            return TeamJob(text, "", "", text, tuple(findings), ranked)
        mark = who.removeprefix(name).strip()
        return TeamJob(text, name, mark, act, tuple(findings), ranked)

    def _actor(self, number: int, problem: SweepProblem) -> str:
        """Return who has jobs for most findings of a problem, else who acts for most of them."""
        names = Counter(
            job.name
            for job in self.all
            for finding in job.findings
            if job.name and self.facts.numbers[finding.id] == number
        )
        if not names:
            names.update(filter(None, (actor(m.finding, self.facts.team) for m in problem.members)))
        return names.most_common(1)[0][0] if names else ""

    # ---- on top

    def head(self) -> Iterator[Highlight]:
        """Yield the first jobs, then the urgent problems without a job."""
        for job in self.first:
            places, urls = self._links(job)
            marks = [Reference(str(number), "") for number in job.numbers]
            marks[:1] = [Reference(marks[0].label, urls[0] if urls else "")]
            marks += [Reference("↗", url) for url in urls[1:MOST_LINKS]]
            yield Highlight(job.text, tuple(marks), self._times(job), places=places)
        for number, problem in self.facts.open:
            jobless = [m.finding for m in problem.open if self._is_left(m)]
            if not jobless:
                continue
            first, *others = jobless
            more = self.facts.words("more", n=len(others)) if others else ""
            subject = " · ".join(filter(None, (self.facts.subject(first), self.facts.due(first))))
            text = " ".join(
                filter(None, (subject, clean_text(self.step(first), MAX_LISTED_CHARS), more))
            )
            reference = Reference(str(number), slack_link(first.links))
            yield Highlight(text, (reference,), self.facts.longest(problem))

    def _is_left(self, member: Member) -> bool:
        """Return whether it is urgent and has no job."""
        return member.is_urgent and member.finding.id not in self.jobs_of

    def _times(self, job: TeamJob) -> str:
        """Return the deadline of a job, if near and the same for all its findings, and since when
        its customers have had no reply."""
        facts, since = self.facts, list[str]()
        for finding in job.findings:
            waits = unanswered(facts.problem(facts.numbers[finding.id]))
            in_act = [name for name in finding.customers if name in job.act]
            since += [waits[name] for name in in_act or finding.customers if name in waits]
        is_near = len({f.deadline for f in job.findings}) == 1 and facts.is_near(job.findings[0])
        times = [facts.due(job.findings[0])] if is_near else []
        if since and len(job.findings) <= FEW_FINDINGS:
            times.append(facts.words("no_reply", day=facts.days(min(since), max(since))))
        return " · ".join(times)

    def _links(self, job: TeamJob) -> tuple[tuple[Link, ...], list[str]]:
        """Return links for the customers that a job names, including those who were helped, and the
        links of its findings without such customers."""
        problems = map(self.facts.problem, job.numbers)
        helped = (f for p in problems for f in p.findings if f.state in FINISHED_STATES)
        places = customer_links(job.act, (*job.findings, *helped))
        linked = {link.url for link in places}
        threads = ([link.url for link in thread_links(finding)] for finding in job.findings)
        others = (url for urls in threads if not linked.intersection(urls) for url in urls)
        return places, list(dict.fromkeys(others))

    # ---- beside a problem

    def names(self, number: int, problem: SweepProblem) -> list[str]:
        """Return who acts for a problem, ordered by number of its findings, with a mark for those
        who are only proposed."""
        jobs = [job for m in problem.open for job in self.jobs_of.get(m.finding.id, ())]
        if names := self._names_of(jobs):
            return names
        name = self.actors[number]
        if not name:
            return []
        is_sure = name in {actor(m.finding, self.facts.team) for m in problem.open}
        return [name if is_sure else self.facts.words("proposed", who=name)]

    def _names_of(self, jobs: Sequence[TeamJob]) -> list[str]:
        """Return who does these jobs, ordered by number of jobs, with a mark for those who are only
        proposed."""
        shown = {job.name: job.who for job in sorted(jobs, key=lambda job: not job.mark)}
        names = Counter(job.name for job in jobs if job.name)
        return [shown[name] for name, _ in names.most_common()]

    def step(self, finding: SweepFinding) -> str:
        """Return who takes the next step; and the step, unless a job contains it.

        If nobody is known, the person who acts for the other issues of the problem is proposed.
        """
        facts, words = self.facts, self.facts.words
        needs_decision = any(
            finding.id in line.findings
            and any(name and name in line.text for name in finding.customers)
            for line in facts.document.decisions
        )
        decision = f" · {words('you_decide')}" if needs_decision else ""
        who = clean_text(actor(finding, facts.team), NAME)
        if names := self._names_of(self.jobs_of.get(finding.id, ())):
            return f"→ {', '.join(names)}{decision}"
        if needs_decision:
            return f"→ {words('you_decide')}"
        step = prose(finding.next_step, STEP) or words(f"unsaid_{finding.state}")
        if not who and finding.state == "waiting":
            return f"→ {step}"
        if not who:
            name = self.actors[facts.numbers[finding.id]]
            name_text = words("proposed", who=name) if name else words("nobody_yet")
            return f"→ {name_text}: {step}"
        begins = step.casefold().startswith((who.casefold(), who.split()[0].casefold()))
        return f"→ {step}" if begins else f"→ {who}: {step}"

    # ---- by person

    def people(self) -> Iterator[Group]:
        """Yield a group for each person: the jobs that are not at the top, in order, and the
        customers to remind."""
        by_person: dict[str, list[Line]] = {}
        for job in self.others:
            name = job.name or self.facts.words("nobody_yet")
            by_person.setdefault(name, []).append(self._line(job))
        for name, line in self._reminders():
            by_person.setdefault(name, []).append(line)
        for name, lines in by_person.items():
            yield Group(tuple(Entry(row=line) for line in lines), title=name)

    def _line(self, job: TeamJob) -> Line:
        act = " ".join(filter(None, (self.facts.format_numbers(job.numbers), job.mark, job.act)))
        places, others = self._links(job)
        times = f" · {times}" if (times := self._times(job)) else ""
        return (*with_links(act, places), times, *(Link("", url) for url in others[:MOST_LINKS]))

    def _reminders(self) -> Iterator[tuple[str, Line]]:
        """Yield the customers whom a person asked and who have not replied, longest wait first."""
        facts = self.facts
        unreplied = [
            (case, number, member.finding)
            for number, problem in enumerate(facts.problems, 1)
            for member in problem.active
            for case in member.cases()
            if member.finding.state == "waiting" and case.answered and case.answered_by
        ]
        for case, number, finding in sorted(unreplied, key=lambda each: str(each[0].answered)):
            day = facts.day(str(case.answered))
            whom = facts.words("remind", name=clean_text(case.customer, NAME), day=day)
            claim = first_clause(facts.claim(finding), SENTENCE)
            url = slack_link([case.link])
            line = f"[{number}] {whom}", *((Link("", url),) if url else ()), f": {claim}"
            yield clean_text(case.answered_by, NAME), line

    # ---- each problem whole

    def sections(self) -> Iterator[ReportSection]:
        """Yield what is open in the order of numbers, what waits for others, what has no news."""
        for is_open, run in groupby(self.kept, key=lambda each: bool(each[1].open)):
            entries = tuple(self._problem(n, p) for n, p in run)
            title = self.words("open" if is_open else "resting")
            groups = (Group(entries, is_full=True),)
            yield ReportSection(title, groups, is_apart=True, is_detail=is_open)
        yield from self._quiet()

    def _quiet(self) -> Iterator[ReportSection]:
        """Yield the section of issues that are still open but have no news in the window."""
        issues = self.facts.document.still_open
        if not issues:
            return
        more = len(issues) - MOST_QUIET
        rest = [self.words("more", n=more)] if more > 0 else []
        entries = (*map(self._known_entry, issues[:MOST_QUIET]), *entries_of(rest))
        groups = (Group(entries),)
        yield ReportSection(self.words("no_news"), groups, is_apart=True, is_detail=True)

    def _known_entry(self, issue: KnownIssue) -> Entry:
        words = self.words
        age, state = words("days", n=issue.age_days), words(issue.state)
        claim = prose(issue.claim, CLAIM) or EMPTY_PLACEHOLDER
        owner = clean_text(issue.owner, NAME)
        owner = words("nobody") if owner.lower() in ("", "nobody") else owner
        row = (
            f"{self.facts.dot(issue)} ",
            Bold(f"#{clean_text(issue.item, NAME)}"),
            f" · {age} · {state} · {claim} · {owner}",
        )
        return Entry(row, slack_link(issue.links))

    # ---- a problem

    def _problem(self, number: int, problem: SweepProblem) -> Entry:
        """Return a problem with a line for each of its findings, urgent ones first."""
        facts, lead = self.facts, problem.active[0].finding
        details: list[str | Bold | Link] = []
        if problem.is_shared:
            markets = dict.fromkeys(f"#{clean_text(m.market, NAME)}" for m in problem.members)
            places = facts.some([*markets], MOST_MARKETS)
            details.append(f"\n{facts.states(problem.members, f', {places}')}")
        if entry := problem.tracker or lead.tracker:
            parts = () if problem.title else (clean_text(x, NAME) for x in (entry.key, entry.title))
            name = " ".join(filter(None, parts))
            details += [" · " if details else "\n", facts.tracker_link(entry, name)]
        is_pressing = not problem.is_shared and is_urgent(lead, facts.at)
        quotes = (clean_text(q, QUOTE) for q in lead.quotes[-MOST_QUOTES:] if is_pressing)
        members = sorted(problem.members, key=lambda member: member.order)
        return Entry(
            id=lead.id,
            number=number,
            title=(f"{facts.dot(lead)} ", Bold(facts.title(problem))),
            quotes=tuple(filter(None, quotes)),
            details=tuple(details),
            lines=tuple(self._case(each, problem.is_shared) for each in members),
        )

    def _case(self, member: Member, is_shared: bool) -> Line:
        """Return the line of a finding, finished ones with a check mark."""
        finding = member.finding
        text = f"{self._who(member)} · {self._note(finding, is_shared)}"
        return (f"{self.facts.dot(finding)} {text}", *thread_links(finding))

    def _who(self, member: Member) -> str:
        """Return who waits, where, since when, and the amount."""
        facts, cases, finding = self.facts, member.cases(), member.finding
        found = filter(None, (clean_text(case.customer, NAME) for case in cases))
        names = list(dict.fromkeys(found))
        named = facts.some(names, MOST_FULL) or self.words("customers", n=finding.people)
        amounts = [clean_text(c.amount, AMOUNT) for c in cases] if len(cases) == 1 else []
        whose = clean_text(cases[0].customer, NAME) if len(names) > 1 else ""
        place = f"#{clean_text(member.market, NAME)}"
        parts = named, place, facts.waits(finding, whose), *amounts
        return " · ".join(filter(None, parts))

    def _note(self, finding: SweepFinding, is_shared: bool) -> str:
        """Return the state of an issue, its deadline, why it is severe, what they want, and who
        acts; for a shared problem, the claim in place of an unknown reason and wish."""
        facts, is_open = self.facts, finding.state in NEEDS_ACTION
        wants = prose(finding.wants, SENTENCE)
        reason = first_clause(prose(finding.severity_reason, SENTENCE), FEW_WORDS).rstrip(".")
        shows_reason = is_open and (finding.severity == "high" or not wants)
        what = [*filter(None, (reason if shows_reason else "", wants))]
        if is_shared and not (reason or wants):
            what = [first_clause(facts.claim(finding))]
        day = facts.due(finding) if is_open or not facts.is_over(finding) else ""
        parts = (facts.change(finding), facts.state(finding), day, *what)
        has_step = is_open or finding.state == "known" or (finding.state == "waiting" and not what)
        step = self.step(finding) if has_step else ""
        text = " · ".join(dict.fromkeys(filter(None, parts)))
        return " ".join(filter(None, (text, step)))
