"""A channel sweep: one isolated subagent a channel, one report put together by code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from bot.app import App
from bot.asked import Request
from bot.cite import Statement, statements
from bot.sections import by_count, section, top_line
from bot.sources import PART_SHARE, Source, ids_of, split
from bot.tally import STATUSES, coverage_of, total
from bot.top_lines import Opening, TopLines
from config.prompt import prompt
from scopes.label import TRUSTED
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Handles, Window, iso
from subagents.agent import Agent
from subagents.brief import Brief, BriefDraft
from subagents.fanout import Fanout
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.run import Run
from subagents.toolbox import crash_text
from subagents.trajectory import Origin
from subagents.view import parent_view

log = logging.getLogger(__name__)

MAX_TOP_LINES = 6
PLAN_SHARE = 0.4
"""Share of a sweep's time that reading the channels may take before the subagents begin."""


@dataclass
class Sweep:
    """One sweep at work."""

    app: App
    run: Run
    request: Request
    channels: Sequence[ChannelInfo]
    tracker: str | None = None

    def __post_init__(self) -> None:
        self.fanout = Fanout(self.run, self.app.spawner(self.run))
        self.top = TopLines(self.run, "sweep", "top_lines")

    async def report(self) -> dict[str, Any]:
        """The report as the document of `sweep --json`."""
        sources = [Source(channel) for channel in self.channels]
        await self._plan_all(sources)
        self.top.begin()
        await self.top.hold()
        results = await self.fanout.run_all([b for s in sources for b in s.briefs])
        rest = iter(results)
        for source in sources:
            source.results = [next(rest) for _ in source.briefs]
        try:
            top, agent = await self._top_lines(sources)
        finally:
            await self.top.release()
        return self._document(sources, top, agent)

    # ---- planning, without a model

    async def _plan_all(self, sources: Sequence[Source]) -> None:
        """Plan all sources side by side, until the time for it is up or the user stops."""
        try:
            async with asyncio.timeout(PLAN_SHARE * self.run.purse.seconds_left()) as scope:
                with self.run.stop.watching(scope):
                    async with asyncio.TaskGroup() as group:
                        for source in sources:
                            group.create_task(self._plan(source))
        except TimeoutError:
            for source in sources:
                if not source.planned:
                    source.stopped = "user" if self.run.stop else "time"
                    source.fault = f"it was not read (stopped by {source.stopped})"

    async def _plan(self, source: Source) -> None:
        channel, reader = source.channel, self.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        try:
            found = await reader.conversations(channel.id, self.request.window)
        except Absent:
            source.fault = "the bot cannot read it; invite it to the channel"
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            source.fault = str(error) or "Slack gave no answer in time; try again later"
        except Exception as error:  # the seam: one channel that makes no sense harms no other
            log.exception("planning %s of %s crashed", source.name, self.run.id)
            source.fault = crash_text("reading it", error)
        else:
            limits = self.run.limits
            parts = split(
                found,
                self.request.window,
                int(PART_SHARE * limits.child_context),
                self.app.settings.sweep.threads_per_subagent,
            )
            for k, share in enumerate(parts, 1):
                brief = self._brief(source, share, k, len(parts))
                ids = {source.channel.id: ids_of(found, share)}
                source.briefs.append(replace(brief, expects=ids))
        source.planned = True

    def _brief(self, source: Source, window: Window, part: int, parts: int) -> Brief:
        titles = {source.channel.id: source.name}
        task = prompt("sweep_task").replace("{name}", source.name)
        if self.tracker:
            titles[self.tracker] = "bug tracker"
            task += "\n" + prompt("sweep_tracker").replace("{list}", self.tracker)
        which = f" ({part} of {parts})" if parts > 1 else ""
        draft = BriefDraft(
            task=task,
            description=f"Read {source.name}{which}"[:120],
            scope="slack",
            contract="issues",
            handles=tuple(titles),
        )
        language = self.app.settings.report.language
        return Brief(
            draft, Handles(titles), window, TRUSTED, language, requester=self.run.requester
        )

    # ---- the top lines, the one thing that the parent writes

    async def _top_lines(self, sources: Sequence[Source]) -> tuple[list[Statement], Agent | None]:
        """What to do first; written by the model, each line resting on findings, else by code."""
        shown = [r for s in sources for r in s.results]
        findings = [f for r in shown for f in r.findings]
        if not findings:
            return [], None
        text, agent = await self.top.write(self.request, self._opening(sources), shown)
        known = {f.id for f in findings}
        lines = [s for s in statements(text, known) if s.findings][:MAX_TOP_LINES]
        return lines or by_count(findings), agent

    def _opening(self, sources: Sequence[Source]) -> list[Opening]:
        limits = self.run.limits
        count = sum(len(s.results) for s in sources)
        cap = min(limits.max_result_tokens, limits.max_fanout_tokens // max(1, count))
        language = self.app.settings.report.language or "en"
        said = f"SWEEP of {len(sources)} channels. WINDOW: {self.request.window}"
        opening: list[Opening] = [(f"{said}\nLANGUAGE: {language}", Origin.REQUEST, "")]
        for source in sources:
            state = "" if source.results else f" ({source.fault or 'nothing in the window'})"
            opening.append((f"SECTION: {source.name}{state}", Origin.REQUEST, ""))
            opening += [(parent_view(r, cap), Origin.VIEW, r.id) for r in source.results]
        return [*opening, ("WRITE: top lines", Origin.REQUEST, "")]

    # ---- the document

    def _document(
        self, sources: Sequence[Source], top: Sequence[Statement], agent: Agent | None
    ) -> dict[str, Any]:
        results = list(self.fanout.results.values())
        findings = {f.id: f for r in results for f in r.findings}
        own = (agent.usage, agent.cost_usd) if agent else (Usage(), 0.0)
        usage, cost = total(results, *own)
        sections = [section(s) for s in sources]
        return {
            "run_id": self.run.id,
            "kind": "sweep",
            "status": self._status(sections),
            "model": self.app.model_name,
            "as_of": iso(self.request.window.latest),
            "window": {
                "oldest": iso(self.request.window.oldest),
                "latest": iso(self.request.window.latest),
            },
            "coverage": self._coverage(sections, results),
            "top_lines": [top_line(s, findings) for s in top],
            "sections": sections,
            "unsupported": sum(len(r.unsupported) for r in results),
            "usage": usage.to_json(),
            "cost_usd": cost,
            "subagents": [r.model_dump(mode="json") for r in results],
        }

    def _status(self, sections: Sequence[dict[str, Any]]) -> str:
        states = {s["status"] for s in sections}
        if self.run.stop:
            return "cancelled"
        if states <= {"complete"}:
            return "complete"
        return "partial" if states & {"complete", "partial"} else "failed"

    def _coverage(
        self, sections: Sequence[dict[str, Any]], results: Sequence[SubagentResult]
    ) -> dict[str, Any]:
        counts = {s: sum(x["status"] == s for x in sections) for s in STATUSES}
        undone = [s for s in sections if s["status"] in ("failed", "cancelled")]
        missing = [f"{s['item']}: {s['summary']}" for s in undone]
        told = {child for s in undone for child in s["subagents"]}
        rest = [r for r in results if r.id not in told]
        missing += [*coverage_of(rest)["not_covered"], *self.app.problems]
        return {"items": len(sections), **counts, "not_covered": missing}
