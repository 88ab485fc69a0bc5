"""Match findings to known issues by the threads of their evidence, never by their text."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from pydantic import ConfigDict

from bot.reports.documents import (
    Change,
    Comparison,
    Document,
    DocumentPart,
    FixedFinding,
    IssueCounts,
    KnownIssue,
    PanelFinding,
    PanelReport,
    SweepFinding,
    SweepReport,
    SweepResult,
    SweepSection,
    TriageAnswer,
    TriageReport,
)
from bot.reports.problems import days_since, is_urgent
from bot.storage.database import Database
from bot.storage.tables import issues
from scopes.tool import iso
from subagents.challenge import compare
from subagents.contracts import NEEDS_ACTION, IssueState, ReviewFinding, Severity
from subagents.evidence import normal
from subagents.result import Finding
from subagents.sanitizer import Material
from subagents.summary import SEVERITIES

CLOSED_STATES = ("declined", "solved", "none")
"""States of an issue that is over, or was not an issue."""
COLUMNS = ("id", "state", "first", "last")
"""Fields of an issue with their own columns."""
Row = dict[str, Any]


Part = TypeVar("Part", SweepSection, SweepResult)


@dataclass(frozen=True, slots=True)
class Trace:
    """The threads and messages of an issue."""

    channel: str
    threads: frozenset[str]
    """Ids of the messages that started the threads of its evidence."""
    messages: frozenset[str] = frozenset()
    """Ids of its evidence, which remain if the first message of a thread was deleted."""

    @classmethod
    def of(cls, channel: str, finding: Finding) -> Trace:
        """Return the trace of a finding, limited to `channel` if it has evidence there."""
        threads, evidence = finding.threads, finding.evidence
        own = frozenset(t for t in threads if t.startswith(f"{channel}/"))
        messages = frozenset(e for e in evidence if e.startswith(f"{channel}/"))
        if own:
            return cls(channel, own, messages)
        return cls(channel, frozenset(threads or evidence), frozenset(evidence))

    @property
    def order(self) -> tuple[list[str], list[str]]:
        """Sort key of traces, the oldest first."""
        return sorted(self.threads), sorted(self.messages)

    def count_shared(self, other: Trace) -> tuple[int, int]:
        """Count the threads and messages that both have."""
        return len(self.threads & other.threads), len(self.messages & other.messages)


class Issue(DocumentPart):
    """An issue as last reported."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: IssueState
    first: datetime
    """When it was opened."""
    last: datetime
    """When it was last reported."""
    channel: str
    item: str = ""
    """Name of its channel."""
    claim: str = ""
    severity: Severity
    owner: str = ""
    links: Sequence[str] = ()
    threads: list[str]
    messages: list[str]
    finding: ReviewFinding | None = None
    """Of a panel: the finding, with the id of the issue."""

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.channel, frozenset(self.threads), frozenset(self.messages))

    @classmethod
    def of(cls, row: sa.Row[Any]) -> Issue:
        """Return the issue of a stored row."""
        return cls.model_validate({**row.body, **{name: getattr(row, name) for name in COLUMNS}})

    def row(self, schedule: str) -> Row:
        """Return its row, with the fields without a column as JSON in `body`."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        body = self.model_dump(mode="json", exclude={*COLUMNS})
        return {"schedule": schedule, **columns, "body": body}


def match_issues(traces: Sequence[Trace], known: Sequence[Issue]) -> list[list[Issue]]:
    """Return, for each finding of a report, the known issues that share a thread or a message with
    it: first the one that it continues, then those that are part of it now.

    Each issue matches one finding at most. Priority: most shared threads, then most shared
    messages, not solved, older.
    """
    by_channel: dict[str, list[Issue]] = {}
    for issue in known:
        by_channel.setdefault(issue.channel, []).append(issue)
    pairs = [
        (k, issue)
        for k, trace in enumerate(traces)
        for issue in by_channel.get(trace.channel, ())
        if any(trace.count_shared(issue.trace))
    ]
    ranked = sorted(pairs, key=lambda pair: _rank(traces[pair[0]], pair[1]))
    matches: list[list[Issue]] = [[] for _ in traces]
    taken = set[str]()
    for k, issue in ranked:
        if issue.id not in taken and not matches[k]:
            matches[k].append(issue)
            taken.add(issue.id)
    for k, issue in ranked:
        if issue.id not in taken:
            matches[k].append(issue)
            taken.add(issue.id)
    return matches


def _rank(trace: Trace, issue: Issue) -> tuple[Any, ...]:
    threads, messages = trace.count_shared(issue.trace)
    known = (issue.state in CLOSED_STATES, issue.first, issue.id)
    return (-threads, -messages, *known, len(trace.threads ^ issue.trace.threads), *trace.order)


def new_id(trace: Trace, taken: Collection[str]) -> str:
    """Return the id of a new issue, derived from its channel and its oldest thread."""
    number, oldest = 0, min(trace.threads, default="")
    while True:
        salt = f" {number}" if number else ""
        origin = f"{trace.channel} {oldest}{salt}"
        id = f"i-{hashlib.sha256(origin.encode()).hexdigest()[:8]}"
        if id not in taken:
            return id
        number += 1


def change_of(state: str, severity: str, owner: str, before: Issue | None) -> Change | None:
    """Return the change of an issue; None = nothing new."""
    if before is None:
        return "solved" if state == "solved" else None if state in CLOSED_STATES else "new"
    if before.state in ("declined", "solved") and state in NEEDS_ACTION:
        return "reopened"
    if before.state in CLOSED_STATES:
        return None if state in CLOSED_STATES else "changed"
    if state == "solved":
        return "solved"
    is_same = state == before.state and (
        state not in NEEDS_ACTION  # severity and owner of others are not reported
        or (severity == before.severity and _same_owner(owner, before.owner))
    )
    return "open" if is_same else "changed"


def _same_owner(one: str, other: str) -> bool:
    """Return whether two owner names are the same person, such as `Ana` and `Ana Ruiz`."""
    first, second = (set(normal(name).split()) - {"nobody"} for name in (one, other))
    return first == second or bool(first and second and (first <= second or second <= first))


def compare_issues(
    document: SweepReport, known: Sequence[Issue], last: datetime | None, reports: int
) -> SweepReport:
    """Return the report with an issue and a change in each finding, and the issues still open.

    `last`: end of the last delivered report; None before the first. `reports`: number of delivered
    reports. `known`: the issues that they reported.
    """
    at = document.local_end
    notes = _notes(document.sections, known, at)
    sections = [_with_notes(section, notes) for section in document.sections]
    children = [_with_notes(child, notes) for child in document.subagents]
    found = [finding for section in sections for finding in section.findings]
    seen = {id for finding in found for id in (finding.issue, *(finding.absorbed or ()))}
    still = _still_open(sections, [i for i in known if i.id not in seen], at)
    return document.model_copy(
        update={
            "sections": sections,
            "subagents": children,
            "compared": Comparison(last=iso(last), reports=reports) if last else None,
            "still_open": still,
            "counts": counts_of(found, still, at),
        }
    )


def counts_of(
    findings: Sequence[SweepFinding], still_open: Sequence[KnownIssue], at: datetime
) -> IssueCounts:
    """Count the issues that need action at this time, those of them with high severity or that are
    urgent, and the changes."""
    issues: list[SweepFinding | KnownIssue] = [*findings, *still_open]
    open_ones = [each for each in issues if each.state in NEEDS_ACTION]
    changes = [f.change for f in findings]
    return IssueCounts(
        open=len(open_ones),
        new=changes.count("new"),
        changed=changes.count("changed"),
        solved=changes.count("solved"),
        reopened=changes.count("reopened"),
        high=sum(each.severity == "high" for each in open_ones),
        urgent=sum(is_urgent(each, at) for each in open_ones),
    )


def _notes(
    sections: Sequence[SweepSection], known: Sequence[Issue], at: datetime
) -> dict[str, Row]:
    """Return, by finding id, the fields of findings that come from earlier reports."""
    found = [(s.channel, f) for s in sections for f in s.findings]
    traces = [Trace.of(channel, finding) for channel, finding in found]
    matches = match_issues(traces, known)
    taken = {issue.id for issue in known}
    notes: dict[str, Row] = {}
    for k in sorted(range(len(found)), key=lambda k: (traces[k].order, k)):
        finding, match = found[k][1], matches[k]
        before = match[0] if match else None
        change = change_of(finding.state, finding.severity, finding.owner, before)
        opened = [datetime.fromisoformat(finding.since)] if finding.since else []
        first = iso(min([*opened, *(issue.first for issue in match)], default=at))
        is_issue = bool(before or change)
        id = before.id if before else new_id(traces[k], taken) if change else None
        taken.add(id or "")
        notes[finding.id] = {
            "issue": id,
            "change": change,
            "first": first if is_issue else None,
            "age_days": days_since(first, at) if is_issue else None,
            "absorbed": [issue.id for issue in match[1:]],
        }
    return notes


def _with_notes(part: Part, notes: Mapping[str, Row]) -> Part:
    """Return the part with these fields in its findings."""
    findings = [f.model_copy(update=notes.get(f.id, {"absorbed": []})) for f in part.findings]
    return part.model_copy(update={"findings": findings})


def _still_open(
    sections: Sequence[SweepSection], unseen: Iterable[Issue], at: datetime
) -> list[KnownIssue]:
    """Return issues that needed action when last reported and were not seen since then."""
    names = {s.channel: s.item for s in sections}
    found = [i for i in unseen if i.state in NEEDS_ACTION and i.channel in names]
    found.sort(key=lambda issue: (SEVERITIES.index(issue.severity), issue.first, issue.id))
    return [
        KnownIssue(
            issue=issue.id,
            claim=issue.claim,
            item=names[issue.channel],
            severity=issue.severity,
            state=issue.state,
            owner=issue.owner,
            first=iso(issue.first),
            age_days=days_since(iso(issue.first), at),
            links=list(issue.links),
        )
        for issue in found
    ]


MAX_STORED_MESSAGES = 200
"""Number of latest messages stored of an issue, in addition to those of its last report.

