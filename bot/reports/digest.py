"""Build the view of a triage: order, what belongs together, texts, links, buttons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count as counting
from typing import Any
from zoneinfo import ZoneInfo

from bot.reports.digest_actions import (
    ALL,
    ASKED,
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    NOT_ASKED,
    NOT_URGENT,
    PRIORITY,
    SHOW,
    SNOOZE,
    correction,
    names,
)
from bot.reports.documents import (
    STATUSES,
    EarlierDigest,
    FilteredThread,
    ThreadVerdict,
    TriageLine,
    TriageReport,
)
from bot.reports.formatting import (
    Due,
    Sender,
    age,
    clean_text,
    day,
    days_between,
    due,
    sender,
)
from bot.reports.frame import gap_text, gaps, stopped_line
from bot.reports.view import (
    DOTS,
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
from config.words import current, in_language, phrase, words_of

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
TOP = 5
"""Threads that are shown in full, with their buttons."""
FEW = 5
"""Rows of what can wait, or of another list, that are shown without asking for them."""
NOT_NEAR = 1_000
"""Days that count for a verdict without a near deadline."""

Matter = tuple[str, Sequence[ThreadVerdict]]
"""Shared topic of verdicts (empty for a single one), and the verdicts."""
Rank = Callable[[ThreadVerdict], tuple[Any, ...]]
"""Key that sorts verdicts."""


def digest_view(document: TriageReport, categories: Iterable[str] = ()) -> ReportView:
    """Return the view of a triage, its threads numbered in reading order.

    `categories` come in this order, others after them; a verdict can be corrected to them.
    """
    with in_language(document.language):
        return _view(document, categories)


def _view(document: TriageReport, categories: Iterable[str]) -> ReportView:
    if document.unchanged_since:
        sections = [_last_digest(document, document.unchanged_since)]
    else:
        sections = [*_sections(document, tuple(categories)), *_lists(document)]
    entries = {entry.id: entry for s in sections for g in s.groups for entry in g.entries}
    return ReportView(
        words=current(),
        name=phrase("digest.name"),
        notification=f"{phrase('digest.name')}. {_summary(document)}",
        title=phrase("digest.title", mailbox=clean_text(document.mailbox, 100)),
        counts="",
        lead=tuple(filter(None, _lead(document))),
        first=tuple(_highlight(line, entries) for line in document.top_lines[:MOST_FIRST]),
        sections=tuple(sections),
        gaps=tuple(_gaps(document)),
        foot=tuple(filter(None, (_coverage_line(document), _cost_line(document)))),
    )


@dataclass(frozen=True, slots=True)
class _Threads:
    """The verdicts of a section, in groups, before they are numbered."""

    id: str
    title: str
    matters: Sequence[Matter]
    more: bool = False
    """Whether the first ones of the same title stand above."""
    is_full: bool = False
    is_folded: bool = False


def _sections(document: TriageReport, categories: Sequence[str]) -> list[ReportSection]:
    """Return the first threads in full, the rest of what presses, then what can wait.

    What can wait comes by category, then by topic; in each section the newest is first.
    """
    needs, urgent, waiting = _split(document)
    first = [*_ranked(needs, document), *_ranked(urgent, document)][:TOP]
    top, below = list[_Threads](), list[_Threads]()
    for id, title, verdicts in (
        ("needs", phrase("digest.needs"), needs),
        ("urgent", phrase("digest.urgent"), urgent),
    ):
        shown = [v for v in first if v in verdicts]
        rest = [v for v in verdicts if v not in shown]
        total = f"{title} ({len(verdicts):,})"
        more = phrase("digest.more_of", n=len(rest), title=title) if shown else total
        top.append(_Threads(id, total, _by_matter(shown, document), is_full=True))
        matters = _by_matter(_newest_first(rest), document)
        below.append(_Threads(id, more, matters, bool(shown), is_full=True, is_folded=True))
    found = [*top, *below, *_waiting(waiting, document, categories)]
    numbers = counting(1)
    return [_section(each, numbers, document, categories) for each in found if each.matters]


def _waiting(
    verdicts: Sequence[ThreadVerdict], document: TriageReport, categories: Sequence[str]
) -> Iterator[_Threads]:
    matters = _by_matter(_newest_first(verdicts), document)
    alone = [some[0] for text, some in matters if not text]
    is_folded, known = len(verdicts) > FEW, sorted({v.category for v in document.verdicts})
    for name in dict.fromkeys([*categories, *known]):
        if some := [v for v in alone if v.category == name]:
            title = f"{clean_text(name, CATEGORY_NAME)} ({len(some):,})"
            id = f"category{known.index(name)}"
            title = f"{title[:1].upper()}{title[1:]}"
            yield _Threads(id, title, [("", some)], is_folded=is_folded)
    together = [matter for matter in matters if matter[0]]
    total = sum(len(some) for _, some in together)
    yield _Threads(
        "matters", f"{phrase('digest.together')} ({total:,})", together, is_folded=is_folded
    )


def _section(
    threads: _Threads,
    numbers: Iterator[int],
    document: TriageReport,
    categories: Sequence[str],
) -> ReportSection:
    groups = []
    for topic, verdicts in threads.matters:
        entries = tuple(_entry(v, next(numbers), document, categories) for v in verdicts)
        first, last = entries[0].number, entries[-1].number
        title = phrase("digest.topic", topic=topic, first=first, last=last) if topic else ""
        groups.append(Group(entries, title, is_full=threads.is_full, is_numbered=True))
    total = sum(len(group.entries) for group in groups)
    fold = _fold(document, threads.id, total, threads.more) if threads.is_folded else None
    return ReportSection(threads.title, tuple(groups), is_urgent=True, fold=fold)


def _fold(document: TriageReport, id: str, total: int, more: bool = False) -> Button:
    text = phrase("button.show_more" if more else "button.show", n=total)
    return Button(SHOW, text, names(document.run_id, id))


def _last_digest(document: TriageReport, last: EarlierDigest) -> ReportSection:
    """Return the section of a digest that has nothing new: the last one, to be shown again."""
    show = phrase("digest.print", run=clean_text(last.run_id, 80))
    fold = Button(SHOW, phrase("button.show_again"), names(last.run_id, ALL))
    title = phrase("digest.last", at=_clock(last.at, document))
    return ReportSection(title, (), more=show, is_urgent=True, fold=fold)


def _clock(at: str, document: TriageReport) -> str:
    """Format a time as its reader's clock shows it; with the day if that is another one."""
    zone = ZoneInfo(document.zone)
    then, now = (datetime.fromisoformat(each).astimezone(zone) for each in (at, document.as_of))
    clock = f"{then:%H:%M}{' UTC' if zone.key == 'UTC' else ''}"
    if then.date() == now.date():
        return clock
    return f"{day(then.date(), year=then.year != now.year)}, {clock}"


