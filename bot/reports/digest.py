"""Build the view of a triage: order, groups, texts, links, buttons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from math import inf
from typing import Any

from bot.reports.digest_actions import (
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
    WHOLE_DIGEST,
    correction,
    names,
)
from bot.reports.documents import (
    STATUSES,
    EarlierDigest,
    FilteredThread,
    SharedTopic,
    ThreadVerdict,
    TriageLine,
    TriageReport,
)
from bot.reports.formats import (
    NEAR_DEADLINE_DAYS,
    Sender,
    age,
    capital,
    clean_text,
    day,
    due,
    periods,
    prose,
    repeats,
    sender,
    with_amounts,
)
from bot.reports.frame import cost_line, gap_text, gaps, incomplete_reason
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
from config.words import current, in_language, phrase

MAIL = "https://mail.google.com/"
"""Prefix of the only links in a digest."""
FIRST, MATTER, FACT, ACTION, REASON = 400, 300, 400, 400, 200
SUBJECT, WARNING, CATEGORY_NAME = 100, 100, 60
"""Maximum characters of each; facts and actions by the model have less than half of it."""
MAX_FACTS_CHARS = 260
"""Maximum characters of the facts of a thread, if more than its first one is shown."""
MAX_REPLY_CHARS = 4_000
"""Maximum characters of a proposed reply."""
MOST_FIRST = 3
"""Maximum number of things to do first."""
MOST_REFERENCES = 6
"""Maximum number of thread numbers after a thing to do first."""
MOST_WARNINGS = 5
MOST_SENDERS = 12
"""Maximum number of senders named for one reason to filter; the rest is counted."""
MOST_UNREAD = 20
"""Maximum number of threads named for one reason why they could not be read."""
TOP, MOST_FULL = 5, 8
"""Threads shown in full, with their buttons; the second holds if that many are to be done first."""
MAX_UNFOLDED_ROWS = 5
"""Rows of what can wait, or of another list, that are shown before a click."""
SOON_DAYS = 1
"""Days from now on in which a deadline decides the order; a past deadline does so, too."""
NOT_NEAR = 1_000
"""Number of days assumed for a verdict without a near deadline."""

Matter = tuple[SharedTopic | None, Sequence[ThreadVerdict]]
"""Shared topic of verdicts (None for a single one), and the verdicts."""


def digest_view(document: TriageReport, categories: Iterable[str] = ()) -> ReportView:
    """Return the view of a triage, with its threads numbered in reading order.

    `categories` come first, in this order; a verdict can be corrected to them.
    """
    if document.unchanged_since:
        sections = [_last_digest(document, document.unchanged_since)]
    else:
        sections = [*_sections(document, tuple(categories)), *_lists(document)]
    entries = [entry for s in sections for g in s.groups for entry in g.entries if entry.number]
    numbers = {entry.id: entry.number for entry in entries}
    links = {entry.id: entry.url for entry in entries}
    first = (_highlight(line, numbers, links) for line in document.top_lines[:MOST_FIRST])
    return ReportView(
        words=current(),
        name=phrase("digest.name"),
        notification=f"{phrase('digest.name')}. {_summary(document)}",
        title=phrase("digest.title", mailbox=clean_text(document.mailbox, 100)),
        counts="",
        lead=tuple(filter(None, _lead(document))),
        first=tuple(first),
        sections=tuple(sections),
        gaps=tuple(_gaps(document)),
        foot=tuple(filter(None, (_coverage_line(document), cost_line(document)))),
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """Verdicts that become a group, before they are numbered."""

    verdicts: Sequence[ThreadVerdict]
    topic: SharedTopic | None = None
    """Their shared topic."""
    follows: int = 0
    """Number of further threads of the topic, which are in the next block."""
    is_rest: bool = False
    """Whether the topic is above the previous block."""
    title: str = ""
    """Title above them if there is no topic."""
    is_full: bool = True
    fold: Button | None = None


@dataclass(frozen=True, slots=True)
class _Layout:
    """A section before its threads are numbered."""

    title: str
    blocks: Sequence[_Block]
    fold: Button | None = None


def _sections(document: TriageReport, categories: Sequence[str]) -> Iterator[ReportSection]:
    """Yield what is pressing, with its first threads in full; then what can wait."""
    needs, urgent, waiting = _split(document)
    ranked = {"needs": _rank(needs, document), "urgent": _rank(urgent, document)}
    pressing = [verdict.thread_id for some in ranked.values() for verdict in some]
    to_do = len(_to_do_first(document).keys() & pressing)
    top = set(pressing[: max(TOP, min(to_do, MOST_FULL))])
    layouts, topics = list[_Layout](), list(document.matters)
    for id, some in ranked.items():
        if some:
            matters = _by_matter(some, topics)
            topics = [t for t in topics if all(t is not topic for topic, _ in matters)]
            blocks = _urgent_blocks(id, matters, top, document)
            layouts.append(_Layout(f"{phrase(f'digest.{id}')} ({len(some):,})", blocks))
    if waiting:
        layouts.append(_later_layout(waiting, topics, document, categories))
    order = [v for each in layouts for block in each.blocks for v in block.verdicts]
    threads = _Threads(document, categories, {v.thread_id: n for n, v in enumerate(order, 1)})
    for layout in layouts:
        groups = tuple(threads.group(block) for block in layout.blocks)
        yield ReportSection(layout.title, groups, fold=layout.fold)


def _urgent_blocks(
    id: str, matters: Sequence[Matter], top: Collection[str], document: TriageReport
) -> list[_Block]:
    """Return the blocks of topics and single threads, those with the first threads first.

    The rest of a topic is folded right below its first threads; other single threads come last.
    """
    split = [
        (
            topic,
            [v for v in some if v.thread_id in top],
            [v for v in some if v.thread_id not in top],
        )
        for topic, some in matters
    ]
    blocks: list[_Block] = []
    others = phrase("digest.others") if any(topic for topic, *_ in split) else ""
    ordered = sorted(split, key=lambda each: not each[1])
    for number, (is_single, some) in enumerate(groupby(ordered, key=lambda each: not each[0])):
        if is_single:
            first = [v for _, top_threads, _ in some for v in top_threads]
            blocks += [_Block(first, title=others if blocks else "")] if first else []
            continue
        for place, (topic, first, rest) in enumerate(some):
            blocks += [_Block(first, topic, len(rest))] if first else []
            if rest:
                fold = _fold(document, f"{id}-{number}-{place}", len(rest), bool(first))
                blocks.append(_Block(rest, topic, is_rest=bool(first), fold=fold))
    if alone := [v for topic, _, rest in split if not topic for v in rest]:
        title = others if blocks and blocks[-1].title != others else ""
        blocks.append(
            _Block(alone, title=title, fold=_fold(document, id, len(alone), bool(blocks)))
        )
    return blocks


def _later_layout(
    verdicts: Sequence[ThreadVerdict],
    topics: Sequence[SharedTopic],
    document: TriageReport,
    categories: Sequence[str],
) -> _Layout:
    """Return what can wait: single threads by category, newest first; then topics."""
    names = list(dict.fromkeys([*categories, *sorted({v.category for v in verdicts})]))
    newest = sorted(verdicts, key=lambda v: (not v.at, -_time(v), v.thread_id))
    ordered = sorted(newest, key=lambda v: names.index(v.category))
    matters = _by_matter(ordered, topics)
    alone = [v for topic, some in matters if not topic for v in some]
    blocks = [_Block(alone, is_full=False)] if alone else []
    blocks += [_Block(some, topic, is_full=False) for topic, some in matters if topic]
    fold = _fold(document, "waiting", len(verdicts)) if len(verdicts) > MAX_UNFOLDED_ROWS else None
    return _Layout(f"{phrase('digest.can_wait')} ({len(verdicts):,})", blocks, fold)


@dataclass(frozen=True, slots=True)
class _Threads:
    """Makes the groups of a digest."""

    document: TriageReport
    categories: Sequence[str]
    numbers: Mapping[str, int]
    """Id of a thread -> its number in reading order."""

    def group(self, block: _Block) -> Group:
        title, topic = block.title, block.topic
        known: tuple[Highlight, ...] = ()
        if topic and not block.is_rest:
            first = self.numbers[block.verdicts[0].thread_id]
            last = first + len(block.verdicts) + block.follows - 1
            name = _prose(topic.text, MATTER) or phrase("digest.one_matter")
            title = phrase("digest.topic", topic=name, first=first, last=last)
            links = {v.thread_id: _link(v) for v in self.document.verdicts}
            known = tuple(_highlight(line, self.numbers, links) for line in topic.known)
        text_above = " ".join(line.text for line in topic.known) if topic else ""
        entries = tuple(self._entry(each, block.is_full, text_above) for each in block.verdicts)
        return Group(
            entries,
            title,
            known,
            is_full=block.is_full,
            fold=block.fold,
        )

    def _entry(self, verdict: ThreadVerdict, is_pressing: bool, text_above: str) -> Entry:
        """Return the entry of a thread; `text_above` is the text above it."""
        document, number = self.document, self.numbers[verdict.thread_id]
        now = document.local_end
        from_, old = self._sender(verdict), age(verdict.at, now)
        until, subject = due(verdict.deadline, now.date()), subject_text(verdict.subject)
        warnings = tuple(_warnings(verdict))[:MOST_WARNINGS]
        step, draft = self._step(verdict), _draft(verdict)
        when = capital(until.words) if until else ""
        if not when and verdict.thread_id in _to_do_first(document):
            when = phrase("first")
        if not when and verdict.asked_of_me and verdict.at:
            when = phrase("digest.waiting", age=old)
        short = from_.full if warnings else from_.plain
        warning_texts = [f" · ⚠ {warning}" for warning in warnings]
        if not is_pressing:
            fact = _prose(next(iter(verdict.key_facts), ""), FACT)
            is_low = verdict.priority == "low" and fact and not warnings
            further = (f"\n{each}" for each in (fact, "" if is_low else f"→ {step}") if each)
            row: Line = (Bold(short), f": {subject}", *warning_texts, f" · {old}", *further)
            return Entry(row, _link(verdict), verdict.thread_id, number)
        after = "" if when else f" · {old}"
        lead = f"{when} · " if when else ""
        facts = _facts(verdict, " ".join((from_.full, subject, step, text_above)))
        ready = phrase("digest.draft_ready") if draft else ""
        todo = " · ".join(filter(None, (f"→ {step}" if step else "", ready)))
        return Entry(
            id=verdict.thread_id,
            number=number,
            row=(
                Bold(f"{lead}{short}"),
                f": {subject}",
                *warning_texts,
                after,
                *(f"\n{each}" for each in (facts[0], todo) if each),
            ),
            url=_link(verdict),
            title=(
                Bold(f"{DOTS[verdict.priority]} {lead}{from_.full}"),
                f": {subject}{after}",
            ),
            details=(
                *(f"\n⚠ {warning}" for warning in warnings),
                *(f"\n{each}" for each in (_short(facts), f"→ {step}" if step else "") if each),
            ),
            draft=draft,
            name=from_.plain,
            buttons=tuple(_buttons(verdict, bool(draft), document.run_id, self.categories)),
        )

    def _sender(self, verdict: ThreadVerdict) -> Sender:
        """Return the author of the last mail; of the last by others if the reader answered."""
        last = sender(verdict.sender, self.document.mailbox)
        is_own = last.address == self.document.mailbox.lower() and verdict.writer
        return sender(verdict.writer, self.document.mailbox) if is_own else last

    def _step(self, verdict: ThreadVerdict) -> str:
        """Return the next step, with the threads of its topic that answer part of it."""
        steps = (step for topic in self.document.matters for step in topic.steps)
        found = next((s for s in steps if s.threads[:1] == [verdict.thread_id]), None)
        if found is None:
            return _prose(verdict.proposed_action, ACTION)
        others = sorted(self.numbers[id] for id in set(found.threads[1:]) & self.numbers.keys())
        see = phrase("digest.see", n=len(others), threads=", ".join(map(str, others)))
        text = _prose(found.text, ACTION)
        return f"{text.rstrip('.')} ({see})" if others else text


def _fold(document: TriageReport, id: str, total: int, more: bool = False) -> Button:
    text = phrase("button.show_more" if more else "button.show", n=total)
    return Button(SHOW, text, names(document.run_id, id))


def _last_digest(document: TriageReport, last: EarlierDigest) -> ReportSection:
    """Return the section of a digest without news: the last digest, to be shown again."""
    show = phrase("digest.print", run=clean_text(last.run_id, 80))
    fold = Button(SHOW, phrase("button.show_again"), names(last.run_id, WHOLE_DIGEST))
    title = phrase("digest.last", at=_clock(last.at, document))
    return ReportSection(title, (), more=show, fold=fold)


def _clock(at: str, document: TriageReport) -> str:
    """Format a time in the reader's time zone; with the day if it is another day."""
    now = document.local_end
    then = datetime.fromisoformat(at).astimezone(now.tzinfo)
    clock = f"{then:%H:%M}{' UTC' if document.zone == 'UTC' else ''}"
    if then.date() == now.date():
        return clock
    return f"{day(then.date(), year=then.year != now.year)}, {clock}"


