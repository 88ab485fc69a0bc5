"""The reports that a parent may request: a sweep, a triage, a review."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

import scopes
from bot.citations import SPACED_CITATION_PATTERN, CitedStatement
from bot.reports.documents import (
    Gap,
    Report,
    SweepReport,
    TopLine,
    TriageLine,
    TriageReport,
)
from bot.reports.formats import clean_text
from bot.reports.frame import gap_text
from bot.tasks.base import ReportTask, Request, Workplace, whole_or_partial
from bot.tasks.sources import match_channels, seen_channels
from config.settings import SettingsError
from config.words import ENGLISH, Text, phrase
from scopes.slack_client import SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import (
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    Window,
    names_in,
    tool,
    with_clients,
)
from subagents.agent import Outcome
from subagents.delegation import Delegation
from subagents.errors import BriefRefused
from subagents.events import ContextGrew
from subagents.run import Run
from subagents.summary import overview
from subagents.toolbox import ToolCall, crash_text
from subagents.trajectory import Origin

if TYPE_CHECKING:  # a report is imported on demand
    from bot.mailbox.sync import Sync
    from bot.tasks.material import ReviewMaterial
    from bot.tasks.triage import Triage

log = logging.getLogger(__name__)

GMAIL = "scopes.google.gmail:Gmail"
"""Name of the client of a mailbox."""

PAGE, THREAD = ("web", "read_url", "url"), ("slack", "read_thread", "thread")
"""Scope, tool and argument that read a material."""

ABSENT, UNLISTED = Text("gap.absent"), Text("gap.unlisted")
ONE_REPORT = "This request has its report already; another one needs a request of its own."
NOTHING_TO_ADD = "NONE"
"""The parent's text if it adds nothing to the report."""
MAX_TOLD = 700
"""Maximum characters of a line in an answer's words; the report has all."""
BELOW = (
    "The program shows this report, whole, below your answer: do not repeat it. Write only what "
    f"the request asks beyond it; if that is nothing, write only {NOTHING_TO_ADD}."
)


@dataclass(frozen=True, slots=True)
class ChosenChannels:
    """The channels of a sweep that a parent asks for."""

    channels: list[ChannelInfo]
    missing: list[Gap]
    """Names that match none of them, and why."""
    tracker: str | None