def opened(view: ReportView, value: str) -> ReportSection | None:
    """Return the section that the button with this value opens; None if there is none."""
    found = (each for each in view.sections if each.fold and each.fold.value == value)
    section = next(found, None)
    return replace(section, fold=None) if section else None


def _gaps(document: TriageReport) -> Iterator[str]:
    """Yield what was not covered besides the threads that are listed as unread."""
    told = {gap_text(each.gap) for each in document.unreadable}
    yield from (clean_text(gap, REASON) for gap in gaps(document) if gap not in told)


def _lists(document: TriageReport) -> Iterator[ReportSection]:
    filtered, unread = document.filtered, document.unreadable
    for id, title, total, lines in (
        (
            "filtered",
            f"{phrase('digest.filtered')} ({len(filtered):,})",
            len(filtered),
            _filtered_lines(document),
        ),
        (
            "unread",
            f"{phrase('digest.unread')} ({len(unread):,})",
            len(unread),
            _unread_lines(document),
        ),
    ):
        if lines:
            fold = _fold(document, id, total) if len(lines) > FEW else None
            groups = (Group(entries_of(lines)),)
            yield ReportSection(title, groups, is_urgent=True, fold=fold)


def _split(document: TriageReport) -> tuple[list[ThreadVerdict], ...]:
    """Return the threads that need the reader, the other urgent ones, and those that can wait."""
    first = _to_do_first(document)
    needs, urgent, waiting = list[ThreadVerdict](), list[ThreadVerdict](), list[ThreadVerdict]()
    for verdict in document.verdicts:
        high = verdict.priority == "high"
        has_deadline = high and verdict.deadline
        if verdict.asked_of_me or has_deadline or verdict.thread_id in first:
            needs.append(verdict)
        else:
            (urgent if high else waiting).append(verdict)
    return needs, urgent, waiting


