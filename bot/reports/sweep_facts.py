"""Number the problems of a sweep, and word what all parts of its report say alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from bot.reports.documents import KnownIssue, SweepFinding, SweepReport, TrackerEntry
from bot.reports.formats import clean_text, due, prose
from bot.reports.problems import (
    LAST,
    NEAR,
    OVER,
    Member,
    SweepProblem,
    customers_of,
    days_left,
    days_since,
    is_urgent,
    problems_of,
    team,
)
from bot.reports.view import DOTS, NOTHING, Link, end_of
from bot.slack.markdown import address
from config.words import Words
from subagents.contracts import NEEDS_ACTION

THREAD = re.compile(
    r"/archives/(?P<channel>\w+)/p(?P<own>\d+)(?:\?.*?\bthread_ts=(?P<first>[\d.]+))?"
)
"""Channel, message and first message of the thread in a link to a message."""
SLACK = re.compile(r"https://[a-z0-9.-]{1,100}\.slack(?:-gov)?\.com/[A-Za-z0-9/_.?=&-]{1,200}")
"""Pattern of the only links in a report."""
NAME, SENTENCE, LINE, CLAIM, QUOTE, STEP, AMOUNT = 60, 240, 400, 600, 260, 600, 30
"""Maximum characters of each."""
FEW_WORDS = 60
"""Characters of a reason or a claim that stands beside something else."""
SUBJECT = 76
"""Characters of what an issue is about, beside its customer."""
SHORT = 160
"""Characters from which on a text in a list ends after one of its sentences or clauses."""
MOST_CUSTOMERS, MOST_FULL = 3, 10
"""How many names or numbers are listed; the rest is counted."""
FIX, DONE = "◇", "✓"
"""Mark what waits for a fix of the team's own, and what is over."""
CLAUSE = re.compile(r"(?:(?:(?<!\d)|(?<=\d{3}))[.!?]|;)(?= )")
"""Ends of sentences and clauses; `10. März` is none."""


def ordered(document: SweepReport) -> list[SweepProblem]:
    """Return the problems that are not over in the order of their numbers: open ones, then what
    waits for others, shared ones first."""
    active = [problem for problem in problems_of(document) if problem.active]
    return sorted(active, key=lambda p: (not p.open, not (p.open or p.is_shared)))


def number_findings(document: SweepReport) -> dict[str, int]:
    """Return the number, from 1, of the problem in which each finding stands.

    What is over has none.
    """
    problems = enumerate(ordered(document), 1)
    return {id: n for n, problem in problems for f in problem.findings for id in f.ids}


def slack_link(links: Sequence[str | None]) -> str:
    """Return the first of the links if it is Slack's; a report has no other links."""
    first = address(links[0] or "") if links else ""
    return first if SLACK.fullmatch(first) else ""


def _thread_customers(finding: SweepFinding) -> dict[str, list[str]]:
    """Return the customers of each thread by its first link, of those that are Slack's."""
    threads: dict[tuple[str, str], str] = {}
    for link in filter(None, (slack_link([each]) for each in finding.links)):
        threads.setdefault(_thread(link), link)
    names: dict[tuple[str, str], list[str]] = {}
    for case in finding.cases:
        names.setdefault(_thread(case.link or ""), []).append(clean_text(case.customer, NAME))
    return {url: names.get(key, []) for key, url in threads.items()}


def thread_links(finding: SweepFinding) -> tuple[Link, ...]:
    """Return the first link of each thread, of those that are Slack's, with the customers there."""
    return tuple(Link(", ".join(names), url) for url, names in _thread_customers(finding).items())


def customer_links(text: str, findings: Iterable[SweepFinding]) -> tuple[Link, ...]:
    """Return links to the threads of the customers that a text names."""
    threads = (each for finding in findings for each in _thread_customers(finding).items())
    placed = [Link(n, url) for url, names in threads for n in names if n and end_of(n, text)]
    return tuple(dict.fromkeys(placed))


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


