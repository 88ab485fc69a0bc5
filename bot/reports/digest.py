"""Build the view of a triage: order, what belongs together, texts, links, buttons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count as counting

from bot.reports.digest_actions import (
    ASKED,
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    NOT_ASKED,
    NOT_URGENT,
    PRIORITY,
    SNOOZE,
    correction,
    names,
)
from bot.reports.documents import FilteredThread, ThreadVerdict, TriageLine, TriageReport
from bot.reports.translations import (
    ENGLISH,
    Due,
    Sender,
    age,
    clean_text,
    count,
    day,
    due,
    sender,
    words_of,
)
from bot.reports.view import (
    DOTS,
    OFFLINE,
    Bold,
    Button,
    Entry,
    Group,
    Highlight,
    Line,
    Reference,
    ReportSection,
    ReportView,
    entries_of,
)
from bot.slack.markdown import address

NAME = "Mail triage"
MAIL = "https://mail.google.com/"
"""Prefix of the only links in a digest."""
FIRST, MATTER, FACT, ACTION, REPLY, REASON = 400, 300, 260, 200, 280, 200
SUBJECT, WARNING, CATEGORY_NAME = 100, 100, 60
"""Maximum characters of each."""
MOST_FIRST = 3
"""Maximum number of things to do first."""
MOST_REFERENCES = 6
"""Thread numbers beside a thing to do first."""
MOST_WARNINGS = 5
MOST_SENDERS = 12
"""Senders that are named for one reason to filter; the rest is counted."""
MOST_UNREAD = 20
"""Threads that are named for one reason why they could not be read."""
MOST_GAPS = 10
NOT_NEAR = 1_000
"""Days that count for a verdict without a near deadline."""
ENDED = {
    "partial": "This digest is not complete; what is missing is listed at its end.",
    "cancelled": "Stopped as asked. This is what there was until then.",
    "failed": "This triage failed; what it found before that follows.",
}
URGENT, FILTERED, UNREAD = (
    *("Needs your reply, or urgent", "Filtered, not shown to a model", "Could not be read"),
)

Matter = tuple[str, Sequence[ThreadVerdict]]
"""Shared topic of verdicts (empty for a single one), and the verdicts, the most urgent first."""


def digest_view(document: TriageReport, categories: Iterable[str] = ()) -> ReportView:
    """Return the view of a triage, its threads numbered in reading order.

    `categories` come in this order, others after them; a verdict can be corrected to them.
    """
    sections = _sections(document, tuple(categories))
    entries = {entry.id: entry for s in sections for g in s.groups for entry in g.entries}
    return ReportView(
        words=words_of(ENGLISH),
        name=NAME,
        notification=f"{NAME}. {summary(document)}",
        title=f"{NAME} for {clean_text(document.mailbox, 100)}",
        counts="",
        lead=tuple(filter(None, _lead(document))),
        first=tuple(_highlight(line, entries) for line in document.top_lines[:MOST_FIRST]),
        sections=(*sections, *_lists(document)),
        foot=(_coverage_line(document), _cost_line(document)),
    )


def _sections(document: TriageReport, categories: Sequence[str]) -> list[ReportSection]:
    """Return what is urgent, then what can wait by category, then by topic."""
    is_urgent, matters = _urgency(document), _sorted_matters(document)
    waiting = [(text, verdicts) for text, verdicts in matters if not is_urgent(verdicts[0])]
    alone = [verdicts[0] for text, verdicts in waiting if not text]
    titled = [(URGENT, [matter for matter in matters if is_urgent(matter[1][0])])]
    for name in dict.fromkeys([*categories, *sorted(v.category for v in alone)]):
        verdicts = [v for v in alone if v.category == name]
        titled.append((clean_text(name, CATEGORY_NAME), [("", verdicts)] if verdicts else []))
    titled.append(("Several threads, one matter", [matter for matter in waiting if matter[0]]))
    numbers, sections = counting(1), list[ReportSection]()
    for n, (title, some) in enumerate(titled):
        if groups := tuple(_group(m, numbers, document, categories, is_full=n == 0) for m in some):
            total = sum(len(group.entries) for group in groups)
            title = f"{title[:1].upper()}{title[1:]} ({total:,})"
            sections.append(ReportSection(title, groups, is_urgent=n == 0))
    return sections


def _group(
    matter: Matter,
    numbers: Iterator[int],
    document: TriageReport,
    categories: Sequence[str],
    is_full: bool,
) -> Group:
    text, verdicts = matter
    entries = tuple(_entry(v, next(numbers), document, categories) for v in verdicts)
    first, last = entries[0].number, entries[-1].number
    title = f"{text} (threads {first} to {last})" if text else ""
    return Group(entries, title, is_full=is_full, is_numbered=True)


def _lists(document: TriageReport) -> Iterator[ReportSection]:
    gaps = [clean_text(each, REASON) for each in document.coverage.not_covered]
    more = len(gaps) - MOST_GAPS
    gaps[MOST_GAPS:] = [f"and {more:,} more"] if more > 0 else []
    lists = ((FILTERED, _filtered_lines(document)), (UNREAD, _unread_lines(document)))
    for title, lines in (*lists, ("Not covered", gaps)):
        if lines:
            yield ReportSection(title, (Group(entries_of(lines)),))


def _urgency(document: TriageReport) -> Callable[[ThreadVerdict], bool]:
    """Return what decides whether a thread is asked of the reader, urgent, or to be done first."""
    named = {id for line in document.top_lines[:MOST_FIRST] for id in line.threads}
    return lambda v: v.asked_of_me or v.priority == "high" or v.thread_id in named


def _sorted_matters(document: TriageReport) -> list[Matter]:
    """Return every verdict once; threads of one topic are where its most urgent one would be.

    Verdicts are ranked by urgency, near deadline, priority, and waiting time.
    """
    today = datetime.fromisoformat(document.as_of).astimezone(UTC).date()
    is_urgent, priorities = _urgency(document), list(DOTS)

    def rank(verdict: ThreadVerdict) -> tuple[bool, int, int, str, str]:
        until = due(verdict.deadline, today)
        near = until.days if until and until.near and until.days is not None else NOT_NEAR
        priority, at = priorities.index(verdict.priority), verdict.at or "9999"
        return not is_urgent(verdict), near, priority, at, verdict.thread_id

    left = {verdict.thread_id: verdict for verdict in document.verdicts}
    matters: list[Matter] = []
    for topic in document.matters:
        ids = [id for id in dict.fromkeys(topic.threads) if id in left]
        if len(ids) > 1:
            text = clean_text(topic.text, MATTER) or "One matter"
            matters.append((text, sorted((left.pop(id) for id in ids), key=rank)))
    matters += [("", [verdict]) for verdict in left.values()]
    return sorted(matters, key=lambda matter: rank(matter[1][0]))


def summary(document: TriageReport) -> str:
    """Return one line of numbers alone, which is safe where text is parsed as markup."""
    is_urgent = _urgency(document)
    matters = _sorted_matters(document)
    urgent = sum(len(verdicts) for _, verdicts in matters if is_urgent(verdicts[0]))
    read, left_out = len(document.verdicts), len(document.filtered)
    unread = len(document.unreadable)
    first = "ask for you or are urgent" if urgent > 1 else "asks for you or is urgent"
    parts = [f"{urgent or 'none'} {first}"] if read else []
    parts += [f"{read - urgent:,} can wait"] if read > urgent else []
    parts += [f"{left_out:,} filtered"] if left_out else []
    parts += [f"{unread:,} could not be read"] if unread else []
    total = count(read + left_out + unread, "thread")
    return f"{total}: {', '.join(parts)}." if parts else "No threads."


def _period(document: TriageReport) -> str:
    """Format the days that a digest covers; empty without a window."""
    window = document.window
    if not window:
        return ""
    start, end = (datetime.fromisoformat(at).date() for at in (window.oldest, window.latest))
    until = day(end, year=True)
    if start.year <= 1970:  # everything in the mailbox
        return f"up to {until}"
    return f"{day(start, year=start.year != end.year)} to {until}"


def _coverage_line(document: TriageReport) -> str:
    """Format the outcomes of the threads that a model was given."""
    cover, dropped = document.coverage, document.unsupported
    ended = ", ".join(cover.outcomes())
    line = f"{count(cover.items, 'thread')} given to a model{': ' if ended else ''}{ended}"
    why = "dropped because no mail carries it"
    return f"{line}; {count(dropped, 'statement')} {why}" if dropped else line


def _cost_line(document: TriageReport) -> str:
    """Format the cost of the run, and its id."""
    paid, usage = document.cost_usd, document.usage
    price = "price unknown" if paid is None else f"${paid:.4f}"
    if document.model == "offline":
        price += " at list prices, nothing was paid"
    return f"{price} · {usage.total:,} tokens · run {clean_text(document.run_id, 80)}"


def _lead(document: TriageReport) -> Iterator[str]:
    yield _period(document)
    yield summary(document)
    yield ENDED.get(document.status, "")
    yield OFFLINE if document.model == "offline" else ""


def _highlight(line: TriageLine, entries: Mapping[str, Entry]) -> Highlight:
    """Name the threads of a line: of consecutive ones, the first and the last."""
    about = [entries[id] for id in dict.fromkeys(line.threads) if id in entries]
    about.sort(key=lambda entry: entry.number)
    numbers = {entry.number for entry in about}
    named = []
    for entry in about:
        follows, precedes = entry.number - 1 in numbers, entry.number + 1 in numbers
        if not (follows and precedes):
            before = " to " if follows and entry.number - 2 in numbers else " "
            named.append((entry.number, Reference(str(entry.number), entry.url, before)))
    named = named[:MOST_REFERENCES]
    last = named[-1][0] if named else 0
    return Highlight(
        text=clean_text(line.text, FIRST),
        references=tuple(each for _, each in named),
        more=sum(number > last for number in numbers),
        findings=tuple(entry.finding for entry in about if entry.finding),
    )


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """The texts of one thread in a digest."""

    sender: Sender
    subject: str
    fact: str
    """The first key fact; the subject if there is none."""
    facts: str
    """Several key facts, for an urgent thread; empty if there is none."""
    action: str
    draft: str
    """The beginning of a proposed reply; empty if there is none."""
    age: str
    """Age of its last mail."""
    due: Due | None
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The sender if it can wait: the domain is shown if something is suspicious."""
        return self.sender.full if self.warnings else self.sender.plain

    @property
    def todo(self) -> str:
        """The deadline and the proposed action; empty if there is none."""
        parts = [self.due.sentence] if self.due else []
        return ". ".join([*parts, f"→ {self.action}"] if self.action else parts)


