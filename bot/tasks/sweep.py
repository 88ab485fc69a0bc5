"""A sweep: brief one subagent for each channel, and build the report from their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce

import aiohttp

from bot.citations import CitedStatement
from bot.reports.documents import (
    NO_OWNER,
    Gap,
    Period,
    ReadTotals,
    RunCoverage,
    SweepFinding,
    SweepReport,
    SweepResult,
    SweepSection,
    TopLine,
    TrackerEntry,
    TrackerSummary,
)
from bot.reports.frame import why_ended
from bot.reports.issues import counts_of
from bot.tasks.base import (
    Opening,
    ReportTask,
    count_statuses,
    coverage_of,
    label_of,
)
from bot.tasks.overview import Overview, pair_rows, read_overview
from bot.tasks.sources import HIDDEN, NO_ANSWER, PART_SHARE, ChannelPlan, Share, SweepSource, split
from bot.tasks.tracker import (
    TrackerReader,
    TrackerReading,
    is_one_issue,
    join_duplicates,
    keys_in,
    tracker_entry,
)
from config.prompts import prompt
from config.words import phrase
from scopes.effects import Handles
from scopes.label import WORKSPACE, Label
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackConversation, SlackReader
from scopes.tool import Window, iso
from subagents.brief import Brief, BriefDraft
from subagents.challenge import MAX_CONTRADICTIONS, Pair, check_draft, claims, contradictions
from subagents.contracts import NEEDS_ACTION
from subagents.errors import BriefRefused
from subagents.events import SourcesRead
from subagents.evidence import Coverage, distinct
from subagents.result import Finding, SubagentResult, join_labels
from subagents.summary import LAST, parent_view, rank
from subagents.toolbox import crash_text
from subagents.trajectory import Origin

log = logging.getLogger(__name__)

TrackerEntries = Mapping[str, TrackerEntry | None]


def section(source: SweepSource, tracked: TrackerEntries) -> SweepSection:
    """Return one channel's part of the report, from its own subagents only.

    `tracked`: id of a finding -> its row in the tracker.
    """
    results = source.results
    keys = source.plan.keys if source.plan else {}
    findings = join_duplicates([f for r in results for f in r.findings], keys)
    states = [r.status for r in results]
    if source.fault:
        by_user = source.plan and source.plan.stopped == "user"
        status = "cancelled" if by_user else "failed"
        summary = source.fault
    elif not results:
        status, summary = "complete", phrase("gap.empty")
    else:
        summary = " ".join(map(_summary, results))
        status = states[0] if len(set(states)) == 1 else "partial"
    coverage = ReadTotals(**Coverage.sum([r.read for r in results]).model_dump(mode="json"))
    if source.fault:
        coverage.complete = False
    return SweepSection(
        item=source.channel.name,
        channel=source.channel.id,
        window=Period(oldest=iso(source.window.oldest), latest=iso(source.window.latest)),
        subagents=[r.id for r in results],
        status=status,
        summary=summary,
        findings=[make_finding(f, tracked, joined) for f, joined in findings],
        coverage=coverage,
    )


def _summary(result: SubagentResult) -> str:
    """Return a subagent's summary, and the reason if it failed."""
    if result.status not in ("failed", "cancelled"):
        return result.text
    return f"{result.text} ({why_ended(result.stopped_by)})"


def make_finding(
    finding: Finding, tracked: TrackerEntries, joined: Sequence[str] = ()
) -> SweepFinding:
    """Add the owner and the row of the tracker, for readers.

    `joined`: ids of other findings that it represents.
    """
    entries = [tracked.get(id) for id in (finding.id, *joined)]
    entry = next((each for each in entries if each and each.key), entries[0])
    result = SweepFinding(**dict(finding), tracker=entry, joined=list(joined) or None)
    if result.state != "none":
        result.owner = result.owner or NO_OWNER
    return result


