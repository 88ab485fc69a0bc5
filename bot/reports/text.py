"""Render documents for the terminal, as their threads would look in Slack."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from bot.citations import CITED, ids_in
from bot.reports.digest import digest_view
from bot.reports.documents import AnswerDocument, PanelReport, Report, TriageReport
from bot.reports.formatting import periods
from bot.reports.panel import panel_view
from bot.reports.sweep import sweep_view
from bot.reports.view import Entry, Highlight, Line, ReportSection
from bot.storage.tables import StoredRun, StoredSubagent
from scopes.sizes import size_of
from scopes.tool import counted, iso, one_line
from subagents.brief import draft_of
from subagents.result import SubagentResult

WIDTH = 92
INDENT = " " * 6
MOST_GAPS = 10
"""Gaps that are shown; the rest is counted."""
REAL_MODEL = "Set ANTHROPIC_API_KEY and use --model claude for the real one."
"""What follows the notice of the stand-in on a terminal."""
WEB = re.compile(r"https?://")


def report_text(document: Report, categories: Iterable[str] = ()) -> str:
    """Render a report; `categories` are as in `report_parts`."""
    if isinstance(document, TriageReport):
        view = digest_view(document, categories)
    elif isinstance(document, PanelReport):
        view = panel_view(document)
    else:
        view = sweep_view(document, f"assistant show {document.run_id} --json")
    told = (f"{each} {REAL_MODEL}" if each == view.words("offline") else each for each in view.lead)
    words, (opening, *lead) = view.words, told
    lines = _wrap(view.title)
    for each in (" · ".join(filter(None, (view.counts, opening))), *lead):
        lines += _wrap(each)
    first = [f"{n}. {_highlight(each)}" for n, each in enumerate(view.first, 1)]
    lines += _list(words("first"), first)
    lines += _list(words("patterns"), [f"· {_highlight(each)}" for each in view.patterns])
    lines += _list(words("to_know"), [f"· {note}" for note in view.notes])
    more = len(view.gaps) - MOST_GAPS
    rest = [words("more", n=more)] if more > 0 else []
    lines += _list(words("gaps"), [f"· {gap}" for gap in (*view.gaps[:MOST_GAPS], *rest)])
    lines += _list(words("markets"), map(_flat, view.overview))
    for section in view.sections:
        lines += _section(section)
    lines += [""]
    for each in view.foot:
        lines += _wrap(each, "  ")
    return "\n".join(lines)


def _list(title: str, rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield from () if number else ("", title.upper())
        yield from _wrap(row, "  " if row.startswith("·") else "   ")


def _highlight(line: Highlight) -> str:
    markets = ", ".join(f"#{name}" for name in line.markets)
    named = [  # a known issue has no number here, only its link
        each.before + (f"[{each.label}]" if each.label.isdigit() else each.url)
        for each in line.references
    ]
    more = f" +{line.more}" if line.more else ""
    return line.text + (f" ({markets})" if markets else "") + "".join(named) + more


def _flat(line: Line) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in line)


def _section(section: ReportSection) -> Iterator[str]:
    head = f"{section.title} "
    yield from ("", head + "─" * max(4, WIDTH - len(head)))
    for line in section.intro:
        yield from _wrap(line)
    for group in section.groups:
        if group.title and group.entries:
            yield from ("", *_wrap(group.title))
        is_full = group.is_full and not section.fold
        for entry in group.entries:
            yield from ("", *_full(entry)) if is_full else _row(entry, group.is_numbered)
    yield from _wrap(section.more) if section.more else ()


def _full(entry: Entry) -> Iterator[str]:
    yield from _wrap(_flat(entry.title), INDENT)
    for quote in entry.quotes:
        yield from _indent(f"«{quote}»")
    for line in _flat(entry.details).strip("\n").split("\n"):
        yield from _indent(line, most=2)
    yield from _indent(f"✎ {entry.draft}", most=1) if entry.draft else ()
    yield from [INDENT + entry.url] if entry.url else ()


def _row(entry: Entry, is_numbered: bool) -> Iterator[str]:
    """Render an entry of a list, each further line of it on two at most, and its link."""
    first, *rest = _flat(entry.row).split("\n")
    mark = f"{entry.number:>4}  " if is_numbered else "· "
    yield from _wrap(mark + first, INDENT if is_numbered else "  ", 4)
    for line in rest:
        yield from _indent(line, most=2)
    yield from [INDENT + entry.url] if entry.url else ()


def _indent(text: str, most: int | None = None) -> list[str]:
    """Indent a text below its entry, at most so many lines; nothing if it is empty."""
    return _wrap(INDENT + text, INDENT + "  ", most) if text else []


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
    lines = [line for part in text.splitlines() for line in _wrap(part)]
    if numbers:
        lines += ["", "Sources"]
        lines += [line for i, n in numbers.items() for line in _source(n, sources[i], queries[i])]
    if named := ", ".join(f"{f.name} ({size_of(f.bytes)})" for f in doc.files or ()):
        writes = f"`assistant show {doc.run_id} --files DIR` writes them"
        lines += ["", *_wrap(f"Files: {named} · {writes}", "  ")]
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
    yield from _wrap(f"[{number}] {source}")
    for query in queries:
        line = f"    {one_line(query)}"
        yield line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _foot(doc: AnswerDocument) -> Iterator[str]:
    cover, parts = doc.coverage, []
    ended = ", ".join(cover.outcomes())
    price = "price unknown" if doc.cost_usd is None else f"${doc.cost_usd:.4f}"
    if doc.model == "offline":
        price += " at the models' list prices; nothing was paid"
    if cover.items:
        what = counted(cover.items, "subagent")
        parts.append(f"{what}, {ended}" if ended else what)
    if own := cover.looked_up:
        parts.append(f"{counted(own, 'item')} looked up")
    parts.append(f"{doc.cited} of {len(doc.statements)} statements cited{_by_look_up(doc)}")
    if doc.windows:
        yield from _wrap(f"Messages of {periods(doc.windows, doc.zone)}", "  ")
    yield from _wrap(f"Coverage: {' · '.join(parts)}", "  ")
    for each in cover.not_covered[:MOST_GAPS]:
        yield from _wrap(f"  not covered: {one_line(each)}", "    ")
    if (left := len(cover.not_covered) - MOST_GAPS) > 0:
        yield f"  not covered: and {left} more (`assistant show {doc.run_id} --json` has all)"
    if doc.stopped_by != "none":
        why = f" ({one_line(doc.reason)})" if doc.reason else ""
        yield from _wrap(f"Stopped by: {doc.stopped_by}{why}", "  ")
    if doc.unsupported:
        yield f"Dropped because no source carries it: {doc.unsupported}"
    yield f"Cost: {price} · {doc.usage.total:,} tokens · run {doc.run_id}"


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
        lines += _wrap(
            f"{each.id} {each.status}/{each.stopped_by}{why} · {each.template} · "
            f"{counted(result.steps if result else 0, 'model call')}, "
            f"{counted(len(result.tool_calls) if result else 0, 'tool call')}, "
            f"{counted(len(result.findings) if result else 0, 'finding')} · "
            f"{draft_of(each.brief).description}",
            "    ",
        )
    return "\n".join(lines)


def _wrap(text: str, indent: str = "", most: int | None = None) -> list[str]:
    """Wrap a text, at most into so many lines; long words are broken unless one is a link."""
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=not WEB.search(text),
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    ) or [""]
