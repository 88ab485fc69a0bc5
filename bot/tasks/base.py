"""The common parts of an answer, a sweep and a triage; each `work` returns its document.

Everything that is not a pure function of earlier results is inside steps of the run's checkpoint: a
killed run continues when the same task works again over the results of its steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

from bot.citations import CitationIndex, beginning, drop_unknown, ids_in
from bot.reports.documents import STATUSES, Gap, LookedUp, ReadTotals, RunCoverage, TokenUsage
from bot.slack.people import Person
from bot.storage.database import Database
from config.prompts import prompt
from config.sections import LimitSettings
from config.settings import Settings
from config.words import ENGLISH, current, in_language, phrase
from scopes.clean import printable
from scopes.intent import EMPTY_INTENT, Intent
from scopes.label import TRUSTED_LABEL, Label
from scopes.tool import Item, Window, iso, names_in, one_line
from subagents.agent import Agent
from subagents.brief import TimeFrame, text_block
from subagents.budget import Amount
from subagents.conversation import Spec
from subagents.delegation import NO_LIMITS, Allowed
from subagents.errors import BudgetExceeded
from subagents.evidence import Coverage
from subagents.fanout import Fanout, Spawner
from subagents.handoff import ParentRun
from subagents.prices import Usage, sum_usd
from subagents.result import Finding, SubagentResult, join_labels
from subagents.run import Run
from subagents.toolbox import Toolbox
from subagents.trajectory import Origin

if TYPE_CHECKING:
    from bot.mailbox.sync import MailState


class Workplace(Protocol):
    """The surroundings of a task, besides its run."""

    @property
    def settings(self) -> Settings: ...
    @property
    def model_name(self) -> str: ...
    @property
    def lists(self) -> Mapping[str, str]:
        """Slack Lists that may be read: id -> title."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Sources that could not be loaded, in words."""

    @property
    def mail(self) -> MailState | None:
        """Return the state of connected mailboxes; None if nobody can connect one."""

    @property
    def database(self) -> Database: ...

    def spawner(self, run: Run) -> Spawner: ...

    async def extend(self, run: Run, usd: float, seconds: float) -> None:
        """Extend the run's budget for a report, as far as the policy allows, and its time."""


class Requester(BaseModel):
    """The person who asks, as their profile says; empty where it is not known."""

    model_config = ConfigDict(frozen=True)

    id: str = ""
    name: str = ""
    title: str = ""
    """Role."""
    zone: str = "UTC"
    """Time zone, by its IANA name."""
    language: str = ""
    """Code of the language to answer in."""

    @classmethod
    def of(cls, person: Person | None, id: str = "", language: str = "") -> Requester:
        """Return a person's data from Slack; None = Slack returned none."""
        if person is None:
            return cls(id=id, language=language)
        zone = person.zone or cls().zone
        return cls(id=person.id, name=person.name, title=person.title, zone=zone, language=language)

    def line(self) -> str:
        """Return name, id and role on one line."""
        name = f"{_short(self.name)} ({self.id})" if self.name else self.id
        return ", ".join(filter(None, (name, _short(self.title))))

    def clock(self) -> ZoneInfo:
        """Return the time zone; UTC if this machine does not know it."""
        try:
            return ZoneInfo(self.zone)
        except (ValueError, OSError, LookupError):
            return ZoneInfo("UTC")


NO_REQUESTER = Requester()


class EarlierTurn(BaseModel):
    """An earlier message of the requester in the conversation that a request continues."""

    model_config = ConfigDict(frozen=True)

    raw_text: str
    """As Slack sent it, with its marks for channels."""
    read: tuple[str, ...] = ()
    """Ids of the conversations that its answer rests on."""


def _short(text: str) -> str:
    return one_line(printable(text))[:80].strip()


