"""A channel sweep: isolated subagents for each channel, one report put together by code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bot.parent import Workplace
from bot.requests.asked import Request
from bot.schedule.compared import counts_of
from bot.sweep.patterns import Overview, paired, read_overview
from bot.sweep.planning import Planning
from bot.sweep.reading_tracker import TrackerReading
from bot.sweep.sections import by_count, finding_json, section, top_line
from bot.sweep.sources import Source
from bot.sweep.top_lines import Opening, TopLines
from bot.sweep.tracker import tracked_json
from bot.tally import STATUSES, coverage_of, total
from config.prompt import prompt
from scopes.label import TRUSTED, Label
from scopes.slack_reader import ChannelInfo
from scopes.tool import Handles, Window, iso
from subagents.agent import Agent
from subagents.brief import Brief, BriefDraft
from subagents.fanout import Fanout
from subagents.prices import Usage
from subagents.result import SubagentResult, joined
from subagents.run import Run
from subagents.trajectory import Origin
from subagents.view import parent_view, rank

MIN_VIEW = 400
"""Tokens of a result that the parent is shown at least; without room for all, urgent ones are."""

Json = dict[str, Any]


@dataclass
class Sweep:
    """One sweep at work."""

    app: Workplace
    run: Run
    request: Request
    channels: Sequence[ChannelInfo]
    tracker: str | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)
    """Where the window of a channel begins, by its id, if not where that of the request does."""
    title: str = ""
    language: str | None = None
    """Of the report; None = as `report.language` says, else that of each channel."""

    def __post_init__(self) -> None:
        self.fanout = Fanout(self.run, self.app.spawner(self.run))
        self.top = TopLines(self.run, "sweep", "top_lines")
        self.language = self.language or self.app.settings.report.language
        begin, end = self.request.window.oldest, self.request.window.latest
        self.sources = [Source(c, Window(self.since.get(c.id, begin), end)) for c in self.channels]
        self.reading = self._tracker(self.tracker) if self.tracker else None
        self.tracked: Json = {}
        """What is known of each finding's row in the tracker, by id of the finding."""

    def _tracker(self, id: str) -> TrackerReading:
        title = self.app.lists.get(id, "")
        return TrackerReading(id, title, self.run, self.fanout)

    async def report(self) -> Json:
        """The report as the document of `sweep --json`."""
        self.top.begin()
        await self.top.hold()
        try:
            await self._read()
            overview, agent = await self._overview()
        finally:
            await self.top.release()
        return self._document(overview, agent)

    # ---- reading: a channel's subagents begin as soon as it is planned

    async def _read(self) -> None:
        """Read all channels, each in its own time; their order is the same in each life."""
        async with asyncio.TaskGroup() as group:
            if self.reading:
                await self.reading.look()
                group.create_task(self.reading.judge())
            most = self.app.settings.sweep.threads_per_subagent
            planning = Planning(self.run, self.sources, most, group)
            known = {source.channel.id: source for source in self.sources}
            for number in range(len(self.sources)):
                key = f"{self.run.id}/{self.top.context}/plan/{number}"
                plan = await self.run.checkpoint.step(key, planning.next)
                source = known[plan["channel"]]
                shares = source.take(plan)
                source.briefs = [
                    self._brief(source, share, ids, k, len(shares))
                    for k, (share, ids) in enumerate(shares, 1)
                ]
                group.create_task(self._judge(source, planning))

    async def _judge(self, source: Source, planning: Planning) -> None:
        try:
            source.results = await self.fanout.run_all(source.briefs)
        finally:
            planning.read(source)

    def _brief(
        self, source: Source, window: Window, ids: tuple[str, ...], part: int, parts: int
    ) -> Brief:
        which = f" ({part} of {parts})" if parts > 1 else ""
        draft = BriefDraft(
            task=prompt("sweep_task").replace("{name}", source.name),
            description=f"Read {source.name}{which}"[:120],
            scope="slack",
            contract="issues",
            handles=(source.channel.id,),
        )
        handles = Handles({source.channel.id: source.name})
        made = Brief(draft, handles, window, TRUSTED, self.language, requester=self.run.requester)
        return replace(made, expects={source.channel.id: ids})

    # ---- the lines over all sections, the one thing that the parent writes

    async def _overview(self) -> tuple[Overview, Agent | None]:
        """What to do first and what sections share; by the model as far as it rests on findings,
        else by code. Each finding gets its row of the tracker."""
        findings = [f for s in self.sources for r in s.results for f in r.findings]
        self._track(Overview())
        if not findings:
            return Overview(), None
        shown = self._shown()
        text, agent = await self.top.write(self.request, list(self._opening(shown)), shown)
        overview = read_overview(text, self._channels())
        self._track(overview)
        first = overview.first or tuple(by_count(findings))
        return replace(overview, first=first), agent

    def _track(self, overview: Overview) -> None:
        """Give each finding its row: that which code is sure of, else that which was named."""
        tracker = self.reading.tracker() if self.reading else None
        if self.reading is None or tracker is None:
            return
        whole = len(tracker.rows) == len(self.reading.items)
        named = paired(overview, tracker, self._channels())
        for source in self.sources:
            for finding in (f for r in source.results for f in r.findings):
                row = tracker.find(finding, source) or named.get(finding.id)
                self.tracked[finding.id] = tracked_json(row, finding, whole)

    def _channels(self) -> dict[str, str]:
        """Id of a finding -> name of its channel."""
        every = [(s, f) for s in self.sources for r in s.results for f in r.findings]
        return {finding.id: source.channel.name for source, finding in every}

    def _shown(self) -> list[SubagentResult]:
        """The results that the parent has room for, those with the most urgent findings first."""
        results = [r for s in self.sources for r in s.results]
        room = max(1, self.run.limits.max_fanout_tokens // MIN_VIEW)
        return results if len(results) <= room else sorted(results, key=_urgency)[:room]

    def _opening(self, shown: Sequence[SubagentResult]) -> Iterator[Opening]:
        limits = self.run.limits
        cap = min(limits.max_result_tokens, limits.max_fanout_tokens // max(1, len(shown)))
        said = f"SWEEP of {len(self.sources)} channels. WINDOW: {self.request.window}"
        yield f"{said}\nLANGUAGE: {self.language or 'en'}", Origin.REQUEST, ""
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
        """The rows, and which findings code is sure of."""
        if self.reading is None or self.reading.tracker() is None:
            return
        yield f"TRACKER: {self.reading.title}", Origin.REQUEST, ""
        for result in self.reading.results:
            yield parent_view(result, max(cap, MIN_VIEW)), Origin.VIEW, result.id
        sure = [f"{id} = {t['key']}" for id, t in self.tracked.items() if t and t["key"]]
        yield f"TRACKED BY CODE: {', '.join(sure) or 'none'}", Origin.REQUEST, ""

    # ---- the document

    def _document(self, overview: Overview, agent: Agent | None) -> Json:
        results = list(self.fanout.results.values())
        findings = {f.id: f for r in results for f in r.findings}
        own = (agent.usage, agent.cost_usd) if agent else (Usage(), 0.0)
        usage, cost = total(results, *own)
        sections = [section(s, self.tracked) for s in self.sources]
        latest = iso(self.request.window.latest)
        oldest = min((s.window.oldest for s in self.sources), default=self.request.window.oldest)
        told = [f for s in sections for f in s["findings"]]
        return {
            "run_id": self.run.id,
            "kind": "sweep",
            "title": self.title,
            "status": self._status(sections),
            "model": self.app.model_name,
            "language": self.language or "en",
            "as_of": latest,
            "window": {"oldest": iso(oldest), "latest": latest},
            "compared": None,
            "channels_added": [],
            "channels_gone": [],
            "notes": [],
            "coverage": self._coverage(sections, results),
            "counts": counts_of(told, []),
            "top_lines": [top_line(s, findings) for s in overview.first],
            "patterns": overview.patterns_json(self._channels()),
            "tracker": self._tracker_json(told),
            "sections": sections,
            "still_open": [],
            "unsupported": sum(len(r.unsupported) for r in results),
            "label": self._label(results).to_json(),
            "usage": usage.to_json(),
            "cost_usd": cost,
            "subagents": [self._subagent_json(r) for r in results],
        }

    def _label(self, results: Sequence[SubagentResult]) -> Label:
        label = self.request.label.join(joined(results))
        for source in self.sources:
            label = label.join(source.label)
        return label

    def _subagent_json(self, result: SubagentResult) -> Json:
        findings = [finding_json(f, self.tracked) for f in result.findings]
        return {**result.model_dump(mode="json"), "findings": findings}

    def _tracker_json(self, findings: Sequence[Mapping[str, Any]]) -> Json | None:
        if self.reading is None:
            return None
        return self.reading.to_json([f["tracker"] for f in findings if f["tracker"]])

    def _status(self, sections: Sequence[Json]) -> str:
        states = {s["status"] for s in sections}
        if self.run.stop:
            return "cancelled"
        if states <= {"complete"}:
            return "complete"
        return "partial" if states & {"complete", "partial"} else "failed"

    def _coverage(self, sections: Sequence[Json], results: Sequence[SubagentResult]) -> Json:
        counts = {s: sum(x["status"] == s for x in sections) for s in STATUSES}
        undone = [s for s in sections if s["status"] in ("failed", "cancelled")]
        missing = [f"{s['item']}: {s['summary']}" for s in undone]
        told = {child for s in undone for child in s["subagents"]}
        rest = [r for r in results if r.id not in told]
        missing += [*coverage_of(rest)["not_covered"], *self.app.problems]
        tracker = self._tracker_json(()) or {"reason": ""}
        if tracker["reason"]:
            missing.append(f"{self.tracker}: {tracker['reason']}")
        return {"items": len(sections), **counts, "not_covered": missing}


def _urgency(result: SubagentResult) -> tuple[int, int, int, int]:
    """Sorts results by the finding to do first in each."""
    return min(map(rank, result.findings), default=(9, 9, 0, 0))
