"""Run schedules: plan coverage and budget of each run, make the report, retry failures."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import sqlalchemy as sa
from pydantic import BaseModel

from bot.citations import statements
from bot.log import about
from bot.mailbox.accounts import how_to_connect
from bot.mailbox.sync import HandledMail, MailState
from bot.memory import add_files
from bot.policy.policy import LEAST_USD, PolicyFault, day_of
from bot.reports.documents import (
    AnswerDocument,
    Document,
    RunCoverage,
    SweepReport,
    TriageAnswer,
)
from bot.reports.frame import why_ended
from bot.reports.issues import IssueStore, compare_issues
from bot.requests.context import TaskContext, conversation_name
from bot.runs.durable import Durable
from bot.runs.run import ActiveRun, Runs
from bot.schedules.alerts import FailureAlerts
from bot.schedules.store import DELETED_REASON, OccurrenceResult, ScheduleStore
from bot.schedules.validation import ScheduleFault, ScheduleValidator
from bot.storage.database import Database
from bot.storage.deletions import record_reused_items
from bot.storage.requests import SCHEDULE_KIND, RequestQueue
from bot.storage.schedules import Occurrence, StoredSchedule, Work
from bot.storage.tables import budgets
from bot.tasks.ask import Ask
from bot.tasks.base import NO_REQUESTER, Request, Requester
from bot.tasks.reports import inbox_triage, report_words
from bot.tasks.sweep import Sweep
from bot.tasks.triage import Triage
from config.schedules import Schedule
from config.sections import LimitSettings, Policy
from config.settings import Settings
from config.words import current, in_language, phrase
from scopes.google.errors import GoogleBusy, GoogleError
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label
from scopes.preferences import Preferences
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, estimate_tokens, iso
from subagents.budget import NANOUSD_PER_USD
from subagents.delegation import NO_LIMITS, Allowed
from subagents.prices import Usage, cost_nanousd

log = logging.getLogger(__name__)

FIXED_TOKENS = 4_000
"""Tokens of a subagent's prompt, tools and brief."""
CALLS_PER_CHANNEL = 2
"""Calls of a subagent that reads one channel: it asks for the messages, then it submits."""
WRITTEN_TOKENS = 1_000
"""Tokens that a subagent writes, and that the parent writes."""
VIEW_TOKENS = 800
"""Tokens of a subagent's result in the parent's context."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The amount that one run may spend."""

    usd: float
    why: str = ""
    """Why the amount is zero, in a sentence for the owner; empty if it is not."""
    waits: bool = False
    """Whether the amount may be larger once other runs have ended."""
    note: str = ""
    """Why the amount is less than the budget of one run; empty if it is not."""


async def allowance(
    database: Database, policy: Policy, budget_usd: float, occurrence: Occurrence, now: datetime
) -> Allowance:
    """Return the amount that the next attempt may spend, after earlier ones. Raises StoreError."""
    usd, note, words = budget_usd, "", current()
    limit = words.usd(budget_usd)
    if occurrence.tries and occurrence.cost_usd:
        usd -= occurrence.cost_usd
        if usd < LEAST_USD:
            return Allowance(0.0, words("budget.tries", limit=limit))
        note = words("budget.left_of_run", left=words.usd(usd), limit=limit)
    if policy.daily_usd is not None:
        paid, open_usd = await RequestQueue(database).spending(None, day_of(now))
        remaining = policy.daily_usd - paid - open_usd
        if remaining < LEAST_USD:
            waits = remaining + open_usd >= LEAST_USD
            key = "budget.held" if waits else "budget.spent"
            return Allowance(0.0, words(key, limit=words.usd(policy.daily_usd)), waits)
        if remaining < usd:
            usd, note = remaining, words("budget.left_today", left=words.usd(remaining))
    return Allowance(usd, note=note)


