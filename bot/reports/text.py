"""Render documents for the terminal, as their threads would look in Slack."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from bot.reports.digest import digest_view
from bot.reports.documents import Report, TriageReport
from bot.reports.sweep import sweep_view
from bot.reports.view import Entry, Highlight, Line, ReportSection
from bot.storage.tables import StoredRun, StoredSubagent
from scopes.tool import counted, iso
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
    else:
        view = sweep_view(document, f"assistant show {document.run_id} --json")
    told = (f"{each} {REAL_MODEL}" if each == view.words("offline") else each for each in view.lead)
    words, (opening, *lead) = view.words, told
    lines = wrap(view.title)
    for each in (" · ".join(filter(None, (view.counts, opening))), *lead):
        lines += wrap(each)
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
        lines += wrap(each, "  ")
    return "\n".join(lines)


def _list(title: str, rows: Iterable[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield from () if number else ("", title.upper())
        yield from wrap(row, "  " if row.startswith("·") else "   ")


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
        yield from wrap(line)
    for group in section.groups:
        if group.title and group.entries:
            yield from ("", *wrap(group.title))
        is_full = group.is_full and not section.fold
        for entry in group.entries:
            yield from ("", *_full(entry)) if is_full else _row(entry, group.is_numbered)
    yield from wrap(section.more) if section.more else ()


def _full(entry: Entry) -> Iterator[str]:
    yield from wrap(_flat(entry.title), INDENT)
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
    yield from wrap(mark + first, INDENT if is_numbered else "  ", 4)
    for line in rest:
        yield from _indent(line, most=2)
    yield from [INDENT + entry.url] if entry.url else ()


def _indent(text: str, most: int | None = None) -> list[str]:
    """Indent a text below its entry, at most so many lines; nothing if it is empty."""
    return wrap(INDENT + text, INDENT + "  ", most) if text else []


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
            f"{counted(result.steps if result else 0, 'model call')}, "
            f"{counted(len(result.tool_calls) if result else 0, 'tool call')}, "
            f"{counted(len(result.findings) if result else 0, 'finding')} · "
            f"{draft_of(each.brief).description}",
            "    ",
        )
    return "\n".join(lines)


def wrap(text: str, indent: str = "", most: int | None = None) -> list[str]:
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
