"""The lines above a report: what to do first, and patterns, with the findings they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.mail.words import said
from bot.reports.findings import NOTHING, linked, quiet
from bot.reports.marks import NAME
from bot.reports.words import Words

LINE = 400
"""Characters shown of one."""
MOST_REFERENCES = 6
"""Findings that are named beside one of them."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to do first, or one pattern."""

    text: str
    named: tuple[tuple[str, str], ...]
    """Findings that it rests on: number and link."""
    more: int
    """How many there are beyond them."""
    markets: tuple[str, ...] = ()
    """Of a pattern, unless its text names them."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Where each finding stands."""

    links: Mapping[str, str] = field(default_factory=dict)
    markets: Mapping[str, str] = field(default_factory=dict)


def _known(document: Json) -> _Known:
    found = [(s["item"], f) for s in document["sections"] for f in s["findings"]]
    links = {finding["id"]: linked(finding["links"]) for _, finding in found}
    return _Known(links, {finding["id"]: item for item, finding in found})


def first_lines(document: Json, numbers: Mapping[str, int], words: Words) -> Iterator[Line]:
    """What the parent wrote; then the high ones of which there is no news, the longest first."""
    yield from lines_of(document, document["top_lines"], numbers, words)
    waiting = [i for i in document.get("still_open") or () if i["severity"] == "high"]
    for issue in sorted(waiting, key=lambda i: -i["age_days"]):
        old = quiet(issue, words)
        age = words("still_open", days=old.age)
        named = (("↗", old.link),) if old.link else ()
        yield Line(f"#{old.market}: {old.claim} · {age}", named, 0)


def lines_of(
    document: Json, lines: Sequence[Json], numbers: Mapping[str, int], words: Words
) -> Iterator[Line]:
    known = _known(document)
    for line in lines:
        ids = [id for id in dict.fromkeys(line["findings"]) if id in numbers]
        named = [(str(numbers[id]), known.links[id]) for id in sorted(ids, key=numbers.__getitem__)]
        text = said(line["text"], LINE) or NOTHING
        markets = [said(name, NAME) for name in line.get("markets") or ()]
        if "customers" in line:
            people = words("customers", n=line["customers"])
            text = f"{text} ({people}, {words('messages', n=line['messages'])})"
        yield Line(
            text=text,
            named=tuple(named[:MOST_REFERENCES]),
            more=max(0, len(named) - MOST_REFERENCES),
            markets=tuple(markets) if any(name not in text for name in markets) else (),
        )
