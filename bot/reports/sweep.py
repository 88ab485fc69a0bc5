"""Build the view of a sweep: numbers, first jobs, lists, sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bot.reports.documents import (
    KnownIssue,
    ReadTotals,
    SweepFinding,
    SweepReport,
    SweepSection,
    TrackerSummary,
)
from bot.reports.formats import capital, clean_text, periods, prose
from bot.reports.frame import cost_line, gaps, incomplete_reason
from bot.reports.problems import (
    CLAIM,
    FINISHED_STATES,
    LINE,
    MAX_LISTED_CHARS,
    MAX_SUBJECT_CHARS,
    MOST_CUSTOMERS,
    NAME,
    SENTENCE,
    SweepFacts,
    SweepProblem,
    actor,
    customer_links,
    customers_of,
    first_clause,
    is_urgent,
    slack_link,
)
from bot.reports.sweep_details import MOST_FIRST, SweepDetails
from bot.reports.view import (
    DOTS,
    EMPTY_PLACEHOLDER,
    Bold,
    Entry,
    Group,
    Highlight,
    Line,
    LineList,
    Link,
    Reference,
    ReportSection,
    ReportView,
    with_links,
)
from config.words import current
from subagents.contracts import NEEDS_ACTION

MAX_TITLE_CHARS = 100
"""Maximum characters of a title."""
MOST_PROBLEMS = 20
"""Maximum number of open problems listed at the beginning."""


def sweep_view(document: SweepReport) -> ReportView:
    """Return the view of a sweep, with its problems numbered in reading order."""
    return _Sweep(document).view()


class _Sweep:
    """Builds the view of one sweep."""

    def __init__(self, document: SweepReport) -> None:
        self.words = current()
        self.document = document
        self.facts = SweepFacts(document)
        self.details = SweepDetails(self.facts)

    def view(self) -> ReportView:
        document, words = self.document, self.words
        channels = words("count.channel", n=len(document.sections))
        counts = self._counts()
        return ReportView(
            words=words,
            name=words("sweep"),
            notification=f"{words('sweep')}, {channels}: {counts}.",
            title=": ".join(
                filter(None, (words("issues"), clean_text(document.title, MAX_TITLE_CHARS)))
            ),
            counts=counts,
            lead=tuple(filter(None, self._lead(channels))),
            first=tuple(self._first())[:MOST_FIRST],
            notes=tuple(self._notes()),
            gaps=_sentences(gaps(document)),
            lists=tuple(self._lists()),
            sections=tuple(self._sections()),
            sources=tuple(f"#{_name(each)}: {self._read(each)}" for each in document.sections),
            foot=tuple(self._foot()),
        )

    # ---- the head

    def _counts(self) -> str:
        """Format the numbers of open and new problems and of waiting customers: numbers only,
        since text is parsed."""
        words, before, problems = self.words, self.document.compared, self.facts.problems
        parts = self._by_change() if before else self._waiting_counts()
        compared = words("compared", day=words.day(before.last, self.facts.zone)) if before else ""
        n = len(problems) - len(self.facts.open)
        resting = words("resting_ones", n=n) if n else ""
        shown = self._open([problem for _, problem in self.facts.open], self.document.still_open)
        return " · ".join(filter(None, (shown, resting, *parts, compared)))

    def _by_change(self) -> list[str]:
        """Count the open problems by change, and the customers whose issue was solved."""
        words, quiet, open_ones = self.words, self.document.still_open, self.facts.open
        changes = [{m.finding.change for m in p.open} for _, p in open_ones]
        known = [each for each in changes if each & {"open", "changed"}]
        reopened = sum("reopened" in each and each not in known for each in changes)
        counts = {
            "new_ones": changes.count({"new"}),
            "still": len(known) + len(quiet),
            "solved_ones": self._solved("change"),
            "reopened_ones": reopened,
        }
        texts = {key: words(key, n=n) for key, n in counts.items() if n}
        if "still" in texts:
            findings = [m.finding for _, p in open_ones for m in p.open if m.finding.change]
            ages = [f.age_days for f in findings] + [issue.age_days for issue in quiet]
            oldest = max(age or 0 for age in ages)
            changed = sum("changed" in each for each in known)
            texts["still"] += f" {words('oldest', days=words('days', n=oldest))}" if oldest else ""
            texts["still"] += f" ({words('changed_ones', n=changed)})" if changed else ""
        return [", ".join(texts.values())]

    def _waiting_counts(self) -> list[str]:
        """Count the waiting customers by what they wait for, and the customers who were helped."""
        members = [m for problem in self.facts.problems for m in problem.active]
        solved = self._solved("state")
        solved_ones = self.words("solved_ones", n=solved) if solved else ""
        return [self.facts.states(members), solved_ones]

    def _open(self, problems: Sequence[SweepProblem], quiet: Sequence[KnownIssue]) -> str:
        """Count these open problems, and open issues without news."""
        urgent = sum(problem.is_urgent for problem in problems)
        urgent += sum(is_urgent(issue, self.facts.at) for issue in quiet)
        return self.words("open_problems", n=len(problems) + len(quiet)) + (
            f" ({self.words('urgent_ones', n=urgent)})" if urgent else ""
        )

    def _lead(self, channels: str) -> Iterator[str]:
        document, words = self.document, self.words
        period = periods([document.window], document.zone)
        read = self._total([section.coverage for section in document.sections])
        without = words("no_issue", n=n) if (n := self._without_issue()) else ""
        yield " · ".join(filter(None, (period, channels, read, without)))
        yield self._headline()
        yield incomplete_reason(document)
        yield words("offline") if document.model == "offline" else ""

    def _headline(self) -> str:
        """Return the line about what the problems have in common, with their numbers."""
        line, numbers = self.document.headline, self.facts.numbers
        if line is None:
            return ""
        cited = sorted({numbers[id] for id in line.findings if id in numbers})
        return f"{prose(line.text, CLAIM)} {self.facts.format_numbers(cited)}"

    def _total(self, covers: Sequence[ReadTotals]) -> str:
        messages = self.words("messages", n=sum(cover.messages_read for cover in covers))
        threads = self.words("count.thread", n=sum(cover.threads_read for cover in covers))
        return self.words("read", messages=messages, threads=threads)

    def _without_issue(self) -> int:
        """Count the threads without a customer issue, according to the subagents."""
        values = [each.value or {} for each in self.document.subagents]
        return len({id for value in values for id in value.get("no_issue", ())})

    def _read(self, section: SweepSection) -> str:
        """Format how much was read, and the status if it is incomplete."""
        status = "" if section.status == "complete" else f" ({self.words(section.status)})"
        return self._total([section.coverage]) + status

    def _first(self) -> Iterator[Highlight]:
        """Yield what to do first, then severe issues without news, the oldest first."""
        yield from self.details.head()
        words = self.words
        waiting = [issue for issue in self.document.still_open if issue.severity == "high"]
        for issue in sorted(waiting, key=lambda issue: -issue.age_days):
            claim = first_clause(prose(issue.claim, CLAIM)) or EMPTY_PLACEHOLDER
            age = words("still_open", days=words("days", n=issue.age_days))
            link = slack_link(issue.links)
            references = (Reference("↗", link),) if link else ()
            yield Highlight(f"#{_name(issue)}: {claim} · {age}", references)

    def _notes(self) -> Iterator[str]:
        document, words = self.document, self.words
        if document.tracker and document.tracker.status != "complete":
            yield self._tracker(document.tracker)
        for key, names in (("added", document.channels_added), ("gone", document.channels_gone)):
            if names:
                shown = clean_text(", ".join(f"#{each}" for each in names), SENTENCE)
                yield words(key, names=shown)
        yield from _sentences(document.notes)

    def _tracker(self, tracker: TrackerSummary) -> str:
        words = self.words
        title, why = (
            clean_text(tracker.title, MAX_TITLE_CHARS),
            clean_text(tracker.reason, SENTENCE),
        )
        head = words("tracker") + (f" ({title})" if title else "")
        return f"{head}: {words('partly' if tracker.status == 'partial' else 'unread', why=why)}"

    def _foot(self) -> Iterator[str]:
        document, words = self.document, self.words
        if document.unsupported:
            yield words("dropped", n=document.unsupported)
        yield cost_line(document)

    # ---- the lists

    def _lists(self) -> Iterator[LineList]:
        lists = (
            ("decide", self._decisions()),
            ("open", self._problems()),
            ("markets", map(self._market, self.document.sections)),
        )
        for title, lines in lists:
            if shown := tuple(lines):
                yield LineList(self.words(title), shown)

    def _decisions(self) -> Iterator[Line]:
        """Yield the decisions that only the reader can make, with the numbers of their problems."""
        numbers_of = self.facts.numbers
        for line in self.document.decisions:
            numbers = sorted({numbers_of[id] for id in line.findings if id in numbers_of})
            text, _, proposal = prose(line.text, LINE).rstrip(".").partition(" — ")
            if text := capital(text):
                more = f" · {self.facts.format_numbers(numbers)}" if numbers else ""
                more += f" → {proposal}" if proposal else ""
                found = (f for f in self.document.findings() if f.id in line.findings)
                places = customer_links(text, found)
                url = "" if places else slack_link(line.links)
                yield (*with_links(text, places), more, *((Link("", url),) if url else ()))

    def _problems(self) -> Iterator[Line]:
        """Yield each open problem: its name, who waits and how long, who acts."""
        for number, problem in self.facts.open[:MOST_PROBLEMS]:
            first = problem.open[0].finding
            names = self.facts.some(self.details.names(number, problem), MOST_CUSTOMERS)
            acts = f"→ {names or self.words('nobody_yet')}"
            size = f"{self._size(problem)} {acts}"
            notes = size, *self._tracker_notes(problem)
            title = clean_text(
                first_clause(self.facts.title(problem)).rstrip("."), MAX_LISTED_CHARS
            )
            line = f"{self.facts.dot(first)} {number}. ", Bold(title), f" · {' · '.join(notes)}"
            url = slack_link(first.links)
            yield (*line, Link("", url)) if url else line
        if (more := len(self.facts.open) - MOST_PROBLEMS) > 0:
            yield (self.words("more", n=more),)
        if self.facts.open:
            yield (self.words("marks"),)

    def _tracker_notes(self, problem: SweepProblem) -> Iterator[str]:
        """Yield a note if the tracker has a problem as closed, or does not have it; for a single
        issue, also its entry."""
        entries = [finding.tracker for finding in problem.findings if finding.tracker]
        if problem.tracker and not problem.title and entries[0].status == "tracked":
            yield self.facts.tracker_link(entries[0], clean_text(entries[0].key, NAME)).text
        if closed := next((entry for entry in entries if entry.status == "closed"), None):
            key = clean_text(closed.key, NAME)
            yield " ".join(filter(None, ("" if problem.title else key, self.words("closed"))))
        elif problem.is_untracked and _is_fault(problem):
            yield self.words("untracked")

    def _size(self, problem: SweepProblem) -> str:
        """Return who waits for the team (a number if they are many), how many have no owner, and
        how long they wait."""
        words, facts = self.words, self.facts
        waiting = problem.open
        unnamed = [m for m in waiting if not any(case.customer for case in m.cases())]
        names = customers_of([m for m in waiting if m not in unnamed])
        customers = ", ".join(clean_text(name, NAME) for name in names)
        if unnamed or len(names) > MOST_CUSTOMERS:
            n = len(names) + sum(m.finding.people for m in unnamed)
            customers = words("customers_wait", n=n)
        unowned = [m for m in problem.open if not actor(m.finding, facts.team)]
        if (n := len(customers_of(unowned))) and len(customers_of(waiting)) > 1:
            customers += f" ({words('without_owner', n=n)})"
        days = facts.longest(problem)
        if days and (unnamed or len(names) > 1):
            days = words("oldest", days=days)
        known = list(customers_of(problem.active).values()).count("known")
        others = words("known_ones", n=known) if known else ""
        return ", ".join(filter(None, (customers, days, others)))

    # ---- the markets

    def _market(self, section: SweepSection) -> Line:
        """Return the dot of the most urgent open issue, the open problems, and those that wait for
        others."""
        words, facts, findings = self.words, self.facts, section.findings
        quiet = [issue for issue in self.document.still_open if issue.item == section.item]
        numbers = sorted({facts.numbers[f.id] for f in findings if f.state in NEEDS_ACTION})
        problems = list(map(facts.problem, numbers))
        dots = {facts.dot(problem.open[0].finding) for problem in problems}
        dots |= set(map(facts.dot, quiet))
        dot = next((each for each in DOTS.values() if each in dots), EMPTY_PLACEHOLDER)
        open_text = words("none_open") if section.status == "complete" else ""
        if problems or quiet:
            changes = [{m.finding.change for m in problem.open} for problem in problems]
            count = changes.count({"new"}) if facts.has_changes else 0
            new = words("new_ones", n=count) if count else ""
            open_text = ", ".join(filter(None, (self._open(problems, quiet), new)))
            open_text = f"{open_text} {facts.format_numbers(numbers)}".rstrip()
        members = [m for p in problems for m in p.open if m.market == section.item]
        people = words("customers_wait", n=n) if (n := len(customers_of(members))) else ""
        rest = {facts.numbers[f.id] for f in findings if f.state in ("known", "waiting")}
        others = sorted(rest - {*numbers})
        resting = words("waits_too", numbers=facts.format_numbers(others)) if others else ""
        status = "" if section.status == "complete" else words(section.status)
        found = first_clause(prose(section.summary, CLAIM)) if status or not numbers else ""
        shown = filter(None, (open_text, people, resting, status, found))
        return f"{dot} ", Bold(f"#{_name(section)}"), f" {' · '.join(shown)}"

    # ---- the sections

    def _sections(self) -> Iterator[ReportSection]:
        """Yield the jobs by person, the problems, and what is over."""
        words, details = self.words, self.details
        if people := tuple(self.details.people()):
            yield ReportSection(words("people"), people, is_apart=True)
        yield from details.sections()
        done = tuple(group for group in self._done() if group.entries)
        if done:
            over = words("over", n=sum(len(group.entries) for group in done))
            yield ReportSection(over, done, is_apart=not self.facts.open, is_detail=True)
        if details.left_out:
            more = words("elsewhere", n=details.left_out, run=self.document.run_id)
            yield ReportSection(words("not_shown"), (), more=more)

    def _solved(self, field: str) -> int:
        """Count the customers of whose issues this field is `solved`."""
        found = [f for f in self.document.findings() if getattr(f, field) == "solved"]
        return len({name for f in found for name in f.customers or [f.id]})

    def _over(self, section: SweepSection) -> list[SweepFinding]:
        """Return the issues of a market that are over and not listed with a shared problem."""
        shared = {f.id for p in self.facts.problems if p.is_shared for f in p.findings}
        over = (f for f in section.findings if f.state in FINISHED_STATES)
        return [finding for finding in over if finding.id not in shared]

    def _done(self) -> Iterator[Group]:
        """Yield, for each market, what is over."""
        for section in self.document.sections:
            over = self._over(section)
            changes = list(filter(None, map(self.facts.change, over)))
            mark = f" · {changes[0]}: {len(changes)}" if changes else ""
            entries = (Entry((self._done_text(f),), slack_link(f.links)) for f in over)
            yield Group(tuple(entries), title=f"#{_name(section)} ({len(over)}){mark}")

    def _done_text(self, finding: SweepFinding) -> str:
        claim = first_clause(self.facts.claim(finding), MAX_SUBJECT_CHARS).rstrip(".")
        names = filter(None, (clean_text(name, NAME) for name in finding.customers))
        named = ", ".join(name for name in names if name not in claim)
        return ": ".join(filter(None, (named, claim)))


def _is_fault(problem: SweepProblem) -> bool:
    """Return whether the team has to fix something: an open issue that is more than a question, or
    a known bug."""
    states = {(f.state, f.severity) for f in problem.findings}
    return any(s == "known" or (s in NEEDS_ACTION and grade != "low") for s, grade in states)


def _sentences(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(None, (clean_text(each, SENTENCE) for each in sentences)))


def _name(market: SweepSection | KnownIssue) -> str:
    return clean_text(market.item, NAME)