def window_starts(
    channels: Iterable[str], covered: Mapping[str, str], at: datetime, first: timedelta
) -> dict[str, datetime]:
    """Return the start of each channel's window.

    It is the end of its full coverage by delivered reports, else `first` before the occurrence.
    """
    covered_until = {id: datetime.fromisoformat(covered[id]) for id in channels if id in covered}
    return {
        id: min(covered_until[id], at) if id in covered_until else at - first for id in channels
    }


def find_covered(document: SweepReport, before: Mapping[str, str]) -> dict[str, str]:
    """Return until when each channel is fully covered, once this report is delivered.

    A channel that was not fully read is read again from the start of this window.
    """
    after = dict(before)
    for section in document.sections:
        window, channel = section.window or document.window, section.channel
        is_whole = section.status == "complete"
        after[channel] = window.latest if is_whole else before.get(channel, window.oldest)
    return after


AMPLE_BUDGET_FACTOR = 2.0
"""A run with a budget of so many times its likely cost needs no estimate."""
LOOK_SHARE = 0.3
"""Share of a sweep's time for estimating its cost."""


class RunPlan(BaseModel, frozen=True):
    """The sources and the window of a run; a triage reads no channels."""

    name: str
    workflow: str
    spec: Schedule
    oldest: datetime
    latest: datetime
    notes: tuple[str, ...] = ()
    channels: tuple[ChannelInfo, ...] = ()
    since: dict[str, datetime] = {}
    """Channel id -> start of its window."""
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    covered: dict[str, str] = {}
    """Channel id -> end of its coverage before this run."""
    last: datetime | None = None
    """End of the last delivered report."""
    reports: int = 0
    """Number of reports delivered before."""
    likely_usd: float | None = None
    """Expected cost, from the last report's cost per day or from the amount to read.

    None = not known.
    """
    language: str | None = None
    """Language of the report; None = not set, and Slack does not return the owner's."""
    requester: Requester = NO_REQUESTER
    """The requester of a question: its owner."""
    allowed: Allowed = NO_LIMITS
    """Scopes and models that subagents of a question may use."""
    here: dict[str, str] = {}
    """Id -> name of the channel of a question: its answer is posted there."""
    label: dict[str, Any] = TRUSTED_LABEL.to_json()
    """Label of the words of a question or a reminder."""


