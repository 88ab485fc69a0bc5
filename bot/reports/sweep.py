"""Build the view of a sweep: numbers, texts, order, links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from bot.reports.documents import (
    KnownIssue,
    ReadTotals,
    SweepFinding,
    SweepReport,
    SweepSection,
    TopLine,
    TrackerSummary,
)
from bot.reports.formats import clean_text, due, prose
from bot.reports.frame import gaps, stopped_line
from bot.reports.problems import (
    OVER,
    URGENT,
    Member,
    SweepProblem,
    actor,
    customers_of,
    days_since,
    is_urgent,
    problems_of,
    team,
    urgency,
    waits_since,
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
MOST_CUSTOMERS, MOST_QUOTES, MOST_MARKETS, MOST_FIRST, MOST_FULL = 3, 1, 3, 5, 10
"""How many are shown of each; the rest is counted, or stands on one line each."""
MOST_LINES = 40
"""Lines of a table."""
MOST_FINDINGS = 300
"""Findings that a report shows; a table of all of them is attached."""
MOST_QUIET = 100
ONE_LINE = 85
"""Characters of a line of what is over, up to which it says with what somebody was helped."""
PRESSING = 3
"""Least urgency of an issue that is shown in full or first."""
MANY_MARKETS = 12
"""From this number on, markets are sorted by urgency, not in the requested order."""
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
    """Return the problems that are not over in the order of their numbers: what to do first, then
    shared ones, open ones, the rest.
    """
    active = [problem for problem in problems_of(document) if problem.active]
    lines = lines_of(document, active)
    pressing = [p.id for p in active if p.open and (p.urgency >= PRESSING or p.id in lines)]
    first = set(pressing[:MOST_FIRST])

    def place(problem: SweepProblem) -> tuple[bool, ...]:
        if problem.id in first:
            return (False,)
        return True, not _is_shared(problem), not problem.open

    return sorted(active, key=place)


def lines_of(document: SweepReport, problems: Sequence[SweepProblem]) -> dict[str, TopLine]:
    """Return the line of the parent for each of the problems, by the id of the problem."""
    problem_of = {id: p.id for p in problems for f in p.findings for id in f.ids}
    lines: dict[str, TopLine] = {}
    for line in document.top_lines:
        cited = [problem_of[id] for id in line.findings if id in problem_of]
        if cited:
            lines.setdefault(max(cited, key=cited.count), line)
    return lines


def _is_shared(problem: SweepProblem) -> bool:
    return len(problem.active) > 1


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
        self.team = team(document)
        lines = lines_of(document, self.problems)
        self.lines = {self.numbers[id]: line for id, line in lines.items()}
        self.first = tuple(self._first())[:MOST_FIRST]
        self.said = {self.numbers[id] for line in self.first for id in line.findings}
        """Numbers of the problems whose next step stands at the top."""
        own = [line.findings[0] for line in self.first if line.findings]
        self.steps = {id for id in own if self.numbers[id] not in self.lines}
        """Ids of the findings whose own next step stands there."""

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
            first=self.first,
            notes=tuple(self._notes()),
            gaps=_sentences(gaps(document)),
            overview=tuple(map(self._market, self._markets())),
            sections=tuple(self._sections()),
            sources=tuple(f"#{_name(each)}: {self._read(each)}" for each in self._markets()),
            foot=tuple(self._foot()),
        )

    # ---- the head

    def _counts(self) -> str:
        """Format how many problems are open and new, and how many customers wait: numbers alone,
        as text is parsed."""
        words, before = self.words, self.document.compared
        numbers, quiet = range(1, len(self.problems) + 1), self.document.still_open
        parts = self._by_change() if self.has_changes else self._waiting()
        compared = words("compared", day=words.day(before.last)) if before else ""
        return " · ".join(filter(None, (self._open(numbers, quiet), *parts, compared)))

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
        waiting = customers_of([m for problem in self.problems for m in problem.active])
        states, solved = list(waiting.values()), sum(map(len, self.closed.values()))
        who = self.words("customers", n=len(states))
        return [
            f"{who}: {', '.join(self._by_state(states))}" if states else "",
            self.words("solved_ones", n=solved) if solved else "",
        ]

    def _open(self, numbers: Iterable[int], quiet: Sequence[KnownIssue]) -> str:
        """Count what is open of the problems with these numbers and of issues without news."""
        words, open_ones = self.words, [p for n in numbers if (p := self.problems[n - 1]).open]
        urgent = sum(problem.urgency >= URGENT for problem in open_ones)
        urgent += sum(is_urgent(issue, self.at) for issue in quiet)
        return words("open_problems", n=len(open_ones) + len(quiet)) + (
            f" ({words('urgent_ones', n=urgent)})" if urgent else ""
        )

    def _by_state(self, states: Sequence[State]) -> list[str]:
        """Count those who wait for the team or a fix, who have to act, and whose issue is over."""
        counts = (
            ("team_ones", sum(state in NEEDS_ACTION for state in states)),
            ("known_ones", states.count("known")),
            ("waiting_ones", states.count("waiting")),
            ("solved_ones", sum(state in OVER for state in states)),
        )
        return [self.words(key, n=n) for key, n in counts if n]

    def _lead(self, channels: str) -> Iterator[str]:
        document, words, window = self.document, self.words, self.document.window
        start, end = (words.day(each) for each in (window.oldest, window.latest))
        if start == end:
            start, end = (words.minute(each) for each in (window.oldest, window.latest))
        read = self._total([section.coverage for section in document.sections])
        yield f"{words('period', start=start, end=end)} · {channels} · {read}"
        yield self._ended()
        yield words("offline") if document.model == "offline" else ""

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

    def _read(self, section: SweepSection) -> str:
        """Format how much was read, and the status if it is incomplete."""
        status = "" if section.status == "complete" else f" ({self.words(section.status)})"
        return self._total([section.coverage]) + status

    def _first(self) -> Iterator[Highlight]:
        """Yield the most urgent problems, then severe issues without news, the oldest first."""
        for number, problem in enumerate(self.problems[:MOST_FIRST], 1):
            if problem.open and (problem.urgency >= PRESSING or number in self.lines):
                yield self._highlight(number, problem)
        words = self.words
        waiting = [issue for issue in self.document.still_open if issue.severity == "high"]
        for issue in sorted(waiting, key=lambda issue: -issue.age_days):
            claim = first_clause(prose(issue.claim, CLAIM)) or NOTHING
            age = words("still_open", days=words("days", n=issue.age_days))
            link = slack_link(issue.links)
            references = (Reference("↗", link),) if link else ()
            yield Highlight(f"#{_name(issue)}: {claim} · {age}", references)

    def _highlight(self, number: int, problem: SweepProblem) -> Highlight:
        first = problem.open[0]
        title = prose(problem.title or first.finding.claim, CLAIM) or NOTHING
        url = slack_link(first.finding.links)
        return Highlight(
            text=first_clause(title),
            references=(Reference(str(number), url),),
            details=tuple(filter(None, (self._who(problem), self._act(number, problem)))),
            findings=tuple(member.finding.id for member in problem.open),
        )

    def _notes(self) -> Iterator[str]:
        document, words = self.document, self.words
        if document.tracker:
            yield self._tracker(document.tracker)
        for key, names in (("added", document.channels_added), ("gone", document.channels_gone)):
            if names:
                shown = clean_text(", ".join(f"#{each}" for each in names), SENTENCE)
                yield words(key, names=shown)
        yield from _sentences(document.notes)

    def _tracker(self, tracker: TrackerSummary) -> str:
        words = self.words
        named, why = clean_text(tracker.title, TITLE), clean_text(tracker.reason, SENTENCE)
        head = words("tracker") + (f" ({named})" if named else "")
        if tracker.status not in ("complete", "partial"):
            return f"{head}: {words('unread', why=why)}"
        told = [words("untracked_ones", n=tracker.untracked)]
        told += [words("tracked_ones", n=tracker.tracked)]
        shown = [", ".join(told)]
        shown += [words("closed_ones", bugs=closed)] if (closed := self._closed()) else []
        shown += [words("partly", why=why)] if tracker.status == "partial" else []
        return f"{head}: {' · '.join(shown)}"

    def _closed(self) -> str:
        """Name the bugs that the tracker has as closed, with how many issues report each."""
        entries = [finding.tracker for finding in self.document.findings()]
        closed = [e.key or e.title for e in entries if e and e.status == "closed"]
        bugs = Counter(filter(None, (clean_text(each, NAME) for each in closed))).most_common()
        named = [f"{b} ({self.words('reports', n=n)})" if n > 1 else b for b, n in bugs[:MOST_FULL]]
        more = len(bugs) - MOST_FULL
        return ", ".join(named) + (f" {self.words('more', n=more)}" if more > 0 else "")

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
            return -sum(urgency(f, self.at) for f in waiting), -len(waiting)

        return sorted(sections, key=calm)

    def _market(self, section: SweepSection) -> Line:
        """Return the dot of the most urgent open issue, what is open, and what was found."""
        words, findings, document = self.words, section.findings, self.document
        old = [issue for issue in document.still_open if issue.item == section.item]
        numbers = sorted({self.numbers[f.id] for f in findings if f.state in NEEDS_ACTION})
        problems = [self.problems[number - 1] for number in numbers]
        dots = {self._dot(problem.open[0].finding) for problem in problems}
        dots |= set(map(self._dot, old))
        dot = next((each for each in DOTS.values() if each in dots), NOTHING)
        open_line = words("none_open") if section.status == "complete" else ""
        if problems or old:
            changes = [{m.finding.change for m in problem.open} for problem in problems]
            count = changes.count({"new"}) if self.has_changes else 0
            new = words("new_ones", n=count) if count else ""
            open_line = ", ".join(filter(None, (self._open(numbers, old), new)))
        named = " ".join(f"[{n}]" for n in numbers[:MOST_FULL])
        told = len(document.sections) <= MANY_MARKETS
        summary = first_clause(prose(section.summary, CLAIM)) if told else ""
        status = "" if section.status == "complete" else words(section.status)
        shown = filter(None, (" ".join(filter(None, (open_line, named))), status, summary))
        return f"{dot} ", Bold(f"#{_name(section)}"), f"  {' · '.join(shown)}"

    # ---- the problems

    def _sections(self) -> Iterator[ReportSection]:
        """Yield the problems that several findings share, the open issues, and what rests."""
        words, kept, left = self.words, list[tuple[int, SweepProblem]](), 0
        room = MOST_FINDINGS
        for number, problem in enumerate(self.problems, 1):
            room -= len(problem.active)
            if room >= 0:
                kept.append((number, problem))
            else:
                left += len(problem.active)
        shared = [self._shared(*each) for each in kept if _is_shared(each[1])]
        alone = [(n, p) for n, p in kept if not _is_shared(p) and p.open]
        pressing = [each for each in alone if each[1].urgency >= PRESSING][:MOST_FULL]
        full = [self._alone(*each) for each in pressing]
        rest = [self._alone(*each) for each in alone if each not in pressing]
        resting = [
            self._alone(*each) for each in kept if not _is_shared(each[1]) and not each[1].open
        ]
        if shared:
            yield ReportSection(
                words("shared"), (Group(tuple(shared), is_full=True),), is_apart=True
            )
        if alone:
            groups = Group(tuple(full), is_full=True), Group(tuple(rest), words("also_open"))
            yield ReportSection(words("single"), groups, is_apart=True)
        if resting:
            yield ReportSection(words("resting"), (Group(tuple(resting)),), is_apart=True)
        yield from self._quiet()
        if self.closed:
            over = words("over", n=sum(map(len, self.closed.values())))
            yield ReportSection(over, (Group(tuple(self._done())),), is_apart=not alone)
        if left:
            more = words("elsewhere", n=left, place=self.place)
            yield ReportSection(words("not_shown"), (), more=more)

    def _shared(self, number: int, problem: SweepProblem) -> Entry:
        """Return a problem with a table of all who wait for it."""
        words, lead = self.words, problem.active[0]
        title = prose(problem.title or lead.finding.claim, CLAIM) or NOTHING
        states = list(problem.customers.values())
        counts = self._by_state(states)
        who = f"{words('customers', n=len(states))}, {self._places(problem.members, MANY_MARKETS)}"
        details: list[str | Bold | Link] = [f"\n{who}: {', '.join(counts)}"]
        if problem.tracker:
            link = slack_link([problem.tracker.link])
            details += [" · ", Link(words(problem.tracker.status), link)]
        elif problem.is_untracked:
            details.append(f" · {words('untracked')}")
        if number not in self.said and (line := self.lines.get(number)):
            details.append(f"\n→ {prose(line.text, LINE)}")
        head = Bold(f"{self._dot(lead.finding)} {number}. {title}")
        return Entry(
            row=(head,),
            id=lead.finding.id,
            number=number,
            title=(head,),
            details=tuple(details),
            table=self._table(problem),
        )

    def _places(self, members: Sequence[Member], most: int = MOST_MARKETS) -> str:
        markets = list(dict.fromkeys(clean_text(m.market, NAME) for m in members))
        more = len(markets) - most
        named = ", ".join(f"#{market}" for market in markets[:most])
        return f"{named} +{more}" if more > 0 else named

    def _table(self, problem: SweepProblem) -> EntryTable:
        words = self.words
        ranked = sorted(problem.active, key=lambda member: member.order)
        shown, room = list[Member](), MOST_LINES
        for member in ranked:
            room -= len(member.cases())
            if room >= 0 or not shown:
                shown.append(member)
        left = sum(len(m.cases()) for m in ranked) - sum(len(m.cases()) for m in shown)
        has_amounts = any(case.amount for m in shown for case in m.cases())
        columns = (
            "customer",
            "market",
            "waiting_since",
            *(["amount"] * has_amounts),
            "state",
            "next",
        )
        return EntryTable(
            columns=tuple(words(f"column.{name}") for name in columns),
            rows=tuple(self._table_row(member, has_amounts) for member in shown),
            more=words("more", n=left) if left else "",
        )

    def _table_row(self, member: Member, has_amounts: bool) -> Row:
        finding, dot, state = member.finding, self._dot(member.finding), self._state(member.finding)
        market = f"#{clean_text(member.market, NAME)}"
        cells = []
        for case in member.cases()[:MOST_LINES]:
            amount = [clean_text(case.amount, AMOUNT)] if has_amounts else []
            name = clean_text(case.customer, NAME) or NOTHING
            cells.append((f"{dot} {name}", market, self._case_day(case), *amount, state))
        return Row(tuple(cells), self._note(finding), thread_links(finding))

    def _case_day(self, case: CustomerCase) -> str:
        since = case.waits_since or case.since
        return self._day(since) if since else NOTHING

    def _note(self, finding: SweepFinding) -> str:
        """Return what an issue of a table is about, and the next step."""
        wants = prose(finding.wants, SENTENCE)
        if finding.state in NEEDS_ACTION:
            reason = first_clause(prose(finding.severity_reason, SENTENCE), FEW_WORDS).rstrip(".")
            reason = reason if finding.severity == "high" or not wants else ""
            wants = " · ".join(dict.fromkeys(filter(None, (reason, wants))))
            step = "" if finding.id in self.steps else self._step(finding)
        else:
            wants, step = wants or first_clause(self._claim(finding)), ""
        told = " · ".join(filter(None, (self._change(finding), self._due(finding), wants)))
        return " ".join(filter(None, (told, step)))

    def _claim(self, finding: SweepFinding) -> str:
        """Return a claim without the name of its only customer before it."""
        claim = prose(finding.claim, CLAIM)
        names = [clean_text(name, NAME) for name in finding.customers]
        if len(names) == 1 and claim.startswith(names[0]):
            return claim.removeprefix(names[0]).lstrip(" :,–-") or claim
        return claim

    def _state(self, finding: SweepFinding) -> str:
        return self.words(finding.state)

    def _alone(self, number: int, problem: SweepProblem) -> Entry:
        """Return an issue that stands alone: who waits, since when, who acts next."""
        finding = problem.active[0].finding
        claim = prose(finding.claim, CLAIM) or NOTHING
        mark = " ".join(filter(None, (self._dot(finding), f"{number}.", self._change(finding))))
        head = Bold(mark)
        most = MOST_QUOTES if is_urgent(finding, self.at) else 0
        quotes = (clean_text(each, QUOTE) for each in finding.quotes[:most])
        who = self._who(problem)
        details: list[str | Bold | Link] = [f"\n{who} · {self._state(finding)}"]
        if tracked := self._tracked(finding):
            link = slack_link([finding.tracker.link] if finding.tracker else [])
            details += [" · ", Link(tracked, link)]
        if step := "" if number in self.said else self._act(number, problem):
            details.append(f"\n{step}")
        told = f" {first_clause(claim)} · {self._who(problem, claim)} · {self._state(finding)}"
        return Entry(
            row=(head, told, f"\n{step}" if step else ""),
            url=slack_link(finding.links),
            id=finding.id,
            number=number,
            title=(head, " ", Bold(claim)),
            quotes=tuple(filter(None, quotes)),
            details=tuple(details),
        )

    def _who(self, problem: SweepProblem, claim: str = "") -> str:
        """Return who waits where, since when, for how much, and by when.

        A name that the claim beside it says already is left out.
        """
        words, members = self.words, problem.open or problem.active
        ranked = sorted(members, key=lambda m: m.order)
        cases = [case for member in ranked for case in member.cases()]
        owed = min((m for m in ranked if m.finding.deadline), key=_deadline, default=None)
        before = [ranked[0], *([owed] if owed else [])]
        longest = min((*before, *ranked), key=lambda member: member.since[:10])
        dated = [case for m in (*before, longest) for case in m.cases()[:1]]
        every = [clean_text(case.customer, NAME) for case in (*dated, *cases)]
        names = list(dict.fromkeys(filter(None, every)))
        everybody = {c.customer for m in problem.active for c in m.cases() if c.customer}
        more = max(len(everybody), len(names)) - MOST_CUSTOMERS
        named = ", ".join(names[:MOST_CUSTOMERS]) + (f" +{more}" if more > 0 else "")
        if len(names) == 1 and names[0] in claim:
            named = ""
        elif not names:
            named = words("customers", n=sum(m.finding.people for m in members))
        waits = ""
        if since := waits_since(longest.finding):
            days = words("days", n=days_since(since, self.at))
            whose = _longest(longest)
            key = "waits_days" if problem.open else "since_days"
            days += f", {whose}" if whose and whose != names[0] else ""
            waits = words(key, day=self._day(since), days=days)
        amounts = [c.amount for c in cases if c.amount] if len(cases) == 1 else []
        told = (
            *(named, self._places(members), waits),
            *(clean_text(each, AMOUNT) for each in amounts),
            self._whose_due(owed, names) if owed else "",
        )
        return " · ".join(filter(None, told))

    def _act(self, number: int, problem: SweepProblem) -> str:
        """Return what to do: in the words of the parent, else the next step of the first issue."""
        if line := self.lines.get(number):
            return f"→ {prose(line.text, LINE)}"
        return self._step(problem.open[0].finding) if problem.open else ""

    def _step(self, finding: SweepFinding) -> str:
        """Return the next step with who takes it before it, unless it begins with the name."""
        step = prose(finding.next_step, STEP) or self.words(f"unsaid_{finding.state}")
        who = clean_text(actor(finding, self.team), NAME) or self.words("nobody_yet")
        begins = step.casefold().startswith(tuple({who.casefold(), who.split()[0].casefold()}))
        return f"→ {step}" if begins else f"→ {who}: {step}"

    def _whose_due(self, member: Member, names: Sequence[str]) -> str:
        """Return by when, and for whom unless it is the first of the names."""
        whose, others = _longest(member), len(member.cases()) - 1
        told = f" ({whose}{f' +{others}' if others else ''})"
        due_day = self._due(member.finding)
        return due_day + (told if due_day and whose and whose != names[0] else "")

    def _due(self, finding: SweepFinding) -> str:
        found = due(finding.deadline, self.at.date())
        if found and found.days is not None and found.days < 0:
            return self.words("overdue_since", day=self._day(f"{finding.deadline}T00:00:00+00:00"))
        return found.words if found else ""

    def _day(self, at: str) -> str:
        day = datetime.fromisoformat(at).astimezone(UTC).date()
        return self.words.date(day, "MMMd" if day.year == self.at.year else "yMMMd")

    def _dot(self, issue: SweepFinding | KnownIssue) -> str:
        """Return a full dot for what is urgent, a half one for what is open, else a dash."""
        if issue.state not in NEEDS_ACTION:
            return NOTHING
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

    def _tracked(self, finding: SweepFinding) -> str:
        """Return what a tracker says of it; empty if none was read."""
        tracker = finding.tracker
        if tracker is None or tracker.status not in ("untracked", "tracked", "closed"):
            return ""
        named = (clean_text(each, NAME) for each in (tracker.key, tracker.title))
        name, status = " ".join(filter(None, named)), self.words(tracker.status)
        return f"{name} ({status})" if name else status

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
        """Yield one line for each market: who was helped, and with what if there is room."""
        for section in self._markets():
            names = self.closed.get(section.item, {})
            if not names:
                continue
            changes = list(filter(None, map(self._change, names.values())))
            mark = f" · {changes[0]}: {len(changes)}" if changes else ""
            head = f" ({len(names)}): "
            claims = [f"{n} ({self._claim(f)})" if f.customers else n for n, f in names.items()]
            told = f"{head}{', '.join(claims)}{mark}"
            if len(_name(section)) + len(told) > ONE_LINE:
                told = f"{head}{', '.join(names)}{mark}"
            yield Entry((Bold(f"#{_name(section)}"), told))

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


def _deadline(member: Member) -> str:
    return member.finding.deadline


def _longest(member: Member) -> str:
    """Return the name of its customer who waits longest."""
    return clean_text(member.cases()[0].customer, NAME)


def _name(market: SweepSection | KnownIssue) -> str:
    return clean_text(market.item, NAME)
