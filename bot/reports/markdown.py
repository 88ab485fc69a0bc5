"""Render reports as Markdown for mails, files and answers; only links from code are active."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from bot.citations import neutralize_links
from bot.reports.documents import Report
from bot.reports.view import (
    DITTO,
    FINDINGS_FILE,
    Bold,
    Code,
    Entry,
    EntryTable,
    Group,
    Highlight,
    Line,
    Link,
    ReportView,
    view_of,
    with_links,
)

MARKDOWN_CHARACTERS = re.compile(r"([\\`*_\[\]<>~#]|&(?=#?\w+;))")
"""Characters with a meaning inside a line of Markdown; text never starts a line."""
AT = re.compile(r"@(?=\w)")


def report_markdown(
    document: Report, categories: Iterable[str] = (), place: str = FINDINGS_FILE
) -> str:
    """Render a report; `categories` and `place` are as in `view_of`."""
    view = view_of(document, categories, place)
    return "\n".join(_Markdown(view).lines()) + "\n"


def plain(text: str) -> str:
    """Escape untrusted text for Markdown: no markup, link or mention."""
    return MARKDOWN_CHARACTERS.sub(r"\\\1", AT.sub("@\N{WORD JOINER}", neutralize_links(text)))


def _label(text: str) -> str:
    """Escape a text that may begin with the `#` of a channel."""
    return plain(text).removeprefix("\\") if text.startswith("#") else plain(text)


def _cell(text: str) -> str:
    return _label(text).replace("|", "\\|")


class _Markdown:
    """Renders one report."""

    def __init__(self, view: ReportView) -> None:
        self.view = view

    def lines(self) -> Iterator[str]:
        view, words = self.view, self.view.words
        yield f"# {plain(view.title)}"
        counts = f"**{plain(view.counts)}** · " if view.counts else ""
        for number, line in enumerate(view.lead):
            yield from ("", plain(line) if number else counts + plain(line))
        first = [f"{n}. {self._highlight(each)}" for n, each in enumerate(view.first, 1)]
        yield from _section(words("first"), first)
        yield from _section(words("to_know"), [f"- {plain(note)}" for note in view.notes])
        yield from _section(words("gaps"), [f"- {plain(gap)}" for gap in view.gaps])
        for each in view.lists:
            shown = [f"- {self._line(line)}".replace("  ", " ") for line in each.lines]
            yield from _section(each.title, shown)
        for section in view.sections:
            yield from ("", f"## {_label(section.title)}")
            for group in section.groups:
                yield from self._group(group, group.is_full and not (section.fold or group.fold))
            yield from ("", f"· {plain(section.more)}") if section.more else ()
        foot = [f"- {_label(each)}" for each in (*view.sources, *view.foot)]
        yield from _section(words("sources"), foot)

    def _group(self, group: Group, is_full: bool) -> Iterator[str]:
        if not group.entries:
            return
        yield from ("", f"### {plain(group.title)}") if group.title else ()
        yield from (
            ("", *(f"- {self._highlight(each)}" for each in group.intro)) if group.intro else ()
        )
        if is_full:
            for entry in group.entries:
                yield from self._full(entry, "####" if group.title else "###")
            return
        yield ""
        for entry in group.entries:
            mark = f"{entry.number}." if group.is_numbered else "-"
            row = self._line(entry.row).replace("\n", " · ")
            yield f"{mark} {row}{self._link(entry.url)}"

    def _full(self, entry: Entry, level: str) -> Iterator[str]:
        yield from ("", f"{level} {self._line(entry.title)}{self._link(entry.url)}", "")
        for quote in entry.quotes:
            yield from (f"> «{plain(quote)}»", "")
        yield from (f"- {line}" for line in self._line(entry.details).split("\n") if line)
        lines = entry.draft.splitlines()
        yield from ("", *(f"> {plain(line)}  " for line in lines)) if lines else ()
        if entry.table:
            yield from ("", *self._table(entry.table))

    def _table(self, table: EntryTable) -> Iterator[str]:
        """Yield a table; the note of a row is in the first of its lines."""
        yield f"| {' | '.join(map(_cell, table.columns))} |"
        yield "|---" * len(table.columns) + "|"
        for row in table.rows:
            for number, cells in enumerate(row.cells):
                note = (
                    DITTO
                    if number
                    else f"{_cell(row.note)}{self._links([link.url for link in row.links])}"
                )
                yield f"| {' | '.join([*map(_cell, cells), note])} |"

    def _highlight(self, line: Highlight) -> str:
        labels = [
            each.before + (f"[{each.label}]({each.url})" if each.url else f"({each.label})")
            for each in line.references
        ]
        more = f" +{line.more}" if line.more else ""
        size = [plain(line.size)] if line.size else []
        text = self._line(with_links(line.text, line.places))
        return " · ".join([text + "".join(labels) + more, *size])

    def _line(self, line: Line) -> str:
        return "".join(map(self._part, line))

    def _part(self, part: str | Bold | Code | Link) -> str:
        if isinstance(part, str):
            return plain(part)
        if isinstance(part, Code):
            return "`{}`".format(part.text.replace("`", "'"))
        if isinstance(part, Link) and not part.text:
            return f" [↗]({part.url})"
        text = _label(part.text)  # untrusted, so it is not the label of a link
        return f"**{text}**" if isinstance(part, Bold) else text + self._link(part.url)

    def _link(self, url: str) -> str:
        return f" · [{self.view.words('link')}]({url})" if url else ""

    def _links(self, urls: Sequence[str]) -> str:
        """Return a single link with the word for it, several links with their numbers."""
        if len(urls) < 2:
            return self._link("".join(urls))
        return f" · {' '.join(f'[{n}]({url})' for n, url in enumerate(urls, 1))}"


def _section(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from ("", f"## {plain(title)}", "", *rows)