@dataclass(frozen=True)
class RunPlanner:
    """Plans the runs of schedules."""

    settings: Settings
    validator: ScheduleValidator
    schedules: ScheduleStore

    async def plan(
        self, stored: StoredSchedule, occurrence: Occurrence, reader: SlackReader, usd: float
    ) -> RunPlan:
        """Plan one run, which may spend `usd`.

        Raises ScheduleFault and StoreError.
        """
        spec = stored.spec
        channels = await self.validator.check(spec, stored.origin, reader)
        section = "reply" if spec.kind in ("ask", "reminder") else spec.kind
        days = spec.since_days or getattr(self.settings, section).since_days
        plan = RunPlan(
            name=stored.id,
            workflow=occurrence.work.id,
            spec=spec,
            oldest=occurrence.at - timedelta(days=days),
            latest=occurrence.at,
            language=spec.language,
            label=stored.label.to_json(),
        )
        if spec.kind == "reminder":
            return plan
        if spec.kind == "ask":
            return plan.model_copy(update=await self._asker(spec, reader))
        if spec.kind == "triage":
            now = datetime.now(UTC)  # also read messages that arrived after its scheduled time
            times = {"oldest": now - timedelta(days=days), "latest": now}
            return plan.model_copy(update={**times, "language": await self._language(spec, reader)})
        last = next(iter(await self.schedules.list_delivered(stored.id, 1)), None)
        extra = (last and last.extra) or {}
        names = {c.id: c.name for c in channels}
        covered = extra.get("covered") or {}
        since = window_starts(names, covered, occurrence.at, timedelta(days=days))
        oldest = min(since.values(), default=plan.oldest)
        before = extra.get("channels", names)
        likely = _likely(last, oldest, occurrence.at) if last else None
        if likely is None or likely * AMPLE_BUDGET_FACTOR >= usd:
            likely = await self._estimate_usd(reader, channels, since, occurrence.at)
        return plan.model_copy(
            update={
                "oldest": oldest,
                "notes": (_too_little(likely, usd),) if likely and likely > usd else (),
                "channels": tuple(channels),
                "since": since,
                "added": tuple(sorted(names[id] for id in names.keys() - before.keys())),
                "gone": tuple(sorted(before[id] for id in before.keys() - names.keys())),
                "covered": covered,
                "last": last.latest if last else None,
                "reports": await self.schedules.reports(stored.id),
                "likely_usd": likely,
                "language": await self._language(spec, reader),
            }
        )

    async def _asker(self, spec: Schedule, reader: SlackReader) -> dict[str, Any]:
        """Return the requester of a question, its channel, and the current rights."""
        validator, people = self.validator, self.validator.directory.people
        person = await people.person(spec.owner, validator.directory.team)
        place = await validator.place(spec, reader)
        here = {} if spec.is_private else {place: await conversation_name(people, place)}
        language = await people.language(spec.owner, place, spec.request)
        return {
            "requester": Requester.of(person, spec.owner, language),
            "allowed": await validator.find_allowed(spec, place),
            "here": here,
        }

    async def _language(self, spec: Schedule, reader: SlackReader) -> str | None:
        """Return the configured language, else that of the destination, else that of the owner."""
        if language := spec.language or self.settings.report.language:
            return language
        place = await self.validator.place(spec, reader)
        language = await self.validator.directory.people.language(spec.owner, place)
        return language.partition("-")[0].lower() or None

    async def _estimate_usd(
        self,
        reader: SlackReader,
        channels: Sequence[ChannelInfo],
        since: Mapping[str, datetime],
        latest: datetime,
    ) -> float | None:
        """Estimate the cost of reading the channels, and of the lines over them; None = not known.

        Messages read for the estimate are cached for the sweep.
        """

        async def tokens(channel: ChannelInfo) -> int:
            window = Window(since[channel.id], latest)
            try:
                found = await reader.conversations(channel.id, window)
            except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError):
                return 0  # the sweep itself reports the error
            return sum(estimate_tokens(i.line()) + 1 for c in found for i in c.items)

        try:
            async with asyncio.timeout(LOOK_SHARE * self.settings.sweep.time_s):
                sizes = await asyncio.gather(*map(tokens, channels))
        except TimeoutError:
            return None
        models, read = self.settings.models, [size for size in sizes if size]
        calls = [Usage(cache_write=FIXED_TOKENS + size, output=WRITTEN_TOKENS) for size in read]
        calls += [
            Usage(cache_read=(CALLS_PER_CHANNEL - 1) * (FIXED_TOKENS + size)) for size in read
        ]
        costs = [cost_nanousd(models.fast, usage, models.prices) for usage in calls]
        shown = Usage(input=VIEW_TOKENS * len(read), output=WRITTEN_TOKENS if read else 0)
        costs.append(cost_nanousd(models.main, shown, models.prices))
        known_costs = [cost for cost in costs if cost is not None]
        return sum(known_costs) / NANOUSD_PER_USD if len(known_costs) == len(costs) else None


def _likely(last: Occurrence, oldest: datetime, latest: datetime) -> float | None:
    if last.cost_usd is None or last.oldest is None or last.latest is None:
        return None
    span = max(last.latest - last.oldest, timedelta(minutes=1))
    return last.cost_usd * max(1.0, (latest - oldest) / span)


def _too_little(likely: float, usd: float) -> str:
    """Warn before a run that its budget will not suffice."""
    words = current()
    return words("run.too_little", needed=words.usd(likely), limit=words.usd(usd))