@dataclass
class Reports:
    """Makes the report of a request, when its parent calls a tool for it."""

    app: Workplace
    run: Run
    request: Request
    delegation: Delegation

    def __post_init__(self) -> None:
        self.task: ReportTask[Any] | None = None
        self.report: Report | None = None
        self.missing = list[str]()
        """Sources that could not be read at all, and why."""

    def tools(self) -> dict[str, Tool]:
        """Return the tools for the parent of this request."""
        sweep, triage, panel = TOOLS
        mailbox = GMAIL in names_in(self.run.clients) or self.app.mail is not None
        may = {
            sweep.name: SlackReader in self.run.clients and self._allows("slack"),
            triage.name: mailbox and self._allows("email"),
            panel.name: bool(self.request.intent.home or self.request.files)
            and not self.request.intent.scheduled,
        }
        return {tool.name: tool for tool in TOOLS if may[tool.name]}

    def _allows(self, scope: str) -> bool:
        return scope in scopes.permitted_scopes(self.request.allowed.scopes)

    async def __call__(self, call: ToolCall, ctx: ToolContext) -> Outcome:
        """Run one call; the parent sees a view of the report's subagents."""
        parent = self.delegation.fanout.parent
        key = f"{self.run.id}/{parent}/{call.id}"
        clients = with_clients(ctx.clients, {Reports: self})
        ctx = replace(ctx, key=key, context=parent, clients=clients)
        tool = self.tools()[call.name]
        try:
            found = await self.run.gate.call(parent, ctx, tool, call.input)
        except ToolError as error:
            return Outcome(str(error), Origin.ERROR, label=error.label)
        except Exception as error:  # boundary: one report; the rest of the request continues
            log.exception("the report of %s crashed", self.run.id)
            why = crash_text(tool.name, error)
            self.missing.append(why)
            return Outcome(why, Origin.ERROR)
        if not isinstance(found, ToolResult):
            return Outcome(found.reason, Origin.ERROR)
        results = self.task.fanout.own if self.task else []
        if not results:
            return Outcome(found.note, Origin.REMINDER, label=found.label)
        max_tokens = self.run.limits.max_result_tokens
        text = f"{found.note}\n\n{overview(results, max_tokens, max_tokens)}"
        self.delegation.record_view(results, text)
        return Outcome(text, Origin.VIEW, " ".join(r.id for r in results), found.label)

    async def read_material(self, ctx: ToolContext, source: str) -> ReviewMaterial:
        """Read the material with the tool of its kind. Raises MaterialRefused."""
        from bot.tasks.material import MaterialRefused, material_of_attachment, read_through_gate

        if found := material_of_attachment(source, self.request.files, self.request.label):
            return found
        is_page = source.startswith(("http://", "https://"))
        scope, name, argument = PAGE if is_page else THREAD
        tools = scopes.offered_tools(scope, self.run.clients) if self._allows(scope) else ()
        tool = next((each for each in tools if each.name == name), None)
        if tool is None:
            raise MaterialRefused(f"{source[:200]} cannot be read here.")
        return await read_through_gate(self.run, ctx, tool, **{argument: source})

    async def record_delivery(self) -> None:
        """Record that the report was delivered: the threads of a digest are not listed again, and
        the findings of a review are known to the next one."""
        if self.task and self.report:
            await self.task.record_delivery(self.report)

    @classmethod
    def of(cls, ctx: ToolContext) -> Reports:
        """Return the reports of a request. Raises ToolError if it already has its report."""
        reports = ctx.client(cls)
        if reports.task:
            raise ToolError(ONE_REPORT)
        return reports

    async def make(
        self, task: ReportTask[Any], usd: float, seconds: float, missing: Sequence[Gap] = ()
    ) -> ToolResult:
        """Make the report with so much money and time; `missing`: further gaps of the report."""
        self.task = task
        await self.app.extend(self.run, usd, seconds)
        self.report = report = await task.work()
        report.coverage.not_covered += missing
        report.status = whole_or_partial(report.status, report.coverage)
        return ToolResult(note="\n".join([*_summary(report), BELOW]), label=task.label)

    def language(self, asked: str) -> str:
        """Return the language of a report: that of the settings, of the answer, of the reader."""
        asked = asked.strip().casefold()[:8]
        return self.app.settings.report.language or asked or self.request.requester.language

    def window(self, since: str, until: str, days: int) -> Window:
        """Return the window to read; the last `days` without `since`. Raises ToolError."""
        try:
            return self.request.frame.of_days(days).window(since, until)
        except BriefRefused as refusal:
            raise ToolError(f"{refusal}.") from refusal

    async def choose_channels(self, ctx: ToolContext, names: Sequence[str]) -> ChosenChannels:
        """Find the channels: those that the request names or the parent has listed.

        A pattern matches private ones only if nobody but the requester reads the answer.
        """
        run = self.run
        seen = list((await seen_channels(run, run.client(SlackReader))).values())
        text = f"{self.request.raw_text} {self.request.text}".casefold()
        alone = self.request.intent.home[:1] in ("", "D")
        by_id: dict[str, ChannelInfo] = {}
        missing = []
        for name in dict.fromkeys(each.strip().lstrip("#") for each in names):
            is_named = bool(name) and (name.casefold() in text or _says_stem(text, name))
            matched = [
                channel
                for channel in match_channels(seen, name)
                if (alone or "*" not in name or not channel.is_private)
                and await run.gate.may_read(run.requester, channel.id)
            ]
            found = [c for c in matched if is_named or c.id in ctx.handles.titles]
            by_id |= {channel.id: channel for channel in found}
            if found:  # report the channels of a pattern that are left out
                missing += [_gap(c.name, UNLISTED) for c in matched if c not in found]
            else:
                listed = is_named or name in ctx.handles.titles
                missing.append(_gap(name, ABSENT if listed else UNLISTED))
        most = run.limits.max_items
        accepted = list(by_id.values())[:most]
        excess = list(by_id.values())[most:]
        missing += [_gap(c.name, Text("gap.at_once", {"most": most})) for c in excess]
        lists = [id for id in self.app.lists if await run.gate.may_read(run.requester, id)]
        return ChosenChannels(accepted, missing, lists[0] if len(lists) == 1 else None)


