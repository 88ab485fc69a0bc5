"""Write reports as Markdown, from which Slack and the terminal render them, too; only links from
code are active."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from bot.citations import Links, neutralize_links
from bot.reports.documents import Report
from bot.reports.view import (
    Bold,
    Button,
    Code,
    Entry,
    Group,
    Highlight,
    Line,
    Link,
    Reference,
    ReportSection,
    ReportView,
    view_of,
    with_links,
)

MARKDOWN_CHARACTERS = re.compile(r"([\\`*_\[\]<>~#]|&(?=#?\w+;))")
"""Characters with a meaning inside a line of Markdown."""
LINE_START = re.compile(r"^([-+=|:]|\d+(?=[.)]))")
"""Text with a meaning at the start of a line; a number gets its mark after it."""
AT = re.compile(r"@(?=\w)")
MAX_DRAFT = 1_500
"""Maximum characters of a draft in Slack; a longer one has only its button."""
MOST_NAMED = 6
"""Maximum number of names next to the button that opens a group; the rest is counted."""

Medium = Literal["file", "terminal", "slack"]


def report_markdown(document: Report, categories: Iterable[str] = ()) -> str:
    """Render a report for mails and files; `categories` are as in `view_of`."""
    view = view_of(document, categories)
    text = ReportMarkdown(view, "file")
    foot = text.rows(
        view.words("sources"), (text.item(each) for each in (*view.sources, *view.foot))
    )
    pieces = (*text.head(), *text.gaps(), *text.sections(view.sections), *foot)
    return "\n".join([f"# {text.plain(view.title)}\n", *(each.text for each in pieces)]) + "\n"


def escape(text: str) -> str:
    """Escape untrusted text for the inside of a line: no markup."""
    return MARKDOWN_CHARACTERS.sub(r"\\\1", text)


def plain(text: str) -> str:
    """Escape untrusted text for other programs: no markup, link or mention."""
    return escape(AT.sub("@\N{WORD JOINER}", neutralize_links(text)))


def _begin(line: str) -> str:
    """Escape a line whose first characters would begin a list, a table or a heading."""
    return LINE_START.sub(lambda m: f"{m[1]}\\" if m[1].isdigit() else f"\\{m[1]}", line)


@dataclass(frozen=True, slots=True)
class Piece:
    """Markdown that stays together in one message; above it there may be an empty line."""

    text: str
    buttons: tuple[Button, ...] = ()
    """Those below it."""
    fold: tuple[str, Button] | None = None
    """A text below it, and the button that opens what is folded there."""
    is_apart: bool = False
    """Whether it starts a new message."""


class ReportMarkdown:
    """Writes a report in pieces: Slack packs them into messages, others join them with line feeds.

    For Slack, folded parts are buttons; elsewhere they are short.
    """

    def __init__(self, view: ReportView, medium: Medium) -> None:
        self.view, self.words, self.medium = view, view.words, medium
        self.plain = plain if medium == "file" else escape
        self.urls = set[str]()
        groups = (group for section in view.sections for group in section.groups)
        self.entry_urls = {entry.url for group in groups for entry in group.entries}

    def links(self) -> Links:
        """Return the links that are written, also later."""
        return Links(own_urls=self.urls)

    def head(self, most: int | None = None, after_lead: str = "") -> Iterator[Piece]:
        """Yield what is above the sections, with at most so many rows of each list.

        `after_lead` is a line of our own.
        """
        view, words = self.view, self.words
        first, *lead = map(self.plain, view.lead)
        counts = f"**{self.plain(view.counts)}** · " if view.counts else ""
        above = filter(None, (counts + first, *lead, self.plain(after_lead)))
        yield Piece("  \n".join(_begin(each) for each in above))
        jobs = (f"{n}. {self._highlight(each)}" for n, each in enumerate(view.first, 1))
        yield from self.rows(words("first"), jobs)
        yield from self.rows(words("to_know"), map(self.item, view.notes[:most]))
        for each in view.lists:
            rows = [f"- {_begin(self._line(line))}" for line in each.lines[:most]]
            if more := len(each.lines) - len(rows):
                rows.append(self.item(words("more", n=more)))
            yield from self.rows(each.title, rows)

    def gaps(self, most: int | None = None) -> Iterator[Piece]:
        """Yield at most so many gaps."""
        gaps = self.view.gaps[:most]
        more = len(self.view.gaps) - len(gaps)
        rest = [self.words("more", n=more)] if more else []
        yield from self.rows(self.words("gaps"), map(self.item, (*gaps, *rest)))

    def rows(self, title: str, rows: Iterable[str]) -> Iterator[Piece]:
        """Yield a list with its title; nothing if it is empty."""
        for number, row in enumerate(rows):
            yield Piece(row if number else f"\n## {self._label(title)}\n\n{row}")

    def item(self, text: str) -> str:
        """Return a text as an item of a list."""
        return f"- {_begin(self._label(text))}"

    def sections(self, sections: Iterable[ReportSection]) -> Iterator[Piece]:
        for section in sections:
            head, is_apart = f"\n## {self._label(section.title)}\n", section.is_apart
            if section.fold and self.medium == "slack":
                yield Piece("", fold=(section.title, section.fold), is_apart=is_apart)
                continue
            more = [Piece(f"\n{_begin(self.plain(section.more))}")] if section.more else []
            for piece in (*(p for group in section.groups for p in self._group(group)), *more):
                yield replace(piece, text=head + piece.text, is_apart=is_apart)
                head, is_apart = "", False

    def _group(self, group: Group) -> Iterator[Piece]:
        if not group.entries:
            return
        head = f"\n### {self.plain(group.title)}\n" if group.title else ""
        head += "".join(f"\n- {_begin(self._highlight(each))}" for each in group.intro)
        head += "\n" if group.intro else ""
        if group.fold and self.medium == "slack":
            names = ", ".join(each.name for each in group.entries[:MOST_NAMED])
            more = len(group.entries) - MOST_NAMED
            rest = f" {self.words('more', n=more)}" if more > 0 else ""
            yield Piece(head, fold=(names + rest, group.fold))
            return
        for number, entry in enumerate(group.entries):
            if group.is_full and not group.fold:
                first, *lines = self.entry(entry)
                yield Piece(f"{head}\n{first}", entry.buttons)
                yield from map(Piece, lines)
            else:
                gap = "" if number else "\n"
                yield Piece(
                    head + gap + self._item(entry, self._line(entry.row) + self._link(entry.url))
                )
            head = ""

    def entry(self, entry: Entry) -> Iterator[str]:
        """Yield an entry in full, then each line of its list."""
        title = self._line(entry.title) + self._link(entry.url)
        quotes = "".join(f"\n«{self.plain(each)}»" for each in entry.quotes)
        text = self._item(entry, title + quotes + self._line(entry.details))
        if self.medium == "slack" and len(entry.draft) > MAX_DRAFT:
            text += f"\n\n{self.words('digest.draft_ready')}"
        elif entry.draft:
            lines = (_begin(self.plain(line)) for line in entry.draft.splitlines())
            text += "\n" + "".join(f"\n> {line}  " for line in lines)
        yield text
        for number, line in enumerate(entry.lines):
            yield f"{'' if number else chr(10)}- {_begin(self._line(line))}"

    def _item(self, entry: Entry, text: str) -> str:
        """Return an item of several lines, with the number of its entry."""
        mark = f"{entry.number}. " if entry.number else "- "
        lines = (_begin(line) for line in text.split("\n") if line)
        return mark + f"  \n{' ' * len(mark)}".join(lines)

    def _highlight(self, line: Highlight) -> str:
        labels = (
            " " + (self._write(each.label, self._url(each)) or escape(f"[{each.label}]"))
            for each in line.references
        )
        more = f" +{line.more}" if line.more else ""
        text = self._line(with_links(line.text, line.places)) + "".join(labels) + more
        return _begin(" · ".join(filter(None, (text, self.plain(line.size)))))

    def _url(self, reference: Reference) -> str:
        """Return its address; empty for a number on a terminal, if its entry shows the address."""
        is_entry = reference.label.isdigit() and reference.url in self.entry_urls
        return "" if is_entry and self.medium == "terminal" else reference.url

    def _label(self, text: str) -> str:
        """Escape a text that may begin with the `#` of a channel."""
        return re.sub(r"^\\(?=#\w)", "", self.plain(text))

    def _line(self, line: Line) -> str:
        return "".join(map(self._part, line))

    def _part(self, part: str | Bold | Code | Link) -> str:
        if isinstance(part, str):
            return self.plain(part)
        if isinstance(part, Code):
            return "`{}`".format(part.text.replace("`", "'"))
        if isinstance(part, Bold):
            return f"**{self._label(part.text)}**"
        return self.plain(part.text) + self._link(part.url)  # untrusted: not the label of the link

    def _link(self, url: str) -> str:
        return f" {self._write('↗', url)}" if url else ""

    def _write(self, label: str, url: str) -> str:
        """Return a link; empty without an address."""
        if not url:
            return ""
        self.urls.add(url)
        return f"[{label}]({url})"