def _thread_line(verdict: ThreadVerdict, document: TriageReport) -> ThreadLine:
    now = datetime.fromisoformat(document.as_of).astimezone(UTC)
    facts = list(filter(None, (clean_text(each, FACT) for each in verdict.key_facts)))
    subject = clean_text(verdict.subject, SUBJECT)
    return ThreadLine(
        sender=sender(verdict.sender, document.mailbox),
        subject=subject,
        fact=facts[0] if facts else subject,
        facts=clean_text(" · ".join(facts), FACT),
        action=clean_text(verdict.proposed_action, ACTION),
        draft=clean_text(verdict.draft_reply, REPLY),
        age=age(verdict.at, now),
        due=due(verdict.deadline, now.date()),
        warnings=tuple(_warnings(verdict))[:MOST_WARNINGS],
    )


def _warnings(verdict: ThreadVerdict) -> Iterator[str]:
    status = verdict.status
    if status != "complete":
        yield "read in part" if status == "partial" else f"not read to its end ({status})"
    yield from (clean_text(f"not read: {each}", WARNING) for each in verdict.not_read)
    yield from (clean_text(flag, WARNING) for flag in verdict.flags)


def _entry(
    verdict: ThreadVerdict, number: int, document: TriageReport, categories: Sequence[str]
) -> Entry:
    line, url = _thread_line(verdict, document), address(verdict.link or "")
    asks = " · asks you" if verdict.asked_of_me else ""
    warnings = [f" · ⚠ {warning}" for warning in line.warnings]
    return Entry(
        id=verdict.thread_id,
        number=number,
        row=(
            Bold(line.name),
            *warnings,
            f" · {line.age} · {line.fact}",
            *([f"\n{line.todo}"] if line.todo else []),
        ),
        url=url if url.startswith(MAIL) else "",
        title=(
            Bold(f"{DOTS[verdict.priority]} {number}. {line.sender.full}"),
            f": {line.subject} · {line.age}{asks}",
        ),
        details=tuple(_details(line)),
        draft=line.draft,
        buttons=tuple(_buttons(verdict, line, document.run_id, categories)),
        finding=verdict.finding or "",
    )