def _to_do_first(document: TriageReport) -> set[str]:
    """Return the threads of the lines at the top: of each line those that ask, if any does."""
    asks = {v.thread_id for v in document.verdicts if v.asked_of_me}
    lines = [set(line.threads) for line in document.top_lines[:MOST_FIRST]]
    return {id for threads in lines for id in asks & threads or threads}


def _ranked(verdicts: Sequence[ThreadVerdict], document: TriageReport) -> list[ThreadVerdict]:
    """Sort by what is to be done first, near deadline, priority and age."""
    today = datetime.fromisoformat(document.as_of).astimezone(UTC).date()
    first, priorities = _to_do_first(document), list(DOTS)

    def rank(verdict: ThreadVerdict) -> tuple[bool, int, int]:
        until = due(verdict.deadline, today)
        near = until.days if until and until.near and until.days is not None else NOT_NEAR
        return verdict.thread_id not in first, near, priorities.index(verdict.priority)

    return sorted(_newest_first(verdicts), key=rank)


def _newest_first(verdicts: Iterable[ThreadVerdict]) -> list[ThreadVerdict]:
    def age(verdict: ThreadVerdict) -> tuple[float, str]:
        at = datetime.fromisoformat(verdict.at) if verdict.at else None
        return -at.astimezone(UTC).timestamp() if at else 0.0, verdict.thread_id

    return sorted(verdicts, key=age)


def _by_matter(verdicts: Sequence[ThreadVerdict], document: TriageReport) -> list[Matter]:
    """Group the threads of one topic where the first of them stands; each verdict occurs once."""
    left = {verdict.thread_id: verdict for verdict in verdicts}
    matters = dict[str, Matter]()
    for topic in document.matters:
        named = set(topic.threads)
        some = [verdict for id, verdict in left.items() if id in named]
        if len(some) > 1:
            text = clean_text(topic.text, MATTER) or phrase("digest.one_matter")
            matters[some[0].thread_id] = (text, some)
            left = {id: verdict for id, verdict in left.items() if id not in named}
    matters |= {id: ("", [verdict]) for id, verdict in left.items()}
    return [matters[v.thread_id] for v in verdicts if v.thread_id in matters]


def summary(document: TriageReport) -> str:
    """Return one line of numbers alone, which is safe where text is parsed as markup."""
    with in_language(document.language):
        return _summary(document)


def _summary(document: TriageReport) -> str:
    if last := document.unchanged_since:
        return phrase("digest.nothing_new", at=_clock(last.at, document))
    needs, urgent, waiting = map(len, _split(document))
    read, left_out = len(document.verdicts), len(document.filtered)
    unread = len(document.unreadable)
    needed = phrase("digest.n_need", n=needs) if needs else phrase("digest.none_needs")
    parts = [needed] if read else []
    numbers = {"urgent": urgent, "can_wait": waiting, "filtered": left_out, "unread": unread}
    parts += [phrase(f"digest.n_{name}", n=number) for name, number in numbers.items() if number]
    total = phrase("count.thread", n=read + left_out + unread)
    return f"{total}: {', '.join(parts)}." if parts else phrase("digest.no_threads")


def _period(document: TriageReport) -> str:
    """Format the days that a digest covers; empty without a window."""
    window = document.window
    if not window:
        return ""
    start, end = (datetime.fromisoformat(at).date() for at in (window.oldest, window.latest))
    return days_between(start, end)


def _coverage_line(document: TriageReport) -> str:
    """Format the outcomes of the threads that a model was given."""
    cover, dropped = document.coverage, document.unsupported
    if not cover.items:
        return ""
    ends = ((int(getattr(cover, status)), status) for status in STATUSES)
    line = phrase("digest.given", n=cover.items)
    if cover.complete < cover.items:
        told = (phrase(f"digest.n_{status}", n=many) for many, status in ends if many)
        line += f": {', '.join(told)}"
    return f"{line}; {phrase('digest.dropped', n=dropped)}" if dropped else line


def _cost_line(document: TriageReport) -> str:
    """Format the cost of the run, and its id."""
    paid, words = document.cost_usd, current()
    price = words("no_price") if paid is None else words.usd(paid, 4)
    price = words("answer.listed", price=price) if document.model == "offline" else price
    tokens = words("tokens", n=document.usage.total)
    return f"{price} · {tokens} · {words('run', id=clean_text(document.run_id, 80))}"


