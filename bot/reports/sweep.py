"""Build the view of a sweep: numbers, texts, order, links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bot.reports.documents import (
    KnownIssue,
    ReadTotals,
    SharedPattern,
    SweepFinding,
    SweepReport,
    SweepSection,
    TopLine,
    TrackerSummary,
)
from bot.reports.formatting import clean_text
from bot.reports.frame import gaps, stopped_line
from bot.reports.issues import counts_of
from bot.reports.view import (
    DOTS,
    NOTHING,
    Bold,
    Entry,
    Group,
    Highlight,
    Line,
    Link,
    Reference,
    ReportSection,
    ReportView,
    entries_of,
)
from bot.slack.markdown import address
from config.words import Words, in_language, words_of
from scopes.tool import one_line
from subagents.contracts import NEEDS_ACTION, RESTING

SLACK = re.compile(r"https://[a-z0-9.-]{1,100}\.slack(?:-gov)?\.com/[A-Za-z0-9/_.?=&-]{1,200}")
"""Pattern of the only links in a report."""
NAME, TITLE, SENTENCE, LINE, CLAIM, QUOTE, REASON, STEP = 60, 100, 240, 400, 300, 260, 200, 260
"""Maximum characters of each."""
MOST_CUSTOMERS, MOST_QUOTES, MOST_REFERENCES, MOST_FIRST, MOST_FULL = 4, 2, 6, 3, 5
"""How many are shown of each; the rest is counted, or left out."""
MOST_FINDINGS = 300
"""Findings that a report shows; a table of all of them is attached."""
MOST_QUIET = 100
MANY_MARKETS = 12
"""From this number on, markets are sorted by urgency, not in the requested order."""
DONE = "✓"
"""Replaces the dot if nothing is left to do."""
FINDINGS_FILE = "findings.csv"

Issues = Sequence[SweepFinding | KnownIssue]


def sweep_view(document: SweepReport, place: str = FINDINGS_FILE) -> ReportView:
    """Return the view of a sweep, its findings numbered in reading order.

    `place` is where readers find all findings if there are too many to show.
    """
    words = words_of(document.language)
    channels = words("channels", n=len(document.sections))
    notification = f"{words('sweep')}, {channels}: {_counts_line(document, words)}."
    document = document if document.compared else _without_changes(document)
    markets = _Markets(document, number_findings(document), words, place)
    sections = [section for each in markets.ordered for section in markets.section(each)]
    return ReportView(
        words=words,
        name=words("sweep"),
        notification=notification,
        title=": ".join(filter(None, (words("issues"), clean_text(document.title, TITLE)))),
        counts=_counts_line(document, words),
        lead=tuple(filter(None, _lead(document, channels, words))),
        first=tuple(_first(document, markets.numbers, words))[:MOST_FIRST],
        patterns=tuple(_highlights(document, document.patterns, markets.numbers, words)),
        notes=tuple(_notes(document, words)),
        gaps=_gaps(document),
        overview=tuple(markets.line(each) for each in markets.ordered),
        sections=(*sections, *_quiet(document.still_open, words)),
        sources=tuple(f"#{_name(each)}: {markets.read(each)}" for each in markets.ordered),
        foot=tuple(_foot(document, words)),
    )


def _without_changes(document: SweepReport) -> SweepReport:
    """Drop the changes from a first report: everything in it is new."""

    def unmarked(section: SweepSection) -> SweepSection:
        findings = [f.model_copy(update={"change": None}) for f in section.findings]
        return section.model_copy(update={"findings": findings})

    return document.model_copy(update={"sections": [unmarked(s) for s in document.sections]})


def number_findings(document: SweepReport) -> dict[str, int]:
    """Return each finding's number in the report, from 1."""
    found = [finding for section in _order(document.sections) for finding in section.findings]
    by_id = {finding.id: finding for finding in found}
    return {id: n for n, finding in enumerate(by_id.values(), 1) for id in finding.ids}


def _order(sections: Sequence[SweepSection]) -> Sequence[SweepSection]:
    """Return the sections as requested; if there are many, urgent ones first."""
    if len(sections) <= MANY_MARKETS:
        return sections

    def calm(section: SweepSection) -> tuple[int, int]:
        waiting = [f for f in section.findings if f.state in NEEDS_ACTION]
        return -sum(f.severity == "high" for f in waiting), -len(waiting)

    return sorted(sections, key=calm)


def slack_link(links: Sequence[str | None]) -> str:
    """Return the first of the links if it is Slack's; a report has no other links."""
    first = address(links[0] or "") if links else ""
    return first if SLACK.fullmatch(first) else ""