def top_line(statement: CitedStatement, findings: Mapping[str, Finding]) -> TopLine:
    """Return a top line with the counts of its cited findings: each named customer once, and the
    unnamed ones."""
    cited_findings = [findings[i] for i in statement.findings]
    customers = distinct([name for f in cited_findings for name in f.customers])
    return TopLine(
        text=statement.text,
        findings=statement.findings,
        customers=len(customers) + sum(f.people for f in cited_findings if not f.customers),
        messages=sum(f.messages for f in cited_findings),
        links=[f.links[0] for f in cited_findings if f.links],
    )


def by_count(findings: Sequence[Finding]) -> list[CitedStatement]:
    """Return top lines without a model: the first findings, ranked by code."""
    first = [f for f in sorted(findings, key=rank) if f.state in NEEDS_ACTION][:3]
    return [CitedStatement(text=f.next_step or f.claim, findings=[f.id]) for f in first]


PLAN_SHARE = 0.75
"""Share of a sweep's time after which no further channel is read."""


def _keys(found: Sequence[SlackConversation]) -> Mapping[str, list[str]]:
    """Return the bug keys that each thread names; code finds its row in the tracker by them."""
    return {c.root.id: keys_in(" ".join(item.text for item in c.items)) for c in found}


MIN_VIEW = 400
"""Minimum tokens of a result for the parent; if not all fit, urgent ones win."""