def _lead(document: TriageReport) -> Iterator[str]:
    yield "" if document.unchanged_since else _period(document)
    yield _summary(document)
    yield ended(document)
    yield phrase("offline") if document.model == "offline" else ""


def ended(document: TriageReport) -> str:
    """Return why a digest is not whole; empty if it is."""
    if document.status == "cancelled":
        with in_language(document.language):
            return stopped_line(document)
    if document.status not in ("partial", "failed"):
        return ""
    return words_of(document.language)(f"digest.ended_{document.status}")


def _highlight(line: TriageLine, entries: Mapping[str, Entry]) -> Highlight:
    """Name the threads of a line: of consecutive ones, the first and the last."""
    about = [entries[id] for id in dict.fromkeys(line.threads) if id in entries]
    about.sort(key=lambda entry: entry.number)
    numbers = {entry.number for entry in about}
    named = []
    for entry in about:
        follows, precedes = entry.number - 1 in numbers, entry.number + 1 in numbers
        if not (follows and precedes):
            is_end = follows and entry.number - 2 in numbers
            before = f" {phrase('digest.to')} " if is_end else " "
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
    """The first key fact; empty if there is none."""
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


def subject_text(subject: str) -> str:
    """Return the subject of a thread as a digest names it, which is never nothing."""
    return clean_text(subject, SUBJECT) or phrase("digest.no_subject")


def _thread_line(verdict: ThreadVerdict, document: TriageReport) -> ThreadLine:
    now = datetime.fromisoformat(document.as_of).astimezone(UTC)
    facts = list(filter(None, (clean_text(each, FACT) for each in verdict.key_facts)))
    return ThreadLine(
        sender=sender(verdict.sender, document.mailbox),
        subject=subject_text(verdict.subject),
        fact=facts[0] if facts else "",
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
        yield phrase("digest.partly" if status == "partial" else "digest.not_to_its_end")
    not_read = (phrase("digest.not_read", what=each) for each in verdict.not_read)
    yield from (clean_text(each, WARNING) for each in not_read)
    yield from (clean_text(flag, WARNING) for flag in verdict.flags)


def _entry(
    verdict: ThreadVerdict, number: int, document: TriageReport, categories: Sequence[str]
) -> Entry:
    line, url = _thread_line(verdict, document), address(verdict.link or "")
    asks = f" · {phrase('digest.asks_you')}" if verdict.asked_of_me else ""
    warnings = [f" · ⚠ {warning}" for warning in line.warnings]
    return Entry(
        id=verdict.thread_id,
        number=number,
        row=(
            Bold(line.name),
            f": {line.subject}",
            *warnings,
            f" · {line.age}",
            *(f"\n{each}" for each in (line.fact, line.todo) if each),
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
        yield Button(DRAFT, phrase("button.draft"), value)
    if category:
        yield Button(LABEL, phrase("button.label", category=category), value)
    yield Button(SNOOZE, phrase("button.snooze"), value)
    choices = (
        [(phrase("button.not_urgent"), PRIORITY, NOT_URGENT)] if verdict.priority == "high" else []
    )
    choices += [(phrase("button.not_asked"), ASKED, NOT_ASKED)] if verdict.asked_of_me else []
    choices += [
        (phrase("button.it_is", category=name), CATEGORY, name)
        for name in categories
        if name != category
    ]
    values = [(text, correction(run, verdict.thread_id, *what)) for text, *what in choices]
    if options := tuple((text, value) for text, value in values if value):
        yield Button(CORRECT, phrase("button.correct"), options=options)


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
    return subject_text(filtered.subject) if own else found.plain


def _unread_lines(document: TriageReport) -> list[str]:
    """Return the threads that could not be read, by reason."""
    lines = []
    for reason in dict.fromkeys(each.reason for each in document.unreadable):
        threads = [each for each in document.unreadable if each.reason == reason]
        subjects = [subject_text(each.subject) for each in threads]
        lines.append(_list(reason, len(threads), subjects, MOST_UNREAD, "; "))
    return lines


def _list(reason: str, total: int, named: Sequence[str], most: int, between: str) -> str:
    more = f" {phrase('more', n=len(named) - most)}" if len(named) > most else ""
    return f"{clean_text(reason, REASON)} ({total:,}): {between.join(named[:most])}{more}"