@tool(client=Reports)
async def sweep_channels(
    ctx: ToolContext, channels: list[str], since: str = "", until: str = "", language: str = ""
) -> ToolResult:
    """Sweep channels for all customer issues now: a subagent each, one report below your answer.
    `channels`: names, ids or patterns (csm-*). `since`, `until`: only if the request says when, as
    for a subagent. `language`: that of your answer, as a code (es)."""
    from bot.tasks.sweep import Sweep

    reports = Reports.of(ctx)
    app, run, settings = reports.app, reports.run, reports.app.settings
    window = reports.window(since, until, settings.sweep.since_days)
    key, choose = f"{ctx.key}/channels", lambda: reports.choose_channels(ctx, channels)
    try:
        selection = await run.once(key, ChosenChannels, choose)
    except SlackRefused as error:
        reports.missing.append(str(error))
        raise ToolError(f"{error}.") from error
    if not selection.channels:
        why = "; ".join(map(gap_text, selection.missing))
        raise ToolError(f"None of them can be swept: {why}. Try list_channels.")
    task = Sweep(
        *(app, run, replace(reports.request, window=window), selection.channels, selection.tracker),
        language=reports.language(language) or ENGLISH,
        parent_fanout=reports.delegation.fanout,
    )
    return await reports.make(
        task, settings.limits.cost_usd, settings.sweep.time_s, selection.missing
    )


@tool(client=Reports)
async def triage_inbox(
    ctx: ToolContext,
    since: str = "",
    until: str = "",
    limit: Annotated[int, Field(ge=1)] | None = None,
) -> ToolResult:
    """Triage the requester's own mailbox now: a subagent a thread, one digest below your answer.
    `since`, `until`: only if the request says when, as for a subagent. `limit`: only if it says how
    many threads, the newest ones."""
    from bot.mailbox.accounts import how_to_connect
    from scopes.google.errors import GoogleError

    reports = Reports.of(ctx)
    app, run, settings = reports.app, reports.run, reports.app.settings.triage
    request = reports.request
    if since or until or app.mail:  # all mails of a file, unless the request gives a time
        window = reports.window(since, until, settings.since_days)
        request = replace(request, window=window)
    try:
        language = reports.language("")
        task = await inbox_triage(app, run, request, reports, language=language)
        if task is None:
            how = how_to_connect(app.settings)
            raise ToolError(phrase("mail.not_connected", how=how))
        task.limit = limit
        return await reports.make(task, settings.budget_usd, settings.time_s)
    except GoogleError as error:
        reports.missing.append(str(error))
        raise ToolError(str(error)) from error


@tool(client=Reports)
async def review(
    ctx: ToolContext, source: str, profile: str = "code", language: str = ""
) -> ToolResult:
    """Have a panel of specialists review one thread, attached file or link: one report below your
    answer. `source`: id of a thread, name of an attached file, or address. `profile`: code (code,
    changes of code), strategy (notes, plans, offers, contracts), incident (threads and reports of
    incidents), or another that the request names. `language`: of your answer, as a code (es)."""
    from bot.tasks.material import MaterialRefused, ReviewMaterial, check_size
    from bot.tasks.panel import Panel
    from config.panels import load_profile

    reports = Reports.of(ctx)
    app, run, settings = reports.app, reports.run, reports.app.settings

    async def read() -> ReviewMaterial:
        return check_size(await reports.read_material(ctx, source), settings)

    try:
        loaded = load_profile(profile.strip().casefold(), settings.panel.profiles)
        material = await run.once(f"{ctx.key}/material", ReviewMaterial, read)
    except (SettingsError, MaterialRefused) as error:
        raise ToolError(str(error)) from None
    task = Panel(
        *(app, run, reports.request, material, loaded, material.name),
        language=reports.language(language),
        parent_fanout=reports.delegation.fanout,
    )
    return await reports.make(task, settings.panel.budget_usd, settings.panel.time_s)