def _counts_line(document: SweepReport, words: Words) -> str:
    """Format how many issues are open, new, solved: numbers alone, safe where text is parsed."""
    findings, quiet = document.findings(), document.still_open
    counts = counts_of(findings, quiet)
    known = [f for f in findings if f.state in NEEDS_ACTION and f.change in ("open", "changed")]
    parts = [words("new_ones", n=counts.new)] if counts.new else []
    if still := len(known) + len(quiet):
        issues: Issues = [*known, *quiet]
        oldest = max(issue.age_days or 0 for issue in issues)
        changed = sum(f.change == "changed" for f in known)
        since = f" {words('oldest', days=words('days', n=oldest))}" if oldest else ""
        of_them = f" ({words('changed_ones', n=changed)})" if changed else ""
        parts.append(words("still", n=still) + since + of_them)
    parts += [words("solved_ones", n=counts.solved)] if counts.solved else []
    parts += [words("reopened_ones", n=counts.reopened)] if counts.reopened else []
    before = document.compared
    compared = words("compared", day=words.day(before.last)) if before else ""
    shown = (_open(counts.open, counts.high, words), ", ".join(parts), compared)
    return " · ".join(filter(None, shown))


def _open(number: int, high: int, words: Words) -> str:
    return words("open", n=number) + (f" ({words('high_ones', n=high)})" if high else "")


def _read(covers: Sequence[ReadTotals], words: Words) -> str:
    messages = words("messages", n=sum(cover.messages_read for cover in covers))
    threads = words("threads", n=sum(cover.threads_read for cover in covers))
    return words("read", messages=messages, threads=threads)


def _lead(document: SweepReport, channels: str, words: Words) -> Iterator[str]:
    window = document.window
    start, end = (words.day(each) for each in (window.oldest, window.latest))
    if start == end:
        start, end = (words.minute(each) for each in (window.oldest, window.latest))
    read = _read([section.coverage for section in document.sections], words)
    yield f"{words('period', start=start, end=end)} · {channels} · {read}"
    yield _ended(document, words)
    yield words("offline") if document.model == "offline" else ""


def _ended(document: SweepReport, words: Words) -> str:
    """Return why a report is not whole; empty if it is."""
    if document.status == "cancelled":
        with in_language(document.language):
            return stopped_line(document)
    return "" if document.status == "complete" else words(f"ended_{document.status}")


def _first(document: SweepReport, numbers: Mapping[str, int], words: Words) -> Iterator[Highlight]:
    """Yield what the parent wrote, then high issues without news, the longest open first."""
    yield from _highlights(document, document.top_lines, numbers, words)
    waiting = [issue for issue in document.still_open if issue.severity == "high"]
    for issue in sorted(waiting, key=lambda issue: -issue.age_days):
        claim = clean_text(issue.claim, CLAIM) or NOTHING
        age = words("still_open", days=words("days", n=issue.age_days))
        link = slack_link(issue.links)
        references = (Reference("↗", link),) if link else ()
        yield Highlight(f"#{_name(issue)}: {claim} · {age}", references)


def _highlights(
    document: SweepReport,
    lines: Sequence[TopLine | SharedPattern],
    numbers: Mapping[str, int],
    words: Words,
) -> Iterator[Highlight]:
    found = document.findings()
    links = {finding.id: finding.links for finding in found}
    shown = {id: finding.id for finding in found for id in finding.ids}
    for line in lines:
        by_number = {numbers[id]: shown[id] for id in line.findings if id in numbers}
        ids = [by_number[number] for number in sorted(by_number)]
        named = [Reference(str(numbers[id]), slack_link(links[id])) for id in ids]
        text, markets = clean_text(line.text, LINE) or NOTHING, list[str]()
        if isinstance(line, TopLine):
            people = words("customers", n=line.customers)
            text = f"{text} ({people}, {words('messages', n=line.messages)})"
        else:
            markets = [clean_text(name, NAME) for name in line.markets]
        yield Highlight(
            text=text,
            references=tuple(named[:MOST_REFERENCES]),
            more=len(named[MOST_REFERENCES:]),
            markets=tuple(markets) if any(name not in text for name in markets) else (),
            findings=tuple(ids),
        )


def _notes(document: SweepReport, words: Words) -> Iterator[str]:
    if document.tracker:
        yield _tracker(document.tracker, words)
    for key, names in (("added", document.channels_added), ("gone", document.channels_gone)):
        if names:
            yield words(key, names=clean_text(", ".join(f"#{each}" for each in names), SENTENCE))
    yield from _sentences(document.notes)