All of its threads are kept.
"""
UPSERT_COLUMNS = ("state", "body", "first", "last")


class IssueStore:
    """The issues of all schedules of one database. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def list_issues(self, schedule: str) -> list[Issue]:
        """Return all issues of its delivered reports, including solved ones."""
        c = issues.c
        query = sa.select(issues).where(c.schedule == schedule).order_by(c.first, c.id)
        return [Issue.of(row) for row in await self.database.read(query)]

    def save(
        self, connection: sa.Connection, schedule: str, document: SweepReport, at: datetime
    ) -> None:
        """Store the issues of a report in the transaction that marks it as delivered (`at`).

        `document` is a result of `compare_issues`. Issues that it lists as still open are kept as
        long as they are reported.
        """
        found = [f.issue for f in document.findings() if f.issue]
        absorbed = absorbed_in(document)
        query = sa.select(issues).where(_these(schedule, [*found, *absorbed]))
        before = {row.id: row for row in connection.execute(query)}
        rows = rows_after(schedule, document, at, before)
        if rows:
            insert = self.database.upsert(issues, ("schedule", "id"), UPSERT_COLUMNS)
            connection.execute(insert, rows)
        connection.execute(sa.delete(issues).where(_these(schedule, absorbed)))
        still_open = _these(schedule, [issue.issue for issue in document.still_open])
        connection.execute(sa.update(issues).where(still_open).values(last=at))


