"""A sweep as Slack shows it: a first message that says what to do, and the rest in its thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

from bot.approval.slips import Block, Element, bold, paragraph, rich
from bot.cli.report import OFFLINE
from bot.replies.render import Part
from bot.reports.figures import figures_of
from bot.reports.findings import Quiet, Told
from bot.reports.lines import Line
from bot.reports.pieces import MAX_MESSAGE, Piece, packed, piece, weight
from bot.reports.sweep_view import MANY_MARKETS, Market, Report, report_of
from bot.reports.words import Words, words_of

Allowed = Mapping[str, int]

TABLE = "findings.csv"
MOST_MESSAGES = 25
"""Messages in the thread that tell of findings; they go out at one a second."""
SHORT = 8_000
"""Characters of the first message, where it can be as short."""
ALLOWED = (
    {"patterns": 4, "markets": 30, "gaps": 5, "named": 6},
    {"patterns": 3, "markets": 15, "gaps": 3, "named": 4},
    {"patterns": 2, "markets": 6, "gaps": 2, "named": 2},
    {"patterns": 1, "markets": 0, "gaps": 1, "named": 1},
)
"""Lines of each in the first message, the first that fits."""
MOST_MARKETS_NAMED = 8
MOST_NOTES = 4
MOST_GAPS = 15
MOST_PATTERNS = 10
ROWS = 2_500
"""Characters of a list; a longer one goes on in another block."""


def fallback(document: Mapping[str, Any]) -> str:
    """A sweep in one line, for notifications: numbers alone, nothing that a stranger wrote."""
    words = words_of(document.get("language"))
    channels = words("channels", n=len(document["sections"]))
    return f"{words('sweep')}, {channels}: {figures_of(document).line(words)}."


def sweep_parts(document: Mapping[str, Any], place: str = TABLE) -> tuple[Part, ...]:
    """A sweep as messages: the first stands by itself, the others follow in its thread.

    `place` is where readers find all findings, where there are too many to be told.
    """
    report = report_of(document)
    allowed, first = _first(report)
    foot = list(_foot(report, allowed))
    told = packed(_markets(report, place))
    thread = [*told[:MOST_MESSAGES], *packed(_quiet(report))]
    if told[MOST_MESSAGES:]:
        left = report.words("cut", n=report.issues - _count(thread), place=place)
        foot = [piece(rich(paragraph(bold(left)))), *foot]
    messages = [[first], *thread, *packed(foot)] if thread else packed([first, *foot])
    return tuple(_parts(messages, fallback(document), report.words))


def _count(messages: Iterable[Sequence[Piece]]) -> int:
    return sum(each.findings for message in messages for each in message)


def _parts(messages: Sequence[Sequence[Piece]], text: str, words: Words) -> Iterator[Part]:
    for number, message in enumerate(messages, 1):
        part = words("part", n=str(number), of=str(len(messages)))
        blocks = tuple(block for each in message for block in each.blocks)
        yield Part(text if number == 1 else f"{words('sweep')}, {part}", blocks)


# ---- the first message


def _first(report: Report) -> tuple[Allowed, Piece]:
    """As much as makes a short message; at last as little as fits into one."""
    for most in (SHORT, MAX_MESSAGE):
        for allowed in ALLOWED:
            first = piece(*_head(report, allowed))
            if first.weight <= most:
                return allowed, first
    return allowed, first


def _head(report: Report, allowed: Allowed) -> Iterator[Block]:
    words = report.words
    yield {"type": "header", "text": _plain(report.title)}
    told = [report.period, report.ended, OFFLINE if report.offline else ""]
    parts: list[Element] = [paragraph(bold(report.counts), "\n" + "\n".join(filter(None, told)))]
    if report.first:
        items = [paragraph(each.text, *_named(each, allowed)) for each in report.first]
        parts += [_titled(words("first")), _list(items, "ordered")]
    if patterns := report.patterns[: allowed["patterns"]]:
        parts += [_titled(words("patterns")), _list([_pattern(p, allowed) for p in patterns])]
    yield rich(*parts)
    yield from _known(report, allowed)
    if markets := report.markets[: allowed["markets"]]:
        rows = [_market(market, words) for market in markets]
        rows += _rest(len(report.markets) - len(markets), words)
        yield rich(_titled(words("markets")), _list(rows))


def _known(report: Report, allowed: Allowed) -> Iterator[Block]:
    """What is to be known beside the issues: the tracker, notes, what is not covered."""
    words, gaps = report.words, report.gaps[: allowed["gaps"]]
    notes = [*([report.tracker] if report.tracker else []), *report.notes[:MOST_NOTES]]
    parts: list[Element] = []
    if notes:
        parts += [_titled(words("to_know")), _list([paragraph(note) for note in notes])]
    if gaps:
        rows = [paragraph(gap) for gap in gaps] + _rest(len(report.gaps) - len(gaps), words)
        parts += [_titled(words("gaps")), _list(rows)]
    if parts:
        yield rich(*parts)


def _named(line: Line, allowed: Allowed) -> Iterator[str | Element]:
    shown = line.named[: allowed["named"]]
    for number, link in shown:
        yield " "
        yield _link(link, f"[{number}]") or f"[{number}]"
    if more := line.more + len(line.named) - len(shown):
        yield f" +{more}"


def _pattern(line: Line, allowed: Allowed) -> Element:
    markets = [f"#{name}" for name in line.markets[:MOST_MARKETS_NAMED]]
    more = len(line.markets) - len(markets)
    named = f"{', '.join(markets)}{f' +{more}' if more else ''}"
    beside: list[str | Element] = [" · ", bold(named)] if named else []
    return paragraph(line.text, *beside, *_named(line, allowed))


def _market(market: Market, words: Words) -> Element:
    return paragraph(f"{market.dot} ", bold(f"#{market.name}"), f"  {market.line(words)}")


def _rest(more: int, words: Words) -> list[Element]:
    return [paragraph(words("more", n=more))] if more > 0 else []


# ---- the thread


def _markets(report: Report, place: str) -> Iterator[Piece]:
    """A message a market; where they are many, as few messages as they fit into."""
    dense = len(report.markets) > MANY_MARKETS
    for number, market in enumerate(report.markets):
        if market.open or market.resting:
            first = not dense or not number
            yield from _told(market, report.words, place, first)


def _told(market: Market, words: Words, place: str, is_first: bool) -> Iterator[Piece]:
    header = {"type": "header", "text": _plain(f"#{market.name}")}
    said = "\n".join(filter(None, (f"{market.dot} {market.line(words)}", market.summary)))
    head: tuple[Block, ...] = (header, rich(paragraph(said)))
    for each in market.open:
        yield piece(*head, rich(*_finding(each, words)), findings=1, is_first=is_first)
        head, is_first = (), False
    if market.resting:
        yield from _listed(words("resting"), list(_resting(market)), head, is_first)
    if market.more:
        more = words("elsewhere", n=market.more, place=place)
        yield piece(rich(paragraph(more)))


def _finding(told: Told, words: Words) -> Iterator[Element]:
    state = f" · {told.state}" if told.state else ""
    parts: list[str | Element] = [bold(told.head), f"{state} · ", bold(told.claim)]
    if link := _link(told.link, words("link")):
        parts += [" · ", link]
    yield paragraph(*parts)
    for quote in told.quotes:
        yield {"type": "rich_text_quote", "elements": paragraph(quote)["elements"]}
    who = " · ".join(filter(None, (told.customers, told.extent)))
    rest: list[str | Element] = [f"{who}\n{words('owner')}: ", bold(told.owner)]
    rest += [f"\n→ {told.step}"] if told.step else []
    rest += [f"\n{told.why}"] if told.why else []
    if told.tracker:
        rest += [f"\n{words('tracker')}: ", _link(told.tracker_link, told.tracker) or told.tracker]
    yield paragraph(*rest)


def _resting(market: Market) -> Iterator[Element]:
    for each in market.resting:
        parts: list[str | Element] = [bold(each.head), f" · {each.state} · {each.claim}"]
        parts += [" · ", link] if (link := _link(each.link, "↗")) else []
        yield paragraph(*parts)


def _quiet(report: Report) -> Iterator[Piece]:
    rows = [_waiting(each) for each in report.quiet]
    rows += _rest(report.more_quiet, report.words)
    if rows:
        yield from _listed(report.words("no_news"), rows, is_first=True, findings=False)


def _waiting(issue: Quiet) -> Element:
    parts: list[str | Element] = [f"{issue.dot} ", bold(f"#{issue.market}")]
    parts += [f" · {issue.age} · {issue.state} · {issue.claim} · {issue.owner}"]
    parts += [" · ", link] if (link := _link(issue.link, "↗")) else []
    return paragraph(*parts)


def _foot(report: Report, allowed: Allowed) -> Iterator[Piece]:
    """What the first message had no room for; then what was read, and what it cost."""
    words = report.words
    patterns = [_pattern(each, ALLOWED[0]) for each in report.patterns[allowed["patterns"] :]]
    gaps = report.gaps[allowed["gaps"] :]
    missing = [paragraph(gap) for gap in gaps[:MOST_GAPS]] + _rest(len(gaps) - MOST_GAPS, words)
    for title, rows in (("patterns", patterns[:MOST_PATTERNS]), ("gaps", missing)):
        yield from _listed(words(title), rows, findings=False)
    yield piece(rich(paragraph(bold(words("sources")), f"\n{_sources(report)}")))
    yield piece({"type": "context", "elements": [_plain(each, 2_000) for each in report.foot]})


def _sources(report: Report) -> str:
    """The channels and what was read of each; of very many the first."""
    named = [f"#{market.name}: {market.read}" for market in report.markets]
    ends = accumulate(len(escape(each, quote=False)) for each in named)
    shown = named[: sum(end <= ROWS for end in ends)]
    more = len(named) - len(shown)
    return "; ".join([*shown, *([report.words("more", n=more)] if more else [])])


def _listed(
    title: str,
    rows: Sequence[Element],
    head: tuple[Block, ...] = (),
    is_first: bool = False,
    findings: bool = True,
) -> Iterator[Piece]:
    """A list under its title, in as few blocks as it fits into."""
    heads: tuple[Block, ...] = (*head, rich(paragraph(bold(title))))
    start = 0
    while start < len(rows):
        end, room = start + 1, ROWS - weight([rich(rows[start])])
        while end < len(rows) and (room := room - weight([rich(rows[end])])) >= 0:
            end += 1
        block = rich(_list(rows[start:end]))
        many = end - start if findings else 0
        yield piece(*heads, block, findings=many, is_first=is_first)
        heads, is_first, start = (), False, end


# ---- elements


def _titled(words: str) -> Element:
    return paragraph("\n", bold(words))


def _list(items: Sequence[Element], style: str = "bullet") -> Element:
    return {"type": "rich_text_list", "style": style, "elements": list(items)}


def _link(url: str, words: str) -> Element | None:
    return {"type": "link", "url": url, "text": words} if url else None


def _plain(text: str, most: int = 150) -> Block:
    """A text in which Slack reads no markup and no emoji."""
    shown = text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
    return {"type": "plain_text", "text": shown, "emoji": False}
