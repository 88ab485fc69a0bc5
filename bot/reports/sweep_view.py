"""A sweep as people read it: what to do first, what is new, each finding in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bot.cli.report import DOTS
from bot.mail.words import said
from bot.reports.figures import Figures, figures_of
from bot.reports.findings import RESTING, Quiet, Told, is_open, quiet, told
from bot.reports.lines import Line, first_lines, lines_of
from bot.reports.marks import NAME
from bot.reports.words import Words, words_of
from scopes.tool import one_line

TITLE, SENTENCE = 100, 240
"""Characters shown of each."""
MOST_FIRST = 3
"""Things to do first."""
MOST_TOLD = 300
"""Findings that a report tells of; a table of all of them comes with it."""
MOST_QUIET = 100
MANY_MARKETS = 12
"""More of them are told by how they press, not in the order in which they were asked for."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Market:
    """One channel."""

    name: str
    dot: str
    """Of the most severe that is open, with those of which there is no news; else a dash."""
    is_whole: bool
    figures: Figures
    read: str
    """How much was read, and how that ended where it is not whole."""
    summary: str
    """Where there is nothing else to tell, or where it was not read to its end."""
    open: tuple[Told, ...]
    resting: tuple[Told, ...]
    more: int
    """Findings that are not told."""

    def line(self, words: Words) -> str:
        """The market in a line: what of it is open, and what was read."""
        return " · ".join(filter(None, (self.counts(words), self.read)))

    def counts(self, words: Words) -> str:
        """What of it is open; nothing where nothing was found in what was not read."""
        if not self.figures.open:
            return words("none_open") if self.is_whole else ""
        return self.figures.short(words)


@dataclass(frozen=True, slots=True)
class Report:
    words: Words
    title: str
    period: str
    counts: str
    """How many issues are open, new, solved: numbers alone."""
    ended: str
    """Why it is not whole; empty where it is."""
    offline: bool
    first: tuple[Line, ...]
    patterns: tuple[Line, ...]
    tracker: str
    """Empty where none was to be read."""
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    """What is not covered."""
    markets: tuple[Market, ...]
    quiet: tuple[Quiet, ...]
    more_quiet: int
    foot: tuple[str, ...]
    """What was dropped, what it cost."""

    @property
    def issues(self) -> int:
        """Findings that there are to be told of."""
        return sum(len(m.open) + len(m.resting) + m.more for m in self.markets)


def report_of(document: Json) -> Report:
    """The document of a sweep, its findings numbered in the order in which they are read."""
    words = words_of(document.get("language"))
    document = document if document.get("compared") else _alone(document)
    figures = figures_of(document)
    order = _ordered(document["sections"])
    numbers = numbered(document)
    still = document.get("still_open") or ()
    return Report(
        words=words,
        title=": ".join(filter(None, (words("issues"), said(document.get("title"), TITLE)))),
        period=_period(document, words),
        counts=figures.line(words),
        ended=_ended(document, words),
        offline=document["model"] == "offline",
        first=tuple(islice(first_lines(document, numbers, words), MOST_FIRST)),
        patterns=tuple(lines_of(document, document.get("patterns") or (), numbers, words)),
        tracker=_tracker(document.get("tracker"), words),
        notes=tuple(_notes(document, words)),
        gaps=tuple(_told(document["coverage"]["not_covered"])),
        markets=tuple(_markets(order, numbers, words, still)),
        quiet=tuple(quiet(issue, words) for issue in still[:MOST_QUIET]),
        more_quiet=max(0, len(still) - MOST_QUIET),
        foot=tuple(_foot(document, words)),
    )


def _alone(document: Json) -> Json:
    """Of a first report nothing is new: it would be told of each of its findings."""
    sections = [
        {**section, "findings": [{**f, "change": None} for f in section["findings"]]}
        for section in document["sections"]
    ]
    return {**document, "sections": sections}


def numbered(document: Json) -> dict[str, int]:
    """Every finding's place in the report, from 1."""
    order = _ordered(document["sections"])
    ids = [finding["id"] for section in order for finding in section["findings"]]
    return {id: number for number, id in enumerate(dict.fromkeys(ids), 1)}


def _ordered(sections: Sequence[Json]) -> Sequence[Json]:
    """As they were asked for; the pressing ones first where they are many."""
    if len(sections) <= MANY_MARKETS:
        return sections

    def calm(section: Json) -> tuple[int, int]:
        waiting = [f for f in section["findings"] if is_open(f)]
        return -sum(f["severity"] == "high" for f in waiting), -len(waiting)

    return sorted(sections, key=calm)


