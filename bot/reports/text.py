"""Render documents for the terminal, as their threads would look in Slack."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from bot.citations import CITED, ids_in
from bot.reports.digest import (
    ENDED,
    FILTERED,
    MOST_GAPS,
    REASON,
    UNREAD,
    ThreadLine,
    cost_line,
    coverage_line,
    digest_view,
    filtered_lines,
    period,
    summary,
    thread_line,
    unread_lines,
)
from bot.reports.documents import (
    AnswerDocument,
    SweepFinding,
    SweepReport,
    SweepSection,
    ThreadVerdict,
    TriageReport,
)
from bot.reports.sweep import change_mark, counts_line, sweep_view, tracker_line
from bot.reports.translations import ENGLISH, clean_text, count, words_of
from bot.reports.view import DOTS, OFFLINE, Entry, Highlight, ReportSection, ReportView
from bot.storage.tables import StoredRun, StoredSubagent
from scopes.sizes import size_of
from scopes.tool import iso, one_line
from subagents.brief import draft_of
from subagents.contracts import NEEDS_ACTION
from subagents.evidence import distinct
from subagents.result import SubagentResult

WIDTH = 92
ENGLISH_WORDS = words_of(ENGLISH)
WAITING_SHOWN = 3
"""Findings without needed action that a section lists; the rest is counted."""


def sweep_text(doc: SweepReport) -> str:
    """Render a sweep: what to do first, a section for each channel, coverage and cost."""
    window, title = doc.window, f"{doc.title}: " if doc.title else ""
    days = f"{ENGLISH_WORDS.day(window.oldest)} to {ENGLISH_WORDS.day(window.latest)}"
    issues = "customer issues" if title else "Customer issues"
    lines = _wrapped(f"{title}{issues} in {count(len(doc.sections), 'channel')}, {days}")
    lines += _wrapped(counts_line(doc, ENGLISH_WORDS)) if doc.compared else []
    lines += [""]
    if doc.model == "offline":
        lines += [*_wrapped(OFFLINE), ""]
    view = sweep_view(doc.model_copy(update={"language": ENGLISH}))
    lines += ["DO FIRST"] if view.first else []
    for number, line in enumerate(view.first, 1):
        lines += _wrapped(f"{number}. {line.text}{_cited(line)}", "   ")
        lines += [f"   {each.url}" for each in line.references[:2] if each.url]
    lines += _listed("PATTERNS", [_pattern(line) for line in view.patterns])
    lines += _listed("TO KNOW", view.notes)
    for each in doc.sections:
        old = sum(issue.item == each.item for issue in doc.still_open)
        lines += ["", *_section(each, bool(doc.compared), old)]
    for section in view.sections:
        lines += [] if section.intro else _known_issues(section)
    return "\n".join([*lines, "", *_foot(doc)])


def _cited(line: Highlight) -> str:
    return "".join(f" [{id}]" for id in line.findings)


def _pattern(line: Highlight) -> str:
    markets = ", ".join(f"#{name}" for name in line.markets)
    return line.text + (f" ({markets})" if markets else "") + _cited(line)


def _listed(title: str, sentences: Sequence[str]) -> Iterator[str]:
    yield from ("", title) if sentences else ()
    for each in sentences:
        yield from _wrapped(f"· {each}", "  ")


def _known_issues(section: ReportSection) -> Iterator[str]:
    """Yield the issues that are still open although the window has no news of them."""
    yield from ("", section.title.upper())
    for group in section.groups:
        for entry in group.entries:
            texts = (part if isinstance(part, str) else part.text for part in entry.row)
            yield from _wrapped("".join(texts), "  ")
            yield from [f"  {entry.url}"] if entry.url else []


def _section(section: SweepSection, compared: bool, old: int) -> Iterator[str]:
    """Render a section; `old`: how many of its issues are still open without news."""
    cover, findings = section.coverage, section.findings
    open_ones = [f for f in findings if f.state in NEEDS_ACTION]
    rest = [f for f in findings if f.state in ("waiting", "solved")]
    named = distinct([name for f in open_ones for name in f.customers])
    people = len(named) + sum(f.people for f in open_ones if not f.customers)
    yield f"#{section.item}  " + "─" * max(4, WIDTH - len(section.item) - 3)
    whole = "" if section.status == "complete" else f"  ({section.status.upper()})"
    found = f"{count(len(open_ones), 'open issue')} of {count(people, 'customer')} · "
    found += f"{old:,} more without news · " if old else ""
    yield (
        f"{found if findings or not whole else ''}"  # nothing found in what was not read is no news
        f"{count(cover.messages_read, 'message')} in "
        f"{count(cover.threads_read, 'thread')} read{whole}"
    )
    if not findings or section.status != "complete":
        yield from _wrapped(section.summary)
    for finding in open_ones:
        yield from _finding(finding, compared)
    for finding in rest[:WAITING_SHOWN]:
        text = f"{_news(finding, compared)}{finding.state}: {finding.claim}"
        yield from _wrapped(f"  · {text} [{finding.id}]", "    ")
    if len(rest) > WAITING_SHOWN:
        left = len(rest) - WAITING_SHOWN
        yield f"  · and {left} more that wait for the customer or are solved"


def _finding(finding: SweepFinding, compared: bool) -> Iterator[str]:
    since = f", since {ENGLISH_WORDS.day(finding.since)}" if finding.since else ""
    who = f" ({', '.join(finding.customers[:4])}{'…' if finding.customers[4:] else ''})"
    yield from _wrapped(
        f"{DOTS[finding.severity]} {_news(finding, compared)}{finding.state.upper()} "
        f"{finding.claim} — "
        f"{count(finding.people, 'customer')}{who if finding.customers else ''}, "
        f"{count(finding.messages, 'message')}{since} [{finding.id}]",
        "  ",
    )
    yield from _step(finding)
    if reason := finding.severity_reason:
        yield from _wrapped(f"    {finding.severity}: {reason}", "    ")
    if tracked := tracker_line(finding, ENGLISH_WORDS):
        yield from _wrapped(f"    tracker: {tracked}", "    ")
    if finding.links:
        more = f" (+{len(finding.links) - 1})" if finding.links[1:] else ""
        yield f"    {finding.links[0]}{more}"


def _news(finding: SweepFinding, compared: bool) -> str:
    news = change_mark(finding, ENGLISH_WORDS) if compared else ""
    return f"{news} · " if news else ""


def _step(finding: SweepFinding) -> Iterator[str]:
    owner, step = finding.owner, finding.next_step
    if owner == "nobody":
        yield from _wrapped(f"  → {step} (nobody has it)".replace("→  (", "→ ("), "    ")
    elif step:
        who = "" if step.startswith(owner) else f"{owner}: "
        yield from _wrapped(f"  → {who}{step}", "    ")


def ask_text(doc: AnswerDocument) -> str:
    """Render an answer with numbered citations, and the list of their sources."""
    numbers: dict[str, int] = {}
    sources = dict(_cited_sources(doc))
    found = [f for r in doc.subagents for f in r.findings]
    queries = defaultdict(list, {f.id: f.queries for f in found})

    def number(match: re.Match[str]) -> str:
        cited = [i for i in ids_in(match.group()) if i in sources]
        return "".join(f"[{numbers.setdefault(i, len(numbers) + 1)}]" for i in cited)

    text = CITED.sub(number, doc.answer)
    lines = [line for part in text.splitlines() for line in _wrapped(part)]
    if numbers:
        lines += ["", "Sources"]
        lines += [line for i, n in numbers.items() for line in _source(n, sources[i], queries[i])]
    if named := ", ".join(f"{f.name} ({size_of(f.bytes)})" for f in doc.files or ()):
        writes = f"`assistant show {doc.run_id} --files DIR` writes them"
        lines += ["", *_wrapped(f"Files: {named} · {writes}", "  ")]
    if doc.degraded:
        lines += ["", "One context read everything here: isolation is advisory for this answer."]
    return "\n".join([*lines, "", *_foot(doc)])


def _cited_sources(doc: AnswerDocument) -> Iterator[tuple[str, str]]:
    """Yield finding -> its link; for a row or a line, which have none, its id and text.

    The same for looked-up items: no quote of them was checked.
    """
    found = (f for r in doc.subagents for f in r.findings if f.evidence)
    for each in found:
        quotes = ", ".join(f"«{one_line(quote)}»" for quote in each.quotes[:3])
        yield each.id, f"{each.evidence[0]}{': ' if quotes else ''}{quotes}"
    own = doc.looked_up
    yield from ((id, f"{one.item}, looked up: {one.text}") for id, one in own.items())
    linked = ((id, links[0]) for id, links in doc.links.items() if links)
    yield from ((id, f"{link} (looked up)" if id in own else link) for id, link in linked)


def _source(number: int, source: str, queries: Sequence[str]) -> Iterator[str]:
    """Yield a source, and below it the statement that found it, on one line each."""
    yield from _wrapped(f"[{number}] {source}")
    for query in queries:
        line = f"    {one_line(query)}"
        yield line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _foot(doc: SweepReport | AnswerDocument) -> Iterator[str]:
    cover = doc.coverage
    ended = ", ".join(cover.outcomes())
    usage, cost = doc.usage, doc.cost_usd
    price = "price unknown" if cost is None else f"${cost:.4f}"
    if doc.model == "offline":
        price += " at the models' list prices; nothing was paid"
    parts = []
    if isinstance(doc, SweepReport) or cover.items:
        what = count(cover.items, "channel" if isinstance(doc, SweepReport) else "subagent")
        parts.append(f"{what}, {ended}" if ended else what)
    if own := cover.looked_up:
        parts.append(f"{count(own, 'item')} looked up")
    if isinstance(doc, AnswerDocument):
        parts.append(f"{doc.cited} of {len(doc.statements)} statements cited{_by_look_up(doc)}")
    yield from _wrapped(f"Coverage: {' · '.join(parts)}", "  ") if parts else ()
    for each in cover.not_covered[:10]:
        yield from _wrapped(f"  not covered: {one_line(each)}", "    ")
    if cover.not_covered[10:]:
        left = len(cover.not_covered) - 10
        yield f"  not covered: and {left} more (`assistant show {doc.run_id} --json` has all)"
    if doc.unsupported:
        yield f"Dropped because no source carries it: {doc.unsupported}"
    yield f"Cost: {price} · {usage.total:,} tokens · run {doc.run_id}"


def _by_look_up(doc: AnswerDocument) -> str:
    """Count the cited statements that rest on no finding, so on no checked quote."""
    own = doc.looked_up.keys()
    cited = [s.findings for s in doc.statements if own and s.findings]
    alone = sum(own >= set(ids) for ids in cited)
    return f" ({alone} by look-up alone, no quotes checked)" if alone else ""


def run_text(run: StoredRun, subagents: Sequence[StoredSubagent]) -> str:
    """Return a stored run: how it and its subagents ended."""
    lines = [
        f"run {run.id}  {run.kind}  {run.status}  {iso(run.started)}",
        f"asked: {run.question}",
        "",
    ]
    for each in subagents:
        result = SubagentResult.model_validate(each.result) if each.result else None
        why = f" ({result.reason})" if result and result.reason else ""
        lines += _wrapped(
            f"{each.id} {each.status}/{each.stopped_by}{why} · {each.template} · "
            f"{count(result.steps if result else 0, 'model call')}, "
            f"{count(len(result.tool_calls) if result else 0, 'tool call')}, "
            f"{count(len(result.findings) if result else 0, 'finding')} · "
            f"{draft_of(each.brief).description}",
            "    ",
        )
    return "\n".join(lines)


def _wrapped(
    text: str, indent: str = "", most: int | None = None, break_long_words: bool = False
) -> list[str]:
    """Wrap a text, at most into so many lines; links stay whole unless long words are broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    ) or [""]


