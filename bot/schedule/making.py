"""The report of one run of a schedule: of a sweep, compared with those before, or of a triage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.durable import Durable
from bot.erasure.sightings import note_told
from bot.mail.state import MailState
from bot.requests.asked import Request
from bot.requests.desk import Desk
from bot.runs.runs import Live
from bot.schedule.again import is_passing
from bot.schedule.compared import compared
from bot.schedule.issues import IssueBook
from bot.schedule.planning import Plan
from bot.schedule.triaging import digest_of
from bot.schedule.windows import covered_after
from bot.storage.store import Store
from bot.sweep.sweep import Sweep
from config.settings import Settings
from scopes.tool import Window


@dataclass(frozen=True, slots=True)
class Made:
    """A report, and what goes with it into the row of its tick."""

    document: Mapping[str, Any]
    window: Window
    extra: Mapping[str, Any]
    figures: Mapping[str, int]
    passing: bool
    """Where it failed: it might not at another time."""


@dataclass(frozen=True)
class Making:
    """Makes reports; one for the process."""

    settings: Settings
    model_name: str
    store: Store
    durable: Durable
    issues: IssueBook

    async def made(self, plan: Plan, live: Live) -> Made:
        """The report of a plan, once its subagents have ended."""
        return await (self._sweep if plan.spec.kind == "sweep" else self._triage)(plan, live)

    async def _sweep(self, plan: Plan, live: Live) -> Made:
        window = Window(plan.oldest, plan.latest)
        request = Request(f"sweep {plan.name}", window)
        desk = self._desk(plan, live)
        sweep = Sweep(
            desk,
            live.run,
            request,
            plan.channels,
            plan.spec.tracker,
            since=plan.since or {},
            title=plan.name,
        )
        changed = {"channels_added": list(plan.added), "channels_gone": list(plan.gone)}
        document = {**await sweep.report(), **changed, "notes": list(plan.notes)}
        known = await self.issues.known(plan.name)
        document = compared(document, known, plan.last, plan.reports)
        again = {each["issue"] for each in document["still_open"]}
        told = {id for issue in known if issue.id in again for id in issue.trace.messages}
        await note_told(self.store.database, live.run.id, sorted(told))
        names = {c.id: c.name for c in plan.channels}
        extra = {"covered": covered_after(document, plan.covered or {}), "channels": names}
        away = any(source.stopped == "slack" for source in sweep.sources)
        return Made(document, window, extra, document["counts"], away or is_passing(document))

    async def _triage(self, plan: Plan, live: Live) -> Made:
        window = Window(plan.oldest, plan.latest)
        state = MailState(self.store.database)
        made = await digest_of(self._desk(plan, live), live.run, plan.name, window, state)
        document = {**made.document, "notes": list(plan.notes)}
        return Made(document, window, made.extra, made.figures, made.passing)

    def _desk(self, plan: Plan, live: Live) -> Desk:
        """With the schedule's own settings in the place of those of all."""
        settings, spec = self.settings, plan.spec
        if plan.language:
            own = {"language": plan.language}
            report, triage = settings.report, settings.triage
            settings = settings.model_copy(
                update={
                    "report": report.model_copy(update=own),
                    "triage": triage.model_copy(update=own),
                }
            )
        if spec.since_days and spec.kind == "triage":
            days = {"since_days": spec.since_days}
            triage = settings.triage.model_copy(update=days)
            settings = settings.model_copy(update={"triage": triage})
        given = (self.model_name, self.durable, self.store, live, plan.workflow, ())
        return Desk(settings, *given)