# ---- what comes first


def _period(document: Json, words: Words) -> str:
    window, sections = document["window"], document["sections"]
    ends = [words.day(window[each]) for each in ("oldest", "latest")]
    if ends[0] == ends[1]:
        ends = [words.minute(window[each]) for each in ("oldest", "latest")]
    days = words("period", start=ends[0], end=ends[1])
    read = _read([section["coverage"] for section in sections], words)
    return f"{days} · {words('channels', n=len(sections))} · {read}"


def _read(covers: Sequence[Json], words: Words) -> str:
    messages = words("messages", n=sum(cover["messages_read"] for cover in covers))
    threads = words("threads", n=sum(cover["threads_read"] for cover in covers))
    return words("read", messages=messages, threads=threads)


def _ended(document: Json, words: Words) -> str:
    ended = f"ended_{document['status']}"
    return words(ended) if ended in words.table else ""


def _tracker(tracker: Json | None, words: Words) -> str:
    if not tracker:
        return ""
    named = said(tracker.get("title"), TITLE)
    head = words("tracker") + (f" ({named})" if named else "")
    status, why = tracker["status"], said(tracker.get("reason"), SENTENCE)
    if status not in ("complete", "partial"):
        return f"{head}: {words('unread', why=why)}"
    counts = ", ".join(
        words(f"{key}_ones", n=tracker[key]) for key in ("untracked", "tracked", "closed")
    )
    return f"{head}: {counts}" + (f" · {words('partly', why=why)}" if status == "partial" else "")


def _notes(document: Json, words: Words) -> Iterator[str]:
    for key, name in (("added", "channels_added"), ("gone", "channels_gone")):
        if names := document.get(name):
            yield words(key, names=said(", ".join(f"#{each}" for each in names), SENTENCE))
    yield from _told(document.get("notes") or ())


def _told(sentences: Sequence[object]) -> Iterator[str]:
    return filter(None, (said(each, SENTENCE) for each in sentences))


# ---- the markets


def _markets(
    sections: Sequence[Json], numbers: Mapping[str, int], words: Words, still: Sequence[Json]
) -> Iterator[Market]:
    shown = [[f for f in s["findings"] if is_open(f)] for s in sections]
    rest = [_resting(s["findings"]) for s in sections]
    most = _share([len(o) + len(r) for o, r in zip(shown, rest, strict=True)])
    for section, waiting, resting in zip(sections, shown, rest, strict=True):
        name = said(section["item"], NAME)
        first, second = waiting[:most], resting[: max(0, most - len(waiting))]
        told_of = len(first) + len(second)
        old = [issue for issue in still if issue["item"] == section["item"]]
        severities = [each["severity"] for each in (*waiting, *old)]
        worst = next((s for s in DOTS if s in severities), "")
        whole = section["status"] == "complete"
        yield Market(
            name=name,
            dot=DOTS.get(worst, "–"),
            is_whole=whole,
            figures=figures_of({"sections": [section], "still_open": old}),
            read=_read([section["coverage"]], words)
            + ("" if whole else f" ({words(section['status'])})"),
            summary="" if whole and told_of else said(section["summary"], SENTENCE),
            open=tuple(told(f, numbers[f["id"]], name, words) for f in first),
            resting=tuple(told(f, numbers[f["id"]], name, words) for f in second),
            more=len(waiting) + len(resting) - told_of,
        )


def _resting(findings: Sequence[Json]) -> list[Json]:
    """What needs no action; what has become so since the last report first."""
    resting = [f for f in findings if f["state"] in RESTING]
    return sorted(resting, key=lambda f: not f.get("change"))


def _share(sizes: Sequence[int]) -> int:
    """How many findings of each market can be told of, so that no market is left without."""
    most = max(sizes, default=0)
    while most > 1 and sum(min(most, size) for size in sizes) > MOST_TOLD:
        most -= 1
    return most


def _foot(document: Json, words: Words) -> Iterator[str]:
    if document["unsupported"]:
        yield words("dropped", n=document["unsupported"])
    cost, offline = document["cost_usd"], document["model"] == "offline"
    price = words("no_price") if cost is None else f"${cost:.4f}"
    price += f" ({words('listed')})" if offline else ""
    tokens = words("tokens", n=document["usage"]["total"])
    yield f"{price} · {tokens} · {words('run', id=one_line(str(document['run_id']))[:NAME])}"
