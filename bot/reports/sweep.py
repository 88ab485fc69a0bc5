"""Build the view of a sweep: numbers, texts, order, links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import compress, groupby

from bot.reports.documents import (
    KnownIssue,
    ReadTotals,
    SweepFinding,
    SweepReport,
    SweepSection,
    TopLine,
    TrackerEntry,
    TrackerSummary,
)
from bot.reports.formats import clean_text, due, prose
from bot.reports.frame import gaps, stopped_line
from bot.reports.problems import (
    LAST,
    OVER,
    URGENT,
    Member,
    SweepProblem,
    acting,
    actor,
    customers_of,
    days_left,
    days_since,
    is_urgent,
    problems_of,
    proposed,
    team,
)
from bot.reports.view import (
    DOTS,
    NOTHING,
    Bold,
    Entry,
    EntryTable,
    Group,
    Highlight,
    Line,
    LineList,
    Link,
    Reference,
    ReportSection,
    ReportView,
    Row,
    entries_of,
)
from bot.slack.markdown import address
from config.words import Words, in_language, words_of
from scopes.tool import one_line
from subagents.contracts import NEEDS_ACTION, State
from subagents.result import CustomerCase

THREAD = re.compile(
    r"/archives/(?P<channel>\w+)/p(?P<own>\d+)(?:\?.*?\bthread_ts=(?P<first>[\d.]+))?"
)
"""Channel, message and first message of the thread in a link to a message."""
SLACK = re.compile(r"https://[a-z0-9.-]{1,100}\.slack(?:-gov)?\.com/[A-Za-z0-9/_.?=&-]{1,200}")
"""Pattern of the only links in a report."""
NAME, TITLE, SENTENCE, LINE, CLAIM, QUOTE, STEP, AMOUNT = 60, 100, 240, 400, 600, 260, 600, 30
"""Maximum characters of each."""
FEW_WORDS = 60
"""Characters of a reason or a claim that stands beside something else."""
SHORT = 160
"""Characters from which on a text in a list ends after one of its sentences or clauses."""
MOST_CUSTOMERS, MOST_QUOTES, MOST_MARKETS, MOST_FIRST, MOST_FULL = 3, 1, 3, 10, 10
MOST_CALLS, MOST_NAMES, MOST_LINKS = 8, 6, 4
"""How many are shown of each; the rest is counted, or stands on one line each."""
FEW_FIRST = 7
"""Up to so many problems, what is not urgent is among what to do first, too."""
MOST_LINES = 40
"""Lines of a table."""
MOST_FINDINGS = 300
"""Findings that a report shows; a table of all of them is attached."""
MOST_QUIET = 100
SUBJECT = 76
"""Characters of what somebody was helped with."""
MANY_MARKETS = 12
"""From this number on, markets are sorted by urgency, not in the requested order."""
FIX, DONE = "◇", "✓"
"""Mark what waits for a fix of the team's own, and what is over."""
CLAUSE = re.compile(r"(?:(?:(?<!\d)|(?<=\d{3}))[.!?]|;)(?= )")
"""Ends of sentences and clauses; `10. März` is none."""
FINDINGS_FILE = "findings.csv"


def sweep_view(document: SweepReport, place: str = FINDINGS_FILE) -> ReportView:
    """Return the view of a sweep, its problems numbered in reading order.

    `place` is where readers find all findings if there are too many to show.
    """
    with in_language(document.language):
        return _Sweep(document, words_of(document.language), place).view()


def number_findings(document: SweepReport) -> dict[str, int]:
    """Return the number, from 1, of the problem in which each finding stands.

    What is over has none.
    """
    problems = enumerate(ordered(document), 1)
    return {id: n for n, problem in problems for f in problem.findings for id in f.ids}


def ordered(document: SweepReport) -> list[SweepProblem]:
    """Return the problems that are not over in the order of their numbers: what to do first, other
    open ones, then what waits for others, shared ones first.
    """
    active = [problem for problem in problems_of(document) if problem.active]
    lines = lines_of(document, active)
    urgent = [p.id for p in active if p.open and p.is_urgent][:MOST_FIRST]
    others = [p.id for p in active if p.open and not p.is_urgent and p.id in lines]
    first = {*urgent, *others[: max(0, FEW_FIRST - len(urgent))]}
    return sorted(
        active, key=lambda p: (p.id not in first, not p.open, not (p.open or _is_shared(p)))
    )


def lines_of(document: SweepReport, problems: Sequence[SweepProblem]) -> dict[str, list[TopLine]]:
    """Return the parent's lines, one for each job, by the id of the problem that they are about."""
    problem_of = {id: p.id for p in problems for f in p.findings for id in f.ids}
    lines: dict[str, list[TopLine]] = {}
    for line in document.top_lines:
        cited = [problem_of[id] for id in line.findings if id in problem_of]
        if cited:
            lines.setdefault(max(cited, key=cited.count), []).append(line)
    return lines


def _is_shared(problem: SweepProblem) -> bool:
    """Return whether several issues have one cause; one of them may be over."""
    return len(problem.members) > 1


def _is_fault(problem: SweepProblem) -> bool:
    """Return whether the team has to mend something: it is open and no mere question, or a known
    bug."""
    states = {(f.state, f.severity) for f in problem.findings}
    return any(s == "known" or (s in NEEDS_ACTION and grade != "low") for s, grade in states)


def slack_link(links: Sequence[str | None]) -> str:
    """Return the first of the links if it is Slack's; a report has no other links."""
    first = address(links[0] or "") if links else ""
    return first if SLACK.fullmatch(first) else ""


def thread_links(finding: SweepFinding) -> tuple[Link, ...]:
    """Return the first link of each thread, of those that are Slack's, with the customers there."""
    threads: dict[tuple[str, str], str] = {}
    for link in filter(None, (slack_link([each]) for each in finding.links)):
        threads.setdefault(_thread(link), link)
    names: dict[tuple[str, str], list[str]] = {}
    for case in finding.cases:
        names.setdefault(_thread(case.link or ""), []).append(clean_text(case.customer, NAME))
    return tuple(Link(", ".join(names.get(key, ())), url) for key, url in threads.items())


def _thread(link: str) -> tuple[str, str]:
    """Return the channel and the first message of the thread that a link leads to."""
    found = THREAD.search(link)
    if not found:
        return "", link
    return found["channel"], (found["first"] or found["own"]).replace(".", "")


