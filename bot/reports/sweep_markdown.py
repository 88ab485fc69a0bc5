"""A sweep as Markdown, for a mail or a file: nothing in it acts but links that code made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bot.cli.report import OFFLINE
from bot.replies.cite import inert
from bot.reports.findings import Quiet, Told
from bot.reports.lines import Line
from bot.reports.sweep_view import Market, Report, report_of
from bot.reports.words import Words

MARKS = re.compile(r"([\\`*_\[\]<>~#]|&(?=#?\w+;))")
"""What Markdown reads within a line; what it reads at the beginning of one stands nowhere there."""
AT = re.compile(r"@(?=\w)")


def sweep_markdown(document: Mapping[str, Any], place: str = "findings.csv") -> str:
    """The document of a sweep; `place` is where all findings are that are too many to be told."""
    report = report_of(document)
    lines = [*_head(report), *_lists(report)]
    for market in report.markets:
        lines += _market(market, report.words, place)
    return "\n".join([*lines, *_quiet(report), *_foot(report)]) + "\n"


def plain(text: str) -> str:
    """Text of strangers as Markdown that shows it as it is: no markup, link or mention."""
    return MARKS.sub(r"\\\1", AT.sub("@\N{WORD JOINER}", inert(text)))


def _head(report: Report) -> Iterator[str]:
    yield f"# {plain(report.title)}"
    yield from ("", f"**{plain(report.counts)}** · {plain(report.period)}")
    for said in (report.ended, OFFLINE if report.offline else ""):
        yield from ("", plain(said)) if said else ()


def _lists(report: Report) -> Iterator[str]:
    words = report.words
    first = [f"{n}. {_line(line)}" for n, line in enumerate(report.first, 1)]
    yield from _titled(words("first"), first)
    yield from _titled(words("patterns"), [f"- {_line(line)}" for line in report.patterns])
    notes = [*([report.tracker] if report.tracker else []), *report.notes]
    yield from _titled(words("to_know"), [f"- {plain(note)}" for note in notes])
    yield from _titled(words("gaps"), [f"- {plain(gap)}" for gap in report.gaps])
    rows = [f"- {m.dot} **#{plain(m.name)}** {plain(m.line(words))}" for m in report.markets]
    yield from _titled(words("markets"), rows)


def _titled(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from ("", f"## {plain(title)}", "", *rows)


def _line(line: Line) -> str:
    named = [f"[{number}]({url})" if url else f"({number})" for number, url in line.named]
    markets = ", ".join(f"#{plain(name)}" for name in line.markets)
    more = [f"+{line.more}"] if line.more else []
    return " ".join([plain(line.text), *([f"· **{markets}**"] if markets else []), *named, *more])


def _market(market: Market, words: Words, place: str) -> Iterator[str]:
    if not (market.open or market.resting):
        return
    yield from ("", f"## #{plain(market.name)}", "", f"{market.dot} {plain(market.line(words))}")
    if market.summary:
        yield from ("", f"· {plain(market.summary)}")
    for told in market.open:
        yield from _finding(told, words)
    if market.resting:
        yield from ("", f"### {plain(words('resting'))}", "")
    for told in market.resting:
        head = f"- **{plain(told.head)}** · {plain(told.state)} · {plain(told.claim)}"
        yield head + _link(told.link, words)
    if market.more:
        yield from ("", f"· {plain(words('elsewhere', n=market.more, place=place))}")


def _finding(told: Told, words: Words) -> Iterator[str]:
    state = f" · {plain(told.state)}" if told.state else ""
    head = f"**{plain(told.head)}**{state} · **{plain(told.claim)}**{_link(told.link, words)}"
    yield from ("", f"### {head}", "")
    for quote in told.quotes:
        yield from (f"> «{plain(quote)}»", "")
    yield f"- {plain(' · '.join(filter(None, (told.customers, told.extent))))}"
    yield f"- {words('owner')}: **{plain(told.owner)}**"
    yield from [f"- → {plain(told.step)}"] if told.step else []
    yield from [f"- {plain(told.why)}"] if told.why else []
    if told.tracker:
        link = _link(told.tracker_link, words)
        yield f"- {words('tracker')}: {plain(told.tracker)}{link}"


def _quiet(report: Report) -> Iterator[str]:
    rows = [_waiting(issue, report.words) for issue in report.quiet]
    rows += [f"- {report.words('more', n=report.more_quiet)}"] if report.more_quiet else []
    yield from _titled(report.words("no_news"), rows)


def _waiting(issue: Quiet, words: Words) -> str:
    told = (issue.age, issue.state, issue.claim, issue.owner)
    said = " · ".join(plain(each) for each in told)
    return f"- {issue.dot} **#{plain(issue.market)}** · {said}{_link(issue.link, words)}"


def _foot(report: Report) -> Iterator[str]:
    rows = [f"- #{plain(market.name)}: {plain(market.read)}" for market in report.markets]
    rows += [f"- {plain(each)}" for each in report.foot]
    yield from _titled(report.words("sources"), rows)


def _link(url: str, words: Words) -> str:
    return f" · [{words('link')}]({url})" if url else ""