def find_section(view: ReportView, value: str) -> ReportSection | None:
    """Return the section that the button with this value opens; None if there is none."""
    for section in view.sections:
        if section.fold and section.fold.value == value:
            return replace(section, fold=None)
        for group in section.groups:
            if group.fold and group.fold.value == value:
                return ReportSection(section.title, (replace(group, fold=None),))
    return None


def _gaps(document: TriageReport) -> Iterator[str]:
    """Yield what was not covered, except for the threads that are listed as unread."""
    listed = {gap_text(each.gap) for each in document.unreadable}
    yield from (clean_text(gap, REASON) for gap in gaps(document) if gap not in listed)


def _lists(document: TriageReport) -> Iterator[ReportSection]:
    for id, threads, lines in (
        ("filtered", document.filtered, _automated_lines(document)),
        ("unread", document.unreadable, _unread_lines(document)),
    ):
        if lines:
            fold = _fold(document, id, len(threads)) if len(lines) > MAX_UNFOLDED_ROWS else None
            title = f"{phrase(f'digest.{id}')} ({len(threads):,})"
            yield ReportSection(title, (Group(entries_of(lines)),), fold=fold)


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


def _to_do_first(document: TriageReport) -> dict[str, int]:
    """Return the threads of the lines at the top in their order, each with the number of its line;
    if any thread of a line asks for something, only such threads of it."""
    asks, first = {v.thread_id for v in document.verdicts if v.asked_of_me}, dict[str, int]()
    for number, line in enumerate(document.top_lines[:MOST_FIRST]):
        for id in [id for id in line.threads if id in asks] or line.threads:
            first.setdefault(id, number)
    return first