def first_clause(text: str, most: int = SHORT) -> str:
    """Return a text up to the last end of a clause within so many characters, or the next one."""
    if len(text) <= most:
        return text
    ends = [found.start() for found in CLAUSE.finditer(text)]
    kept = [end for end in ends if most // 4 < end <= most][-1:] or [e for e in ends if e > most]
    return text[: kept[0]].rstrip() if kept else text


class _Sweep:
    """Builds the view of one sweep."""

    def __init__(self, document: SweepReport, words: Words, place: str) -> None:
        self.words = words
        self.place = place
        self.has_changes = document.compared is not None
        self.document = document
        self.at = datetime.fromisoformat(document.window.latest).astimezone(UTC)
        self.problems = ordered(document)
        self.numbers = number_findings(document)
        self.closed = self._closed_names()
        tables = {f.id for p in self.problems if _is_shared(p) for f in p.findings}
        self.closed_apart = {
            market: {name: finding for name, finding in names.items() if finding.id not in tables}
            for market, names in self.closed.items()
        }
        """Of these, who stands in the table of no problem."""
        self.team = team(document)
        lines = lines_of(document, self.problems)
        self.jobs = {self.numbers[id]: each for id, each in lines.items()}
        """What the parent says to do about a problem, by its number."""
        self.lines = {number: prose(each[0].text, LINE) for number, each in self.jobs.items()}
        """The first of these lines."""
        self.job_of = {
            finding.id: line
            for number, each in self.jobs.items()
            for finding in self._at(number).findings
            for line in reversed(each)
            if {*finding.ids} & {*line.findings}
        }
        """The first line about a finding, of those about its problem, by the id of the finding."""
        pairs = list(enumerate(self.problems, 1))
        self.open = [(number, problem) for number, problem in pairs if problem.open]
        likeliest = self._likeliest()
        self.actors = {
            n: self._actor_of_jobs(n)
            or proposed(p, self.team, self.lines.get(n, ""))
            or likeliest.get(p.members[0].market, "")
            for n, p in pairs
        }
        """Who acts for each problem, by its number, if only as a proposal; empty = nobody."""
        self.places: dict[str, list[int]] = {}
        """The numbers of the problems in which each customer waits."""
        for number, problem in pairs:
            for name in customers_of(problem.active):
                self.places.setdefault(clean_text(name, NAME), []).append(number)

    def view(self) -> ReportView:
        document, words = self.document, self.words
        channels = words("channels", n=len(document.sections))
        counts = self._counts()
        return ReportView(
            words=words,
            name=words("sweep"),
            notification=f"{words('sweep')}, {channels}: {counts}.",
            title=": ".join(filter(None, (words("issues"), clean_text(document.title, TITLE)))),
            counts=counts,
            lead=tuple(filter(None, self._lead(channels))),
            first=tuple(self._first())[:MOST_FIRST],
            notes=tuple(self._notes()),
            gaps=_sentences(gaps(document)),
            lists=tuple(self._lists()),
            sections=tuple(self._sections()),
            sources=tuple(f"#{_name(each)}: {self._read(each)}" for each in self._markets()),
            foot=tuple(self._foot()),
        )

    def _actor_of_jobs(self, number: int) -> str:
        """Return who does several jobs of a problem for most of its findings; empty where it is one
        job."""
        jobs = self.jobs.get(number, [])
        names = Counter[str]()
        for job in jobs if jobs[1:] else ():
            names[acting(job.text)] += len(job.findings)
        return names.most_common(1)[0][0] if names else ""

    def _likeliest(self) -> dict[str, str]:
        """Return for each channel who of the team acts for most of its problems, and of several
        who acts for fewest channels."""
        acts = {
            (m.market, name, each.id)
            for each in self.problems
            for m in each.active
            if (name := actor(m.finding, self.team)) in self.team
        }
        problems = Counter((market, name) for market, name, _ in acts)
        markets = Counter(name for _, name in problems)
        found: dict[str, str] = {}
        for market in {market for market, _ in problems}:
            here = [name for name in self.team if problems[market, name]]
            found[market] = max(here, key=lambda each: (problems[market, each], -markets[each]))
        return found

    # ---- the head

    def _counts(self) -> str:
        """Format how many problems are open and new, and how many customers wait: numbers alone,
        as text is parsed."""
        words, before = self.words, self.document.compared
        numbers, quiet = range(1, len(self.problems) + 1), self.document.still_open
        parts = self._by_change() if self.has_changes else self._waiting()
        compared = words("compared", day=words.day(before.last)) if before else ""
        n = len(self.problems) - len(self.open)
        resting = words("resting_ones", n=n) if n else ""
        return " · ".join(filter(None, (self._open(numbers, quiet), resting, *parts, compared)))

    def _by_change(self) -> list[str]:
        """Count the open problems by what changed, and the customers whose issue was solved."""
        words, quiet = self.words, self.document.still_open
        changes = [{m.finding.change for m in p.open} for p in self.problems if p.open]
        known = [each for each in changes if each & {"open", "changed"}]
        reopened = sum("reopened" in each and each not in known for each in changes)
        solved = [f for names in self.closed.values() for f in names.values()]
        counts = {
            "new_ones": changes.count({"new"}),
            "still": len(known) + len(quiet),
            "solved_ones": sum(finding.change == "solved" for finding in solved),
            "reopened_ones": reopened,
        }
        told = {key: words(key, n=n) for key, n in counts.items() if n}
        if "still" in told:
            findings = [m.finding for p in self.problems for m in p.open if m.finding.change]
            ages = [f.age_days for f in findings] + [issue.age_days for issue in quiet]
            oldest = max(age or 0 for age in ages)
            changed = sum("changed" in each for each in known)
            told["still"] += f" {words('oldest', days=words('days', n=oldest))}" if oldest else ""
            told["still"] += f" ({words('changed_ones', n=changed)})" if changed else ""
        return [", ".join(told.values())]

    def _waiting(self) -> list[str]:
        """Count the customers who wait, by what for, and those who do not any more."""
        members = [m for problem in self.problems for m in problem.active]
        solved = sum(map(len, self.closed.values()))
        return [self._states(members), self.words("solved_ones", n=solved) if solved else ""]

    def _states(self, members: Sequence[Member], place: str = "") -> str:
        """Count the customers, who waits for the team or a fix, who has to act, and whose issue is
        over; empty where there is nobody."""
        states = list(customers_of(members).values())
        counts = (
            ("team_ones", sum(state in NEEDS_ACTION for state in states)),
            ("known_ones", states.count("known")),
            ("waiting_ones", states.count("waiting")),
            ("solved_ones", sum(state in OVER for state in states)),
        )
        told = ", ".join(self.words(key, n=n) for key, n in counts if n)
        return f"{self.words('customers', n=len(states))}{place}: {told}" if states else ""

    def _open(self, numbers: Iterable[int], quiet: Sequence[KnownIssue]) -> str:
        """Count what is open of the problems with these numbers and of issues without news."""
        words, open_ones = self.words, [p for n in numbers if (p := self._at(n)).open]
        urgent = sum(problem.is_urgent for problem in open_ones)
        urgent += sum(is_urgent(issue, self.at) for issue in quiet)
        return words("open_problems", n=len(open_ones) + len(quiet)) + (
            f" ({words('urgent_ones', n=urgent)})" if urgent else ""
        )

    def _lead(self, channels: str) -> Iterator[str]:
        document, words, window = self.document, self.words, self.document.window
        start, end = (words.day(each) for each in (window.oldest, window.latest))
        if start == end:
            start, end = (words.minute(each) for each in (window.oldest, window.latest))
        read = self._total([section.coverage for section in document.sections])
        without = words("no_issue", n=n) if (n := self._without_issue()) else ""
        told = words("period", start=start, end=end), channels, read, without
        yield " · ".join(filter(None, told))
        yield self._ended()
        yield words("offline") if document.model == "offline" else ""
        yield from (words("order"), words("marks")) if self.problems else ()

    def _ended(self) -> str:
        """Return why a report is not whole; empty if it is."""
        document = self.document
        if document.status == "cancelled":
            return stopped_line(document)
        return "" if document.status == "complete" else self.words(f"ended_{document.status}")

    def _total(self, covers: Sequence[ReadTotals]) -> str:
        messages = self.words("messages", n=sum(cover.messages_read for cover in covers))
        threads = self.words("threads", n=sum(cover.threads_read for cover in covers))
        return self.words("read", messages=messages, threads=threads)

    def _without_issue(self) -> int:
        """Count the threads that hold no issue of a customer, as their readers say."""
        values = [each.value or {} for each in self.document.subagents]
        return len({id for value in values for id in value.get("no_issue", ())})

    def _read(self, section: SweepSection) -> str:
        """Format how much was read, and the status if it is incomplete."""
        status = "" if section.status == "complete" else f" ({self.words(section.status)})"
        return self._total([section.coverage]) + status

    def _first(self) -> Iterator[Highlight]:
        """Yield the most urgent problems, then severe issues without news, the oldest first."""
        for number, problem in enumerate(self.problems[:MOST_FIRST], 1):
            if self._is_first(number, problem):
                yield self._highlight(number, problem)
        words = self.words
        waiting = [issue for issue in self.document.still_open if issue.severity == "high"]
        for issue in sorted(waiting, key=lambda issue: -issue.age_days):
            claim = first_clause(prose(issue.claim, CLAIM)) or NOTHING
            age = words("still_open", days=words("days", n=issue.age_days))
            link = slack_link(issue.links)
            references = (Reference("↗", link),) if link else ()
            yield Highlight(f"#{_name(issue)}: {claim} · {age}", references)

    def _is_first(self, number: int, problem: SweepProblem) -> bool:
        """Return whether a problem is among what to do first."""
        if problem.is_urgent:
            return number <= MOST_FIRST and bool(problem.open)
        return number <= FEW_FIRST and bool(problem.open) and number in self.lines

    def _size(self, number: int, problem: SweepProblem) -> str:
        """Return who waits, many by their number, how many without an owner, and how long."""
        words = self.words
        waiting = [m for m in problem.active if m.finding.state != "waiting"]
        unnamed = [m for m in waiting if not any(case.customer for case in m.cases())]
        names = customers_of(m for m in waiting if m not in unnamed)
        told = ", ".join(self._also(clean_text(name, NAME), number) for name in names)
        if unnamed or len(names) > MOST_CUSTOMERS:
            n = len(names) + sum(m.finding.people for m in unnamed)
            told = words("customers_wait", n=n)
        lost = [m for m in problem.open if not actor(m.finding, self.team)]
        if (n := len(customers_of(lost))) and len(customers_of(waiting)) > 1:
            told += f" ({words('without_owner', n=n)})"
        since = min(member.since for member in problem.open)
        days = words("days", n=days_since(since, self.at)) if since != LAST else ""
        if days and (unnamed or len(names) > 1):
            days = words("oldest", days=days)
        return ", ".join(filter(None, (told, days)))

    def _highlight(self, number: int, problem: SweepProblem) -> Highlight:
        first = problem.open[0]
        title = problem.title if _is_shared(problem) else first.finding.claim
        url = slack_link(first.finding.links)
        told: list[Line] = [*self._acts(number, problem), *self._calls(number, problem)]
        if promised := " · ".join(self._promised(problem)):
            told.append((promised,))
        return Highlight(
            size=self._size(number, problem),
            text=first_clause(prose(title, CLAIM)).rstrip(".") or NOTHING,
            references=(Reference(str(number), url),),
            details=tuple(told),
        )

    def _acts(self, number: int, problem: SweepProblem) -> Iterator[Line]:
        """Yield the first job of a problem, and who has how many others, which stand with the
        persons; here stand those that name nobody. Without a job the next step."""
        first, *others = self.jobs.get(number, []) or (None,)
        if first is None:
            yield (self._act(number, problem),)
            return
        for job in (first, *(each for each in others if not acting(each.text))):
            yield self._job_line(number, job, f"→ {prose(job.text, LINE)}")
        names = Counter(name for job in others if (name := acting(job.text)))
        if names:
            told = ", ".join(f"{name} ({n})" for name, n in names.items())
            yield (self.words("more_jobs", n=names.total(), names=told),)

    def _job_line(self, number: int, job: TopLine, told: str) -> Line:
        """Return a job with since when its customers have had no reply, and links to their
        threads."""
        problem = self._at(number)
        silent = _unanswered(problem)
        found = [m.finding for m in problem.open if {*m.finding.ids} & {*job.findings}]
        since = [silent[name] for f in found for name in f.customers if name in silent]
        day = self.words("no_reply", day=self._day(min(since))) if since else ""
        links = list(filter(None, (slack_link(f.links) for f in found)))
        return (
            " · ".join(filter(None, (told, day))),
            *(Link("", url) for url in links[:MOST_LINKS]),
        )

    def _calls(self, number: int, problem: SweepProblem) -> Iterator[Line]:
        """Yield each urgent issue of a problem that no line of the parent is about: whose it is,
        how it hurts, its day, the next step, and its link; of a single one what the other lines do
        not say."""
        urgent = [m.finding for m in sorted(problem.open, key=_by_tier) if m.tier < URGENT]
        left = [finding for finding in urgent if finding.id not in self.job_of]
        for finding in left[:MOST_CALLS]:
            names = [clean_text(name, NAME) for name in finding.customers]
            reason = finding.severity_reason if finding.severity == "high" else finding.wants
            what = first_clause(prose(reason, SENTENCE), SUBJECT).rstrip(".")
            day = self._due(finding)
            if self._is_over(finding):
                day = self.words("was_due", day=self._date_of(finding))
            told = day, what
            whose = self._some(names, MOST_NAMES) if _is_shared(problem) else ""
            said = ": ".join(filter(None, (whose, " · ".join(filter(None, told)))))
            step = self._own_step(number, finding) if urgent[1:] else ""
            line = " → ".join(filter(None, (said, step)))
            url = slack_link(finding.links)
            if _is_shared(problem) or day:
                yield (f"· {line}", Link("", url)) if url and urgent[1:] else (f"· {line}",)
        if (more := len(left) - MOST_CALLS) > 0:
            yield (self.words("more", n=more),)

    def _own_step(self, number: int, finding: SweepFinding) -> str:
        """Return the next step of an issue, without who acts for the whole problem."""
        step = self._step(finding).removeprefix("→ ")
        name = self.actors[number]
        alone = (f"{name}: ", f"{self.words('proposed', who=name)}: ")
        return next((step.removeprefix(own) for own in alone if step.startswith(own)), step)

    def _lists(self) -> Iterator[LineList]:
        words = self.words
        lists = (
            ("decide", self._decisions()),
            ("people", self._people()),
            ("markets", map(self._market, self._markets())),
        )
        for title, lines in lists:
            if shown := tuple(lines):
                yield LineList(words(title), shown)

    def _people(self) -> Iterator[Line]:
        """Yield each person with what waits for them, in the order of the problems: what to do,
        which bug of the tracker is theirs, whom they asked and may have to remind."""
        words, told = self.words, dict[str, list[str]]()
        jobs, tasks = self._jobs_of(), self._tasks()
        for (name, number), members in tasks.items():
            told.setdefault(name, []).append(self._task(name, number, members))
        for number, problem in self.open:
            bug = problem.tracker
            owner = clean_text(bug.owner, NAME) if bug and bug.status == "tracked" else ""
            if bug and owner and (owner, number) not in {*jobs, *tasks}:
                told.setdefault(owner, []).append(words("has_bug", bug=bug.key, number=number))
        for name, asked in self._asked().items():
            names = self._some(asked, MOST_FULL)
            told.setdefault(name, []).append(words("remind", names=names))
        for name in dict.fromkeys([*(name for name, _ in jobs), *told]):
            yield Bold(name), f"  {' · '.join(told.get(name, ()))}".rstrip()
            for (who, _), lines in jobs.items():
                yield from lines if who == name else ()
        if lost := [number for number, _ in self.open if not self.actors[number]]:
            yield Bold(words("nobody_yet")), f"  {self._numbers(lost)}"

    def _jobs_of(self) -> dict[tuple[str, int], list[Line]]:
        """Return the jobs of each person, by name and number of the problem."""
        found: dict[tuple[str, int], list[Line]] = {}
        for number in sorted(self.jobs):
            for job in self.jobs[number]:
                if name := acting(job.text):
                    who, _, act = prose(job.text, LINE).partition(": ")
                    mark = who.removeprefix(name)
                    line = self._job_line(number, job, f"· [{number}]{mark} {act}")
                    found.setdefault((name, number), []).append(line)
        return found

    def _tasks(self) -> dict[tuple[str, int], list[Member]]:
        """Return the issues of each person that no job of somebody is about, by name and number of
        the problem."""
        tasks: dict[tuple[str, int], list[Member]] = {}
        for number, member in ((n, m) for n, p in enumerate(self.problems, 1) for m in p.active):
            job = self.job_of.get(member.finding.id)
            if member.finding.state == "waiting" or (job and acting(job.text)):
                continue
            who = actor(member.finding, self.team) or self.actors[number]
            for name in filter(None, (clean_text(each, NAME) for each in who.split(","))):
                tasks.setdefault((name, number), []).append(member)
        return tasks

    def _asked(self) -> dict[str, list[str]]:
        """Return for each person whom they asked last and have no reply from, the longest first."""
        asked = sorted(
            (case.answered, case.answered_by, case.customer, number)
            for number, problem in enumerate(self.problems, 1)
            for member in problem.active
            for case in member.cases()
            if member.finding.state == "waiting" and case.answered and case.answered_by
        )
        found: dict[str, list[str]] = {}
        for at, by, customer, number in asked:
            told = f"{clean_text(customer, NAME)} [{number}] ({self._day(at)})"
            found.setdefault(clean_text(by, NAME), []).append(told)
        return found

    def _task(self, name: str, number: int, members: Sequence[Member]) -> str:
        """Return a problem with how many customers of it somebody has, and how many by proposal;
        what is not among the first lines says what it is about, and of a problem that somebody else
        acts for, or that has jobs, whose it is."""
        words, all = self.words, len(customers_of(members))
        unsure = [m for m in members if not actor(m.finding, self.team)]
        n = len(customers_of(unsure))
        count = words("customers", n=all) if all > 1 else ""
        proposal = words("only_proposed") if n == all else words("proposed_ones", n=n) if n else ""
        told = [f"[{number}]", count, f"({proposal})" if proposal else ""]
        if not self._is_first(number, self._at(number)):
            finding = members[0].finding
            what = first_clause(prose(finding.wants, SENTENCE) or self._claim(finding), SUBJECT)
            told.append(self._whose(finding, what).rstrip("."))
        elif number in self.jobs or name != self.actors[number]:
            names = [clean_text(each, NAME) for each in customers_of(members)]
            told.append(self._some(names, MOST_CUSTOMERS))
        return " ".join(filter(None, told))

    def _notes(self) -> Iterator[str]:
        document, words = self.document, self.words
        if rest := [(n, p) for n, p in self.open if p.is_urgent and not self._is_first(n, p)]:
            told = [self._missed(number, problem) for number, problem in rest]
            yield words("also_urgent", issues=self._some(told, MOST_CUSTOMERS, "; "))
        yield from self._owners()
        if document.tracker:
            yield self._tracker(document.tracker)
        for key, names in (("added", document.channels_added), ("gone", document.channels_gone)):
            if names:
                shown = clean_text(", ".join(f"#{each}" for each in names), SENTENCE)
                yield words(key, names=shown)
        yield from _sentences(document.notes)

    def _decisions(self) -> Iterator[Line]:
        """Yield what only the reader can decide, with the numbers of its problems."""
        for line in self.document.decisions:
            numbers = sorted({self.numbers[id] for id in line.findings if id in self.numbers})
            if text := _capital(prose(line.text, LINE).rstrip(".")):
                case = self._case_decided(line)
                url = slack_link([case.link]) if case else slack_link(line.links)
                told = " · ".join(filter(None, (text, self._case_of(case), self._numbers(numbers))))
                yield (told, Link("", url)) if url else (told,)

    def _case_of(self, case: CustomerCase | None) -> str:
        """Return the amount of a case, and since when it has been open."""
        if not case:
            return ""
        opened = ""
        if case.since:
            days = self.words("days", n=days_since(case.since, self.at))
            opened = self.words("open_since", day=self._day(case.since), days=days)
        return " · ".join(filter(None, (clean_text(case.amount, AMOUNT), opened)))

    def _case_decided(self, line: TopLine) -> CustomerCase | None:
        """Return the case that a decision is about, of those in its findings: of the customer whom
        it names, else the oldest."""
        found = [f for f in self.document.findings() if f.id in line.findings]
        cases = [case for f in found for case in f.cases]
        named = [case for case in cases if case.customer in line.text]
        return min(named or cases, key=lambda case: case.since or LAST, default=None)

    def _owners(self) -> Iterator[str]:
        """Yield which problems have an owner only by proposal."""
        unsure = [
            number
            for number, problem in self.open
            if self.actors[number] and not all(actor(m.finding, self.team) for m in problem.open)
        ]
        if unsure:
            yield self.words("unconfirmed", numbers=self._numbers(unsure))

    def _missed(self, number: int, problem: SweepProblem) -> str:
        """Return an urgent problem in one clause: whose it is, what, and who is missing."""
        finding = problem.open[0].finding
        what = first_clause(prose(problem.title, CLAIM) or self._claim(finding), SUBJECT)
        lost = "" if self.actors[number] else self.words("nobody_yet")
        told = what.rstrip("."), self._state(finding), lost
        return self._case(number, finding, ", ".join(filter(None, told)))

    def _case(self, number: int, finding: SweepFinding, what: str) -> str:
        return f"[{number}] {self._whose(finding, what)}"

    def _tracker(self, tracker: TrackerSummary) -> str:
        words = self.words
        named, why = clean_text(tracker.title, TITLE), clean_text(tracker.reason, SENTENCE)
        head = words("tracker") + (f" ({named})" if named else "")
        if tracker.status not in ("complete", "partial"):
            return f"{head}: {words('unread', why=why)}"
        without = [(n, p) for n, p in enumerate(self.problems, 1) if p.is_untracked]
        groups = (
            ("untracked_ones", [n for n, p in without if p.open and _is_fault(p)]),
            ("asking_ones", [n for n, p in without if p.open and not _is_fault(p)]),
            ("resting_untracked", [n for n, p in without if not p.open and _is_fault(p)]),
        )
        there, closed = sum(p.is_tracked for _, p in self.open), self._closed()
        shown = (
            words("tracked_ones", n=there) if there or without else "",
            *(words(key, n=len(ns), numbers=self._numbers(ns)) for key, ns in groups if ns),
            words("closed_ones", bugs=closed) if closed else "",
            words("partly", why=why) if tracker.status == "partial" else "",
        )
        return f"{head}: {' · '.join(filter(None, shown)) or words('complete')}"

    def _closed(self) -> str:
        """Name the bugs that the tracker has as closed, with the problem that reports each."""
        closed: dict[str, int] = {}
        for number, problem in enumerate(self.problems, 1):
            for entry in (f.tracker for f in problem.findings):
                if entry and entry.status == "closed":
                    closed.setdefault(clean_text(entry.key or entry.title, NAME), number)
        return self._some([f"{bug} [{number}]" for bug, number in closed.items() if bug], MOST_FULL)

    def _numbers(self, numbers: Iterable[int]) -> str:
        """Return the numbers of problems as a reader finds them."""
        return self._some([f"[{number}]" for number in numbers], MOST_FULL, " ")

    def _some(self, texts: Sequence[str], most: int, between: str = ", ") -> str:
        """Return the first of the texts, and how many more there are."""
        more = len(texts) - most
        rest = f" {self.words('more', n=more)}" if more > 0 else ""
        return between.join(texts[:most]) + rest

    def _foot(self) -> Iterator[str]:
        document, words = self.document, self.words
        if document.unsupported:
            yield words("dropped", n=document.unsupported)
        cost = document.cost_usd
        price = words("no_price") if cost is None else f"${cost:.4f}"
        price += f" ({words('listed')})" if document.model == "offline" else ""
        tokens = words("tokens", n=document.usage.total)
        yield f"{price} · {tokens} · {words('run', id=one_line(document.run_id)[:NAME])}"

    # ---- the markets

    def _markets(self) -> Sequence[SweepSection]:
        """Return the sections as requested; if there are many, urgent ones first."""
        sections = self.document.sections
        if len(sections) <= MANY_MARKETS:
            return sections

        def calm(section: SweepSection) -> tuple[int, int]:
            waiting = [f for f in section.findings if f.state in NEEDS_ACTION]
            return -sum(is_urgent(f, self.at) for f in waiting), -len(waiting)

        return sorted(sections, key=calm)

    def _market(self, section: SweepSection) -> Line:
        """Return the dot of the most urgent open issue, the worst one, and what is open."""
        words, findings, document = self.words, section.findings, self.document
        old = [issue for issue in document.still_open if issue.item == section.item]
        numbers = sorted({self.numbers[f.id] for f in findings if f.state in NEEDS_ACTION})
        problems = list(map(self._at, numbers))
        dots = {self._dot(problem.open[0].finding) for problem in problems}
        dots |= set(map(self._dot, old))
        dot = next((each for each in DOTS.values() if each in dots), NOTHING)
        open_line = words("none_open") if section.status == "complete" else ""
        if problems or old:
            changes = [{m.finding.change for m in problem.open} for problem in problems]
            count = changes.count({"new"}) if self.has_changes else 0
            new = words("new_ones", n=count) if count else ""
            open_line = ", ".join(filter(None, (self._open(numbers, old), new)))
        cases = [(n, m) for n in numbers for m in self._at(n).open]
        here = [case for case in cases if case[1].market == section.item]
        lower = [(n, m) for n, m in here if m.tier < URGENT and not self._is_first(n, self._at(n))]
        worst = [self._worst(*min(lower, key=lambda case: case[1].tier))] if lower else []
        status = "" if section.status == "complete" else words(section.status)
        found = first_clause(prose(section.summary, CLAIM)) if status or not here else ""
        rest = {self.numbers[f.id] for f in findings if f.state in ("known", "waiting")}
        others = sorted(rest - {*numbers})
        told = " ".join(filter(None, (open_line, self._numbers(numbers))))
        if others:
            resting = words("waits_too", numbers=self._numbers(others))
            told = " · ".join(filter(None, (told, resting)))
        shown = filter(None, (told, *worst, status, found))
        return f"{dot} ", Bold(f"#{_name(section)}"), f"  {' · '.join(shown)}"

    def _at(self, number: int) -> SweepProblem:
        return self.problems[number - 1]

    def _worst(self, number: int, member: Member) -> str:
        """Return whose an issue is, and why it is severe or what they want."""
        finding = member.finding
        reason = finding.severity_reason if finding.severity == "high" else ""
        what = first_clause(prose(reason or finding.wants, SENTENCE), SUBJECT).rstrip(".")
        return self._case(number, finding, what or first_clause(self._claim(finding), SUBJECT))

    # ---- the problems

    def _sections(self) -> Iterator[ReportSection]:
        """Yield what is open in the order of the numbers, then what rests and what is over."""
        words, kept, left = self.words, list[tuple[int, SweepProblem]](), 0
        room = MOST_FINDINGS
        for number, problem in enumerate(self.problems, 1):
            room -= len(problem.active)
            if room >= 0:
                kept.append((number, problem))
            else:
                left += len(problem.active)
        for is_open, run in groupby(kept, key=lambda each: bool(each[1].open)):
            title = words("open" if is_open else "resting")
            yield ReportSection(title, (self._group(list(run)),), is_apart=True)
        yield from self._quiet()
        if n := sum(map(len, self.closed_apart.values())):
            is_rest = n < sum(map(len, self.closed.values()))
            over = words("also_over" if is_rest else "over", n=n)
            yield ReportSection(over, (Group(tuple(self._done())),), is_apart=not self.open)
        if left:
            more = words("elsewhere", n=left, place=self.place)
            yield ReportSection(words("not_shown"), (), more=more)

    def _group(self, problems: Sequence[tuple[int, SweepProblem]]) -> Group:
        entries = [(self._shared if _is_shared(p) else self._alone)(n, p) for n, p in problems]
        return Group(tuple(entries), is_full=True)

    def _shared(self, number: int, problem: SweepProblem) -> Entry:
        """Return a problem with a table of all who wait for it."""
        words, lead = self.words, problem.active[0]
        title = prose(problem.title or lead.finding.claim, CLAIM) or NOTHING
        places = self._places(problem.members, MANY_MARKETS)
        details: list[str | Bold | Link] = [f"\n{self._states(problem.members, f', {places}')}"]
        if problem.tracker:
            details += [" · ", self._tracker_link(problem.tracker, "")]
        elif problem.is_untracked:
            details.append(f" · {words('untracked')}")
        details.append(self._below(number, problem))
        head = Bold(f"{self._dot(lead.finding)} {number}. {title}")
        return Entry(
            row=(head,),
            id=lead.finding.id,
            number=number,
            title=(head,),
            details=tuple(details),
            table=self._table(number, problem),
        )

    def _places(self, members: Sequence[Member], most: int = MOST_MARKETS) -> str:
        markets = list(dict.fromkeys(clean_text(m.market, NAME) for m in members))
        more = len(markets) - most
        named = ", ".join(f"#{market}" for market in markets[:most])
        return f"{named} +{more}" if more > 0 else named

    def _table(self, number: int, problem: SweepProblem) -> EntryTable:
        """Return the customers of a problem, each once, urgent ones first, what is over last."""
        words, since = self.words, _unanswered(problem)
        is_told = len(problem.open) == 1  # its step stands with the title, or above
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
            note = self._note(member.finding, is_told and member in problem.open)
            links = (*thread_links(member.finding), *moved.get(place, ()))
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

    def _cells(
        self, number: int, member: Member, cases: Sequence[CustomerCase], since: dict[str, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return the line of each of these customers.

        `since`: from when on each of them has had no reply.
        """
        market = f"#{clean_text(member.market, NAME)}"
        waiting = since if member.finding.state in NEEDS_ACTION else {}
        cells = []
        for case in cases[:MOST_LINES]:
            name = self._also(clean_text(case.customer, NAME), number) or NOTHING
            opened = self._day(case.since) if case.since else NOTHING
            at = waiting.get(case.customer)
            day, amount = self._day(at) if at else "", clean_text(case.amount, AMOUNT)
            cells.append((f"{self._dot(member.finding)} {name}", market, opened, day, amount))
        return tuple(cells)

    def _also(self, name: str, number: int) -> str:
        """Return the name of a customer, and in which other problems they wait."""
        others = [each for each in self.places.get(name, ()) if each != number]
        if not others:
            return name
        return self.words("also_in", name=name, numbers=self._numbers(others))

    def _again(self, state: State, since: str | None, waits_since: str | None) -> str:
        """Return on which later day somebody wrote again, after an answer and before the next one;
        empty where the team does not have to act."""
        if not waits_since or state not in NEEDS_ACTION:
            return ""
        again = self._day(waits_since)
        return again if not since or again != self._day(since) else ""

    def _note(self, finding: SweepFinding, is_told: bool) -> str:
        """Return where an issue of a table stands, what it is about, and the next step."""
        wants, gone = prose(finding.wants, SENTENCE), self._gone(finding)
        state, is_open = self._state(finding), finding.state in NEEDS_ACTION
        if is_open:
            reason = first_clause(prose(finding.severity_reason, SENTENCE), FEW_WORDS).rstrip(".")
            reason = reason if finding.severity == "high" or not wants else ""
            wants = " · ".join(dict.fromkeys(filter(None, (reason, wants))))
        is_over = is_open and self._is_over(finding)
        told = (
            self.words("was_due", day=self._date_of(finding)) if is_over and not gone else "",
            *(self._change(finding), state, "" if is_over else self._due(finding)),
            wants or first_clause(self._claim(finding)),
            gone if is_over else "",
        )
        step = ""
        if finding.state in (*NEEDS_ACTION, "known") and not is_told:
            step = self._step(finding)
        return " ".join(filter(None, (" · ".join(dict.fromkeys(filter(None, told))), step)))

    def _claim(self, finding: SweepFinding) -> str:
        """Return a claim without the name of its only customer before it."""
        claim = prose(finding.claim, CLAIM)
        names = [clean_text(name, NAME) for name in finding.customers]
        if len(names) == 1 and claim.startswith(tuple(f"{names[0]}{mark}" for mark in " :,")):
            return claim.removeprefix(names[0]).lstrip(" :,–-") or claim
        return claim

    def _state(self, finding: SweepFinding) -> str:
        """Return where an issue stands; of what waits for the customer, who asked them and when."""
        state = self.words(finding.state)
        answers = [(each.answered, each.answered_by) for each in finding.cases if each.answered]
        if finding.state != "waiting" or not answers:
            return state
        at, by = max(answers)
        who = clean_text(by, NAME)
        return self.words("asked", state=state, who=who, day=self._day(at)) if at and who else state

    def _alone(self, number: int, problem: SweepProblem) -> Entry:
        """Return an issue that stands alone: who waits, since when, who acts next."""
        finding = problem.active[0].finding
        claim = prose(finding.claim, CLAIM) or NOTHING
        mark = " ".join(filter(None, (self._dot(finding), f"{number}.", self._change(finding))))
        head, is_pressing = Bold(mark), is_urgent(finding, self.at)
        claim = claim if is_pressing else first_clause(claim)
        said = finding.quotes[-MOST_QUOTES:] if is_pressing else []
        quotes = (clean_text(each, QUOTE) for each in said)
        details: list[str | Bold | Link] = [
            f"\n{self._who(number, problem.active[0])} · {self._state(finding)}"
        ]
        if finding.tracker:
            named = (clean_text(x, NAME) for x in (finding.tracker.key, finding.tracker.title))
            name = " ".join(filter(None, named))
            details += [" · ", self._tracker_link(finding.tracker, name)]
        days = "" if self._is_first(number, problem) else self._days(problem)
        details += [f"\n{days}" if days else "", self._below(number, problem)]
        return Entry(
            row=(head,),
            url=slack_link(finding.links),
            id=finding.id,
            number=number,
            title=(head, " ", Bold(claim)),
            quotes=tuple(filter(None, quotes)),
            details=tuple(details),
        )

    def _who(self, number: int, member: Member) -> str:
        """Return who waits where, since when, and for how much."""
        cases, finding = member.cases(), member.finding
        found = filter(None, (clean_text(case.customer, NAME) for case in cases))
        names = [self._also(name, number) for name in dict.fromkeys(found)]
        more = f" +{len(names) - MOST_CUSTOMERS}" if names[MOST_CUSTOMERS:] else ""
        named = ", ".join(names[:MOST_CUSTOMERS]) + more
        named = named or self.words("customers", n=finding.people)
        amounts = [clean_text(c.amount, AMOUNT) for c in cases] if len(cases) == 1 else []
        whose = clean_text(cases[0].customer, NAME) if len(names) > 1 else ""
        place = f"#{clean_text(member.market, NAME)}"
        told = named, place, self._waits(finding, whose), *amounts
        return " · ".join(filter(None, told))

    def _waits(self, finding: SweepFinding, whose: str) -> str:
        """Return when an issue was opened, how long ago, and when somebody wrote again."""
        if not finding.since:
            return ""
        days = self.words("days", n=days_since(finding.since, self.at))
        told = f"{days}, {whose}" if whose else days
        opened = self.words("open_since", day=self._day(finding.since), days=told)
        again = self._again(finding.state, finding.since, finding.waits_since)
        return f"{opened}, {self.words('again', day=again)}" if again and not whose else opened

    def _days(self, problem: SweepProblem) -> str:
        """Return which days have passed, and which are near or promised, each with whose it is and
        for what."""
        findings = [m.finding for m in sorted(problem.open, key=_deadline) if m.finding.deadline]
        passed = [self._date_of(f) + self._wish(f) for f in findings if self._is_over(f)]
        coming = [self._due(f) + self._wish(f) for f in findings if not self._is_over(f)]
        told = self.words("passed", days=self._some(passed, MOST_CUSTOMERS)) if passed else ""
        promised = self._promised(problem)
        return " · ".join(filter(None, (told, *coming[:MOST_CUSTOMERS], *promised)))

    def _promised(self, problem: SweepProblem) -> Iterator[str]:
        """Yield each coming day on which something is promised to those who wait for a fix."""
        known = [m for m in problem.active if m.finding.state == "known" and m.finding.deadline]
        for _, members in groupby(sorted(known, key=_deadline), key=_deadline):
            group = list(members)
            first, n = group[0].finding, len(customers_of(group))
            if not self._is_over(first):
                wish, *_ = prose(first.wants, FEW_WORDS).split(";")
                told = self.words("customers", n=n), wish
                yield f"{self._due(first)} ({': '.join(filter(None, told))})"

    def _wish(self, finding: SweepFinding) -> str:
        """Return in brackets whose a day is, and for what."""
        told = self._whose(finding, prose(finding.wants, FEW_WORDS))
        return f" ({told})" if told else ""

    def _date_of(self, finding: SweepFinding) -> str:
        return self._day(f"{finding.deadline}T00:00:00+00:00")

    def _gone(self, finding: SweepFinding) -> str:
        """Return that a day is over for which something was wanted, so that the old step may be of
        no use; empty unless the issue names the day."""
        if not self._is_over(finding):
            return ""
        number = str(int(finding.deadline[-2:]))
        told = f"{finding.wants} {finding.severity_reason} {finding.next_step}"
        if not re.search(rf"(?<![\d.,]){number}(?![\d,])", told):
            return ""
        return self.words("ask_after", day=self._date_of(finding))

    def _whose(self, finding: SweepFinding, what: str) -> str:
        """Return the first of its customers, how many others, and what it is about."""
        names = list(filter(None, (clean_text(each, NAME) for each in finding.customers)))
        more = f" +{len(names) - 1}" if names[1:] else ""
        is_named = not names or any(name in what for name in names)
        return ": ".join(filter(None, ("" if is_named else f"{names[0]}{more}", what)))

    def _is_over(self, finding: SweepFinding) -> bool:
        left = days_left(finding, self.at.date())
        return left is not None and left < 0

    def _act(self, number: int, problem: SweepProblem) -> str:
        """Return what to do, in the words of the parent, else the next step of the first issue."""
        line, gone = self.lines.get(number), [self._gone(m.finding) for m in problem.open]
        act = f"→ {line}" if line else self._step(problem.active[0].finding)
        return " ".join(filter(None, (", ".join(filter(None, gone[:MOST_CUSTOMERS])), act)))

    def _below(self, number: int, problem: SweepProblem) -> str:
        """Return what to do on a line of its own; empty if it stands in the first lines already."""
        return "" if self._is_first(number, problem) else f"\n{self._act(number, problem)}"

    def _step(self, finding: SweepFinding) -> str:
        """Return the next step with who takes it before it, unless it begins with the name.

        Who acts for the other issues of the problem is proposed where nobody is known.
        """
        decided = any(finding.id in line.findings for line in self.document.decisions)
        job = self._job(finding)
        if job or decided:
            asked = self.words("you_decide") if decided else ""
            return f"→ {' · '.join(filter(None, (job, asked)))}"
        step = prose(finding.next_step, STEP) or self.words(f"unsaid_{finding.state}")
        who = clean_text(actor(finding, self.team), NAME)
        if not who and finding.state == "waiting":
            return f"→ {step}"
        if not who:
            name = clean_text(self.actors[self.numbers[finding.id]], NAME)
            told = self.words("proposed", who=name) if name else self.words("nobody_yet")
            return f"→ {told}: {step}"
        begins = step.casefold().startswith(tuple({who.casefold(), who.split()[0].casefold()}))
        return f"→ {step}" if begins else f"→ {who}: {step}"

    def _job(self, finding: SweepFinding) -> str:
        """Return what the parent's line says to do about an issue, with who does it; of a line that
        is about several issues, which stands above, who does it. Empty without a line."""
        line = self.job_of.get(finding.id)
        if not line:
            return ""
        who, _, act = prose(line.text, LINE).partition(": ")
        name = acting(line.text)
        if not actor(finding, self.team) and who == name:
            who = self.words("proposed", who=name)
        if len(line.findings) > 1:
            return ": ".join(filter(None, (who if name else "", self.words("as_above"))))
        return f"{who}: {act}" if act else who

    def _due(self, finding: SweepFinding) -> str:
        found = due(finding.deadline, self.at.date())
        return found.words if found else ""

    def _day(self, at: str) -> str:
        day = datetime.fromisoformat(at).astimezone(UTC).date()
        return self.words.date(day, "MMMd" if day.year == self.at.year else "yMMMd")

    def _dot(self, issue: SweepFinding | KnownIssue) -> str:
        """Return a full dot for what is urgent, a half one for what is open, a rhomb for what waits
        for a fix, a check mark for what is over, else a dash."""
        if issue.state in OVER:
            return DONE
        if issue.state not in NEEDS_ACTION:
            return FIX if issue.state == "known" else NOTHING
        if is_urgent(issue, self.at):
            return DOTS["high"]
        return DOTS["low"] if issue.severity == "low" else DOTS["medium"]

    def _change(self, finding: SweepFinding) -> str:
        """Return what changed since the last report; empty if that is not known."""
        if not self.has_changes or not finding.change:
            return ""
        if finding.change == "open":
            return self.words("still_open", days=self.words("days", n=finding.age_days or 0))
        return self.words("is_solved" if finding.change == "solved" else finding.change)

    def _tracker_link(self, entry: TrackerEntry, name: str) -> Link:
        """Return what a tracker says of an issue, with a link to its row."""
        stage = (clean_text(each, NAME) for each in (entry.stage, entry.owner))
        told = ", ".join(filter(None, stage)) if entry.status == "tracked" else ""
        status = ": ".join(filter(None, (self.words(entry.status), told)))
        return Link(f"{name} ({status})" if name else status, slack_link([entry.link]))

    # ---- what is over, and what has no news

    def _closed_names(self) -> dict[str, dict[str, SweepFinding]]:
        """Return each customer who was helped, and where none is named the claim, by market."""
        closed: dict[str, dict[str, SweepFinding]] = {}
        for section in self.document.sections:
            over = [finding for finding in section.findings if finding.state in OVER]
            for finding in sorted(over, key=lambda each: not each.change):
                claim = first_clause(prose(finding.claim, CLAIM)) or NOTHING
                named = [clean_text(name, NAME) for name in finding.customers]
                for name in list(filter(None, named)) or [claim]:
                    closed.setdefault(section.item, {}).setdefault(name, finding)
        return closed

    def _done(self) -> Iterator[Entry]:
        """Yield for each market who was helped with what stands in no table above."""
        for section in self._markets():
            names = self.closed_apart.get(section.item, {})
            if not names:
                continue
            changes = list(filter(None, map(self._change, names.values())))
            mark = f" · {changes[0]}: {len(changes)}" if changes else ""
            subjects: dict[str, list[str]] = {}
            for name, finding in names.items():
                subjects.setdefault(self._subject(finding), []).append(name)
            lines = [": ".join(filter(None, (", ".join(n), told))) for told, n in subjects.items()]
            told = "".join(f"\n{line}" for line in lines)
            yield Entry((Bold(f"#{_name(section)}"), f" ({len(names)}){mark}{told}"))

    def _subject(self, finding: SweepFinding) -> str:
        """Return with what somebody was helped, and the bug in the tracker; empty where the claim
        stands in place of a name."""
        if not any(clean_text(name, NAME) for name in finding.customers):
            return ""
        key = clean_text(finding.tracker.key, NAME) if finding.tracker else ""
        told = first_clause(self._claim(finding)).rstrip(".")
        return f"{told} ({key})" if key and key not in told else told

    def _quiet(self) -> Iterator[ReportSection]:
        """Yield the section of issues that are still open although the window has no news."""
        issues, words = self.document.still_open, self.words
        if not issues:
            return
        more = len(issues) - MOST_QUIET
        rest = [words("more", n=more)] if more > 0 else []
        entries = (*map(self._known, issues[:MOST_QUIET]), *entries_of(rest))
        yield ReportSection(words("no_news"), (Group(entries),), is_apart=True)

    def _known(self, issue: KnownIssue) -> Entry:
        words = self.words
        age, state = words("days", n=issue.age_days), words(issue.state)
        claim = prose(issue.claim, CLAIM) or NOTHING
        owner = clean_text(issue.owner, NAME)
        owner = words("nobody") if owner.lower() in ("", "nobody") else owner
        row = (
            f"{self._dot(issue)} ",
            Bold(f"#{_name(issue)}"),
            f" · {age} · {state} · {claim} · {owner}",
        )
        return Entry(row, slack_link(issue.links))


def _sentences(sentences: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, (clean_text(each, SENTENCE) for each in sentences)))


def _unanswered(problem: SweepProblem) -> dict[str, str]:
    """Return since when each customer of a problem has had no reply, of those who wait for one."""
    since: dict[str, str] = {}
    for case in (case for member in problem.open for case in member.cases()):
        if case.waits_since:
            since[case.customer] = max(case.waits_since, since.get(case.customer, ""))
    return since


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _by_tier(member: Member) -> tuple[object, ...]:
    return member.tier, member.order


def _deadline(member: Member) -> str:
    return member.finding.deadline


def _name(market: SweepSection | KnownIssue) -> str:
    return clean_text(market.item, NAME)
