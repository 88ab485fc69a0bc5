"""Match issues by code: duplicates with each other, and issues with rows of a tracker."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import aiohttp

from bot.reports.documents import TrackerEntry, TrackerSummary
from bot.tasks.sources import NO_ANSWER, SweepSource
from config.prompts import prompt
from config.words import Text, phrase
from scopes.clean import normalize_unicode
from scopes.effects import Handles
from scopes.intent import LINK
from scopes.label import TRUSTED_LABEL
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import SlackReader
from scopes.tool import Item, estimate_tokens, one_line
from subagents.brief import Brief, BriefDraft
from subagents.evidence import distinct, normal
from subagents.fanout import Fanout
from subagents.result import CustomerCase, Finding, SubagentResult, tracked_rows
from subagents.run import Run
from subagents.summary import SEVERITIES, rank
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

KEY: Final = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_ACRONYM: Final = re.compile(r"\b(?:[A-Z]{3,8}|[A-Z]{2}(?=-[^\W\d_])|[A-Z][a-z]+[A-Z]\w+)\b")
_NUMBER: Final = re.compile(r"\b(?:0x[0-9a-f]{2,}|\d{4,}|[1-5]\d\d)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W\d_]{5,}")
_FORMAT_ACRONYMS: Final = frozenset(
    "CSV DOC FAQ HTML JPEG JSON PDF PNG TXT URL USB XLSX XML ZIP".split()
)
"""Formats: acronyms that say nothing about the problem."""
_STEM_LETTERS: Final = 6
"""Letters of a word's stem, so that its endings do not matter."""
MIN_WEIGHT_SHARE: Final = 0.4
"""Share of a title's weight that a finding must contain, if only words decide."""
MIN_LEAD_RATIO: Final = 1.4
"""Required ratio to the weight of the second best row."""
OPEN_STATES: Final = ("unanswered", "unsolved", "waiting", "known")

Words = frozenset[tuple[str, str]]
"""Kind (`acronym`, `number`, `stem`) and folded text."""


@dataclass(frozen=True, slots=True)
class TrackerRow:
    """One row of a tracker, as its subagent returned it and code checked it."""

    id: str
    key: str
    title: str
    closed: bool
    market: str
    link: str | None
    threads: frozenset[str]
    """Ids of the linked messages."""
    stage: str = ""
    """Its status as written, such as `in progress`."""
    owner: str = ""

    @property
    def name(self) -> str:
        return self.key or self.id


def rows_of(results: Iterable[SubagentResult], items: Mapping[str, Item]) -> list[TrackerRow]:
    """Return the rows that were returned and exist, each once.

    A key, title, stage or owner that is not in its row is not used.
    """
    found: dict[str, TrackerRow] = {}
    for tracked in (row for r in results for row in tracked_rows(r)):
        if item := items.get(tracked.id):
            text = normal(item.text)
            fields = (tracked.key, tracked.title, tracked.stage, tracked.owner)
            key, title, stage, owner = (v if normal(v) in text else "" for v in fields)
            linked = frozenset(f"{c}/{s}.{part}" for c, s, part in LINK.findall(item.text))
            title, closed = title or item.text[:120], tracked.status == "closed"
            row = TrackerRow(
                item.id, key, title, closed, tracked.market, item.link, linked, stage, owner
            )
            found.setdefault(item.id, row)
    return list(found.values())


def keys_in(text: str) -> list[str]:
    """Return the bug keys in a text, each once."""
    return list(dict.fromkeys(KEY.findall(text)))


