"""Render documents for the terminal, similar to their threads in Slack."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bot.reports.documents import PanelReport, Report, TriageReport
from bot.reports.formats import clean_text
from bot.reports.view import (
    Entry,
    EntryTable,
    Group,
    Highlight,
    Line,
    Link,
    ReportSection,
    ReportView,
    view_of,
    with_links,
)
from bot.storage.tables import StoredRun, StoredSubagent
from scopes.tool import format_count, iso
from subagents.brief import draft_of
from subagents.result import SubagentResult

WIDTH = 92
INDENT = " " * 6
NOTE = " " * 4
MAX_LINES = 150
"""Lines of a report in short form; a longer report omits its details."""
MAX_CELL = 38
"""Maximum characters of a table cell."""
MOST_GAPS = 10
"""Maximum number of gaps shown; the rest is counted."""
REAL_MODEL = "Set ANTHROPIC_API_KEY and use --model claude for the real one."
"""Text after the notice of the offline model on a terminal."""
WEB = re.compile(r"https?://")


def report_text(document: Report, categories: Iterable[str] = (), *, whole: bool = True) -> str:
    """Render a report, in full or in short form; `categories` are as in `view_of`."""
    view = view_of(document, categories, f"assistant show {document.run_id} --json")
    links = LinkList()
    lines = _report(document, view, links)
    if not whole and len(lines) > MAX_LINES and any(each.is_detail for each in view.sections):
        top = tuple(each for each in view.sections if not each.is_detail)
        hint = view.words("in_full", run=document.run_id)
        short = replace(view, sections=top, foot=(hint, *view.foot))
        lines = _report(document, short, LinkList(links.texts.items()))
    return "\n".join(lines)


def _report(document: Report, view: ReportView, numbers: LinkList) -> list[str]:
    links = None if isinstance(document, TriageReport | PanelReport) else numbers
    words = view.words
    opening, *lead = (
        f"{each} {REAL_MODEL}" if each == words("offline") else each for each in view.lead
    )
    lines = wrap(view.title)
    for each in (" · ".join(filter(None, (view.counts, opening))), *lead):
        lines += wrap(each)
    lines += ["", words("first").upper()] if view.first else []
    for number, first in enumerate(view.first, 1):
        lines += wrap(f"{number}. {_highlight(first, links)}", "   ")
    for part in view.lists:
        lines += _list(part.title, [_add_link_numbers(line, links) for line in part.lines])
    lines += _list(words("to_know"), [f"· {note}" for note in view.notes])
    more = len(view.gaps) - MOST_GAPS
    rest = [words("more", n=more)] if more > 0 else []
    lines += _list(words("gaps"), [f"· {gap}" for gap in (*view.gaps[:MOST_GAPS], *rest)])
    for section in view.sections:
        lines += _section(section, links)
    lines += ["", *_rule(words("sources")), *links.lines()] if links and links.named else []
    lines += [""]
    is_long = isinstance(document, TriageReport) and document.verdicts
    hint = words("digest.threads_in_full", run=document.run_id) if is_long else ""
    for each in filter(None, (hint, *view.foot)):
        lines += wrap(each, "  ")
    return lines


def thread_text(document: TriageReport, number: int, categories: Iterable[str] = ()) -> str:
    """Render all details of a thread of a digest; empty if there is no such thread.

    Its number is that of `report_text` with the same `categories`.
    """
    from bot.reports.digest import FACT

    view = view_of(document, categories)
    entries = (each for s in view.sections for group in s.groups for each in group.entries)
    found = next((entry for entry in entries if entry.number == number), None)
    if found is None:
        return ""
    (verdict,) = (v for v in document.verdicts if v.thread_id == found.id)
    facts = (clean_text(fact, FACT) for fact in verdict.key_facts)
    more = [fact for fact in facts if fact not in _flat(found.details)]
    return "\n".join([*_full(found), *(line for fact in more for line in _indent(f"· {fact}"))])


def _list(title: str, rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield from () if number else ("", title.upper())
        yield from wrap(row, "  " if row.startswith("·") else "   ")


class LinkList:
    """Numbers the links of a text, which are listed below it.

    `texts` has addresses with their texts, for links without a text.
    """

    def __init__(self, texts: Iterable[tuple[str, str]] = ()) -> None:
        self.texts = dict(texts)
        """Text of each address."""
        self.named: list[str] = []
        """The addresses in the order of the numbers."""

    def mark(self, *links: Link) -> str:
        """Return the numbers of these links."""
        for each in links:
            self.texts[each.url] = self.texts.get(each.url) or each.text
            if each.url not in self.named:
                self.named.append(each.url)
        return "".join(f" ↗{self.named.index(each.url) + 1}" for each in links)

    def lines(self) -> Iterator[str]:
        for number, url in enumerate(self.named, 1):
            yield " ".join(filter(None, (f"↗{number}", url, self.texts[url])))


def _highlight(line: Highlight, links: LinkList | None) -> str:
    """Return its line with its references; `links`, if any, numbers their links for the list below
    the text."""
    labels = []
    for each in line.references:
        is_number = each.label.isdigit()
        label = each.before + f"[{each.label}]" if is_number else ""
        if links:
            label += links.mark(Link("", each.url)) if each.url else ""
        elif not is_number:
            label = each.before + each.url
        labels.append(label)
    more = f" +{line.more}" if line.more else ""
    text = _add_link_numbers(with_links(line.text, line.places), links)
    return " · ".join(filter(None, (text + "".join(labels) + more, line.size)))


def _add_link_numbers(line: Line, links: LinkList | None) -> str:
    """Return a line with the numbers of its links."""
    return "".join(
        links.mark(Link("", part.url)) if links and isinstance(part, Link) else _flat([part])
        for part in line
    )


def _flat(line: Line) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in line)


def _rule(title: str) -> list[str]:
    return [f"{title} " + "─" * max(4, WIDTH - len(title) - 1)]


def _section(section: ReportSection, links: LinkList | None) -> Iterator[str]:
    yield from ("", *_rule(section.title))
    for place, group in enumerate(section.groups):
        if group.title and group.entries:
            yield from ("", *wrap(group.title))
        for each in group.intro:
            yield from wrap(f"· {_highlight(each, links)}", "  ")
        is_full = group.is_full and not (section.fold or group.fold)
        if place and links and not (is_full or group.title):
            yield ""
        for number, entry in enumerate(group.entries):
            yield from ("",) if is_full or (group.fold and not (number or group.title)) else ()
            yield from _full(entry, links) if is_full else _row(entry, group, links)
    yield from wrap(section.more) if section.more else ()


def _full(entry: Entry, links: LinkList | None = None) -> Iterator[str]:
    mark, below = _link(entry, links)
    yield from wrap(_flat(entry.title) + mark, INDENT)
    for quote in entry.quotes:
        yield from _indent(f"«{quote}»")
    for line in _flat(entry.details).strip("\n").split("\n"):
        yield from _indent(line)
    for number, line in enumerate(entry.draft.splitlines()):
        yield from wrap(f"{INDENT}{'  ' if number else '✎ '}{line}".rstrip(), f"{INDENT}  ")
    yield from below
    yield from _table(entry.table, links or LinkList()) if entry.table else ()


def _link(entry: Entry, links: LinkList | None) -> tuple[str, list[str]]:
    """Return the link of an entry as a mark for its first line, or as a line below it."""
    if not entry.url or not links:
        return "", [INDENT + entry.url] if entry.url else []
    return links.mark(Link(f"[{entry.number}]" if entry.number else "", entry.url)), []


def _table(table: EntryTable, links: LinkList) -> Iterator[str]:
    """Render the lines of a table in columns, and the note of a row below its lines."""
    head, lines = table.columns[:-1], [cells for row in table.rows for cells in row.cells]
    widths = [min(MAX_CELL, max(map(len, column))) for column in zip(head, *lines, strict=True)]
    yield _columns(head, widths)
    for row in table.rows:
        yield from (_columns(cells, widths) for cells in row.cells)
        yield from wrap(f"{NOTE}{row.note}{links.mark(*row.links)}", NOTE)


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = (
        (cell if len(cell) <= width else f"{cell[: width - 1]}…").ljust(width)
        for cell, width in zip(cells, widths, strict=True)
    )
    return f"  {'  '.join(shown)}".rstrip()


def _row(entry: Entry, group: Group, links: LinkList | None) -> Iterator[str]:
    """Render an entry of a list, and its link unless the group is short."""
    first, *rest = _add_link_numbers(entry.row, links).split("\n")
    link, below = ("", []) if group.is_short else _link(entry, links)
    mark = f"{entry.number:>4}  " if group.is_numbered else "· "
    yield from wrap(mark + first + link, INDENT if group.is_numbered else "  ")
    for line in rest:
        yield from _indent(line)
    yield from below


def _indent(text: str) -> list[str]:
    """Indent a text below its entry; nothing if it is empty."""
    return wrap(INDENT + text, INDENT + "  ") if text else []


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
        lines += wrap(
            f"{each.id} {each.status}/{each.stopped_by}{why} · {each.template} · "
            f"{format_count(result.steps if result else 0, 'model call')}, "
            f"{format_count(len(result.tool_calls) if result else 0, 'tool call')}, "
            f"{format_count(len(result.findings) if result else 0, 'finding')} · "
            f"{draft_of(each.brief).description}",
            "    ",
        )
    return "\n".join(lines)


def wrap(text: str, indent: str = "") -> list[str]:
    """Wrap a text; long words are broken unless one is a link."""
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=not WEB.search(text),
        break_on_hyphens=False,
    ) or [""]