def _details(line: ThreadLine) -> Line:
    parts: list[str | Bold] = [f"\n⚠ {warning}" for warning in line.warnings]
    parts += ["\n", Bold(line.due.sentence)] if line.due else []
    parts += [f"\n{line.facts}"] if line.facts else []
    parts += [f"\n→ {line.action}"] if line.action else []
    return tuple(parts)


def _buttons(
    verdict: ThreadVerdict, line: ThreadLine, run: str, categories: Sequence[str]
) -> Iterator[Button]:
    value, category = names(run, verdict.thread_id), clean_text(verdict.category, CATEGORY_NAME)
    if line.draft:
        yield Button(DRAFT, "Create draft", value)
    if category:
        yield Button(LABEL, f"Label it {category}", value)
    yield Button(SNOOZE, "Snooze 1 day", value)
    choices = [("Not urgent", PRIORITY, NOT_URGENT)] if verdict.priority == "high" else []
    choices += [("Not asked of me", ASKED, NOT_ASKED)] if verdict.asked_of_me else []
    choices += [(f"It is: {name}", CATEGORY, name) for name in categories if name != category]
    values = [(text, correction(run, verdict.thread_id, *what)) for text, *what in choices]
    if options := tuple((text, value) for text, value in values if value):
        yield Button(CORRECT, "Correct …", options=options)