@dataclass(frozen=True, slots=True)
class TrackerReader:
    """All rows of a tracker, searched for the one that matches an issue."""

    rows: Sequence[TrackerRow]
    channels: Sequence[str]
    """Names of the channels of the sweep."""

    def by_name(self, name: str) -> TrackerRow | None:
        """Return the row with this key or id; None if several or none match."""
        target = name.casefold()
        found = [r for r in self.rows if target in (r.key.casefold(), r.id.casefold())]
        return found[0] if len(found) == 1 else None

    def fits(self, row: TrackerRow, channel: str) -> bool:
        """Return whether a row may be about an issue of this channel.

        Its market must name this channel, or no channel of the sweep.
        """
        words = _name_words(row.market)
        markets = [name for name in self.channels if words & _name_words(name)]
        return not markets or channel in markets

    def find(self, finding: Finding, source: SweepSource) -> TrackerRow | None:
        """Return the row that a finding of this source is about; None if that is not certain."""
        rows = [row for row in self.rows if self.fits(row, source.channel.name)]
        places = {*finding.evidence, *finding.threads}
        linked = [row for row in rows if row.threads & places]
        text = " ".join([finding.claim, finding.next_step, *finding.quotes])
        keys = source.plan.keys if source.plan else {}
        key_counts = Counter(key for root in finding.threads for key in keys.get(root, ()))
        key_counts.update(keys_in(text))
        sure = linked or _most(key_counts, rows)
        return sure[0] if sure else self._alike(finding, rows)

    def _alike(self, finding: Finding, rows: Sequence[TrackerRow]) -> TrackerRow | None:
        """Return the row whose title shares rare words with a finding, far ahead of any other."""
        weights = _weights(tuple(row.title for row in self.rows))
        words = words_of(" . ".join([finding.claim, *finding.quotes]))
        scored = []
        for row in rows:
            shared = words & words_of(row.title)
            whole = sum(weights[word] for word in words_of(row.title))
            score = sum(weights[word] for word in shared)
            if _is_telling(shared) and score >= MIN_WEIGHT_SHARE * whole:
                scored.append((score, row))
        scored.sort(key=lambda pair: -pair[0])
        if not scored or (scored[1:] and scored[0][0] < MIN_LEAD_RATIO * scored[1][0]):
            return None
        return scored[0][1]


def fold(text: str) -> str:
    """Return the text in lower case without accents, to compare words of several languages."""
    plain = normalize_unicode(text.replace("ß", "ss"), "NFKD")
    return "".join(c for c in plain if not unicodedata.combining(c)).casefold()


@lru_cache(maxsize=1024)
def _name_words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", fold(name)))


def _most(keys: Counter[str], rows: Sequence[TrackerRow]) -> list[TrackerRow]:
    """Return the row whose key occurs most, preferring open rows; None if undecided."""
    by_key = {row.key.upper(): row for row in rows if row.key}
    counted = [(count, by_key[key]) for key, count in keys.items() if key in by_key]
    most = max((count for count, _ in counted), default=0)
    best = [row for count, row in counted if count == most]
    still = [row for row in best if not row.closed]
    return still if len(still) == 1 else best if len(best) == 1 else []


def _is_telling(shared: Words) -> bool:
    """Return whether so many common words exceed chance."""
    strong = sum(kind != "stem" for kind, _ in shared)
    return strong >= 2 or (strong == 1 and len(shared) > 1) or len(shared) >= 3


@lru_cache(maxsize=4096)
def words_of(text: str) -> Words:
    """Return the words of a text that may also occur in another language or wording."""
    rest = KEY.sub(" ", text)
    shouted = sum(c.isupper() for c in rest) * 3 > sum(c.isalpha() for c in rest)
    acronyms = [] if shouted else [a for a in _ACRONYM.findall(rest) if a not in _FORMAT_ACRONYMS]
    stems = _WORD.findall(fold(_ACRONYM.sub(" ", rest)))
    return frozenset(
        [("acronym", fold(a)) for a in acronyms]
        + [("number", n.casefold()) for n in _NUMBER.findall(rest)]
        + [("stem", word[:_STEM_LETTERS]) for word in stems]
    )