def _tracker(tracker: TrackerSummary, words: Words) -> str:
    named, why = clean_text(tracker.title, TITLE), clean_text(tracker.reason, SENTENCE)
    head = words("tracker") + (f" ({named})" if named else "")
    if tracker.status not in ("complete", "partial"):
        return f"{head}: {words('unread', why=why)}"
    counts = (
        words("untracked_ones", n=tracker.untracked),
        words("tracked_ones", n=tracker.tracked),
        words("closed_ones", n=tracker.closed),
    )
    partly = f" · {words('partly', why=why)}" if tracker.status == "partial" else ""
    return f"{head}: {', '.join(counts)}{partly}"


def _gaps(document: SweepReport) -> tuple[str, ...]:
    with in_language(document.language):
        return _sentences(gaps(document))


def _sentences(sentences: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, (clean_text(each, SENTENCE) for each in sentences)))


def _foot(document: SweepReport, words: Words) -> Iterator[str]:
    if document.unsupported:
        yield words("dropped", n=document.unsupported)
    cost = document.cost_usd
    price = words("no_price") if cost is None else f"${cost:.4f}"
    price += f" ({words('listed')})" if document.model == "offline" else ""
    tokens = words("tokens", n=document.usage.total)
    yield f"{price} · {tokens} · {words('run', id=one_line(document.run_id)[:NAME])}"


class _Markets:
    """The channels of a sweep in reading order."""

    def __init__(
        self, document: SweepReport, numbers: Mapping[str, int], words: Words, place: str
    ) -> None:
        self.ordered = _order(document.sections)
        self.numbers = numbers
        self.words = words
        self.place = place
        self.still_open = document.still_open
        self.is_offline = document.model == "offline"
        sizes = [len(_open_ones(each)) + len(_resting(each)) for each in document.sections]
        self.most = max(sizes, default=0)
        """How many findings of each market can be shown, so that each market gets some."""
        while self.most > 1 and sum(min(self.most, size) for size in sizes) > MOST_FINDINGS:
            self.most -= 1

    def read(self, section: SweepSection) -> str:
        """Format how much was read, and the status if it is incomplete."""
        status = "" if section.status == "complete" else f" ({self.words(section.status)})"
        return _read([section.coverage], self.words) + status

    def line(self, section: SweepSection) -> Line:
        dot, text = self._summary(section)
        return f"{dot} ", Bold(f"#{_name(section)}"), f"  {text}"

    def _summary(self, section: SweepSection) -> tuple[str, str]:
        """Return the dot of the most severe open issue, and what is open and was read."""
        words, findings = self.words, section.findings
        old = [issue for issue in self.still_open if issue.item == section.item]
        open_ones: Issues = [*_open_ones(section), *old]
        severities = {issue.severity for issue in open_ones}
        dot = next((DOTS[s] for s in DOTS if s in severities), NOTHING)
        open_line = words("none_open") if section.status == "complete" else ""
        if open_ones:
            counts = counts_of(findings, old)
            new = words("new_ones", n=counts.new) if counts.new else ""
            shown = (_open(counts.open, counts.high, words), new)
            open_line = ", ".join(filter(None, shown))
        return dot, " · ".join(filter(None, (open_line, self.read(section))))

    def section(self, section: SweepSection) -> Iterator[ReportSection]:
        """Yield the view of a channel; none if nothing was found there."""
        open_ones, resting = _open_ones(section), _resting(section)
        if not (open_ones or resting):
            return
        words, (dot, text) = self.words, self._summary(section)
        first = open_ones[: self.most]
        second = resting[: self.most - len(first)]
        left = len(open_ones) + len(resting) - len(first) - len(second)
        told = section.status != "complete" or not self.is_offline
        summary = clean_text(section.summary, LINE) if told else ""
        full, folded, listed = (
            tuple(_entry(f, self.numbers[f.id], words) for f in some)
            for some in (first[:MOST_FULL], first[MOST_FULL:], second)
        )
        yield ReportSection(
            title=f"#{_name(section)}",
            intro=tuple(filter(None, (f"{dot} {text}", summary))),
            groups=(
                Group(full, is_full=True),
                Group(folded, words("also_open")),
                Group(listed, words("resting")),
            ),
            more=words("elsewhere", n=left, place=self.place) if left else "",
            is_apart=len(self.ordered) <= MANY_MARKETS,
        )


