"""Render Markdown for the terminal: reports, and what answers have in common with them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.citations import Links
from bot.reports.documents import Report, TriageReport
from bot.reports.formats import clean_text
from bot.reports.markdown import ReportMarkdown
from bot.reports.view import EMPTY_PLACEHOLDER, ReportSection, view_of
from bot.slack.markdown import Leaf, RichPart, RichTable, parse
from bot.storage.tables import StoredRun, StoredSubagent
from bot.terminal import BOLD, PLAIN
from scopes.tool import format_count, iso
from subagents.brief import draft_of
from subagents.result import SubagentResult

WIDTH = 92
MAX_LINES = 150
"""Lines of a report in short form; a longer report omits its details."""
MOST_GAPS = 10
"""Maximum number of gaps shown; the rest is counted."""
COLUMN_GAP = 2
"""Spaces between the columns of a table."""
BULLETS = ("•", "◦", "▪")
SIGN = re.compile(f"{BOLD}?[●◐○◉◇–✓] ")
"""The start of an item whose own sign stands for the bullet."""
REAL_MODEL = "Set ANTHROPIC_API_KEY and use --model claude for the real one."
"""Text after the notice of the offline model on a terminal."""
WEB = re.compile(r"https?://")


def report_text(document: Report, categories: Iterable[str] = (), *, whole: bool = True) -> str:
    """Render a report, in full or in short form; `categories` are as in `view_of`."""
    view = view_of(document, categories)
    lines = _report(document, ReportMarkdown(view, "terminal"), view.sections)
    if not whole and len(lines) > MAX_LINES and any(each.is_detail for each in view.sections):
        top = [each for each in view.sections if not each.is_detail]
        hint = view.words("in_full", run=document.run_id)
        lines = _report(document, ReportMarkdown(view, "terminal"), top, hint)
    return "\n".join(lines)


def _report(
    document: Report, text: ReportMarkdown, sections: Sequence[ReportSection], hint: str = ""
) -> list[str]:
    view, words = text.view, text.words
    model = REAL_MODEL if document.model == "offline" else ""
    if isinstance(document, TriageReport) and document.verdicts:
        hint = words("digest.threads_in_full", run=document.run_id)
    pieces = (*text.head(after_lead=model), *text.gaps(MOST_GAPS), *text.sections(sections))
    body = "\n".join(each.text for each in pieces)
    numbers = dict[str, int]()
    shown = list(terminal_lines(_capitals(body), text.links(), numbers))
    links = [f"↗{number} {url}" for url, number in numbers.items()]
    foot = [line for each in filter(None, (hint, *view.foot)) for line in wrap(each, "  ")]
    sources = ["", f"{BOLD}{words('sources').upper()}{PLAIN}", *links] if links else []
    return [*wrap(view.title), *shown, *sources, "", *foot]


def _capitals(markdown: str) -> str:
    """Write the titles of sections in capitals."""
    return re.sub(r"(?m)^## .*$", lambda title: title[0].upper(), markdown)


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
    text = ReportMarkdown(view, "terminal")
    body = "\n".join(text.entry(found))
    facts = (text.item(clean_text(fact, FACT)) for fact in verdict.key_facts)
    more = [fact for fact in facts if fact.removeprefix("- ") not in body]
    return "\n".join([*terminal_lines("\n".join([body, "", *more]), text.links()), found.url])


def terminal_lines(
    markdown: str, links: Links, numbers: dict[str, int] | None = None
) -> Iterator[str]:
    """Yield the lines of Markdown as a terminal shows them.

    `numbers`, if given, gets the number that stands for each link, by its address.
    """
    before, last = "", ""
    for part in parse(markdown, links):
        kind = "table" if isinstance(part, RichTable) else part.kind
        lines = list(_table(part) if isinstance(part, RichTable) else _part(part, numbers))
        starts_list = kind == "list" and before != "list" and not last.endswith(PLAIN)
        apart = "table" in (before, kind) or starts_list
        yield from ("", *lines) if before and apart and lines and lines[0] else lines
        before, last = kind, (lines or [""])[-1]


def _part(part: RichPart, numbers: dict[str, int] | None) -> Iterator[str]:
    if part.kind == "list":
        yield from _list(part, numbers)
    elif part.kind == "preformatted":
        yield from (f"    {line}" for leaf in part.leaves for line in leaf.shown.splitlines())
    else:
        mark = "> " if part.kind == "quote" else ""
        for line in _style(part.leaves, numbers).rstrip("\n").split("\n"):
            yield from wrap(mark + line, mark or ("  " if line.startswith(BULLETS) else ""))


def _list(part: RichPart, numbers: dict[str, int] | None) -> Iterator[str]:
    level = part.indent
    for n, item in enumerate(part.items, part.first):
        mark = f"{n}." if part.ordered else BULLETS[min(level, len(BULLETS) - 1)]
        lead = f"{'  ' * level}{mark} "
        first, *rest = _style(item, numbers).split("\n")
        indent = " " * len(lead)
        lead = indent[2:] if SIGN.match(first) and not part.ordered else lead
        yield from ("",) if rest else ()
        yield from wrap(lead + first, indent)
        for line in rest:
            yield from wrap(indent + line, indent)


def _style(leaves: Sequence[Leaf], numbers: dict[str, int] | None) -> str:
    """Return the text of leaves, with bold words between marks that `say` prints in bold."""
    found = []
    for leaf in leaves:
        text = leaf.shown
        if leaf.url and numbers is not None:
            label = f"{leaf.text} " if leaf.text.startswith("[") else ""
            text = f"{label}↗{numbers.setdefault(leaf.url, len(numbers) + 1)}"
        found.append(f"{BOLD}{text}{PLAIN}" if text and "bold" in leaf.styles else text)
    return "".join(found)


def _table(table: RichTable) -> Iterator[str]:
    """Yield a table in columns that fit their cells, with wide cells on several lines; if that
    would break words, yield each row as a list."""
    head, *rows = (
        ["".join(leaf.shown for leaf in cell) or EMPTY_PLACEHOLDER for cell in row]
        for row in table.rows
    )
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, COLUMN_GAP, 0, 0))
    for title, side in zip(head, table.sides, strict=True):
        shown.add_column(Text(title), justify=side, overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    out = Console(file=StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    with out.capture() as printed:
        out.print(shown)
    text = printed.get()
    if all(word in text for row in (head, *rows) for cell in row for word in cell.split()):
        title, *lines = (line.rstrip() for line in text.splitlines())
        yield from (f"{BOLD}{title}{PLAIN}", *lines)
        return
    for first, *cells in rows:
        fields = [f"{title}: {cell}" for title, cell in zip(head[1:], cells, strict=True)]
        yield from wrap(f"{BULLETS[0]} {BOLD}{first}{PLAIN} · {' · '.join(fields)}", "  ")


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
