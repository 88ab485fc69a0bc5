"""Rank, join and number the problems of a sweep, and format the texts that all its parts share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

from bot.reports.documents import KnownIssue, SweepFinding, SweepReport, TrackerEntry
from bot.reports.formats import clean_text, due, prose
from bot.reports.view import DOTS, EMPTY_PLACEHOLDER, Link, end_of
from bot.slack.markdown import address
from config.words import current
from subagents.contracts import NEEDS_ACTION, IssueState
from subagents.result import CustomerCase
from subagents.summary import SEVERITIES

URGENT_TIERS = 2
"""Number of urgent tiers."""
NEAR_DAYS = 2
"""A deadline is near from this number of days before it."""
LAST = "9999"
"""Sorts items without a time after all others."""
ACTIVE = (*NEEDS_ACTION, "known", "waiting")
"""States of an issue that is not over, in the order of lists."""
FINISHED_STATES = ("declined", "solved")
_LEADING_NAME = re.compile(
    r"([^\W\d_][\w'’.-]*(?: [^\W\d_][\w'’.-]*){0,3})(?: \([^()]{1,20}\))? ?: "
)
"""The name at the start of a next step, such as `Ana Ruiz: tell them the date`, or of a proposal:
`Ana Ruiz (proposed): ...`."""

Issue = SweepFinding | KnownIssue


def tier(issue: Issue, at: datetime) -> int:
    """Return the tier of an issue at this time, 0 for the first: high severity; then a day that has
    passed or is near; then by severity; issues that wait for others come last."""
    if issue.state not in NEEDS_ACTION:
        return len(SEVERITIES) + 1
    days = days_left(issue, at.date()) if isinstance(issue, SweepFinding) else None
    if issue.severity != "high" and days is not None and days <= NEAR_DAYS:
        return 1
    return (0, 2, 3)[SEVERITIES.index(issue.severity)]


def is_urgent(issue: Issue, at: datetime) -> bool:
    """Return whether the team must act, and it is of high severity or its day is near or past."""
    return tier(issue, at) < URGENT_TIERS


def days_since(since: str, at: datetime) -> int:
    """Count the calendar days from `since` (ISO 8601) to `at`, in the time zone of `at`."""
    first = datetime.fromisoformat(since).astimezone(at.tzinfo).date()
    return max(0, (at.date() - first).days)


def days_left(finding: SweepFinding, today: date) -> int | None:
    """Return the days until the deadline, below 0 if it has passed; None without a deadline."""
    found = due(finding.deadline, today)
    return found.days if found else None


@dataclass(frozen=True, slots=True)
class Member:
    """A finding and its channel."""

    market: str
    finding: SweepFinding
    tier: int
    days_left: int | None
    """Days until its deadline, below 0 if it has passed; None without one."""

    @property
    def is_urgent(self) -> bool:
        return self.tier < URGENT_TIERS

    @property
    def since(self) -> str:
        """Return the time when it was opened (ISO 8601)."""
        return self.finding.since or LAST

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: state, urgency, deadline, then the time of opening."""
        state = self.finding.state
        place = 0 if state in NEEDS_ACTION else (*ACTIVE, *FINISHED_STATES).index(state)
        return place, self.tier >= URGENT_TIERS, self.finding.deadline or LAST, self.since

    def cases(self) -> Sequence[CustomerCase]:
        """Return its customers, longest wait first; the writers if no customer is named."""
        finding = self.finding
        link = finding.links[0] if finding.links else None
        by_customer = {each.customer: each for each in finding.cases}
        rest = CustomerCase(
            customer="", since=finding.since, waits_since=finding.waits_since, link=link
        )
        customers = finding.customers or ["; ".join(finding.waits)]
        cases = [by_customer.get(n) or rest.model_copy(update={"customer": n}) for n in customers]
        return sorted(cases, key=lambda each: each.since or LAST)


