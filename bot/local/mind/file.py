"""What the offline rules can say of an attached file: how much it holds, and where words stand."""

import csv
import re
from collections.abc import Sequence

from bot.local.mind.cues import fold
from bot.local.mind.hearing import Attached
from bot.local.mind.search import keywords, prefixes
from bot.local.mind.talk import say

MAX_SHOWN = 5
"""Most lines that are shown of a file."""
MAX_COLUMNS = 8
"""Most columns that are named."""
LINE_CHARS = 160
_DELIMITERS = ",;\t|"
_PROBE = 20
"""Rows that must be of one width for a text to be a table."""


def about_files(files: Sequence[Attached], question: str, language: str) -> str:
    """A paragraph for each file, and what the rules cannot do."""
    told = [_about(file, question, language) for file in files]
    return "\n\n".join([*told, say(language, "limit")])


def _about(file: Attached, question: str, language: str) -> str:
    if not file.text:
        return say(language, "image", file.name)
    lines = [line for line in file.text.splitlines() if line.strip()]
    rows = table(lines)
    if rows:
        head = ", ".join(rows[0][:MAX_COLUMNS]) + (", …" if rows[0][MAX_COLUMNS:] else "")
        size = say(language, "table", file.name, len(rows) - 1, len(rows[0]), head)
    else:
        size = say(language, "text", file.name, len(lines))
    cut = say(language, "cut") if "cut" in file.facts else ""
    words, _ = keywords(question)
    own = words - prefixes(fold(file.name))
    hits = [line for line in lines[bool(rows) :] if own & prefixes(fold(line))]
    lead = say(language, "hits", len(hits)) if hits else say(language, "begins")
    shown = [_short(line) for line in (hits or lines)[:MAX_SHOWN]]
    return "\n".join([f"{size} {cut}".strip(), lead, "```", *shown, "```"])


def table(lines: Sequence[str]) -> list[list[str]]:
    """The rows of a text that is a table, its head first; none where it is no table."""
    for delimiter in _DELIMITERS:
        try:
            read = list(csv.reader(lines, delimiter=delimiter))
        except csv.Error:  # a quote that nothing ends
            continue
        rows = [[cell.strip() for cell in row] for row in read]
        width = len(rows[0]) if rows else 0
        if width > 1 and len(rows) > 1 and all(len(row) == width for row in rows[1:_PROBE]):
            return rows
    return []


def _short(line: str) -> str:
    plain = re.sub(r"`{3,}", "'''", " ".join(line.split()))
    return plain if len(plain) <= LINE_CHARS else plain[:LINE_CHARS] + "…"
