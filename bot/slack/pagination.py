"""Split a long answer into messages at headings, paragraphs and lines."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import takewhile

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
RANKS = range(4)
"""Places to cut at, the best first: heading, paragraph, list item, any other line."""


def split(text: str, limit: int) -> list[str]:
    """Split a tidy text into parts of at most `limit` characters, each with at most one table.

    A fence or table that continues is opened again in the next part. Slack refuses a message with
    two tables (`only_one_table_allowed`). Without fences and tables the joined parts equal the
    text.
    """
    cuts = _Cuts(text)
    parts: list[str] = []
    at, prefix, in_table = 0, "", False
    while True:
        stop = cuts.second_table(at, in_table)
        room = limit - len(prefix)
        if stop is None and len(text) - at <= room:
            return [*parts, prefix + text[at:]] if at < len(text) or not parts else parts
        end = min(at + room - cuts.reserve, stop or len(text))
        cut = cuts.best(at, end, stop is not None and end == stop)
        line = cuts.around(cut)
        fenced, in_table = line is not None and bool(line.end), _in_table(line)
        close = (
            f"{'' if text[cut - 1] == chr(10) else chr(10)}{line.end}" if fenced and line else ""
        )
        parts.append(prefix + text[at:cut] + close)
        at, prefix = cut, line.again if line and (fenced or in_table) else ""


def _in_table(line: MarkdownLine | None) -> bool:
    return line is not None and line.kind == "row"


class _Cuts:
    """The places where one text may be cut."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = lines(text)
        self.starts = [line.start for line in self.lines]
        self.reserve = max((len(line.end) + 1 for line in self.lines if line.end), default=0)
        self.tables = [line.start for line in self.lines if line.kind == "header"]
        self.places: list[list[int]] = [[] for _ in RANKS]
        for before, line in zip([None, *self.lines], self.lines, strict=False):
            if before and (rank := _rank(before, line)) is not None:
                self.places[rank].append(line.start)

    def second_table(self, at: int, in_table: bool) -> int | None:
        """Return where a second table of the part that begins at `at` would begin."""
        following = self.tables[bisect_left(self.tables, at) :]
        index = 0 if in_table else 1
        return following[index] if index < len(following) else None

    def around(self, cut: int) -> MarkdownLine | None:
        """Return the fence or table that a cut here would go through, by the line after the cut."""
        index = bisect_right(self.starts, cut) - 1
        line = self.lines[index]
        if line.kind in ("code", "close", "row"):
            return line
        return line if line.kind == "open" and cut > line.start else None

    def best(self, at: int, end: int, at_table: bool) -> int:
        """Return the best place in `(at, end]`."""
        end = max(end, at + 1)
        low = at + (end - at) // 2
        if at_table:  # anywhere after the table that is already in
            low = max([at, *(x.start for x in self._between(at, end) if x.kind == "row")]) + 1
        for lowest in (low, at + (end - at) // 4):
            for places in self.places:
                index = bisect_right(places, end) - 1
                if index >= 0 and places[index] >= max(lowest, at + 1):
                    return places[index]
        return self._within(max(low, at + 1), end)

    def _between(self, at: int, end: int) -> list[MarkdownLine]:
        first = max(0, bisect_right(self.starts, at) - 1)
        return list(takewhile(lambda line: line.start < end, self.lines[first:]))

    def _within(self, low: int, end: int) -> int:
        """Return a place inside a long line: after a sentence or a word if there is one."""
        index = bisect_right(self.starts, end) - 1
        line = self.lines[index]
        low = max(low, line.start + 1)
        text = line.text.rstrip("\n")
        offset = line.start
        spans = [m.span() for m in WHOLE.finditer(text)] if not line.end else []
        for pattern in (SENTENCE_END, SPACE):
            ends = [m.end() + offset for m in pattern.finditer(text)]
            free = [e for e in ends if low <= e <= end and not _inside(e - offset, spans)]
            if free:
                return free[-1]
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


def _inside(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(start < place < end for start, end in spans)
