"""Markdown that a model wrote, made fit for Slack: nothing in it acts, its tables fit a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from scopes.tool import readable

MAX_COLUMNS = 20
MAX_ROWS = 99
"""Rows of one table under its header; Slack allows 100 with it."""
MAX_TABLES = 4
"""Tables of one answer that stay tables: each takes a message of its own (see `split`)."""

Kind = Literal["text", "open", "code", "close", "header", "rule", "row"]

OPEN = re.compile(
    r"(?P<indent>[ \t>]{0,30}(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,8})?)(?P<mark>`{3,20}|~{3,20})"
    r"(?P<info>[^`]*)"
)
CLOSE = re.compile(r"[ \t>]*(?P<mark>`{3,}|~{3,})[ \t]*")
RULE = re.compile(r"[ \t>]*+(?:\|[ \t]*+)?:?-+:?[ \t]*+(?:\|[ \t]*+:?-+:?[ \t]*+)*+(?:\|[ \t]*+)?")
MAX_INFO = 30
"""Characters behind the mark of a fence; what is longer becomes its first line."""
INLINE = re.compile(r"((?<!`)(`+)(?!`).+?(?<!`)\2(?!`))")
TOKEN = re.compile(r"<([@#!])([^<>|\n]*)(?:\|([^<>\n]*))?>")
"""Slack's control sequences, which it obeys inside markdown, too."""
BEGUN = re.compile(r"<+(?=[@#!])")
MAX_NESTED = 8
"""Sequences within sequences that get their names; of deeper ones the beginnings go."""
SHOUT = re.compile(r"@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)*")
STRAY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
DEFINED = re.compile(r"^([ \t>]*\[[^\]\n]+\]):", re.MULTILINE)
"""A reference definition, by which a link far away would get its address."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its break, and what it is part of."""

    start: int
    text: str
    kind: Kind
    again: str = ""
    """What opens its fence, or heads its table, again in the next message."""
    end: str = ""
    """What closes its fence."""


def lines(text: str) -> list[Line]:
    """The lines of a text; outside fences, tables are found by their rule."""
    found: list[Line] = []
    raw = re.findall(r"[^\n]*\n|[^\n]+", text)
    start = number = 0
    again = end = ""
    table = ""
    for number, each in enumerate(raw):
        bare = each.rstrip("\n")
        kind: Kind = "text"
        if end:
            kind = "close" if _closes(bare, end) else "code"
        elif opened := OPEN.fullmatch(bare):
            kind, table = "open", ""
            inner = re.sub(r"[^\s>]", " ", opened["indent"])
            again, end = f"{inner}{opened['mark']}{opened['info']}\n", inner + opened["mark"]
        elif table:
            kind = "row" if "|" in bare else "text"
            if found[-1].kind == "header":
                kind = "rule"
        elif number + 1 < len(raw) and _heads(bare, raw[number + 1].rstrip("\n")):
            kind, table = "header", each + raw[number + 1]
        if kind == "text":
            table = ""
        inside = kind in ("open", "code", "close")
        found.append(Line(start, each, kind, again if inside else table, end if inside else ""))
        if kind == "close":
            again = end = ""
        start += len(each)
    return found


def _closes(line: str, end: str) -> bool:
    match, mark = CLOSE.fullmatch(line), end.lstrip(" \t>")
    return bool(match and match["mark"].startswith(mark))


def _heads(line: str, following: str) -> bool:
    rule = "|" in line and "|" in following and RULE.fullmatch(following)
    return bool(rule) and len(cells(line)) == len(cells(following))


