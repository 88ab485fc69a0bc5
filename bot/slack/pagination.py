"""Split a long answer into messages at headings, paragraphs and lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise, takewhile
from operator import attrgetter

import regex

from bot.slack.markdown import MarkdownLine, lines

HEADING = re.compile(r" {0,3}#{1,6}[ \t]")
LIST_ITEM = re.compile(r"[ \t>]*(?:[-*+•]|\d{1,3}[.)])[ \t]")
WHOLE = re.compile(
    r"\[[^\[\]\n]*\]\([^()\s]*\)|`[^`\n]+`|\*\*[^*\n]{1,300}\*\*|https?://[^\s<>()]+"
    r"|\[[^\[\]\n]{1,40}\]|&(?:lt|gt|amp);"
)
"""Spans that are not cut if there is another place: links, code, emphasis, entities."""
SENTENCE_END = re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])")  # noqa: RUF001
SPACE = re.compile(r"[ \t]+")
GRAPHEME = regex.compile(r"\X")
"""One character as readers see it, such as an emoji of several code points."""
Place = tuple[int, int]
"""Where a text may be cut, and how well, 0 the best: before a heading, a paragraph, a list item, or
any other line."""


def split(text: str, limit: int) -> list[str]:
    """Split a tidy text into parts of at most `limit` characters, each with at most one table.

    A fence or table that continues is opened again in the next part. Slack refuses a message with
    two tables (`only_one_table_allowed`). Without fences and tables the joined parts equal the
    text.
    """
    every = lines(text)
    reserve = max((len(line.end) + 1 for line in every if line.end), default=0)
    tables = [line.start for line in every if line.kind == "header"]
    places = [(b.start, rank) for a, b in pairwise(every) if (rank := _rank(a, b)) is not None]
    parts: list[str] = []
    at, around = 0, None
    while True:
        prefix = around.again if around else ""
        room = limit - len(prefix)
        following = [start for start in tables if start >= at]
        is_in_table = around is not None and around.kind == "row"
        (stop,) = following[0 if is_in_table else 1 :][:1] or (None,)
        if stop is None and len(text) - at <= room:
            return [*parts, prefix + text[at:]] if at < len(text) or not parts else parts
        end = max(min(at + room - reserve, stop or len(text)), at + 1)
        cut = _best(every, places, at, end, at_table=end == stop)
        around = _around(every, cut)
        gap = "" if text[cut - 1] == "\n" else "\n"
        close = f"{gap}{around.end}" if around and around.end else ""
        parts.append(prefix + text[at:cut] + close)
        at = cut


def _line_at(every: Sequence[MarkdownLine], place: int) -> MarkdownLine:
    return every[bisect_right(every, place, key=attrgetter("start")) - 1]


def _around(every: Sequence[MarkdownLine], cut: int) -> MarkdownLine | None:
    """Return the fence or table that a cut here would go through, by the line after the cut."""
    line = _line_at(every, cut)
    is_inside = line.kind in ("code", "close", "row") or (line.kind == "open" and cut > line.start)
    return line if is_inside else None


def _best(
    every: Sequence[MarkdownLine], places: Sequence[Place], at: int, end: int, at_table: bool
) -> int:
    """Return the best place in `(at, end]`."""
    low = at + (end - at) // 2
    if at_table:  # anywhere after the table that is already in
        low = max([at, *(x.start for x in every if x.kind == "row" and at <= x.start < end)]) + 1
    for lowest in (low, at + (end - at) // 4):
        found = [place for place in places if max(lowest, at + 1) <= place[0] <= end]
        if found:
            return min(found, key=lambda place: (place[1], -place[0]))[0]
    return _within(_line_at(every, end), max(low, at + 1), end)


def _within(line: MarkdownLine, low: int, end: int) -> int:
    """Return a place inside a long line: after a sentence or a word if there is one."""
    low, offset = max(low, line.start + 1), line.start
    text = line.text.rstrip("\n")
    spans = [m.span() for m in WHOLE.finditer(text)] if not line.end else []
    for pattern in (SENTENCE_END, SPACE):
        ends = [m.end() for m in pattern.finditer(text) if low <= m.end() + offset <= end]
        free = [e for e in ends if not any(start < e < stop for start, stop in spans)]
        if free:
            return free[-1] + offset
    span = next((s for s in spans if s[0] < end - offset < s[1]), None)
    if span and span[0] + offset >= low:
        return span[0] + offset
    characters = (m.end() + offset for m in GRAPHEME.finditer(line.text))
    last = max(takewhile(lambda place: place <= end, characters), default=offset)
    return last if last >= low else end


def _rank(before: MarkdownLine, line: MarkdownLine) -> int | None:
    """Rank the start of this line as a place to cut; None if it is none."""
    if line.kind in ("rule", "close") or before.kind in ("open", "rule"):
        return None
    if line.kind in ("code", "row"):
        return 3
    if HEADING.match(line.text):
        return 0
    if not line.text.strip():
        return None
    if not before.text.strip():
        return 1
    return 2 if LIST_ITEM.match(line.text) else 3