BACKOFF = tuple(timedelta(minutes=m) for m in (1, 5, 15, 60))
"""Pauses between attempts at a run; the last one repeats."""
TRANSIENT_STOPS = ("model_error", "rate_limit")
"""Reasons for an early end of a subagent that may be gone an hour later."""
AGAIN_AFTER = timedelta(minutes=5)
"""Time until a delivery of unknown outcome is retried."""
SETTLING_TIME = timedelta(seconds=3)
"""Wait between the time of an occurrence and reading its sources.

Our clock may be ahead of Slack's by this much without a message falling between two reports.
"""
MAIL = "mail"
"""Key of an occurrence's `extra`: data on the mailbox to record after delivery of the digest."""


class RunArguments(BaseModel):
    """The stored arguments of a scheduled run."""

    schedule: str
    as_of: str
    note: str
    """Why it may spend less than the budget of one run; empty if it may not."""
    limits: LimitSettings


def next_try(
    spec: Schedule, occurrence: Occurrence, now: datetime, backoff: Sequence[timedelta]
) -> datetime | None:
    """Return when to retry an occurrence after this failed attempt.

    None if the schedule's next time, which covers it, comes first, or if it would be too late.
    """
    at = now + backoff[min(occurrence.tries, len(backoff) - 1)]
    if at > occurrence.at + timedelta(hours=spec.missed_hours):
        return None
    following = spec.timetable.after(occurrence.at)
    return None if following and following <= at else at


def explain_nothing(document: Document) -> str:
    """Explain in a sentence why a run has no result, without any source text."""
    if isinstance(document, AnswerDocument):
        return phrase("run.no_answer", why=why_ended(document.stopped_by))
    stops = Counter(each.stopped_by for each in document.subagents if each.stopped_by != "none")
    reason = next((stop for stop, _ in stops.most_common(1)), "none")
    return phrase("run.nothing_read", why=why_ended(reason))


def note_mail(state: MailState, connection: sa.Connection, extra: Mapping[str, Any] | None) -> None:
    """Record, in the transaction of its delivery, the threads handled by the digest of `extra`."""
    if material := (extra or {}).get(MAIL):
        state.note_delivery(connection, HandledMail.model_validate(material))


def _delivery_record(task: Triage) -> dict[str, Any]:
    """Return as `extra` the data to record when its digest is delivered."""
    return {MAIL: task.handled_mail().model_dump(mode="json")}


@dataclass(frozen=True, slots=True)
class ScheduledReport:
    """A report, with the values for the row of its occurrence."""

    document: Document
    extra: Mapping[str, Any] | None = None
    figures: Mapping[str, int] | None = None
    away: bool = False
    """Whether Slack was partly unavailable."""

    @property
    def passing(self) -> bool:
        """Return whether it failed and may succeed later, because a source was unavailable."""
        document = self.document
        stops = [each.stopped_by for each in document.subagents]
        stops += [document.stopped_by] if isinstance(document, AnswerDocument) else []
        away = self.away or any(stop in TRANSIENT_STOPS for stop in stops)
        return away and document.status == "failed"


