"""Render an answer for the terminal: its text, its sources, and the line below them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from zoneinfo import ZoneInfo

from bot.citations import CITATION_PATTERN, Links, ids_in
from bot.reports.documents import AnswerDocument
from bot.reports.frame import ending, gaps, messages_of, price
from bot.reports.sources import Source, numbers_of, sources_of
from bot.reports.text import MOST_GAPS, terminal_lines, wrap
from bot.slack.markdown import CITATIONS, Numbers, harmless
from config.words import current, phrase
from scopes.clean import printable
from scopes.tool import format_count, one_line, size_of

MOST_LINES = 6
"""Sources with a line each; more are listed by channel."""


def answer_text(document: AnswerDocument, *, whole: bool = False) -> str:
    """Render an answer; `whole` adds each link and statement, and how it was made."""
    numbers = numbers_of(document)
    text = _number(printable(document.answer.strip()), document, numbers)
    how = "" if document.status == "partial" and gaps(document) else ending(document)
    body = harmless(text)
    shown = terminal_lines(body, Links(request=text))  # addresses were checked when it was written
    lines = [*shown, *(["", *wrap(how)] if how else [])]
    sources = sources_of(document, numbers)
    lines += ["", phrase("sources"), *_sources(document, sources, whole)] if sources else []
    if files := ", ".join(f"{f.name} ({size_of(f.bytes)})" for f in document.files or ()):
        command = f"assistant show {document.run_id} --files DIR"
        lines += ["", *wrap(phrase("answer.files", files=files, command=command), "  ")]
    return "\n".join([*lines, "", *_foot(document, len(sources), whole)])


def _number(text: str, document: AnswerDocument, numbers: Numbers) -> str:
    """Replace citations with the numbers of their sources."""
    found = {f.id for r in document.subagents for f in r.findings if f.evidence}
    known = found | document.looked_up.keys() | {id for id, each in document.links.items() if each}

    def marks(match: re.Match[str]) -> str:
        cited = [n for id in ids_in(match[0]) if id in known for n in numbers.of(id)]
        return " ".join(_ranges(dict.fromkeys(cited)))

    bare = CITATION_PATTERN.sub(lambda m: m[0] if known.intersection(ids_in(m[0])) else "", text)
    return CITATIONS.sub(marks, bare)


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Yield `[2]` for a number and `[4–7]` for three or more that follow each other."""
    ordered = list(enumerate(sorted(numbers)))
    for _, run in groupby(ordered, key=lambda each: each[1] - each[0]):
        first, *rest = (number for _, number in run)
        if len(rest) > 1:
            yield f"[{first}–{rest[-1]}]"
        else:
            yield from (f"[{number}]" for number in (first, *rest))


def _sources(document: AnswerDocument, sources: dict[int, Source], whole: bool) -> Iterator[str]:
    """Yield a line for each source; many messages are grouped by channel."""
    together = not whole and sum(bool(each.place) for each in sources.values()) > MOST_LINES
    apart = {n: s for n, s in sources.items() if not (together and s.place)}
    for number, source in apart.items():
        yield from _source(document, number, source, whole)
    rest = [(n, s) for n, s in sources.items() if n not in apart]
    for place in dict.fromkeys(source.place for _, source in rest):
        of = [f"[{n}] {_who(document, s)}".rstrip() for n, s in rest if s.place == place]
        yield from _join_parts([f"{place}: {of[0]}", *of[1:]], "    ")


def _source(document: AnswerDocument, number: int, source: Source, whole: bool) -> Iterator[str]:
    mark = f"[{number}] "
    title = source.title or ", ".join(filter(None, (source.place, _who(document, source))))
    if title:
        yield from wrap(mark + title, "    ")
    if source.link:
        yield f"{'    ' if title else mark}{source.link}"
    if whole and source.statement:
        yield from (f"    {line}" for line in printable(source.statement).splitlines())


def _who(document: AnswerDocument, source: Source) -> str:
    """Return the author of a message, its day, and the day of the last message cited with it."""
    if not source.at:
        return source.author
    zone = ZoneInfo(document.zone)
    times = filter(None, (source.at, source.until))
    days = [datetime.fromisoformat(each).astimezone(zone).date() for each in times]
    years = {day.year for day in days}
    years |= {datetime.fromisoformat(w.latest).year for w in document.windows}
    skeleton = "MMMd" if len(years) == 1 else "yMMMd"
    period = current().interval(min(days), max(days), skeleton)
    return " ".join(filter(None, (one_line(source.author), period)))


def _foot(document: AnswerDocument, sources: int, whole: bool) -> Iterator[str]:
    """Yield the gaps, and one line with sources, days and cost."""
    missing = _gaps(document)
    if missing:
        shown = [one_line(each) for each in missing[:MOST_GAPS]]
        if (more := len(missing) - MOST_GAPS) > 0:
            shown.append(phrase("more", n=more))
        if len(shown) == 1:
            yield from wrap(f"{phrase('gaps')}: {shown[0]}")
        else:
            yield f"{phrase('gaps')}:"
            for each in shown:
                yield from wrap(f"· {each}", "  ")
    parts = [phrase("count.source", n=sources)] if sources else []
    parts += [*filter(None, [messages_of(document)]), price(document)]
    command = f"assistant show {document.run_id}"
    parts += [] if whole else [phrase("answer.show", command=command)]
    yield from _join_parts(parts, "  ")
    yield from _provenance_lines(document) if whole else ()


def _gaps(document: AnswerDocument) -> list[str]:
    """Return what was not covered, with the errors behind it for the operator."""
    errors = (g.reason for g in document.coverage.not_covered if g.stopped_by == "tool_error")
    return [*gaps(document), *filter(None, dict.fromkeys(errors))]


def _join_parts(parts: Iterable[str], indent: str) -> Iterator[str]:
    """Yield parts in lines that break only between parts."""
    text = " · ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    for line in wrap(text, indent):
        yield line.replace("\N{NO-BREAK SPACE}", " ")


def _provenance_lines(document: AnswerDocument) -> Iterator[str]:
    """Yield how an answer was made, for the operator."""
    cover, parts = document.coverage, []
    if cover.items:
        parts.append(", ".join((format_count(cover.items, "subagent"), *cover.outcomes())))
    if cover.looked_up:
        parts.append(f"{format_count(cover.looked_up, 'item')} looked up")
    parts.append(f"{document.cited} of {len(document.statements)} statements cited")
    parts.append(f"{document.usage.total:,} tokens")
    yield ""
    yield from wrap(" · ".join(parts), "  ")
    if document.stopped_by != "none":
        why = f" ({one_line(document.reason)})" if document.reason else ""
        yield from wrap(f"stopped by {document.stopped_by}{why}", "  ")
    if document.unsupported:
        yield from wrap(phrase("answer.unsupported", n=document.unsupported))
    yield from wrap(phrase("answer.together")) if document.degraded else ()