def absorbed_in(document: SweepReport) -> list[str]:
    """Return the ids of the issues that became part of others."""
    return [id for f in document.findings() if f.issue for id in f.absorbed or ()]


def _these(schedule: str, ids: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(issues.c.schedule == schedule, issues.c.id.in_(ids))


def rows_after(
    schedule: str, document: SweepReport, at: datetime, before: Mapping[str, sa.Row[Any]]
) -> list[Row]:
    """Return the rows of the issues in a report, with all threads in which they ever occurred.

    `before`: the existing rows, by id.
    """
    rows = []
    for section, finding in ((s, f) for s in document.sections for f in s.findings if f.issue):
        ids = (finding.issue, *(finding.absorbed or ()))
        new = Trace.of(section.channel, finding)
        earlier = [Issue.of(before[id]) for id in ids if id in before]
        messages = sorted({id for issue in earlier for id in issue.messages})
        issue = Issue(
            id=finding.issue or "",
            state=finding.state,
            first=datetime.fromisoformat(finding.first or ""),
            last=at,
            channel=section.channel,
            item=section.item,
            claim=finding.claim,
            severity=finding.severity,
            owner=finding.owner,
            links=finding.links,
            threads=sorted(new.threads.union(*(issue.threads for issue in earlier))),
            messages=sorted({*new.messages, *messages[-MAX_STORED_MESSAGES:]}),
        )
        rows.append(issue.row(schedule))
    return rows


# ---- findings of panels


RECOGNIZED_OUTCOMES: Final = ("confirmed", "disputed", "unjudged")
"""Outcomes of findings that a later panel recognizes."""


PANEL: Final = "panel"
"""Prefix of the key under which the findings of panels on one material are stored."""


def panel_key(requester: str | None, profile: str, material: str) -> str:
    """Return the key under which the findings of panels on one material are stored."""
    text = f"{profile}\0{material}"
    return f"{PANEL}/{requester or ''}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class KnownFindings:
    """The open findings of earlier panels on a material."""

    findings: tuple[ReviewFinding, ...]
    """Their ids are those of issues."""
    last: str | None
    """Time when the last panel ended; None before the first."""


async def known_findings(database: Database, key: str) -> KnownFindings:
    """Return the findings of earlier panels. Raises StoreError."""
    rows = await database.read(sa.select(issues).where(issues.c.schedule == key))
    stored = map(Issue.of, rows)
    found = tuple(i.finding for i in stored if i.finding and i.state in NEEDS_ACTION)
    return KnownFindings(found, iso(max(row.last for row in rows)) if rows else None)


def compare_panel(document: PanelReport, earlier: KnownFindings, material: Material) -> PanelReport:
    """Return the report with an issue and a change in each finding, and the fixed findings.

    A finding is recognized by place and claim. Findings that were not found again are reported
    only if all specialists have read the whole material.
    """
    known, last = earlier.findings, earlier.last
    with_claims = [each for each in document.findings if each.claim]
    changes = compare([_to_review(each) for each in with_claims], known)
    before, taken = dict(changes.remaining), {each.id for each in known}
    findings = []
    for each in document.findings:
        update: dict[str, Any] = {}
        if each.outcome in RECOGNIZED_OUTCOMES:
            trace = Trace(document.material.name, frozenset({each.place}))
            issue = before.get(each.id) or new_id(trace, taken)
            taken.add(issue)
            change = "remaining" if each.id in before else "new"
            update = {"issue": issue, "change": change if last else None}
        findings.append(each.model_copy(update=update))
    whole = document.material.read == 1
    fixed = [
        FixedFinding(
            issue=each.id,
            claim=each.claim,
            place=each.place,
            severity=each.severity,
            category=each.category,
            quoted=any(material.find(quote) for quote in each.quotes),
        )
        for each in known
        if whole and each.id in changes.fixed
    ]
    return document.model_copy(update={"findings": findings, "fixed": fixed, "compared": last})


def _to_review(finding: PanelFinding) -> ReviewFinding:
    names = ReviewFinding.model_fields
    return ReviewFinding(**{name: getattr(finding, name) for name in names})


async def save_findings(database: Database, key: str, document: PanelReport) -> None:
    """Store the findings of a panel for the next one on this material. Raises StoreError."""
    at = datetime.now(UTC)
    rows = [_panel_row(key, document, each, at) for each in document.findings if each.issue]
    fixed = [each.issue for each in document.fixed if not each.quoted]

    def save(connection: sa.Connection) -> None:
        if rows:
            insert = database.upsert(issues, ("schedule", "id"), ("state", "body", "last"))
            connection.execute(insert, rows)
        solved = sa.update(issues).where(_these(key, fixed))
        connection.execute(solved.values(state="solved", last=at))

    await database.change(save)


def _panel_row(key: str, document: PanelReport, finding: PanelFinding, at: datetime) -> Row:
    return Issue(
        id=finding.issue or "",
        state="unsolved",
        first=at,
        last=at,
        channel=document.material.name,
        item=document.material.name,
        claim=finding.claim,
        severity="high" if finding.severity == "critical" else finding.severity,
        links=finding.links,
        threads=[finding.place],
        messages=[finding.place],
        finding=_to_review(finding).model_copy(update={"id": finding.issue}),
    ).row(key)


def has_changes(document: Document) -> bool:
    """Return whether there is anything new; an incomplete document counts as new."""
    if document.status != "complete":
        return True
    if isinstance(document, SweepReport):
        counts, channels = document.counts, document.channels_added or document.channels_gone
        changed = counts.new or counts.changed or counts.solved or counts.reopened
        return bool(document.notes or channels or changed)
    if isinstance(document, TriageReport):
        notes = document.notes if isinstance(document, TriageAnswer) else ()
        return bool(notes or document.verdicts or document.unreadable)
    return True