def _open_ones(section: SweepSection) -> list[SweepFinding]:
    return [f for f in section.findings if f.state in NEEDS_ACTION]


def _resting(section: SweepSection) -> list[SweepFinding]:
    """Return findings that need no action; those that changed since the last report first."""
    resting = [f for f in section.findings if f.state in RESTING]
    return sorted(resting, key=lambda f: not f.change)


def _name(market: SweepSection | KnownIssue) -> str:
    return clean_text(market.item, NAME)


def _quiet(issues: Sequence[KnownIssue], words: Words) -> Iterator[ReportSection]:
    """Yield the section of issues that are still open although the window has no news of them."""
    if not issues:
        return
    more = len(issues) - MOST_QUIET
    rest = [words("more", n=more)] if more > 0 else []
    entries = (*(_known(issue, words) for issue in issues[:MOST_QUIET]), *entries_of(rest))
    yield ReportSection(words("no_news"), (Group(entries),), is_apart=True)


def _known(issue: KnownIssue, words: Words) -> Entry:
    age, state = words("days", n=issue.age_days), words(issue.state)
    claim = clean_text(issue.claim, CLAIM) or NOTHING
    text = f" · {age} · {state} · {claim} · {_owner(issue.owner, words)}"
    row = (f"{DOTS[issue.severity]} ", Bold(f"#{_name(issue)}"), text)
    return Entry(row, slack_link(issue.links))


def _entry(finding: SweepFinding, number: int, words: Words) -> Entry:
    silent = finding.state in RESTING and finding.severity == "low"
    dot = DONE if finding.state == "solved" else NOTHING if silent else DOTS[finding.severity]
    head = Bold(" ".join(filter(None, (dot, f"{number}.", _change_mark(finding, words)))))
    state, claim = words(finding.state), clean_text(finding.claim, CLAIM) or NOTHING
    quotes = (clean_text(each, QUOTE) for each in finding.quotes[:MOST_QUOTES])
    return Entry(
        id=finding.id,
        number=number,
        row=(head, f" · {state} · {claim}"),
        url=slack_link(finding.links),
        title=(head, f" · {state} · ", Bold(claim)),
        quotes=tuple(filter(None, quotes)),
        details=tuple(_details(finding, words)),
    )


def _details(finding: SweepFinding, words: Words) -> Iterator[str | Bold | Link]:
    named = finding.customers or finding.waits
    who = [_names(named, words) if named else words("customers", n=finding.people)]
    waits, opened = finding.waits_since, finding.since
    who += [words("waits", day=words.day(waits))] if waits else []
    who.append(words("messages", n=finding.messages))
    who += (
        [words("since", day=words.day(opened))]
        if opened and opened[:10] != (waits or "")[:10]
        else []
    )
    yield f"\n{' · '.join(filter(None, who))}\n{words('owner')}: "
    yield Bold(_owner(finding.owner, words))
    if step := clean_text(finding.next_step, STEP):
        yield f"\n→ {step}"
    if reason := clean_text(finding.severity_reason, REASON):
        yield f"\n{words('why', severity=words(finding.severity), reason=reason)}"
    if tracked := _tracker_line(finding, words):
        yield f"\n{words('tracker')}: "
        yield Link(tracked, slack_link([finding.tracker.link] if finding.tracker else []))


def _names(people: Sequence[str], words: Words) -> str:
    """Name the first of those who wait, and count the others."""
    named = [clean_text(name, NAME) for name in people]
    more = len(named) - MOST_CUSTOMERS
    rest = f" {words('more', n=more)}" if more > 0 else ""
    return ", ".join(named[:MOST_CUSTOMERS]) + rest


def _change_mark(finding: SweepFinding, words: Words) -> str:
    """Return what changed since the last report; empty if that is not known."""
    if finding.change == "open":
        return words("still_open", days=words("days", n=finding.age_days or 0))
    change = "is_solved" if finding.change == "solved" else finding.change
    return words(change) if change else ""


def _owner(owner: str, words: Words) -> str:
    name = clean_text(owner, NAME)
    return words("nobody") if name.lower() in ("", "nobody") else name


def _tracker_line(finding: SweepFinding, words: Words) -> str:
    """Return what a tracker says of it; empty if none was read."""
    tracker = finding.tracker
    if tracker is None or tracker.status not in ("untracked", "tracked", "closed"):
        return ""
    named = (clean_text(each, NAME) for each in (tracker.key, tracker.title))
    name, status = " ".join(filter(None, named)), words(tracker.status)
    return f"{name} ({status})" if name else status