def _rank(verdicts: Sequence[ThreadVerdict], document: TriageReport) -> list[ThreadVerdict]:
    """Sort by what is overdue or due now, by what is to be done first, by priority; within these,
    threads without a deadline come first, by how long they wait, then those due next.

    The threads that one line at the top cites are all due when the first of them is, and keep the
    line's order, since one action may depend on another.
    """
    today = document.local_end.date()
    first, priorities = _to_do_first(document), list(DOTS)
    order = list(first)
    found = {v.thread_id: due(v.deadline, today) for v in document.verdicts}
    days = {id: until.days for id, until in found.items() if until}
    near = {
        id: days_left
        for id, days_left in days.items()
        if -NEAR_DEADLINE_DAYS <= days_left <= SOON_DAYS
    }
    of_lines = dict[int, int]()
    for id, line in first.items():
        of_lines[line] = min(of_lines.get(line, NOT_NEAR), near.get(id, NOT_NEAR))

    def rank(verdict: ThreadVerdict) -> tuple[Any, ...]:
        id, place = verdict.thread_id, priorities.index(verdict.priority)
        if id in first:
            return of_lines[first[id]], False, order.index(id)
        return near.get(id, NOT_NEAR), True, place, max(days.get(id, 0), 0), _time(verdict), id

    return sorted(verdicts, key=rank)


