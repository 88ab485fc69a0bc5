"""Tell who of the team does what about the problems of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.reports.documents import SweepFinding, TopLine
from bot.reports.formats import clean_text, prose
from bot.reports.problems import (
    OVER,
    Member,
    SweepProblem,
    acting,
    actor,
    customers_of,
    is_name,
    is_urgent,
)
from bot.reports.sweep_facts import (
    LINE,
    MOST_FULL,
    NAME,
    SENTENCE,
    SHORT,
    STEP,
    SUBJECT,
    SweepFacts,
    customer_links,
    first_clause,
    slack_link,
    thread_links,
    unanswered,
)
from bot.reports.view import Entry, Group, Highlight, Line, Link, Reference, with_links

MOST_FIRST = 6
"""Lines on top of a report."""
MOST_ALSO = 8
"""Urgent problems below them up to which each has a line of its own."""
FEW_FIRST = 3
"""Up to so many jobs stand there although nothing of them is urgent."""
FEW_FINDINGS = 3
"""Findings of a job up to which it says since when nobody has replied."""
MOST_NAMES = 2
"""Customers of a job that is only named."""
MOST_LINKS = 6
"""Links beside one job."""


@dataclass(frozen=True, slots=True)
class TeamJob:
    """A line of the parent: what somebody has to do."""

    text: str
    name: str
    """Who does it; empty if the line names nobody."""
    mark: str
    """How the line marks the name, as `(proposed)`; empty if it is no proposal."""
    act: str
    """What they do; the whole text without a name."""
    findings: tuple[SweepFinding, ...]
    """Those that are not over, the most urgent first."""
    numbers: tuple[int, ...]
    """The problems that it is about; the one with most of its findings first."""

    @property
    def who(self) -> str:
        return f"{self.name} {self.mark}".strip()


class SweepJobs:
    """The jobs of one sweep, and who acts for each of its problems."""

    def __init__(self, facts: SweepFacts) -> None:
        self.facts = facts
        found = (self._job(line) for line in facts.document.top_lines)
        self.all = [job for job in found if job.numbers]
        pressing = [job for job in self.all if any(is_urgent(f, facts.at) for f in job.findings)]
        self.first = pressing[:MOST_FIRST] or self.all[:FEW_FIRST]
        """On top."""
        self.others = [job for job in self.all if job not in self.first]
        self.jobs_of: dict[str, list[TeamJob]] = {}
        """The jobs about each finding, by its id."""
        for job in self.all:
            for finding in job.findings:
                self.jobs_of.setdefault(finding.id, []).append(job)
        likeliest = self._likeliest()
        self.actors = {
            number: clean_text(
                self._actor(number, problem) or likeliest.get(problem.members[0].market), NAME
            )
            for number, problem in enumerate(facts.problems, 1)
        }
        """Who acts for most of each problem, if only as a proposal; empty = nobody."""

    def _job(self, line: TopLine) -> TeamJob:
        facts, cited = self.facts, {*line.findings}
        findings = [m.finding for p in facts.problems for m in p.active if {*m.finding.ids} & cited]
        numbers = Counter(facts.numbers[finding.id] for finding in findings)
        text = prose(line.text, LINE)
        who, _, act = text.partition(": ")
        name = acting(text)
        is_ours = name in facts.team or all(is_name(name, finding) for finding in findings)
        ranked = tuple(number for number, _ in numbers.most_common())
        if not name or not is_ours:
            return TeamJob(text, "", "", text, tuple(findings), ranked)
        mark = who.removeprefix(name).strip()
        return TeamJob(text, name, mark, act, tuple(findings), ranked)

    def _actor(self, number: int, problem: SweepProblem) -> str:
        """Return who does the jobs of most findings of a problem, else who acts for most."""
        names = Counter(
            job.name
            for job in self.all
            for finding in job.findings
            if job.name and self.facts.numbers[finding.id] == number
        )
        if not names:
            names.update(filter(None, (actor(m.finding, self.facts.team) for m in problem.members)))
        return names.most_common(1)[0][0] if names else ""

    def _likeliest(self) -> dict[str, str]:
        """Return for each channel who of the team acts for most of its problems, and of several
        who acts for fewest channels."""
        facts = self.facts
        acts = {
            (m.market, name, each.id)
            for each in facts.problems
            for m in each.active
            if (name := actor(m.finding, facts.team)) in facts.team
        }
        problems = Counter((market, name) for market, name, _ in acts)
        markets = Counter(name for _, name in problems)
        found: dict[str, str] = {}
        for market in {market for market, _ in problems}:
            here = [name for name in facts.team if problems[market, name]]
            found[market] = max(here, key=lambda each: (problems[market, each], -markets[each]))
        return found

    # ---- on top

    def head(self) -> Iterator[Highlight]:
        """Yield the first jobs, then the urgent problems that no job is about."""
        for job in self.first:
            places, urls = self._links(job)
            marks = [Reference(str(number), "") for number in job.numbers]
            marks[:1] = [Reference(marks[0].label, urls[0] if urls else "")]
            marks += [Reference("↗", url) for url in urls[1:MOST_LINKS]]
            yield Highlight(job.text, tuple(marks), self._times(job), places=places)
        for number in self.unnamed():
            problem = self.facts.problem(number)
            first, *others = [m.finding for m in problem.open if self._is_left(m)]
            more = self.facts.words("more", n=len(others)) if others else ""
            told = " · ".join(filter(None, (self.facts.subject(first), self.facts.due(first))))
            text = " ".join(filter(None, (told, clean_text(self.step(first), SHORT), more)))
            reference = Reference(str(number), slack_link(first.links))
            yield Highlight(text, (reference,), self.facts.longest(problem))

    def also_urgent(self) -> list[Line]:
        """Return what is urgent beside the first lines: whose it is and who acts; of a few
        problems also what it is about, each on its line."""
        facts, told = self.facts, {f.id for job in self.first for f in job.findings}
        shown = self.unnamed()[: max(0, MOST_FIRST - len(self.first))]
        left: dict[int, list[SweepFinding]] = {}
        for number, member in ((n, m) for n, p in facts.open if n not in shown for m in p.open):
            if member.is_urgent and member.finding.id not in told:
                left.setdefault(number, []).append(member.finding)
        if len(left) > MOST_ALSO:
            return [(facts.some([*map(self._left_short, left, left.values())], MOST_FULL, " · "),)]
        return [self._left(number, findings) for number, findings in left.items()]

    def _left(self, number: int, findings: Sequence[SweepFinding]) -> Line:
        """Return a problem with what the first of its issues is about, and how many others."""
        facts, (first, *others) = self.facts, findings
        more = facts.words("more", n=len(others)) if others else ""
        told = f"[{number}]", facts.subject(first), more, self._acts(number)
        url = slack_link(first.links)
        return " ".join(filter(None, told)), *((Link("", url),) if url else ())

    def _left_short(self, number: int, findings: Sequence[SweepFinding]) -> str:
        names = [clean_text(name, NAME) for f in findings for name in f.customers]
        whose = self.facts.some(names, MOST_NAMES)
        return " ".join(filter(None, (f"[{number}]", whose, self._acts(number))))

    def _acts(self, number: int) -> str:
        names = self.names(number, self.facts.problem(number))
        return f"→ {', '.join(names) or self.facts.words('nobody_yet')}"

    def unnamed(self) -> list[int]:
        """Return the numbers of problems with something urgent that no job is about."""
        open_ones = self.facts.open
        return [number for number, p in open_ones if any(self._is_left(m) for m in p.open)]

    def _is_left(self, member: Member) -> bool:
        return member.is_urgent and member.finding.id not in self.jobs_of

    def _times(self, job: TeamJob) -> str:
        """Return the day of a job that is near for all its findings, and since when its customers
        have had no reply."""
        facts, since = self.facts, list[str]()
        for finding in job.findings:
            silent = unanswered(facts.problem(facts.numbers[finding.id]))
            named = [name for name in finding.customers if name in job.act]
            since += [silent[name] for name in named or finding.customers if name in silent]
        is_near = len({f.deadline for f in job.findings}) == 1 and facts.is_near(job.findings[0])
        told = [facts.due(job.findings[0])] if is_near else []
        if since and len(job.findings) <= FEW_FINDINGS:
            told.append(facts.words("no_reply", day=facts.days(min(since), max(since))))
        return " · ".join(told)

    def _links(self, job: TeamJob) -> tuple[tuple[Link, ...], list[str]]:
        """Return links behind the customers that a job names, also of those who were helped, and
        the links of its findings that name none of theirs."""
        problems = map(self.facts.problem, job.numbers)
        helped = (f for p in problems for f in p.findings if f.state in OVER)
        places = customer_links(job.act, (*job.findings, *helped))
        linked = {link.url for link in places}
        threads = ([link.url for link in thread_links(finding)] for finding in job.findings)
        others = (url for urls in threads if not linked.intersection(urls) for url in urls)
        return places, list(dict.fromkeys(others))

    # ---- beside a problem

    def names(self, number: int, problem: SweepProblem) -> list[str]:
        """Return who acts for a problem, who does so for most of its findings first; with a mark
        who does so by proposal only."""
        jobs = [job for m in problem.open for job in self.jobs_of.get(m.finding.id, ())]
        if names := self._named(jobs):
            return names
        name = self.actors[number]
        if not name:
            return []
        is_sure = name in {actor(m.finding, self.facts.team) for m in problem.open}
        return [name if is_sure else self.facts.words("proposed", who=name)]

    def _named(self, jobs: Sequence[TeamJob]) -> list[str]:
        """Return who does these jobs, most of them first; with its mark who has only proposals."""
        shown = {job.name: job.who for job in sorted(jobs, key=lambda job: not job.mark)}
        names = Counter(job.name for job in jobs if job.name)
        return [shown[name] for name, _ in names.most_common()]

    def step(self, finding: SweepFinding) -> str:
        """Return who takes the next step; and which one, unless a job says it.

        Who acts for the other issues of the problem is proposed where nobody is known.
        """
        facts, words = self.facts, self.facts.words
        decided = any(
            finding.id in line.findings
            and any(name and name in line.text for name in finding.customers)
            for line in facts.document.decisions
        )
        asked = f" · {words('you_decide')}" if decided else ""
        who = clean_text(actor(finding, facts.team), NAME)
        if names := self._named(self.jobs_of.get(finding.id, ())):
            return f"→ {', '.join(names)}{asked}"
        if decided:
            return f"→ {words('you_decide')}"
        step = prose(finding.next_step, STEP) or words(f"unsaid_{finding.state}")
        if not who and finding.state == "waiting":
            return f"→ {step}"
        if not who:
            name = self.actors[facts.numbers[finding.id]]
            told = words("proposed", who=name) if name else words("nobody_yet")
            return f"→ {told}: {step}"
        begins = step.casefold().startswith((who.casefold(), who.split()[0].casefold()))
        return f"→ {step}" if begins else f"→ {who}: {step}"

    # ---- by person

    def people(self) -> Iterator[Group]:
        """Yield a group for each person: what to do, in the order of the jobs, what no job is
        about, which bug of the tracker is theirs, and whom they may have to remind."""
        told: dict[str, list[Line]] = {}
        for job in (*self.first, *self.others):
            if job.name:
                told.setdefault(job.name, []).append(self._line(job))
        for (name, number), members in self._tasks().items():
            told.setdefault(name, []).append((self._task(number, members),))
        for name, line in (*self._bugs(), *self._reminders()):
            told.setdefault(name, []).append(line)
        for name, lines in told.items():
            yield Group(tuple(Entry(row=line) for line in lines), title=name)
        unclaimed = [self._line(job) for job in self.others if not job.name]
        if lost := self.facts.listed(n for n, _ in self.facts.open if not self.actors[n]):
            unclaimed.append((lost,))
        if unclaimed:
            rows = tuple(Entry(row=line) for line in unclaimed)
            yield Group(rows, title=self.facts.words("nobody_yet"))

    def _line(self, job: TeamJob) -> Line:
        first = f"{self.facts.words('first')}:" if job in self.first else ""
        told = first, self.facts.listed(job.numbers), job.mark, job.act
        act = " ".join(filter(None, told))
        places, others = self._links(job)
        times = f" · {times}" if (times := self._times(job)) else ""
        return (*with_links(act, places), times, *(Link("", url) for url in others[:MOST_LINKS]))

    def _tasks(self) -> dict[tuple[str, int], list[Member]]:
        """Return the issues that no job of somebody is about, by who acts and the number of the
        problem."""
        facts, tasks = self.facts, dict[tuple[str, int], list[Member]]()
        for number, member in ((n, m) for n, p in enumerate(facts.problems, 1) for m in p.active):
            jobs = self.jobs_of.get(member.finding.id, ())
            if member.finding.state == "waiting" or any(job.name for job in jobs):
                continue
            who = actor(member.finding, facts.team) or self.actors[number]
            for name in filter(None, (clean_text(each, NAME) for each in who.split(","))):
                tasks.setdefault((name, number), []).append(member)
        return tasks

    def _task(self, number: int, members: list[Member]) -> str:
        """Return a problem with what its first issue is about, how many customers of it somebody
        has, and how many by proposal."""
        facts, all = self.facts, len(customers_of(members))
        unsure = [m for m in members if not actor(m.finding, facts.team)]
        n = len(customers_of(unsure))
        words = facts.words
        proposal = words("only_proposed") if n == all else words("proposed_ones", n=n) if n else ""
        finding = members[0].finding
        what = prose(finding.wants, SENTENCE) or facts.claim(finding)
        told = (
            f"[{number}]",
            words("customers", n=all) if all > 1 else "",
            f"({proposal})" if proposal else "",
            facts.whose(finding, first_clause(what, SUBJECT)).rstrip("."),
        )
        return " ".join(filter(None, told))

    def _bugs(self) -> Iterator[tuple[str, Line]]:
        """Yield the owner of each bug of an open problem who has nothing else to do about it."""
        jobs = {(job.name, number) for job in self.all for number in job.numbers}
        has = {*jobs, *self._tasks()}
        for number, problem in self.facts.open:
            bug = problem.tracker
            owner = clean_text(bug.owner, NAME) if bug and bug.status == "tracked" else ""
            if bug and owner and (owner, number) not in has:
                yield owner, (self.facts.words("has_bug", bug=bug.key, number=number),)

    def _reminders(self) -> Iterator[tuple[str, Line]]:
        """Yield whom each person asked last and has no reply from, the longest first."""
        facts = self.facts
        asked = sorted(
            (
                (case.answered, case, number, member.finding)
                for number, problem in enumerate(facts.problems, 1)
                for member in problem.active
                for case in member.cases()
                if member.finding.state == "waiting" and case.answered and case.answered_by
            ),
            key=lambda each: each[:1],
        )
        for at, case, number, finding in asked:
            whom = facts.words("remind", name=clean_text(case.customer, NAME), day=facts.day(at))
            claim = first_clause(facts.claim(finding), SENTENCE)
            url = slack_link([case.link])
            told = f"[{number}] {whom}", *((Link("", url),) if url else ()), f": {claim}"
            yield clean_text(case.answered_by, NAME), told