class SweepFacts:
    """The numbered problems of one sweep, and how they are worded."""

    def __init__(self, document: SweepReport, words: Words) -> None:
        self.document = document
        self.words = words
        self.has_changes = document.compared is not None
        self.at = datetime.fromisoformat(document.window.latest).astimezone(UTC)
        self.problems = ordered(document)
        self.numbers = number_findings(document)
        self.open = [(n, p) for n, p in enumerate(self.problems, 1) if p.open]
        self.team = team(document)
        self.places: dict[str, list[int]] = {}
        """The numbers of the problems in which each customer waits."""
        for number, problem in enumerate(self.problems, 1):
            for name in customers_of(problem.active):
                self.places.setdefault(clean_text(name, NAME), []).append(number)

    def problem(self, number: int) -> SweepProblem:
        return self.problems[number - 1]

    def title(self, problem: SweepProblem) -> str:
        """Return the name of a shared cause, else what the finding says."""
        shared = problem.title if problem.is_shared else ""
        return prose(shared or problem.active[0].finding.claim, CLAIM) or NOTHING

    # ---- customers

    def also(self, name: str, number: int) -> str:
        """Return the name of a customer, and in which other problems they wait."""
        others = [each for each in self.places.get(name, ()) if each != number]
        if not others:
            return name
        return self.words("also_in", name=name, numbers=self.listed(others))

    def states(self, members: Sequence[Member], place: str = "") -> str:
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

    def whose(self, finding: SweepFinding, what: str) -> str:
        """Return the first of its customers, how many others, and what it is about."""
        names = list(filter(None, (clean_text(each, NAME) for each in finding.customers)))
        more = f" +{len(names) - 1}" if names[1:] else ""
        is_named = not names or any(name in what for name in names)
        return ": ".join(filter(None, ("" if is_named else f"{names[0]}{more}", what)))

    def subject(self, finding: SweepFinding) -> str:
        """Return whose an issue is, and why it is severe or what they want."""
        reason = finding.severity_reason if finding.severity == "high" else ""
        what = prose(reason or finding.wants, SENTENCE) or self.claim(finding)
        return self.whose(finding, first_clause(what, SUBJECT).rstrip("."))

    def claim(self, finding: SweepFinding) -> str:
        """Return a claim without the name of its only customer before it."""
        claim = prose(finding.claim, CLAIM)
        names = [clean_text(name, NAME) for name in finding.customers]
        if len(names) == 1 and claim.startswith(tuple(f"{names[0]}{mark}" for mark in " :,")):
            return claim.removeprefix(names[0]).lstrip(" :,–-") or claim
        return claim

    # ---- states and days

    def state(self, finding: SweepFinding) -> str:
        """Return where an issue stands; of what waits for the customer, who asked them and when."""
        state = self.words(finding.state)
        answers = [(each.answered, each.answered_by) for each in finding.cases if each.answered]
        if finding.state != "waiting" or not answers:
            return state
        at, by = max(answers)
        who = clean_text(by, NAME)
        return self.words("asked", state=state, who=who, day=self.day(at)) if at and who else state

    def dot(self, issue: SweepFinding | KnownIssue) -> str:
        """Return a full dot for what is urgent, a half one for what is open, a rhomb for what waits
        for a fix, a check mark for what is over, else a dash."""
        if issue.state in OVER:
            return DONE
        if issue.state not in NEEDS_ACTION:
            return FIX if issue.state == "known" else NOTHING
        if is_urgent(issue, self.at):
            return DOTS["high"]
        return DOTS["low"] if issue.severity == "low" else DOTS["medium"]

    def change(self, finding: SweepFinding) -> str:
        """Return what changed since the last report; empty if that is not known."""
        if not self.has_changes or not finding.change:
            return ""
        if finding.change == "open":
            return self.words("still_open", days=self.words("days", n=finding.age_days or 0))
        return self.words("is_solved" if finding.change == "solved" else finding.change)

    def day(self, at: str) -> str:
        day = datetime.fromisoformat(at).astimezone(UTC).date()
        return self.words.date(day, "MMMd" if day.year == self.at.year else "yMMMd")

    def days(self, first: str, last: str) -> str:
        """Return the days from the first to the last time."""
        if self.day(first) == self.day(last):
            return self.day(first)
        start, end = (datetime.fromisoformat(at).astimezone(UTC).date() for at in (first, last))
        return self.words.interval(start, end, "MMMd")

    def due(self, finding: SweepFinding) -> str:
        """Return its day, also one that has passed; empty without one."""
        if not self.is_over(finding):
            found = due(finding.deadline, self.at.date())
            return found.words if found else ""
        return self.words("was_due", day=self.day(f"{finding.deadline}T00:00:00+00:00"))

    def is_near(self, finding: SweepFinding) -> bool:
        """Return whether its day is today or soon."""
        left = days_left(finding, self.at.date())
        return left is not None and 0 <= left <= NEAR

    def is_over(self, finding: SweepFinding) -> bool:
        """Return whether its day has passed."""
        left = days_left(finding, self.at.date())
        return left is not None and left < 0

    def waits(self, finding: SweepFinding, whose: str = "") -> str:
        """Return when an issue was opened, how long ago, and when somebody wrote again."""
        if not finding.since:
            return ""
        days = self.words("days", n=days_since(finding.since, self.at))
        told = f"{days}, {whose}" if whose else days
        opened = self.words("open_since", day=self.day(finding.since), days=told)
        if whose or not finding.waits_since or finding.state not in NEEDS_ACTION:
            return opened
        again = self.day(finding.waits_since)
        if again == self.day(finding.since):
            return opened
        return f"{opened}, {self.words('again', day=again)}"

    def longest(self, problem: SweepProblem) -> str:
        """Return for how many days it has been open; empty if no time is known."""
        since = min(member.since for member in problem.open)
        return self.words("days", n=days_since(since, self.at)) if since != LAST else ""

    # ---- lists

    def listed(self, numbers: Iterable[int]) -> str:
        """Return the numbers of problems as a reader finds them."""
        return self.some([f"[{number}]" for number in numbers], MOST_FULL, " ")

    def some(self, texts: Sequence[str], most: int, between: str = ", ") -> str:
        """Return the first of the texts, and how many more there are, if several."""
        most = len(texts) if len(texts) == most + 1 else most
        more = len(texts) - most
        rest = f" {self.words('more', n=more)}" if more > 0 else ""
        return between.join(texts[:most]) + rest

    def tracker_link(self, entry: TrackerEntry, name: str = "") -> Link:
        """Return what a tracker says of an issue, with a link to its row."""
        stage = (clean_text(each, NAME) for each in (entry.stage, entry.owner))
        told = ", ".join(filter(None, stage)) if entry.status == "tracked" else ""
        status = ": ".join(filter(None, (self.words(entry.status), told)))
        return Link(f"{name} ({status})" if name else status, slack_link([entry.link]))


def unanswered(problem: SweepProblem) -> dict[str, str]:
    """Return since when each customer of a problem has had no reply, of those who wait for one."""
    since: dict[str, str] = {}
    for case in (case for member in problem.open for case in member.cases()):
        if case.waits_since:
            since[case.customer] = max(case.waits_since, since.get(case.customer, ""))
    return since