_folded = partial(_wrapped, break_long_words=True)


WHO = 28
"""Characters of the sender's name for mail that can wait."""
INDENT = " " * 6


def digest_text(document: TriageReport, categories: Iterable[str] = ()) -> str:
    """Render a triage as text; `categories` sets the order of what can wait."""
    view = digest_view(document, categories)
    verdicts = {verdict.thread_id: verdict for verdict in document.verdicts}
    lines = _digest_head(document, view)
    waiting = list[Entry]()
    for section in view.sections:
        entries = [entry for group in section.groups for entry in group.entries if entry.number]
        lines += _ruled(section.title) if entries else []
        for number, group in enumerate(section.groups if entries else ()):
            lines += [""] if number and section.is_urgent else []
            if group.title:
                indent = "" if section.is_urgent else "  "
                lines += _folded(f"{indent}{group.title}", indent)
            for entry in group.entries:
                show = _urgent if group.is_full else _waiting
                lines += show(entry, verdicts[entry.id], thread_line(verdicts[entry.id], document))
        waiting += [] if section.is_urgent else [entry for entry in entries if entry.url]
    return "\n".join([*lines, *_digest_foot(document, waiting)])


def _digest_head(document: TriageReport, view: ReportView) -> list[str]:
    days, ended = period(document), ENDED.get(document.status)
    lines = _folded(view.title + (f", {days}" if days else ""))
    lines += [*_folded(summary(document)), *(_folded(ended) if ended else [])]
    lines += ["", *_folded(OFFLINE)] if document.model == "offline" else []
    lines += ["", "DO FIRST"] if view.first else []
    for number, line in enumerate(view.first, 1):
        named = "".join(f"{each.before}[{each.label}]" for each in line.references)
        more = f" and {line.more} more" if line.more else ""
        lines += _folded(f"{number}. {line.text}{named}{more}", "   ")
    return lines