def _filtered_lines(document: TriageReport) -> list[str]:
    """Return the threads that no model saw, by reason: the senders, the most frequent first."""
    lines = []
    for reason, total in Counter(each.reason for each in document.filtered).most_common():
        threads = (each for each in document.filtered if each.reason == reason)
        senders = Counter(_from(each, document.mailbox) for each in threads).most_common()
        named = [f"{name} ({n})" if n > 1 else name for name, n in senders]
        lines.append(_list(reason, total, named, MOST_SENDERS, ", "))
    return lines


def _from(filtered: FilteredThread, owner: str) -> str:
    """Return the sender; for one's own mail the subject."""
    found = sender(filtered.sender, owner)
    own = found.address == owner.lower()
    return clean_text(filtered.subject, SUBJECT) or "(no subject)" if own else found.plain


def _unread_lines(document: TriageReport) -> list[str]:
    """Return the threads that could not be read, by reason."""
    lines = []
    for reason in dict.fromkeys(each.reason for each in document.unreadable):
        threads = [each for each in document.unreadable if each.reason == reason]
        subjects = [clean_text(each.subject, SUBJECT) or "(no subject)" for each in threads]
        lines.append(_list(reason, len(threads), subjects, MOST_UNREAD, "; "))
    return lines


def _list(reason: str, total: int, named: Sequence[str], most: int, between: str) -> str:
    more = f" and {len(named) - most:,} more" if len(named) > most else ""
    return f"{clean_text(reason, REASON)} ({total:,}): {between.join(named[:most])}{more}"