def cells(row: str) -> list[str]:
    """The cells of a row of a table."""
    inner = row.strip(" \t>\n").removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def segments(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, each with whether it is code."""
    for line in lines(text):
        if line.end:
            yield True, line.text
            continue
        at = 0
        for span in INLINE.finditer(line.text):
            yield False, line.text[at : span.start()]
            yield True, span[0]
            at = span.end()
        yield False, line.text[at:]


def harmless(text: str) -> str:
    """The text with nothing in it that Slack would act on: no mention, no link of its own.

    Angle brackets are escaped outside code: Slack reads its `<...>` sequences inside markdown
    blocks, and shows an entity as its character without reading it again (measured in
    github.com/PostHog/posthog/pull/95054). Addresses that `cite.defused` left are the requester's.
    """
    text = STRAY.sub("", str(readable(text)).replace("\r\n", "\n").replace("\r", "\n"))
    text = SHOUT.sub("@\N{WORD JOINER}", unaddressed(text))
    made, fresh = [], True
    for code, piece in segments(text):
        made.append(piece if code else _escaped(piece, fresh))
        if piece:
            fresh = piece.endswith("\n")
    return DEFINED.sub(r"\1 :", "".join(made))


def unaddressed(text: str) -> str:
    """The text with names in place of Slack's control sequences."""
    for _ in range(MAX_NESTED):
        if (bare := TOKEN.sub(_named, text)) == text:
            return text
        text = bare
    return BEGUN.sub("", text)


def _named(match: re.Match[str]) -> str:
    sign, target, label = match.groups()
    name = (label or target.split("^")[0]).lstrip("@#")
    return ("#" if sign == "#" else "@") + name


def _escaped(piece: str, begins_line: bool) -> str:
    quote = QUOTE.match(piece)
    mark = quote[0] if quote and begins_line else ""
    rest = piece[len(mark) :].replace("<", "&lt;").replace(">", "&gt;")
    return mark + re.sub(r"\](?=\((?!https?://))", "] ", rest.replace("![", "! ["))


def tidy(text: str, limit: int, whole: bool = True) -> str:
    """The text with its fences closed and its tables within Slack's limits.

    What is too wide is set side by side under the first column, what is too long gets its header
    again, and a table that can be neither becomes a list. `whole`: it does not go on.
    """
    made: list[str] = []
    table: list[str] = []
    tables = 0
    every = lines(text)
    for line in every:
        if table and line.kind not in ("rule", "row"):
            made.append(_table(table, limit, tables))
            made.append("\n" if line.text.strip() else "")
            table = []
        if line.kind == "header":
            tables += 1
        if line.kind in ("header", "rule", "row"):
            table.append(line.text)
        else:
            made.append(_opened(line.text) if line.kind == "open" else line.text)
    made.append(_table(table, limit, tables) if table else "")
    if whole and every and every[-1].end and every[-1].kind != "close":
        made.append(("" if every[-1].text.endswith("\n") else "\n") + every[-1].end)
    return "".join(made)


def _opened(line: str) -> str:
    match = OPEN.fullmatch(line.rstrip("\n"))
    if not match or len(match["info"]) <= MAX_INFO:
        return line
    return f"{match['indent']}{match['mark']}\n{match['info'].strip()}\n"


def _table(rows: Sequence[str], limit: int, number: int) -> str:
    head, body = cells(rows[0]), [cells(row) for row in rows[2:]]
    if number > MAX_TABLES or max(map(len, rows)) > limit // 4:
        return "\n".join(_record(head, row) for row in body or [head]) + "\n"
    if len(head) <= MAX_COLUMNS and len(body) <= MAX_ROWS:
        return "".join(rows)
    tables = [
        _drawn(head, body[first : first + MAX_ROWS], columns)
        for columns in _shares(len(head))
        for first in range(0, len(body) or 1, MAX_ROWS)
    ]
    return "\n".join(tables)


def _record(head: Sequence[str], row: Sequence[str]) -> str:
    names = [*head, *[""] * len(row)]
    said = [f"**{n}:** {c}" if n else c for n, c in zip(names, row, strict=False) if c]
    return "- " + " · ".join(said).replace("\\|", "|")


def _shares(columns: int) -> list[list[int]]:
    """Columns of each of the tables that stand for a wide one; the first column leads each."""
    if columns <= MAX_COLUMNS:
        return [list(range(columns))]
    step = MAX_COLUMNS - 1
    return [[0, *range(first, min(first + step, columns))] for first in range(1, columns, step)]


def _drawn(head: Sequence[str], body: Sequence[Sequence[str]], columns: Sequence[int]) -> str:
    def row(values: Sequence[str]) -> str:
        picked = [values[c] if c < len(values) else "" for c in columns]
        return "| " + " | ".join(picked) + " |\n"

    return row(head) + "|" + " --- |" * len(columns) + "\n" + "".join(map(row, body))