def _urgent(entry: Entry, verdict: ThreadVerdict, line: ThreadLine) -> Iterator[str]:
    head = f"{DOTS[verdict.priority]} {entry.number:>2}  {line.sender.full}"
    yield _cut(f"{head}: {line.subject}" if line.subject else head)
    state = [line.due.sentence] if line.due else []
    state += ["asks you"] if verdict.asked_of_me else []
    yield from _indented("", " · ".join([*state, line.age]))
    for warning in line.warnings:
        yield from _indented("⚠ ", warning)
    yield from _indented("", line.facts, 2)
    yield from _indented("→ ", line.action, 2)
    yield from _indented("✎ ", line.draft, 1)
    if entry.url:
        yield f"{INDENT}{entry.url}"


def _waiting(entry: Entry, verdict: ThreadVerdict, line: ThreadLine) -> Iterator[str]:
    """Yield a thread that can wait, on two lines at most."""
    warned = f" · ⚠ {'; '.join(line.warnings)}" if line.warnings else ""
    trusted = line.name == line.sender.name
    who = _cut(line.name, WHO) if trusted else line.name
    yield _cut(f"{entry.number:>4}  {who} · {line.age}{warned} · {line.fact}")
    if line.todo:
        yield _cut(f"{INDENT}{line.todo}")