@dataclass(frozen=True, slots=True)
class Request:
    """A request, with its conversation and attachments."""

    text: str
    window: Window
    """Time of messages and mails to read if a brief gives none; it ends now."""
    earliest: datetime | None = None
    """The first time that a brief may give; None = that of the window."""
    requester: Requester = NO_REQUESTER
    preferences: tuple[str, ...] = ()
    """How the requester always wants to be answered."""
    instructions: str = ""
    """Instructions for all answers in its channel."""
    delimiter: str = ""
    """Delimiter around the text of `files`; empty = any."""
    conversation: str = ""
    """The thread around the request, as lines with ids; data, never instructions."""
    before: tuple[EarlierTurn, ...] = ()
    """The requester's own part of it, oldest first."""
    files: tuple[Mapping[str, Any], ...] = ()
    """Content blocks of attached files."""
    earlier: tuple[Finding, ...] = ()
    """Findings of earlier answers in the thread, their ids made unique for this run."""
    here: Mapping[str, str] = field(default_factory=dict)
    """Ids of sources that may be used without being named: its own channel and thread."""
    choices: tuple[tuple[str, str], ...] = ()
    """Questions that the requester was asked back, and the chosen options; oldest first."""
    label: Label = TRUSTED_LABEL
    """Label of the conversation, the files and the choices."""
    allowed: Allowed = NO_LIMITS
    raw_text: str = ""
    """The requester's own message as Slack sent it, with its marks for channels and people."""
    intent: Intent = EMPTY_INTENT
    """The requester's words and the place of the answer; `Ask` resolves the names in them."""

    @property
    def frame(self) -> TimeFrame:
        """Return the times that its briefs and reports may read."""
        oldest = self.window.oldest
        earliest = min(self.earliest, oldest) if self.earliest else oldest
        return TimeFrame(self.window, earliest, self.requester.clock())


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The input of a task that a later replay of its run cannot know."""

    kind: str
    """`ask`, or the kind of a report."""
    request: Request
    requester: str | None
    language: str
    """Language of the texts that code writes."""
    limits: LimitSettings
    lists: Mapping[str, str]
    clients: tuple[str, ...]
    """Names of the kinds of clients that its tools could use."""
    handles: Mapping[str, str]
    connects: bool
    """Whether people connect mailboxes where it ran."""
    fields: Mapping[str, Any]
    """Its own fields, as JSON."""


OF_THIS_PROCESS = frozenset({"app", "run", "request", "parent_fanout", "gmail", "listing"})
"""Fields of a task that are not recorded with the others."""


class Task(Protocol):
    """A task that is the whole work of its run."""

    kind: ClassVar[str]
    app: Workplace
    run: Run
    request: Request


async def record_task(task: Task) -> None:
    """Store the input of a task, as a step of its run."""
    run = task.run
    own = {each.name for each in fields(task)} - OF_THIS_PROCESS  # type: ignore[arg-type]

    async def build_record() -> TaskRecord:
        return TaskRecord(
            kind=task.kind,
            request=task.request,
            requester=run.requester,
            language=current().language,
            limits=run.limits,
            lists=task.app.lists,
            clients=tuple(sorted(names_in(run.clients))),
            handles=run.handles,
            connects=task.app.mail is not None,
            fields=to_jsonable_python({name: getattr(task, name) for name in sorted(own)}),
        )

    await run.once(task_key(run.id), TaskRecord, build_record)


def task_key(run: str) -> str:
    """Return the key of the step that stores the input of a task."""
    return f"{run}/task"


REPORT = "report"
"""The context that writes a report's lines if a parent (`p1`) asked for the report."""
Opening = tuple[str, Origin, str]
"""A block at the start of the parent's context: text, reason, and subagent that it shows."""
UrgencyKey = Callable[[SubagentResult], tuple[Any, ...]]
R = TypeVar("R")