@lru_cache(maxsize=8)
def _weights(titles: tuple[str, ...]) -> Mapping[tuple[str, str], float]:
    """Weigh each word by how well it distinguishes the rows: the rarer, the more."""
    spread = Counter(word for title in titles for word in words_of(title))
    kinds = {"acronym": 2.0, "number": 1.5, "stem": 1.0}
    return {w: kinds[w[0]] * math.log(1 + len(titles) / count) for w, count in spread.items()}


def tracker_entry(row: TrackerRow | None, finding: Finding, whole: bool) -> TrackerEntry | None:
    """Return the tracker entry of a finding.

    None = there is nothing to track, or its row may be among those that were not read (not
    `whole`).
    """
    if row is None:
        return TrackerEntry(status="untracked") if whole and finding.state in OPEN_STATES else None
    status = "closed" if row.closed and finding.state in OPEN_STATES else "tracked"
    return TrackerEntry(
        status=status,
        key=row.name,
        title=row.title,
        stage=row.stage,
        owner=row.owner,
        link=row.link,
    )


_STANDARD: Final = re.compile(r"(?:UTF|ISO|RFC|SHA|AES|MD|CVE)-")
"""Prefixes of names that look like the key of a bug."""
_BUG: Final = re.compile(r"(?:\bbug\s*#?|show_bug\.cgi\?id=)(\d{4,})", re.IGNORECASE)
MIN_WORD_OVERLAP: Final = 0.5
"""Minimum share of common words for two claims of one customer to be one issue."""


def join_duplicates(
    findings: Sequence[Finding], keys: Mapping[str, Sequence[str]]
) -> list[tuple[Finding, list[str]]]:
    """Return each issue once, ranked, with the ids of the findings that were joined to its first.

    A known bug is listed once for all customers who wait for it, and an issue of a customer once.
    `keys`: root of a thread -> the bug keys that it names.
    """
    groups: list[list[Finding]] = []
    for finding in sorted(findings, key=rank):
        own = next((g for g in groups if any(_same(f, finding, keys) for f in g)), None)
        if own is None:
            groups.append([finding])
        else:
            own.append(finding)
    issues = [(_join(group), [f.id for f in group[1:]]) for group in groups]
    return sorted(issues, key=lambda each: rank(each[0]))


def _same(one: Finding, other: Finding, keys: Mapping[str, Sequence[str]]) -> bool:
    if one.state != other.state or one.state == "none":
        return False
    if one.state == "known" and _bugs(one, keys) & _bugs(other, keys):
        return True
    return is_one_issue(one, other)


def is_one_issue(one: Finding, other: Finding) -> bool:
    """Return whether two findings of a channel report one issue of a customer, in any state."""
    shared = distinct(one.customers) & distinct(other.customers)
    return bool(shared) and _alike(one.claim, other.claim)


