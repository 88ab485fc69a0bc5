"""The view of a report: the cleaned texts that every renderer shows, in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.reports.documents import PanelReport, Report, TriageReport
from config.words import Words, in_language

DOTS = {"high": "●", "medium": "◐", "low": "○"}
"""A dot for each severity or priority, the highest first."""
EMPTY_PLACEHOLDER = "–"
"""Placeholder for an empty text."""


@dataclass(frozen=True, slots=True)
class Bold:
    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A name that is shown literally, such as a file name."""

    text: str


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str
    """Empty if the text is not a link."""


Line = Sequence[str | Bold | Code | Link]
"""Text with marks; a line feed in it starts a new line."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The number of an entry, after a line based on it."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Highlight:
    """One thing to do first."""

    text: str
    references: tuple[Reference, ...] = ()
    size: str = ""
    """Who waits and how long, after the references."""
    more: int = 0
    """Number of further entries that it is based on."""
    places: tuple[Link, ...] = ()
    """Links for names in its text."""


@dataclass(frozen=True, slots=True)
class LineList:
    """Lines below the first ones, with their own title."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Button:
    """A button below an entry; with options, a menu."""

    action: str
    text: str
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()
    """Text and value of each option."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A finding, a known issue, a mail thread, or a sentence."""

    row: Line = ()
    """The entry in a list."""
    url: str = ""
    """Link to its thread; empty if the document has none."""
    id: str = ""
    number: int = 0
    """Its number in the report, from 1, which highlights refer to; 0 for none."""
    title: Line = ()
    """Its first line if it is shown in full."""
    details: Line = ()
    """Lines below the title; each begins with a line feed."""
    quotes: tuple[str, ...] = ()
    """Quotes of people, before the details."""
    draft: str = ""
    """A proposed reply, after the details; it may have several lines."""
    name: str = ""
    """Name of its sender, shown next to the button that opens a folded group."""
    lines: tuple[Line, ...] = ()
    """A list below everything else."""
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that belong together."""

    entries: tuple[Entry, ...]
    title: str = ""
    intro: tuple[Highlight, ...] = ()
    """Lines about all its entries."""
    is_full: bool = False
    """Whether its entries are shown in full rather than as a list, unless it is folded."""
    fold: Button | None = None
    """The button that opens it, where there are buttons; before that, only names of entries are
    shown."""


@dataclass(frozen=True, slots=True)
class ReportSection:
    title: str
    groups: tuple[Group, ...]
    more: str = ""
    """Sentence about omitted entries; empty if there are none."""
    is_apart: bool = False
    """Whether it starts a new message."""
    is_detail: bool = False
    """Whether the short form of a long report omits it."""
    fold: Button | None = None
    """The button that opens it, where there are buttons; before that, only its title is shown."""


@dataclass(frozen=True, slots=True)
class ReportView:
    words: Words
    name: str
    """Kind of report, in the language of its readers."""
    notification: str
    """One line for notifications: numbers only, no untrusted text."""
    title: str
    counts: str
    """Numbers of open, new and solved issues, without other text; empty for a triage."""
    lead: tuple[str, ...]
    """Lines below the title: period, numbers, why it is incomplete, notice of the offline model."""
    first: tuple[Highlight, ...]
    sections: tuple[ReportSection, ...]
    foot: tuple[str, ...]
    """Number of dropped items, and the cost."""
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """What it does not cover."""
    lists: tuple[LineList, ...] = ()
    """Decisions, open problems, markets."""
    sources: tuple[str, ...] = ()
    """How much was read of each market."""


def with_links(text: str, places: Iterable[Link]) -> Line:
    """Return a text with a link after the first occurrence of each of these names."""
    parts: list[str | Link] = []
    start = 0
    for end, url in sorted((end_of(each.text, text), each.url) for each in places):
        if end:
            parts += [text[start:end], Link("", url)]
            start = end
    return (*parts, text[start:])


def end_of(name: str, text: str) -> int:
    """Return the end of a name in a text, with its genitive; 0 if it is not a word of the text."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?:['’]s)?(?!\w)", text)
    return found.end() if found else 0


def entries_of(sentences: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(Entry(row=(each,)) for each in sentences)


def view_of(document: Report, categories: Iterable[str] = ()) -> ReportView:
    """Return the view of a report in its own language.

    `categories` of mail are in the order to show, and a verdict can be corrected to them.
    """
    with in_language(document.language):
        if isinstance(document, TriageReport):
            from bot.reports.digest import digest_view

            return digest_view(document, categories)
        if isinstance(document, PanelReport):
            from bot.reports.panel import panel_view

            return panel_view(document)
        from bot.reports.sweep import sweep_view

        return sweep_view(document)
