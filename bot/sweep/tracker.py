"""Which row of a tracker an issue is: told by code, from keys, links and words that both hold."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from bot.sweep.markets import fits, folded
from bot.sweep.sources import Source
from scopes.slack_names import LINK
from scopes.tool import Item
from subagents.evidence import normal
from subagents.result import Finding, SubagentResult

KEY: Final = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_ACRONYM: Final = re.compile(r"\b(?:[A-Z]{3,8}|[A-Z]{2}(?=-[^\W\d_])|[A-Z][a-z]+[A-Z]\w+)\b")
_NUMBER: Final = re.compile(r"\b(?:0x[0-9a-f]{2,}|\d{4,}|[1-5]\d\d)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W\d_]{5,}")
_COMMON: Final = frozenset("CSV DOC FAQ HTML JPEG JSON PDF PNG TXT URL USB XLSX XML ZIP".split())
"""Formats: acronyms that tell nothing of what is wrong."""
_STEM: Final = 6
"""Letters that stand for a word, so that its endings do not matter."""
LEAST: Final = 0.4
"""Share of a title's weight that must stand in a finding, where words alone decide."""
AHEAD: Final = 1.4
"""So many times the weight of the second best row."""
OPEN_STATES: Final = ("unanswered", "unsolved", "waiting")

Words = frozenset[tuple[str, str]]
"""Kind (`acronym`, `number`, `stem`) and folded text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a tracker, as its subagent handed it in and code checked it."""

    id: str
    key: str
    title: str
    closed: bool
    market: str
    link: str | None
    threads: frozenset[str]
    """Ids of the messages that it links to."""

    @property
    def name(self) -> str:
        return self.key or self.id


def rows_of(results: Iterable[SubagentResult], items: Mapping[str, Item]) -> list[Row]:
    """The rows that were handed in and exist, each once; a key or title that its row does not
    hold is not taken over."""
    found: dict[str, Row] = {}
    for told in (row for r in results for row in (r.value or {}).get("rows", ())):
        if item := items.get(told["id"]):
            text = normal(item.text)
            key, title = (v if normal(v) in text else "" for v in (told["key"], told["title"]))
            linked = frozenset(f"{c}/{s}.{part}" for c, s, part in LINK.findall(item.text))
            closed, market = told["status"] == "closed", told["market"]
            title = title or item.text[:120]
            row = Row(item.id, key, title, closed, market, item.link, linked)
            found.setdefault(item.id, row)
    return list(found.values())


def keys_in(text: str) -> list[str]:
    """The bug keys that a text names, each once."""
    return list(dict.fromkeys(KEY.findall(text)))


@dataclass(frozen=True, slots=True)
class Tracker:
    """All rows of a tracker, to be asked for the one that an issue is."""

    rows: Sequence[Row]

    def by_name(self, name: str) -> Row | None:
        """The row that a key or an id names; None where several or none do."""
        wanted = name.strip(" .[]()").casefold()
        found = [r for r in self.rows if wanted in (r.key.casefold(), r.id.casefold())]
        return found[0] if len(found) == 1 else None

    def find(self, finding: Finding, source: Source) -> Row | None:
        """The row that a finding of this source is about; None where that is not sure."""
        rows = [row for row in self.rows if fits(row.market, source.channel.name)]
        places = {*finding.evidence, *finding.threads}
        linked = [row for row in rows if row.threads & places]
        said = " ".join([finding.claim, finding.next_step, *finding.quotes])
        keys = Counter(key for root in finding.threads for key in source.keys.get(root, ()))
        keys.update(keys_in(said))
        sure = linked or _most(keys, rows)
        return sure[0] if sure else self._alike(finding, rows)

    def _alike(self, finding: Finding, rows: Sequence[Row]) -> Row | None:
        """The row whose title shares rare words with a finding, far ahead of any other."""
        weights = _weights(tuple(row.title for row in self.rows))
        ours = words_of(" . ".join([finding.claim, *finding.quotes]))
        scored = []
        for row in rows:
            shared = ours & words_of(row.title)
            whole = sum(weights[word] for word in words_of(row.title))
            score = sum(weights[word] for word in shared)
            if _telling(shared) and score >= LEAST * whole:
                scored.append((score, row))
        scored.sort(key=lambda pair: -pair[0])
        if not scored or (scored[1:] and scored[0][0] < AHEAD * scored[1][0]):
            return None
        return scored[0][1]


def _most(keys: Counter[str], rows: Sequence[Row]) -> list[Row]:
    """The row whose key is named most, an open one first; none where it stays undecided."""
    by_key = {row.key.upper(): row for row in rows if row.key}
    named = [(count, by_key[key]) for key, count in keys.items() if key in by_key]
    most = max((count for count, _ in named), default=0)
    best = [row for count, row in named if count == most]
    still = [row for row in best if not row.closed]
    return still if len(still) == 1 else best if len(best) == 1 else []


def _telling(shared: Words) -> bool:
    """Whether so many words in common are more than chance."""
    strong = sum(kind != "stem" for kind, _ in shared)
    return strong >= 2 or (strong == 1 and len(shared) > 1) or len(shared) >= 3


@lru_cache(maxsize=4096)
def words_of(text: str) -> Words:
    """What of a text may stand in one of another language, or another wording, as well."""
    bare = KEY.sub(" ", text)
    shouted = sum(c.isupper() for c in bare) * 3 > sum(c.isalpha() for c in bare)
    acronyms = [] if shouted else [a for a in _ACRONYM.findall(bare) if a not in _COMMON]
    stems = _WORD.findall(folded(_ACRONYM.sub(" ", bare)))
    return frozenset(
        [("acronym", folded(a)) for a in acronyms]
        + [("number", n.casefold()) for n in _NUMBER.findall(bare)]
        + [("stem", word[:_STEM]) for word in stems]
    )


@lru_cache(maxsize=8)
def _weights(titles: tuple[str, ...]) -> Mapping[tuple[str, str], float]:
    """How much a word tells one row from the others: the rarer, the more."""
    spread = Counter(word for title in titles for word in words_of(title))
    kinds = {"acronym": 2.0, "number": 1.5, "stem": 1.0}
    return {w: kinds[w[0]] * math.log(1 + len(titles) / count) for w, count in spread.items()}


def tracked_json(row: Row | None, finding: Finding, whole: bool) -> dict[str, Any] | None:
    """What a finding's tracker field says; None = there is nothing to track, or its row may be
    among those that were not read (not `whole`)."""
    if row is None:
        untracked = {"status": "untracked", "key": "", "title": "", "link": None}
        return untracked if whole and finding.state in OPEN_STATES else None
    status = "closed" if row.closed and finding.state in OPEN_STATES else "tracked"
    return {"status": status, "key": row.name, "title": row.title, "link": row.link}