def _bugs(finding: Finding, keys: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the bugs that a finding names, else the single bug that its threads name."""
    text = " ".join([finding.claim, finding.next_step, *finding.quotes])
    bugs = {k for k in keys_in(text) if not _STANDARD.match(k)} | set(_BUG.findall(text))
    read = {k for root in finding.threads for k in keys.get(root, ()) if not _STANDARD.match(k)}
    return bugs or (read if len(read) == 1 else set())


def _alike(one: str, other: str) -> bool:
    if one_line(one).casefold() == one_line(other).casefold():
        return True
    first, second = words_of(one), words_of(other)
    return bool(first and second) and len(first & second) >= MIN_WORD_OVERLAP * len(first | second)


def _join(group: Sequence[Finding]) -> Finding:
    """Return the first finding, extended by the others."""
    first, *others = group
    if not others:
        return first
    merged = {
        name: list(dict.fromkeys(each for f in group for each in getattr(f, name)))
        for name in ("evidence", "quotes", "customers", "links", "queries", "threads", "sources")
    }
    waits = list(dict.fromkeys(name for f in group for name in f.waits))
    cases: dict[str, CustomerCase] = {}
    for case in (each for f in group for each in f.cases):
        cases.setdefault(case.customer.casefold(), case)
    people = len(distinct(name for f in group for name in f.customers)) or len(waits)
    return first.model_copy(
        update={
            **merged,
            "waits": waits,
            "cases": list(cases.values()),
            "deadline": min((f.deadline for f in group if f.deadline), default=""),
            "people": max(people, *(f.people for f in group)),
            "messages": sum(f.messages for f in group),
            "severity": min((f.severity for f in group), key=SEVERITIES.index),
            "since": min((f.since for f in group if f.since), default=None),
            "waits_since": min((f.waits_since for f in group if f.waits_since), default=None),
        }
    )


MOST_ROWS = 80
"""Maximum rows for one subagent: its result has to fit into one answer."""
NO_TRACKER_MESSAGE = Text("gap.no_list")


@dataclass
class TrackerReading:
    """One tracker being read during a sweep.

    Its subagents see no channel, and subagents of channels do not see it.
    """

    id: str
    title: str
    """Empty if the settings do not have it (`slack.lists`)."""
    run: Run
    fanout: Fanout
    items: list[Item] = field(default_factory=list)
    fault: str = ""
    """Why it could not be read."""
    results: list[SubagentResult] = field(default_factory=list)

    async def look(self) -> None:
        """Read its rows, once in all processes of the run."""
        key = f"{self.run.id}/p1/tracker"
        self.items, self.fault = await self.run.once(key, tuple[list[Item], str], self._look)

    async def _look(self) -> tuple[list[Item], str]:
        """Return its rows, or why they could not be read."""
        reader = self.run.client(SlackReader)
        try:
            if await self.run.gate.may_read(self.run.requester, self.id):
                return await reader.list_rows(self.id), ""
            fault = str(NO_TRACKER_MESSAGE)
        except Absent:
            fault = str(NO_TRACKER_MESSAGE)
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            fault = str(error) or str(NO_ANSWER)
        except Exception as error:  # boundary: a malformed list must not harm the channels
            log.exception("reading the list %s of %s crashed", self.id, self.run.id)
            fault = crash_text("reading it", error)
        return [], fault

    async def judge(self) -> None:
        """Run its subagents, which return the content of the rows."""
        self.results = await self.fanout.run_all([self._brief(b) for b in self._batches()])

    def _batches(self) -> list[list[Item]]:
        most, batches, size = self.run.limits.max_material_tokens // 2, list[list[Item]](), 0
        for item in self.items:
            size += estimate_tokens(item.line())
            if not batches or size > most or len(batches[-1]) >= MOST_ROWS:
                batches.append([])
                size = estimate_tokens(item.line())
            batches[-1].append(item)
        return batches

    def _brief(self, rows: Sequence[Item]) -> Brief:
        draft = BriefDraft(
            task=prompt("sweep_tracker").replace("{list}", self.id),
            description=f"Read {self.title or 'the tracker'}"[:120],
            scope="slack",
            contract="tracker",
        )
        return Brief(
            draft,
            Handles(),
            None,
            TRUSTED_LABEL,
            material=tuple(rows),
            expects={self.id: tuple(item.id for item in rows)},
            requester=self.run.requester,
        )

    def rows(self) -> list[TrackerRow] | None:
        """Return its rows; None if none could be read."""
        rows = rows_of(self.results, {item.id: item for item in self.items})
        return rows if rows or not (self.fault or self.items) else None

    def summary(self, found: Sequence[TrackerEntry]) -> TrackerSummary:
        """Return its part of a report; `found` are the tracker entries of the report's findings."""
        rows = self.rows()
        read = len(rows or ())
        unread = len(self.items) - read
        status = "failed" if rows is None else "partial" if unread else "complete"
        reason = self.fault or (phrase("gap.rows", n=unread, of=len(self.items)) if unread else "")
        states = [each.status for each in found]
        return TrackerSummary(
            id=self.id,
            title=self.title,
            status=status,
            reason=reason,
            read=read,
            untracked=states.count("untracked"),
            tracked=states.count("tracked"),
            closed=states.count("closed"),
        )
