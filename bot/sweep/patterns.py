"""What the parent of a sweep wrote over its sections: what to do first, patterns, tracker rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bot.replies.cite import SPACED, Statement, ids_in, statements
from bot.sweep.markets import fits
from bot.sweep.tracker import Row, Tracker

MAX_FIRST: Final = 3
MAX_PATTERNS: Final = 8
_PATTERN: Final = re.compile(r"[\s>*•_-]*PATTERN\W*?:\**\s*(?P<said>.*)", re.IGNORECASE)
_TRACKED: Final = re.compile(r"[\s>*•_-]*TRACKED\W*?:\**\s*(?P<said>.*)", re.IGNORECASE)
_PAIR: Final = re.compile(r"(?P<id>F\d+\.\d+)|=\s*\**(?P<name>[^\s,;\]\[*]+)|(?P<else>[^\s,;\]\[])")
"""One step of `F1.1, [F2.3] = row`; all else ends a list of ids."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The lines of a parent that hold what code could check of them."""

    first: tuple[Statement, ...] = ()
    patterns: tuple[Statement, ...] = ()
    """Each cites findings of at least two channels."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Id of a finding, and the key or id of a row that it is said to be."""

    def patterns_json(self, channels: Mapping[str, str]) -> list[dict[str, Any]]:
        """`channels`: id of a finding -> name of its channel."""
        return [
            {
                "text": each.text,
                "findings": list(each.findings),
                "markets": list(dict.fromkeys(channels[id] for id in each.findings)),
            }
            for each in self.patterns
        ]


def read_overview(text: str, channels: Mapping[str, str]) -> Overview:
    """What of a parent's text rests on findings; `channels`: id of a finding -> its channel."""
    rest: list[str] = []
    patterns: list[Statement] = []
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        if pattern := _PATTERN.match(line):
            patterns += _pattern(pattern["said"], channels)
        elif tracked := _TRACKED.match(line):
            pairs += _pairs(tracked["said"], channels)
        else:
            rest.append(line)
    first = [s for s in statements("\n".join(rest), channels) if s.findings]
    return Overview(tuple(first[:MAX_FIRST]), tuple(patterns[:MAX_PATTERNS]), tuple(pairs))


def _pattern(said: str, channels: Mapping[str, str]) -> list[Statement]:
    cited = tuple(dict.fromkeys(id for id in ids_in(said) if id in channels))
    text = SPACED.sub("", said).strip(" .")
    whole = text and len({channels[id] for id in cited}) > 1
    return [Statement(text, cited)] if whole else []


def _pairs(said: str, channels: Mapping[str, str]) -> list[tuple[str, str]]:
    pairs, ids = list[tuple[str, str]](), list[str]()
    for step in _PAIR.finditer(said):
        if step["id"]:
            ids.append(step["id"])
        else:
            pairs += [(id, step["name"]) for id in ids if step["name"] and id in channels]
            ids = []
    return pairs


def paired(overview: Overview, tracker: Tracker, channels: Mapping[str, str]) -> dict[str, Row]:
    """The rows that the parent named, where they exist and their market fits; a finding that is
    said to be several rows is none of them."""
    found: dict[str, set[Row]] = {}
    for id, name in overview.pairs:
        row = tracker.by_name(name)
        if row and fits(row.market, channels[id]):
            found.setdefault(id, set()).add(row)
    return {id: rows.pop() for id, rows in found.items() if len(rows) == 1}