@dataclass
class Sweep(ReportTask[SweepReport]):
    """One running sweep."""

    kind = "sweep"
    prompt = "top_lines"
    channels: Sequence[ChannelInfo]
    tracker: str | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)
    """Channel id -> start of its window, if it differs from the request's."""
    title: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        begin, end = self.request.window.oldest, self.request.window.latest
        self.sources = [
            SweepSource(c, Window(self.since.get(c.id, begin), end)) for c in self.channels
        ]
        title = self.app.lists.get(self.tracker or "", "")
        reading = TrackerReading(self.tracker or "", title, self.run, self.fanout)
        self.reading = reading if self.tracker else None
        self.tracked: dict[str, TrackerEntry | None] = {}
        """Id of a finding -> its row in the tracker."""
        self.aside = set[str]()
        """Ids of subagents whose result was too long, so that two others read a half each, and of
        subagents that checked contradictory findings."""
        self.lines = Overview()
        self.held = set[str]()
        """Ids of channels whose text is in memory, because subagents read it."""

    async def make(self) -> SweepReport:
        async with self.reserve():
            await self._read()
            await self._check_contradictions()
            await self._overview()
        return self._document()

    async def _read(self) -> None:
        """Read the channels, as many at a time as subagents run; subagents are started in the order
        of the channels, which is the same after a restart."""
        room = asyncio.Semaphore(self.run.limits.max_concurrency)
        until = asyncio.get_running_loop().time() + PLAN_SHARE * self.run.budget.seconds_left()
        async with asyncio.TaskGroup() as group:
            if self.reading:
                await self.reading.look()
                group.create_task(self.reading.judge())
            self._show_progress()
            plans = [group.create_task(self._plan(s, room, until)) for s in self.sources]
            for source, plan in zip(self.sources, plans, strict=True):
                source.plan = await plan
                self._show_progress()
                group.create_task(self._judge(source, source.plan, room))
        await self._judge_halves()

    def _show_progress(self) -> None:
        read = sum(source.plan is not None for source in self.sources)
        self.run.emit(SourcesRead(read, len(self.sources)))

    async def _plan(
        self, source: SweepSource, room: asyncio.Semaphore, until: float
    ) -> ChannelPlan:
        """Return the plan of a channel, once there is room for its text."""

        async def read() -> ChannelPlan:
            try:
                async with asyncio.timeout_at(until) as scope:
                    with self.run.stop.watch(scope):
                        return await self._split(source)
            except TimeoutError:
                by = "user" if self.run.stop else "time"
                return ChannelPlan(fault=phrase("gap.unread", why=why_ended(by)), stopped=by)

        await room.acquire()
        key = f"{self.run.id}/{self.context}/plan/{source.channel.id}"
        return await self.run.once(key, ChannelPlan, read)

    @property
    def _reader(self) -> SlackReader:
        return self.run.client(SlackReader).patient()

    async def _split(self, source: SweepSource) -> ChannelPlan:
        """Read a channel, and split it into shares without a model."""
        id, limits, stopped = source.channel.id, self.run.limits, ""
        self.held.add(id)
        try:
            if not await self.run.gate.may_read(self.run.requester, id):
                return ChannelPlan(fault=str(HIDDEN))
            found = await self._reader.conversations(id, source.window)
            label = Label(True, WORKSPACE, frozenset({id}))  # even if nobody wrote in it
            if source.channel.is_private:
                label = await self._reader.label(id)
            most = int(PART_SHARE * limits.child_context)
            material = min(most, limits.max_material_tokens)
            threads = self.app.settings.sweep.threads_per_subagent
            shares = split(found, source.window, material or most, threads, material)
            return ChannelPlan(tuple(shares), _keys(found), label)
        except Absent:
            fault = await self._reader.not_in(source.name)
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            fault = str(error) or str(NO_ANSWER)
            stopped = "" if getattr(error, "needed", "") else "slack"
        except Exception as error:  # boundary: one malformed channel must not harm the others
            log.exception("planning %s of %s crashed", source.name, self.run.id)
            fault = crash_text("reading it", error)
        return ChannelPlan(fault=fault, stopped=stopped)

    async def _judge(self, source: SweepSource, plan: ChannelPlan, room: asyncio.Semaphore) -> None:
        """Have the shares of a channel read; keep the text of those that must be read again."""
        try:
            parts = len(plan.shares)
            briefs = [self._brief(source, share, parts) for share in plan.shares]
            results = await self.fanout.run_all(briefs)
            pairs = zip(plan.shares, results, strict=True)
            source.read = [(s if r.is_too_long else s.without_text(), r) for s, r in pairs]
            shares = tuple(share.without_text() for share in plan.shares)
            source.plan = replace(plan, shares=shares)
        finally:
            if source.channel.id in self.held:
                self._reader.release(source.channel.id)
            room.release()

    async def _judge_halves(self) -> None:
        """If the result of a share was too long for one answer, have two subagents read it again,
        with half of its threads each, until each result fits or comes from a single thread.

        It begins when all others have ended, so that a replay gives subagents the same numbers.
        """
        while torn := [
            (source, share, result, halves)
            for source in self.sources
            for share, result in source.read
            if result.is_too_long and (halves := share.halves())
        ]:
            parts = {id(source): len(source.plan.shares) for source, *_ in torn if source.plan}
            again = [(source, half) for source, _, _, halves in torn for half in halves]
            briefs = [self._brief(source, half, parts[id(source)]) for source, half in again]
            results = iter(await self.fanout.run_all(briefs))
            for source, share, result, halves in torn:
                place = source.read.index((share, result))
                source.read[place : place + 1] = pairs = [(half, next(results)) for half in halves]
                why = f"{result.reason}; {' and '.join(r.id for _, r in pairs)} read a half each"
                self.fanout.results[result.id] = result.model_copy(update={"reason": why})
                self.aside.add(result.id)

    async def _check_contradictions(self) -> None:
        """Have a new context check findings that report one issue in different states; both get the
        state that it finds."""
        found = [
            (source, pair)
            for source in self.sources
            for pair in contradictions(
                [f for r in source.results for f in r.findings], is_one_issue
            )[:MAX_CONTRADICTIONS]
        ]
        checks = [(s, p, brief) for s, p in found if (brief := self._check_brief(s, p))]
        results = await self.fanout.run_all([brief for *_, brief in checks])
        for (source, pair, _), result in zip(checks, results, strict=True):
            self.aside.add(result.id)
            if state := next((f.state for f in result.findings if f.state != "none"), None):
                source.set_state([finding.id for finding in pair], state)

    def _check_brief(self, source: SweepSource, pair: Pair) -> Brief | None:
        """Return the brief of a context that checks two findings; None if it may not read them."""
        try:
            draft, lines = check_draft(pair), claims(pair)
        except BriefRefused as refusal:
            log.warning("findings of %s are not checked: %s", source.channel.id, refusal)
            return None
        return Brief(
            draft,
            Handles(dict.fromkeys(draft.handles, "")),
            source.window,
            self.run.gate.inherited_label(join_labels(source.results)),
            self.language,
            findings=lines,
            requester=self.run.requester,
            zone=self.request.requester.clock().key,
        )

    def _brief(self, source: SweepSource, share: Share, parts: int) -> Brief:
        position = f" ({share.number} of {parts})" if parts > 1 or share.number != "1" else ""
        handles = Handles({} if share.items else {source.channel.id: source.name})
        draft = BriefDraft(
            task=prompt("sweep_task").replace("{name}", source.name),
            description=f"Read {source.name}{position}"[:120],
            scope="slack",
            contract="issues",
            known=share.describe(source.name, parts),
            handles=tuple(handles.titles),
        )
        return Brief(
            draft,
            handles,
            share.window,
            label_of(share.items),
            self.language,
            material=share.items,
            expects={source.channel.id: share.ids},
            requester=self.run.requester,
            zone=self.request.requester.clock().key,
            divisible=len(share.threads) > 1,
        )

    async def _overview(self) -> None:
        """Write the first steps and the common problems: by the model as far as findings support
        it, else by code. Each finding gets its row of the tracker."""
        findings = [f for s in self.sources for r in s.results for f in r.findings]
        self._track(Overview())
        if not findings:
            return
        results = [r for s in self.sources for r in s.results]
        shown, cap = self.choose_views(results, _urgency, MIN_VIEW)
        text = await self.write(list(self._opening_parts(shown, cap)), shown)
        overview = read_overview(text, self._channels())
        self._track(overview)
        first = overview.first or tuple(by_count(findings))
        self.lines = replace(overview, first=first)

    def _track(self, overview: Overview) -> None:
        """Assign each finding its row: a certain match by code, else the row named by the model."""
        rows = self.reading.rows() if self.reading else None
        if self.reading is None or rows is None:
            return
        whole = len(rows) == len(self.reading.items)
        tracker = TrackerReader(rows, list({source.channel.name for source in self.sources}))
        pairs = pair_rows(overview, tracker, self._channels())
        for source in self.sources:
            for finding in (f for r in source.results for f in r.findings):
                row = tracker.find(finding, source) or pairs.get(finding.id)
                self.tracked[finding.id] = tracker_entry(row, finding, whole)

    def _channels(self) -> dict[str, str]:
        """Return id of a finding -> name of its channel."""
        every = [(s, f) for s in self.sources for r in s.results for f in r.findings]
        return {finding.id: source.channel.name for source, finding in every}

    def _opening_parts(self, shown: Sequence[SubagentResult], cap: int) -> Iterator[Opening]:
        zone = self.request.requester.clock()
        window, today = self.request.window, self.request.window.latest.astimezone(zone)
        head = f"SWEEP of {len(self.sources)} channels. WINDOW: {window.format(zone.key)}"
        head += f"\nTODAY: {today:%A} {today.day} {today:%B %Y}"
        yield f"{head}\nLANGUAGE: {self.language}", Origin.REQUEST, ""
        views = {r.id for r in shown}
        for source in self.sources:
            own = [r for r in source.results if r.id in views]
            if source.results and not own:
                continue
            state = "" if own else f" ({source.fault or 'nothing in the window'})"
            yield f"SECTION: {source.name}{state}", Origin.REQUEST, ""
            for result in own:
                yield parent_view(result, cap), Origin.VIEW, result.id
        yield from self._tracker_opening(cap)
        yield "WRITE: top lines", Origin.REQUEST, ""

    def _tracker_opening(self, cap: int) -> Iterator[Opening]:
        """Yield the rows, and the findings that code has matched with certainty."""
        if self.reading is None or self.reading.rows() is None:
            return
        yield f"TRACKER: {self.reading.title}", Origin.REQUEST, ""
        for result in self.reading.results:
            yield parent_view(result, max(cap, MIN_VIEW)), Origin.VIEW, result.id
        sure = []
        for id, entry in self.tracked.items():
            if entry and entry.key:
                details = ", ".join(filter(None, (entry.stage, entry.owner)))
                sure.append(f"{id} = {entry.key}{f' ({details})' if details else ''}")
        yield f"TRACKED BY CODE: {', '.join(sure) or 'none'}", Origin.REQUEST, ""

    def _document(self) -> SweepReport:
        overview, results = self.lines, self.fanout.own
        findings = {f.id: f for r in results for f in r.findings}
        sections = [section(s, self.tracked) for s in self.sources]
        oldest = min((s.window.oldest for s in self.sources), default=self.request.window.oldest)
        latest, zone = self.request.window.latest, self.request.requester.clock()
        found = [f for s in sections for f in s.findings]
        entries = [f.tracker for f in found if f.tracker]
        tracker = self.reading.summary(entries) if self.reading else None
        coverage = self._coverage(sections, results, tracker)
        states = {s.status for s in sections}
        some = bool(states & {"complete", "partial"})
        subagents = []
        for each in results:
            shown = [make_finding(finding, self.tracked) for finding in each.findings]
            subagents.append(SweepResult(**{**dict(each), "findings": shown}))
        return SweepReport(
            **self.shared_fields() | {"subagents": subagents},
            title=self.title,
            status=self.status(states <= {"complete"}, some, coverage),
            window=Period(oldest=iso(oldest), latest=iso(latest)),
            zone=zone.key,
            coverage=coverage,
            counts=counts_of(found, [], latest.astimezone(zone)),
            headline=top_line(overview.headline, findings) if overview.headline else None,
            top_lines=[top_line(s, findings) for s in overview.first],
            decisions=[top_line(s, findings) for s in overview.decisions],
            patterns=list(overview.problems),
            tracker=tracker,
            sections=sections,
            label=self.label.to_json(),
        )

    @property
    def label(self) -> Label:
        plans = filter(None, (source.plan for source in self.sources))
        return reduce(Label.join, (plan.label for plan in plans), super().label)

    def _coverage(
        self,
        sections: Sequence[SweepSection],
        results: Sequence[SubagentResult],
        tracker: TrackerSummary | None,
    ) -> RunCoverage:
        undone = [s for s in sections if s.status in ("failed", "cancelled")]
        by = {"cancelled": "user", "failed": None}
        missing = [Gap(source=s.item, reason=s.summary, stopped_by=by[s.status]) for s in undone]
        reported = {child for s in undone for child in s.subagents} | self.aside
        long = [(s, share, r) for s in self.sources for share, r in s.read if r.is_too_long]
        for source, share, result in long:
            why = phrase("gap.too_long", threads=", ".join(each.root for each in share.threads))
            missing.append(Gap(source=source.channel.name, reason=why))
            reported.add(result.id)
        names = {child: s.item for s in sections for child in s.subagents}
        gaps = coverage_of([r for r in results if r.id not in reported]).not_covered
        missing += [gap.about(names.get(gap.subagent or "", "")) for gap in gaps]
        missing += self.problems()
        if tracker and tracker.reason:
            missing.append(Gap(source=self.tracker or "", reason=tracker.reason))
        return count_statuses([s.status for s in sections], missing)


def _urgency(result: SubagentResult) -> tuple[int, bool, str, int, int]:
    """Sort results by the finding to do first in each."""
    return min(map(rank, result.findings), default=(9, True, LAST, 0, 0))