@dataclass
class ReportTask(ABC, Generic[R]):
    """A report: subagents read its sources, and one call of the model writes its first lines.

    The cost of that call is reserved before the subagents start.
    """

    app: Workplace
    run: Run
    request: Request
    parent_fanout: Fanout | None = field(default=None, kw_only=True)
    """The subagents of the parent that asked for it; None = it is the whole work of the run."""
    language: str = field(default="", kw_only=True)
    """Language of the report; empty = `report.language`, else English."""
    kind: ClassVar[str]
    """`sweep` or `triage`: the recorded scope of the call's context."""
    prompt: ClassVar[str]
    """Name of the file in config/prompts/, without `.md`."""

    def __post_init__(self) -> None:
        if self.parent_fanout:
            self.context, self.fanout = REPORT, self.parent_fanout.for_context(REPORT)
        else:
            self.context, self.fanout = "p1", Fanout(self.run, self.app.spawner(self.run))
        self.language = self.language or self.app.settings.report.language or ENGLISH
        self.agent: Agent | None = None
        """The writer of the lines; None if code wrote them."""

    async def work(self) -> R:
        """Have subagents read the sources, and have the first lines written; return the report."""
        if self.parent_fanout is None:
            await record_task(self)
        with in_language(self.language):
            return await self.make()

    @abstractmethod
    async def make(self) -> R:
        """Do the work, in the language of the report."""

    async def record_delivery(self, report: R) -> None:
        """Store the data that the next report needs, after delivery. Raises StoreError."""

    def shared_fields(self) -> dict[str, Any]:
        """Return the fields about the run that every report has."""
        results = self.fanout.own
        usage, cost = total(results, *self.spent)
        return {
            "run_id": self.run.id,
            "model": self.app.model_name,
            "language": self.language,
            "as_of": iso(self.request.window.latest),
            "unsupported": sum(len(r.unsupported) for r in results),
            "usage": TokenUsage(**usage.to_json()),
            "cost_usd": cost,
            "subagents": results,
        }

    @property
    def label(self) -> Label:
        """Return the label of the report."""
        return self.request.label.join(join_labels(self.fanout.own))

    def status(self, whole: bool, some: bool, coverage: RunCoverage) -> str:
        """Return the status of the report, by how completely its sources were judged."""
        if self.run.stop:
            return "cancelled"
        if whole and coverage.is_whole:
            return "complete"
        return "partial" if whole or some else "failed"

    def problems(self) -> list[Gap]:
        """Return the sources that could not be loaded."""
        return [Gap(reason=problem) for problem in self.app.problems]

    @asynccontextmanager
    async def reserve(self) -> AsyncIterator[None]:
        """Declare the context of the lines; reserve the cost of its call inside this context."""
        by = self.parent_fanout.parent if self.parent_fanout else None
        self.run.declare(
            self.context, scope=self.kind, role="parent", template=self.prompt, parent=by
        )
        worst = self.run.model.worst("parent", self.run.limits.max_fanout_tokens)
        key = f"{self.run.id}/{self.context}/final"
        with suppress(BudgetExceeded):  # then code writes the lines
            await self.run.budget.keep(key, worst)
        try:
            yield
        finally:
            await self.run.budget.settle(key, Amount())

    @property
    def spent(self) -> tuple[Usage, float | None]:
        """Return the usage of the writer of the lines."""
        return (self.agent.usage, self.agent.cost_usd) if self.agent else (Usage(), 0.0)

    def choose_views(
        self, results: Sequence[SubagentResult], urgency: UrgencyKey, least: int
    ) -> tuple[list[SubagentResult], int]:
        """Return the results for the parent and the maximum tokens of each view: all results, or
        the most urgent ones if not every view can have `least` tokens."""
        limits = self.run.limits
        max_views = max(1, limits.max_fanout_tokens // least)
        shown = (
            list(results) if len(results) <= max_views else sorted(results, key=urgency)[:max_views]
        )
        cap = min(limits.max_result_tokens, limits.max_fanout_tokens // max(1, len(shown)))
        return shown, cap

    async def write(self, opening: Sequence[Opening], shown: Sequence[SubagentResult]) -> str:
        """Return the parent's text about these results."""
        spec = Spec(
            run=self.run.id,
            context=self.context,
            role="parent",
            system=[text_block(prompt(self.prompt))],
            tools=[],
            opening=[(origin, text_block(text), ref) for text, origin, ref in opening],
            max_steps=3,
            context_limit=self.run.limits.parent_context,
            seconds=max(1.0, self.run.budget.seconds_left()),
            single=True,
        )
        ctx = self.run.context(join_labels(shown))
        self.agent = Agent(self.run, spec, Toolbox({}, self.run.gate, 1.0, ""), ctx)
        return (await self.agent.run()).text


def label_of(items: Iterable[Item], label: Label = TRUSTED_LABEL) -> Label:
    """Return the label of a text that also rests on these items."""
    return reduce(Label.join, (item.label for item in items), label)


def cited_items(citable: CitationIndex, cited: Collection[str]) -> dict[str, LookedUp]:
    """Return the looked-up items that a document cites."""
    items = {id: item for id, item in citable.items().items() if id in cited}
    return {
        id: LookedUp(
            item=i.id,
            text=beginning(i),
            author=one_line(i.by or ""),
            at=iso(i.at) if i.at else None,
        )
        for id, i in items.items()
    }


def answer_text(results: Sequence[SubagentResult], done: ParentRun, citable: CitationIndex) -> str:
    """Return the parent's text; if it was stopped earlier, the results and the reason.

    The text of a subagent cannot cite the parent's own look-ups.
    """
    findings = citable.findings()
    own = citable.map_item_ids(done.ending.items_seen)
    files = citable.files()
    text = drop_unknown(done.ending.text, findings, own, files).strip()
    if text and (
        done.ending.stopped_by == "none" or findings.keys() & ids_in(text) or not findings
    ):
        return text
    what = phrase("answer.not_finished" if text else "answer.not_written")
    reasons = [] if done.ending.stopped_by == "user" else [what]  # then the reason is below
    lines = [text, ""] if text else []
    found = [r for r in results if r.findings or r.status in ("complete", "partial")]
    lines.append(" ".join([*reasons, *([phrase("answer.found_until")] if found else [])]))
    for r in found:
        citations = " ".join(f"[{f.id}]" for f in r.findings[:5])
        lines.append(f"- {drop_unknown(r.text, findings, files=files)} {citations}")
    return "\n".join(lines)


FAILED_OUTCOMES = ("model_error", "rate_limit", "tool_error", "invalid_output")
"""Outcomes after which a parent's last text is not an answer."""


def status_of(results: Sequence[SubagentResult], done: ParentRun) -> str:
    """Return complete, partial, failed or cancelled, for the answer with all its parts."""
    stopped = done.ending.stopped_by
    if stopped == "user":
        return "cancelled"
    if not done.ending.text or stopped in FAILED_OUTCOMES:
        return "partial" if any(r.findings for r in results) else "failed"
    whole = stopped == "none" and all(r.status in ("complete", "refused") for r in results)
    whole = whole and not is_all_refused(results)
    return "complete" if whole else "partial"


def count_statuses(statuses: Sequence[str], missing: Sequence[Gap]) -> RunCoverage:
    """Return the coverage of parts with these final statuses."""
    counts = {status: statuses.count(status) for status in STATUSES}
    return RunCoverage.model_validate(
        {"items": len(statuses), **counts, "not_covered": list(missing)}
    )


def coverage_of(results: Sequence[SubagentResult]) -> RunCoverage:
    """Return the number of subagents by outcome, the sources they read, and those not covered."""
    missing = [Gap(subagent=r.id, reason=each) for r in results for each in r.not_covered]
    nothing_ran = is_all_refused(results)
    for r in results:
        if not (nothing_ran or is_lost(r)):
            continue
        why = r.reason or r.stopped_by
        if not any(each.rstrip(".") in why for each in r.not_covered):
            missing.append(Gap(subagent=r.id, stopped_by=r.stopped_by, reason=why))
    parts = [r.read for r in results if r.coverage]
    read = ReadTotals(**Coverage.sum(parts).model_dump(mode="json"))
    read.complete = bool(parts) and read.complete  # reading nothing is not a complete reading
    return count_statuses([r.status for r in results], missing).model_copy(update={"read": read})


def whole_or_partial(status: str, coverage: RunCoverage) -> str:
    """Return the status of a run by the sources that it does not cover, such as damaged ones."""
    return "partial" if status == "complete" and not coverage.is_whole else status


def is_all_refused(results: Sequence[SubagentResult]) -> bool:
    """Return whether subagents were requested and none of them was started."""
    return bool(results) and all(r.status == "refused" for r in results)


def is_lost(result: SubagentResult) -> bool:
    """Return whether some work is missing that the result itself does not mention.

    A brief refused for its form can be fixed and sent again; a partial result that nothing stopped
    tells what is missing.
    """
    refused_for_good = result.reason.partition(":")[0] in ("max_subagents", "items")
    if result.status == "refused":
        return refused_for_good
    stopped = result.status == "partial" and result.stopped_by != "none"
    return stopped or result.status in ("failed", "cancelled")


def total(
    results: Sequence[SubagentResult], usage: Usage, cost: float | None
) -> tuple[Usage, float | None]:
    """Return tokens and dollars of the parent and all subagents; None if a price is unknown."""
    for result in results:
        parts = {k: v for k, v in result.usage.items() if k != "total"}
        usage += Usage(**parts)
        cost = sum_usd(cost, result.cost_usd)
    return usage, cost