@dataclass(frozen=True, slots=True)
class SweepProblem:
    """All issues in all channels with one bug or cause, or a single issue."""

    members: tuple[Member, ...]
    """The most urgent first."""
    title: str = ""
    """Name of a cause that several findings share; empty for a single issue."""
    tracker: TrackerEntry | None = None
    """Its row in the tracker."""

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
        """Return whether several issues share one cause; some of them may be over."""
        return len(self.members) > 1

    @property
    def is_untracked(self) -> bool:
        """Return whether a tracker was read and has no row for it."""
        return not self.tracker and any(finding.tracker for finding in self.findings)

    @property
    def tier(self) -> int:
        return min(member.tier for member in self.members)

    @property
    def is_urgent(self) -> bool:
        return self.tier < URGENT_TIERS

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key. Problems that need action come first; among these: high severity, a near
        deadline, a past one, open longest, most customers. The report states this rule."""
        shown = self.open or self.active or self.members
        opened = min(member.since for member in shown)[:10]
        days = [member.days_left for member in self.open if member.days_left is not None]
        is_near, is_late = any(0 <= n <= NEAR_DAYS for n in days), any(n < 0 for n in days)
        many = sum(len(member.cases()) for member in shown)
        return not self.open, self.tier, not is_near, not is_late, opened, -many


def customers_of(members: Iterable[Member]) -> dict[str, IssueState]:
    """Return each customer once, with the most urgent of its states."""
    states: dict[str, IssueState] = {}
    for member in sorted(members, key=lambda member: member.order):
        for case in member.cases():
            states.setdefault(case.customer or member.finding.id, member.finding.state)
    return states


def problems_of(document: SweepReport) -> list[SweepProblem]:
    """Return every issue of a report in exactly one problem, the most urgent first.

    Findings with the same tracker row, or in one pattern that the parent named, are one problem.
    """
    at = document.local_end
    members: dict[str, Member] = {}
    for section in document.sections:
        for finding in section.findings:
            if finding.state in (*ACTIVE, *FINISHED_STATES):
                remaining = days_left(finding, at.date())
                members[finding.id] = Member(section.item, finding, tier(finding, at), remaining)
    groups: dict[str, list[Member]] = {}
    titles: dict[str, str] = {}
    alone = dict(members)
    for member in members.values():
        if key := _key(member.finding):
            groups.setdefault(key, []).append(alone.pop(member.finding.id))
    main_ids = {id: m.finding.id for m in members.values() for id in m.finding.ids}
    for number, pattern in enumerate(document.patterns):
        cited = list(dict.fromkeys(main_ids[id] for id in pattern.findings if id in main_ids))
        keys = {_key(members[id].finding) for id in cited} - {""}
        place = keys.pop() if len(keys) == 1 else f"pattern {number}"
        rest = [alone.pop(id) for id in cited if id in alone]
        groups.setdefault(place, []).extend(rest)
        titles[place] = pattern.text
    problems = [_problem(each, titles.get(k, "")) for k, each in groups.items() if each]
    problems += [_problem([member], "") for member in alone.values()]
    return sorted(problems, key=lambda problem: problem.order)


def _key(finding: SweepFinding) -> str:
    """Return the key of its bug in the tracker; empty if it has none."""
    return finding.tracker.key if finding.tracker else ""


def _problem(members: Iterable[Member], pattern: str) -> SweepProblem:
    ranked = sorted(members, key=lambda member: (member.tier, member.order))
    rows = (member.finding.tracker for member in ranked)
    known = next((row for row in rows if row and row.key), None)
    title = f"{known.key} {known.title}".strip() if known else pattern
    return SweepProblem(tuple(ranked), title if len(ranked) > 1 else "", known)


def actor(finding: SweepFinding, people: Sequence[str]) -> str:
    """Return who acts next: the person named in the next step, else the owner; empty = nobody.

    `people`: names of the team.
    """
    step, owner = finding.next_step, finding.owner
    if step.casefold().startswith(tuple(map(str.casefold, _parts(owner)))):
        return owner
    if (found := _LEADING_NAME.match(step)) and is_name(first := found[1], finding):
        return next((p for p in people if first in (p, p.split()[0])), first)
    if named := next((name for name in people if step.startswith(name)), ""):
        return named
    return owner if owner.casefold() != "nobody" else ""


def find_actor(line: str) -> str:
    """Return the name at the start of a line such as `Ana Ruiz: ...`; empty without one."""
    found = _LEADING_NAME.match(line)
    return found[1] if found else ""


def is_name(text: str, finding: SweepFinding) -> bool:
    """Return whether it is only a name, and not `Answer Ana Ruiz` about a person who waits."""
    others = [name for name in finding.waits if name != text]
    names_customer = any(name in text for name in (*others, *finding.customers))
    return all(word[0].isupper() for word in text.split()) and not names_customer


def _parts(owner: str) -> Iterator[str]:
    """Yield the whole name and the first name of each owner."""
    for name in filter(None, map(str.strip, owner.split(","))):
        yield name
        yield name.split()[0]


def team(document: SweepReport) -> list[str]:
    """Return the names of all owners of issues, each once."""
    owners = (name.strip() for f in document.findings() for name in f.owner.split(","))
    return [name for name in dict.fromkeys(owners) if name and name.casefold() != "nobody"]


# ---- words

MESSAGE_LINK = re.compile(
    r"/archives/(?P<channel>\w+)/p(?P<own>\d+)(?:\?.*?\bthread_ts=(?P<first>[\d.]+))?"
)
"""Channel, message, and first message of the thread in a link to a message."""
SLACK = re.compile(r"https://[a-z0-9.-]{1,100}\.slack(?:-gov)?\.com/[A-Za-z0-9/_.?=&-]{1,200}")
"""Pattern of the only links in a report."""
NAME, SENTENCE, LINE, CLAIM, QUOTE, STEP, AMOUNT = 60, 240, 400, 600, 260, 600, 30
"""Maximum characters of each."""
FEW_WORDS = 60
"""Maximum characters of a reason or claim next to other text."""
MAX_SUBJECT_CHARS = 76
"""Maximum characters of the subject of an issue, next to its customer."""
MAX_LISTED_CHARS = 160
"""Characters above which a text in a list is cut after a sentence or clause."""
MOST_CUSTOMERS, MOST_FULL = 3, 10
"""Maximum number of names and of numbers in a list; the rest is counted."""
FIX, DONE = "◇", "✓"
"""Marks of issues that wait for a fix by the team, and of those that are over."""
CLAUSE = re.compile(r"(?:(?:(?<!\d)|(?<=\d{3}))[.!?]|;)(?= )")
"""Ends of sentences and clauses, without `10. März`."""


def order_problems(document: SweepReport) -> list[SweepProblem]:
    """Return the problems that are not over in the order of their numbers: open ones, then those
    that wait for others, shared ones first."""
    active = [problem for problem in problems_of(document) if problem.active]
    return sorted(active, key=lambda p: (not p.open, not (p.open or p.is_shared)))


def number_findings(document: SweepReport) -> dict[str, int]:
    """Return, by finding id, the number of its problem, from 1.

    Problems that are over have no number.
    """
    problems = enumerate(order_problems(document), 1)
    return {id: n for n, problem in problems for f in problem.findings for id in f.ids}


def slack_link(links: Sequence[str | None]) -> str:
    """Return the first link if it leads to Slack; a report has no other links."""
    first = address(links[0] or "") if links else ""
    return first if SLACK.fullmatch(first) else ""


def _thread_customers(finding: SweepFinding) -> dict[str, list[str]]:
    """Return the customers of each thread by its first Slack link."""
    threads: dict[tuple[str, str], str] = {}
    for link in filter(None, (slack_link([each]) for each in finding.links)):
        threads.setdefault(_thread(link), link)
    names: dict[tuple[str, str], list[str]] = {}
    for case in finding.cases:
        names.setdefault(_thread(case.link or ""), []).append(clean_text(case.customer, NAME))
    return {url: names.get(key, []) for key, url in threads.items()}


def thread_links(finding: SweepFinding) -> tuple[Link, ...]:
    """Return the first Slack link of each thread."""
    return tuple(Link("", url) for url in _thread_customers(finding))


def customer_links(text: str, findings: Iterable[SweepFinding]) -> tuple[Link, ...]:
    """Return links to the threads of the customers named in a text."""
    threads = (each for finding in findings for each in _thread_customers(finding).items())
    placed = [Link(n, url) for url, names in threads for n in names if n and end_of(n, text)]
    return tuple(dict.fromkeys(placed))


def _thread(link: str) -> tuple[str, str]:
    """Return the channel and the first message of the thread that a link leads to."""
    found = MESSAGE_LINK.search(link)
    if not found:
        return "", link
    return found["channel"], (found["first"] or found["own"]).replace(".", "")


def first_clause(text: str, most: int = MAX_LISTED_CHARS) -> str:
    """Return a text up to the last end of a clause within `most` characters, or the next one."""
    if len(text) <= most:
        return text
    ends = [found.start() for found in CLAUSE.finditer(text)]
    cuts = [end for end in ends if most // 4 < end <= most][-1:] or [e for e in ends if e > most]
    return text[: cuts[0]].rstrip() if cuts else text


class SweepFacts:
    """The numbered problems of one sweep, and their texts."""

    def __init__(self, document: SweepReport) -> None:
        self.document = document
        self.words = current()
        self.has_changes = document.compared is not None
        self.at, self.zone = document.local_end, ZoneInfo(document.zone)
        self.problems = order_problems(document)
        self.numbers = number_findings(document)
        self.open = [(n, p) for n, p in enumerate(self.problems, 1) if p.open]
        self.team = team(document)

    def problem(self, number: int) -> SweepProblem:
        return self.problems[number - 1]

    def title(self, problem: SweepProblem) -> str:
        """Return the name of a shared cause, else the claim of the finding."""
        shared = problem.title if problem.is_shared else ""
        return prose(shared or problem.active[0].finding.claim, CLAIM) or EMPTY_PLACEHOLDER

    # ---- customers

    def states(self, members: Sequence[Member], place: str = "") -> str:
        """Count the customers by whether they wait for the team, wait for a fix, have to act, or
        have an issue that is over; empty if there are none."""
        states = list(customers_of(members).values())
        counts = (
            ("team_ones", sum(state in NEEDS_ACTION for state in states)),
            ("known_ones", states.count("known")),
            ("waiting_ones", states.count("waiting")),
            ("solved_ones", sum(state in FINISHED_STATES for state in states)),
        )
        by_state = ", ".join(self.words(key, n=n) for key, n in counts if n)
        return f"{self.words('customers', n=len(states))}{place}: {by_state}" if states else ""

    def subject(self, finding: SweepFinding) -> str:
        """Return the first customer of an issue, the number of others, and why it is severe or
        what they want."""
        reason = finding.severity_reason if finding.severity == "high" else ""
        text = prose(reason or finding.wants, SENTENCE) or self.claim(finding)
        what = first_clause(text, MAX_SUBJECT_CHARS).rstrip(".")
        names = list(filter(None, (clean_text(each, NAME) for each in finding.customers)))
        more = f" +{len(names) - 1}" if names[1:] else ""
        is_named = not names or any(name in what for name in names)
        return ": ".join(filter(None, ("" if is_named else f"{names[0]}{more}", what)))

    def claim(self, finding: SweepFinding) -> str:
        """Return a claim without the name of its only customer at the start."""
        claim = prose(finding.claim, CLAIM)
        names = [clean_text(name, NAME) for name in finding.customers]
        if len(names) == 1 and claim.startswith(tuple(f"{names[0]}{mark}" for mark in " :,")):
            return claim.removeprefix(names[0]).lstrip(" :,–-") or claim
        return claim

    # ---- states and days

    def state(self, finding: SweepFinding) -> str:
        """Return the state of an issue; if it waits for the customer, who asked them and when."""
        state = self.words(finding.state)
        answers = [(each.answered, each.answered_by) for each in finding.cases if each.answered]
        if finding.state != "waiting" or not answers:
            return state
        at, by = max(answers)
        who = clean_text(by, NAME)
        return self.words("asked", state=state, who=who, day=self.day(at)) if at and who else state

    def dot(self, issue: SweepFinding | KnownIssue) -> str:
        """Return the mark of an issue: a full dot if urgent, an empty dot if open with low
        severity, a half dot if open, a rhombus if it waits for a fix, a check mark if over, else a
        dash."""
        if issue.state in FINISHED_STATES:
            return DONE
        if issue.state not in NEEDS_ACTION:
            return FIX if issue.state == "known" else EMPTY_PLACEHOLDER
        if is_urgent(issue, self.at):
            return DOTS["high"]
        return DOTS["low"] if issue.severity == "low" else DOTS["medium"]

    def change(self, finding: SweepFinding) -> str:
        """Return the change since the last report; empty if unknown."""
        if not self.has_changes or not finding.change:
            return ""
        if finding.change == "open":
            return self.words("still_open", days=self.words("days", n=finding.age_days or 0))
        return self.words("is_solved" if finding.change == "solved" else finding.change)

    def day(self, at: str) -> str:
        """Return the day of a time for the reader."""
        return self._name_day(self._local_day(at))

    def _local_day(self, at: str) -> date:
        return datetime.fromisoformat(at).astimezone(self.zone).date()

    def _name_day(self, day: date) -> str:
        return self.words.date(day, "MMMd" if day.year == self.at.year else "yMMMd")

    def days(self, first: str, last: str) -> str:
        """Return the days from the first to the last time."""
        start, end = self._local_day(first), self._local_day(last)
        return self._name_day(start) if start == end else self.words.interval(start, end, "MMMd")

    def due(self, finding: SweepFinding) -> str:
        """Return its deadline, even if it has passed; empty without one."""
        if not self.is_over(finding):
            found = due(finding.deadline, self.at.date())
            return found.words if found else ""
        return self.words("was_due", day=self._name_day(date.fromisoformat(finding.deadline)))

    def is_near(self, finding: SweepFinding) -> bool:
        """Return whether its deadline is today or soon."""
        remaining = days_left(finding, self.at.date())
        return remaining is not None and 0 <= remaining <= NEAR_DAYS

    def is_over(self, finding: SweepFinding) -> bool:
        """Return whether its deadline has passed."""
        remaining = days_left(finding, self.at.date())
        return remaining is not None and remaining < 0

    def waits(self, finding: SweepFinding, whose: str = "") -> str:
        """Return when an issue was opened, how long ago, and when a customer wrote again."""
        if not finding.since:
            return ""
        days = self.words("days", n=days_since(finding.since, self.at))
        days_text = f"{days}, {whose}" if whose else days
        opened = self.words("open_since", day=self.day(finding.since), days=days_text)
        if whose or not finding.waits_since or finding.state not in NEEDS_ACTION:
            return opened
        again = self.day(finding.waits_since)
        if again == self.day(finding.since):
            return opened
        return f"{opened}, {self.words('again', day=again)}"

    def longest(self, problem: SweepProblem) -> str:
        """Return the number of days it has been open; empty if no time is known."""
        since = min(member.since for member in problem.open)
        return self.words("days", n=days_since(since, self.at)) if since != LAST else ""

    # ---- lists

    def format_numbers(self, numbers: Iterable[int]) -> str:
        """Return the numbers of problems in the format of the report."""
        return self.some([f"[{number}]" for number in numbers], MOST_FULL, " ")

    def some(self, texts: Sequence[str], most: int, between: str = ", ") -> str:
        """Return the first texts, and the number of further ones."""
        most = len(texts) if len(texts) == most + 1 else most
        more = len(texts) - most
        rest = f" {self.words('more', n=more)}" if more > 0 else ""
        return between.join(texts[:most]) + rest

    def tracker_link(self, entry: TrackerEntry, name: str = "") -> Link:
        """Return the status of an issue in the tracker, with a link to its row."""
        stage = (clean_text(each, NAME) for each in (entry.stage, entry.owner))
        details = ", ".join(filter(None, stage)) if entry.status == "tracked" else ""
        status = ": ".join(filter(None, (self.words(entry.status), details)))
        return Link(f"{name} ({status})" if name else status, slack_link([entry.link]))


def unanswered(problem: SweepProblem) -> dict[str, str]:
    """Return, for each customer who waits for a reply, the time since when they wait."""
    since: dict[str, str] = {}
    for case in (case for member in problem.open for case in member.cases()):
        if case.waits_since:
            since[case.customer] = max(case.waits_since, since.get(case.customer, ""))
    return since