def _time(verdict: ThreadVerdict) -> float:
    """Return the timestamp of its last mail, in seconds; infinite if unknown."""
    at = datetime.fromisoformat(verdict.at) if verdict.at else None
    return at.astimezone(UTC).timestamp() if at else inf


def _by_matter(verdicts: Sequence[ThreadVerdict], topics: Iterable[SharedTopic]) -> list[Matter]:
    """Group the threads of one topic at the place of the first; each verdict occurs once."""
    remaining = {verdict.thread_id: verdict for verdict in verdicts}
    matters = dict[str, Matter]()
    for topic in topics:
        topic_ids = set(topic.threads)
        some = [verdict for id, verdict in remaining.items() if id in topic_ids]
        if len(some) > 1:
            matters[some[0].thread_id] = (topic, some)
            remaining = {id: verdict for id, verdict in remaining.items() if id not in topic_ids}
    matters |= {id: (None, [verdict]) for id, verdict in remaining.items()}
    return [matters[v.thread_id] for v in verdicts if v.thread_id in matters]


def summary(document: TriageReport) -> str:
    """Return one line with numbers only, which is safe where text is parsed as markup."""
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


def _coverage_line(document: TriageReport) -> str:
    """Format the outcomes of the threads that a model read."""
    cover, dropped = document.coverage, document.unsupported
    if not cover.items:
        return ""
    ends = ((int(getattr(cover, status)), status) for status in STATUSES)
    line = phrase("digest.given", n=cover.items)
    if cover.complete < cover.items:
        counts = (phrase(f"digest.n_{status}", n=many) for many, status in ends if many)
        line += f": {', '.join(counts)}"
    return f"{line}; {phrase('digest.dropped', n=dropped)}" if dropped else line