TOOLS = (sweep_channels, triage_inbox, review)


def _gap(name: str, why: Text) -> Gap:
    return Gap(source=name, reason=str(why))


def _says_stem(text: str, pattern: str) -> bool:
    """Return whether a text expresses a pattern in words: "the csm channels" expresses `csm-*`."""
    stems = [each.strip("-_.").casefold() for each in re.split(r"[*?\[\]]+", pattern)]
    words = [each for each in stems if each]
    wild = len(stems) > 1 and bool(words)
    return wild and all(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text) for each in words)


async def inbox_triage(
    app: Workplace,
    run: Run,
    request: Request,
    asked_for: Reports | None = None,
    account: str = "",
    language: str = "",
) -> Triage | None:
    """Return the triage of the run's open mailbox; None if none is connected.

    `account`: its stored name; empty = its reader. Raises GoogleError.
    """
    if GMAIL not in names_in(run.clients):
        return None
    from bot.mailbox.corrections import Correction
    from bot.mailbox.sync import new_threads
    from bot.tasks.triage import INBOX, Reader, Triage, all_threads, mailbox_label
    from scopes.google.gmail import Gmail

    gmail = run.client(Gmail)
    address = await run.once(f"{run.id}/mailbox", str, gmail.address)
    state, window = app.mail, request.window
    today = (asked_for.request if asked_for else request).window.latest.date()
    reader = Reader(run.requester or address, address, today)
    account = account or reader.owner
    # Before any row of the plan: only people who may read the mailbox may see its subjects.
    run.emit(ContextGrew("p1", mailbox_label(reader.owner)))

    async def listing() -> Sync:
        if state is None:
            return await all_threads(gmail, window)
        return await new_threads(gmail, state, account, INBOX, window)

    async def corrections() -> list[Correction]:
        return await state.corrections.all(account) if state else []

    stored = await run.once(f"{run.id}/corrections", list[Correction], corrections)
    return Triage(
        *(app, run, request, gmail, reader, listing),
        corrections=stored,
        account=account,
        parent_fanout=asked_for.delegation.fanout if asked_for else None,
        language=language,
    )


def _summary(report: Report) -> Iterator[str]:
    """Yield the facts about a report that a parent gets with the views of its subagents."""
    cover, window = report.coverage, report.window
    what = {"sweep": "channels", "triage": "threads", "panel": "readings"}[report.kind]
    period = f", {window.oldest} to {window.latest}" if window else ""
    yield f"{report.kind.upper()} {report.status}: {cover.items} {what}{period}."
    if missing := cover.not_covered:
        yield f"Not covered: {len(missing)}."
    if isinstance(report, TriageReport) and report.unchanged_since:
        yield "No thread has anything new since the last digest: the report says so."


def report_words(report: Report) -> str:
    """Return the first lines of a report with citations, for later questions about it; its findings
    are stored with it."""
    from bot.reports.digest import summary

    lines = [summary(report)] if isinstance(report, TriageReport) else []
    first: Sequence[TopLine | TriageLine | CitedStatement] = report.top_lines
    lines += [f"{n}. {_cite(line.text, *line.findings)}" for n, line in enumerate(first, 1)]
    if isinstance(report, SweepReport):
        lines += [f"- #{each.item}: {_cite(each.summary)}" for each in report.sections]
    return "\n".join(lines)


def _cite(text: str, *findings: str) -> str:
    """Return a text by others, cleaned, with only these citations: only code cites."""
    cleaned = SPACED_CITATION_PATTERN.sub("", clean_text(text, MAX_TOLD))
    return cleaned + "".join(f" [{id}]" for id in findings if id)