def _digest_foot(document: TriageReport, waiting: Sequence[Entry]) -> Iterator[str]:
    for title, lines, number in (
        (FILTERED, filtered_lines(document), len(document.filtered)),
        (UNREAD, unread_lines(document), len(document.unreadable)),
    ):
        yield from _ruled(f"{title} ({number:,})") if lines else ()
        for line in lines:
            yield from _folded(line, "  ")
    if waiting:
        yield from _ruled(f"To open what can wait ({len(waiting):,})")
        yield from (f"{entry.number:>4}  {entry.url}" for entry in waiting)
    yield from ("", *_folded(f"Coverage: {coverage_line(document)}", "  "))
    gaps = document.coverage.not_covered
    for gap in gaps[:MOST_GAPS]:
        yield from _folded(f"  not covered: {clean_text(gap, REASON)}", "    ")
    if (more := len(gaps) - MOST_GAPS) > 0:
        yield f"  not covered: and {more:,} more (see --json)"
    yield from _folded(f"Cost: {cost_line(document)}", "  ")


def _ruled(title: str) -> list[str]:
    head = f"{title.upper()} "
    return ["", head + "─" * max(4, WIDTH - len(head))]


def _indented(mark: str, text: str, most: int | None = None) -> list[str]:
    """Indent the text below its thread, at most so many lines; nothing if it is empty."""
    return _folded(f"{INDENT}{mark}{text}", INDENT + " " * len(mark), most) if text else []


def _cut(text: str, most: int = WIDTH) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