@dataclass
class OccurrenceRunner:
    """Runs occurrences; one for each process. Its database retries."""

    settings: Settings
    model_name: str
    runs: Runs
    durable: Durable
    schedules: ScheduleStore
    validator: ScheduleValidator
    alerts: FailureAlerts
    backoff: Sequence[timedelta] = BACKOFF
    settling: timedelta = SETTLING_TIME
    _admitting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Concurrent runs must count the amounts that the others may spend."""

    async def work(self, work: Work) -> None:
        """Run the workflow of one occurrence. It always stores the occurrence's state."""
        stored = await self.schedules.get(work.schedule)
        occurrence = await self.schedules.occurrence(work.schedule, work.at)
        if occurrence is None or occurrence.state not in ("due", "running"):
            return
        if stored is None:
            await self.schedules.record_skip(occurrence.work, DELETED_REASON)
            return
        language = await self.validator.language(stored.spec)
        with about(run=occurrence.run_id), in_language(language):
            try:
                state = await self._run(stored, occurrence)
            except ScheduleFault as fault:
                state = await self._fail(stored, occurrence, fault)
            except Exception:  # top-level boundary: one scheduled run must not take down the worker
                log.exception("the run of %s failed", work.id)
                crash = ScheduleFault(phrase("schedule.crashed"), passing=True)
                state = await self._fail(stored, occurrence, crash)
            log.info("the schedule %s: %s", work.schedule, state)

    async def end_lost(self, work: Work) -> None:
        """End lost work, whose workflow has reported no result, and alert the owner.

        The schedule continues with its next work.
        """
        stored = await self.schedules.get(work.schedule)
        occurrence = await self.schedules.occurrence(work.schedule, work.at)
        with in_language(await self.validator.language(stored.spec) if stored else ""):
            why = phrase("schedule.lost")
        if work.kind == "delivery":
            again = datetime.now(UTC) + AGAIN_AFTER
            if await self.schedules.record_undelivered(work, why, again):
                await self.alerts.fails(work.schedule, why, work.at, again)
        elif stored and occurrence and occurrence.work == work:
            await self._fail(stored, occurrence, ScheduleFault(why))
        else:
            await self.schedules.record_failure(work, why)

    async def _run(self, stored: StoredSchedule, occurrence: Occurrence) -> str:
        run = occurrence.run_id
        stored_run = await self.runs.store.find_run(run)
        if stored_run is None:
            allowed = await self._begin(stored, occurrence)
            if not allowed.usd:
                return await self._not_allowed(stored.spec, occurrence, allowed)
        elif stored_run.error:
            raise ScheduleFault.of(stored_run.error)
        async with self.runs.at_work(run) as live:
            plan = await self._plan(stored, occurrence, live)
            kinds = {"sweep": self._sweep, "triage": self._triage, "ask": self._ask}
            report = await kinds.get(plan.spec.kind, self._remind)(plan, live)
            document = report.document
            failed = document.status in ("failed", "cancelled")
            fault = ScheduleFault(explain_nothing(document), passing=report.passing)
            await self.runs.store.finish_run(
                run,
                document.status,
                result=document.to_json(),
                cost_usd=document.cost_usd,
                error=fault.to_json() if failed else None,
            )
        if failed:
            raise fault
        result = OccurrenceResult(
            cost=document.cost_usd,
            oldest=plan.oldest,
            latest=plan.latest,
            extra=report.extra,
            figures=report.figures,
        )
        await self.schedules.record_run(occurrence.work, result)
        return "ran"

    async def _begin(self, stored: StoredSchedule, occurrence: Occurrence) -> Allowance:
        """Store the run with its budget, if there is one; a reminder needs none.

        Raises ScheduleFault.
        """
        budget = stored.spec.budget_usd
        async with self._admitting:
            allowed = Allowance(budget)
            if stored.spec.kind != "reminder":
                try:
                    policy = await self.validator.policy.read()
                except PolicyFault as fault:
                    raise ScheduleFault(fault.reason, passing=True) from fault
                database, now = self.runs.store.database, datetime.now(UTC)
                allowed = await allowance(database, policy, budget, occurrence, now)
            if allowed.usd:
                await self._open(stored, occurrence, allowed)
        return allowed

    async def _not_allowed(self, spec: Schedule, occurrence: Occurrence, may: Allowance) -> str:
        """End an attempt without budget: until others have ended, or for good with an alert."""
        again = next_try(spec, occurrence, datetime.now(UTC), self.backoff) if may.waits else None
        if again is None:
            await self.alerts.fails(occurrence.schedule, may.why, occurrence.at)
            if not occurrence.tries:
                await self.schedules.record_skip(occurrence.work, may.why)
                return "skipped"
        await self.schedules.record_failure(occurrence.work, may.why, again=again)
        return "to be tried again" if again else "failed"

    async def _open(self, stored: StoredSchedule, occurrence: Occurrence, may: Allowance) -> None:
        """Store the run once, with its budget."""
        spec, run = stored.spec, occurrence.run_id
        usual = self.settings.limits.seconds
        seconds = getattr(getattr(self.settings, spec.kind, None), "time_s", usual)
        limits = self.settings.limits.of_task(seconds, may.usd)
        arguments = RunArguments(
            schedule=stored.id, as_of=iso(occurrence.at), note=may.note, limits=limits
        )
        question = spec.request or f"{spec.kind} {stored.id}"
        await self.runs.store.start_run(
            *(run, SCHEDULE_KIND, question, self.model_name, arguments.model_dump(mode="json")),
            requester=spec.owner,
        )
        await self.runs.open_budget(run, limits)

    async def _plan(
        self, stored: StoredSchedule, occurrence: Occurrence, live: ActiveRun
    ) -> RunPlan:
        """Return the first plan of a run; later changes apply to the next run.

        Raises ScheduleFault.
        """
        planner = RunPlanner(self.settings, self.validator, self.schedules)
        usd = live.run.limits.cost_usd
        key = f"{live.run.id}/plan"
        if plan := live.run.find_recorded(key, RunPlan):
            return plan
        early = occurrence.at + self.settling - datetime.now(UTC)
        await asyncio.sleep(max(0.0, early.total_seconds()))
        plan = await planner.plan(stored, occurrence, live.run.client(SlackReader), usd)
        if note := RunArguments.model_validate(live.args).note:
            plan = plan.model_copy(update={"notes": (note, *plan.notes)})
        for note in plan.notes:
            log.warning("%s: %s", plan.name, note)
        return await live.run.record(key, RunPlan, plan)

    async def _sweep(self, plan: RunPlan, live: ActiveRun) -> ScheduledReport:
        window, reader = Window(plan.oldest, plan.latest), Requester(zone=plan.spec.zone)
        sweep = Sweep(
            self._context(self.settings, plan, live),
            live.run,
            Request(f"sweep {plan.name}", window, requester=reader),
            plan.channels,
            plan.spec.tracker,
            since=plan.since,
            title=plan.name,
            language=plan.language or "",
        )
        document = await sweep.work()
        document.channels_added, document.channels_gone = list(plan.added), list(plan.gone)
        document.notes = list(plan.notes)
        known_issues = await IssueStore(self.runs.store.database).list_issues(plan.name)
        document = compare_issues(document, known_issues, plan.last, plan.reports)
        again = {each.issue for each in document.still_open}
        repeated = {
            id for issue in known_issues if issue.id in again for id in issue.trace.messages
        }
        await record_reused_items(self.runs.store.database, live.run.id, sorted(repeated))
        names = {c.id: c.name for c in plan.channels}
        extra = {"covered": find_covered(document, plan.covered), "channels": names}
        away = any(s.plan and s.plan.stopped == "slack" for s in sweep.sources)
        figures = document.counts.model_dump()
        return ScheduledReport(document, extra, figures, away)

    async def _triage(self, plan: RunPlan, live: ActiveRun) -> ScheduledReport:
        """Return the digest of the owner's mailbox. Raises ScheduleFault."""
        spec, window = plan.spec, Window(plan.oldest, plan.latest)
        reader = Requester(zone=spec.zone)
        request = Request(f"schedule {plan.name}", window, requester=reader)
        context, language = self._context(self.settings, plan, live), plan.language or ""
        try:
            task = await inbox_triage(context, live.run, request, language=language)
            if task is None:
                why = phrase("mail.not_connected", how=how_to_connect(self.settings))
                raise ScheduleFault(phrase("run.nothing_read", why=why))
            digest = await task.work()
        except GoogleError as error:
            passing = isinstance(error, GoogleBusy)
            why = phrase("run.nothing_read", why=error)
            raise ScheduleFault(why, passing=passing) from error
        text = report_words(digest)
        links = {f.id: f.links for r in task.fanout.own for f in r.findings if f.links}
        cited = statements(text, links)
        document = TriageAnswer(
            **dict(digest),
            question=request.text,
            answer=text,
            statements=cited,
            cited=sum(bool(each.findings) for each in cited),
            links=links,
            label=task.label.to_json(),
            title=plan.name,
            notes=list(plan.notes),
        )
        extra = _delivery_record(task)
        # All threads are new, as a triage lists nothing twice.
        high = sum(verdict.priority == "high" for verdict in document.verdicts)
        figures = {"new": len(document.verdicts) + len(document.unreadable), "high": high}
        return ScheduledReport(document, extra, figures)

    async def _ask(self, plan: RunPlan, live: ActiveRun) -> ScheduledReport:
        """Answer a question as its owner; it cannot write, because nobody is there to approve.

        Its words count as the owner's own only if no text by others was read when it was set.
        """
        question, reply, label = plan.spec.request, self.settings.reply, Label.of(plan.label)
        own = "" if label.untrusted else question
        preferences = live.run.client(Preferences)  # type: ignore[type-abstract]

        async def list_texts() -> list[str]:
            return [each.text for each in await preferences.list_preferences(plan.spec.owner)]

        texts = await live.run.once(f"{live.run.id}/preferences", list[str], list_texts)
        request = Request(
            question,
            Window(plan.oldest, plan.latest),
            earliest=plan.latest - timedelta(days=reply.max_since_days),
            requester=plan.requester,
            preferences=tuple(texts),
            here=plan.here,
            label=label,
            allowed=plan.allowed,
            raw_text=question,
            intent=Intent(own, home=next(iter(plan.here), ""), scheduled=True),
        )
        ask = Ask(self._context(self.settings, plan, live, plan.notes), live.run, request)
        document = await ask.work()
        await add_files(live.run, document)
        task = ask.reports.task
        extra = _delivery_record(task) if isinstance(task, Triage) else None
        return ScheduledReport(document, extra)

    async def _remind(self, plan: RunPlan, live: ActiveRun) -> ScheduledReport:
        """Return the text of a reminder without calling a model."""
        document = AnswerDocument(
            language=current().language,
            run_id=live.run.id,
            kind="reminder",
            status="complete",
            model=self.model_name,
            answer=plan.spec.text,
            coverage=RunCoverage(),
            label=plan.label,
            cost_usd=0.0,
        )
        return ScheduledReport(document)

    def _context(
        self, settings: Settings, plan: RunPlan, live: ActiveRun, problems: tuple[str, ...] = ()
    ) -> TaskContext:
        return TaskContext(
            settings, self.model_name, self.durable, self.runs.store, live, plan.workflow, problems
        )

    async def _fail(
        self, stored: StoredSchedule, occurrence: Occurrence, fault: ScheduleFault
    ) -> str:
        """Record a run without a report, and alert its owner.

        It is retried if the reason may be temporary; else the next run covers its window.
        """
        run = occurrence.run_id
        stored_run, paid = await self.runs.store.find_run(run), await self._cost_of(run)
        if stored_run and stored_run.status == "running":
            await self.runs.store.finish_run(run, "failed", error=fault.to_json(), cost_usd=paid)
        now = datetime.now(UTC)
        again = next_try(stored.spec, occurrence, now, self.backoff) if fault.passing else None
        why = str(fault)
        await self.alerts.fails(stored.id, why, occurrence.at, again)
        await self.schedules.record_failure(occurrence.work, why, cost=paid, again=again)
        return "to be tried again" if again else "failed"

    async def _cost_of(self, run: str) -> float:
        """Return the cost of a run without a document."""
        paid = (budgets.c.spent_nanousd + budgets.c.reserved_nanousd).label("paid")
        rows = await self.runs.store.database.read(sa.select(paid).where(budgets.c.run == run))
        return float(rows[0].paid if rows else 0) / NANOUSD_PER_USD