def _lead(document: TriageReport) -> Iterator[str]:
    if document.window and not document.unchanged_since:
        yield periods([document.window], document.zone)
    yield _summary(document)
    yield incomplete_reason(document)
    yield phrase("offline") if document.model == "offline" else ""


def _highlight(line: TriageLine, numbers: Mapping[str, int], links: Mapping[str, str]) -> Highlight:
    """Name the threads of a line."""
    about = sorted({numbers[id]: links[id] for id in line.threads if id in numbers}.items())
    references = tuple(Reference(str(number), url) for number, url in about[:MOST_REFERENCES])
    return Highlight(_prose(line.text, FIRST), references, more=len(about) - len(references))


def subject_text(subject: str) -> str:
    """Return the subject of a thread for a digest; it is never empty."""
    return clean_text(subject, SUBJECT) or phrase("digest.no_subject")


def _link(verdict: ThreadVerdict) -> str:
    url = address(verdict.link or "")
    return url if url.startswith(MAIL) else ""


def _prose(text: str, most: int) -> str:
    return prose(with_amounts(text), most)


def _facts(verdict: ThreadVerdict, text: str) -> list[str]:
    """Return at least one fact; facts that the text next to them already contains are empty."""
    facts = [_prose(fact, FACT) for fact in verdict.key_facts] or [""]
    return ["" if repeats(fact, text) else fact for fact in facts]


def _short(facts: Sequence[str]) -> str:
    """Return the first fact, and further ones as long as each fits as a whole."""
    shown, *more = [*filter(None, facts), ""]
    for fact in filter(None, more):
        if len(shown) + len(fact) > MAX_FACTS_CHARS:
            break
        shown = f"{shown} · {fact}"
    return shown


def _draft(verdict: ThreadVerdict) -> str:
    """Return the whole proposed reply with its line breaks; empty if there is none."""
    lines = (clean_text(line, MAX_REPLY_CHARS) for line in (verdict.draft_reply or "").splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip())[:MAX_REPLY_CHARS]


def _warnings(verdict: ThreadVerdict) -> Iterator[str]:
    status = verdict.status
    if status != "complete":
        yield phrase("partial" if status == "partial" else "digest.not_to_its_end")
    not_read = (phrase("digest.not_read", what=each) for each in verdict.not_read)
    yield from (clean_text(each, WARNING) for each in not_read)
    yield from (clean_text(flag, WARNING) for flag in verdict.flags)


def _buttons(
    verdict: ThreadVerdict, has_draft: bool, run: str, categories: Sequence[str]
) -> Iterator[Button]:
    value, category = names(run, verdict.thread_id), clean_text(verdict.category, CATEGORY_NAME)
    if has_draft:
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


def _automated_lines(document: TriageReport) -> list[str]:
    """Return the senders of threads that no model saw, by reason, with the rarest reason and the
    most frequent sender first; for few threads also the subjects."""
    lines, reasons = [], Counter(each.reason for each in document.filtered)
    for reason, total in sorted(reasons.items(), key=lambda each: each[1]):
        threads = (each for each in document.filtered if each.reason == reason)
        senders = Counter(
            _from(each, document.mailbox, total <= MAX_UNFOLDED_ROWS) for each in threads
        )
        named = [f"{name} ({n})" if n > 1 else name for name, n in senders.most_common()]
        lines.append(
            _list(reason, total, named, MOST_SENDERS, "; " if total <= MAX_UNFOLDED_ROWS else ", ")
        )
    return lines


def _from(filtered: FilteredThread, owner: str, with_subject: bool) -> str:
    """Return the sender and, if wanted, the subject; for the owner's mail only the subject."""
    found, subject = sender(filtered.sender, owner), subject_text(filtered.subject)
    if found.address == owner.lower():
        return subject
    return f"{found.plain}: {subject}" if with_subject else found.plain


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
