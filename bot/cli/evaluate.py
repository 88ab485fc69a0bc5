"""Implement `assistant eval`: run a suite with the assistant and two baselines, and compare."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from bot.citations import CitedStatement
from bot.cli.ask import answer_question, with_mailbox
from bot.cli.output import CommandContext, on_database
from bot.cli.reports import ReviewArgs, SweepOptions, review, sweep
from bot.cli.triage import OpenMailbox, load_mailbox, open_mailbox, triage_mailbox
from bot.context import App, open_app
from bot.errors import SetupError
from bot.evaluation.cases import (
    Case,
    Job,
    Sources,
    Suite,
    Task,
    cases_of_run,
    suite_of,
    write_cases,
)
from bot.evaluation.scores import (
    EvaluationReport,
    Observation,
    SystemResult,
    earlier_result,
    figure_text,
    observe,
    outcome,
    report,
    report_text,
    scipy_stats,
    system_result,
)
from bot.local_mode import end_of, load_workspace
from bot.options import EPOCH, Options
from bot.reports.documents import AnswerDocument, Document, TokenUsage
from bot.tasks.base import coverage_of
from bot.tasks.sources import select_channels
from bot.terminal import DONE, INCOMPLETE, dump, say, tell
from config.panels import load_profile
from config.prompts import BadPrompts, prompt, prompts_from
from config.sections import LimitSettings
from config.settings import Settings, load_settings
from config.words import ENGLISH
from scopes import ALL, scope_of
from scopes.effects import OPEN_MAIL, Handles
from scopes.google.gmail import Gmail
from scopes.label import TRUSTED_LABEL
from scopes.slack_reader import ChannelInfo
from scopes.tool import Window
from subagents.brief import Brief, BriefDraft
from subagents.events import ignore
from subagents.fanout import Fanout
from subagents.run import Run

if TYPE_CHECKING:
    from bot.local.google.mbox import Mailbox
    from bot.local.workspace import Channel, Message, Workspace

System = Literal["assistant", "one context"]
ASSISTANT: Final = "assistant"
ONE: Final = "one context"
AT_ONCE = 4
"""Runs at a time; the offline model has one, so that its cache hits are reproducible."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of `assistant eval`, as typed."""

    suite: str
    model: str
    data: Path | None = None
    prompts: Path | None = None
    compare: Path | None = None
    save: Path | None = None
    limit: int | None = None
    alone: bool = False
    json: bool = False


def run_evaluation(options: EvaluationOptions) -> int:
    """Run a suite with all systems, print the table; return the exit code."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    try:
        document = _evaluate(options)
    except BadPrompts as error:
        raise SetupError("bad_prompts", str(error), "") from None
    for each in document.systems:
        tell(f"time of {each.name}: {figure_text(each.seconds)} s")
    if options.json:
        dump(document.model_dump(mode="json"))
    else:
        say(report_text(document))
    if options.save:
        _save(document, options.save)
    ours = document.systems[0]
    return DONE if all(each.covered for each in ours.outcomes) else INCOMPLETE


def _evaluate(options: EvaluationOptions) -> EvaluationReport:
    scipy_stats()
    suite = suite_of(options.suite, options.data)
    suite = Suite(suite.name, suite.cases[: options.limit])
    settings = load_settings()
    systems: list[SystemResult] = []
    if options.compare:
        systems.append(earlier_result(options.compare, suite.name))
    with prompts_from(options.prompts):
        ours = _measure(settings, suite, options.model, ASSISTANT)
        if not options.alone:
            systems.append(_measure(settings, suite, options.model, ONE))
            systems += _script(suite)
    return report(suite, options.model, [ours, *systems])


def _save(document: EvaluationReport, path: Path) -> None:
    try:
        path.write_text(document.model_dump_json(indent=1) + "\n", "utf-8")
    except OSError as error:
        raise SetupError("not_saved", f"{path} cannot be written: {error.strerror}.", "") from None


def _measure(settings: Settings, suite: Suite, model: str, system: System) -> SystemResult:
    """Run all jobs of a suite and compare their results with its cases."""
    observations: dict[Job, Observation] = {}
    for sources, task in dict.fromkeys((job.sources, job.task) for job in suite.jobs):
        jobs = [job for job in suite.jobs if (job.sources, job.task) == (sources, task)]
        tell(f"{system}: {len(jobs)} run{'s' if len(jobs) > 1 else ''} of {task}")
        options = _options_for(sources, task, model)
        observations |= asyncio.run(_run_all(settings, jobs, options, system))
    outcomes = [outcome(case, observations[case.job]) for case in suite.cases]
    if not any(each.covered for each in outcomes):
        faults = filter(None, (each.fault for each in observations.values()))
        tell(f"warning: {system} covers no case: {next(faults, 'no run is complete')}")
    return system_result(system, outcomes, list(observations.values()))


def _options_for(sources: Sources, task: Task, model: str) -> Options:
    """Return the options of a command that reads these sources."""
    in_slack = sources.sample or sources.slack_export
    elsewhere = sources.mbox or sources.databases or sources.folder
    is_mail = task in ("triage", "review") or bool(elsewhere and not in_slack)
    options = Options.of_run(model, sources, mail=is_mail)
    options = options.with_sales() if task == "ask" else replace(options, databases=())
    options.check()
    return options


async def _run_all(
    settings: Settings, jobs: Sequence[Job], options: Options, system: System
) -> dict[Job, Observation]:
    """Run jobs of one task on one set of sources, several at a time."""
    room = asyncio.Semaphore(1 if options.model == "offline" else AT_ONCE)
    if system == ONE:  # in a review, one context plays all specialists
        limits = settings.limits.model_copy(update={"max_subagents": 0})
        settings = settings.model_copy(update={"limits": limits})
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(settings, options, ignore))
        for problem in app.problems:
            tell(f"warning: {problem}")
        box = await stack.enter_async_context(_mailbox(app, jobs[0].task, system))

        async def one(job: Job) -> Observation:
            async with room:
                began = time.monotonic()
                in_one = system == ONE and job.task != "review"
                document = await (_read_in_one(app, job) if in_one else _document(app, job, box))
                denied = await _count_denied(app, document.run_id)
                return observe(document, denied, time.monotonic() - began)

        try:
            async with asyncio.TaskGroup() as group:
                runs = {job: group.create_task(one(job)) for job in jobs}
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
    return {job: run.result() for job, run in runs.items()}


@asynccontextmanager
async def _mailbox(app: App, task: Task, system: System) -> AsyncIterator[OpenMailbox | None]:
    """Open the mailbox of these runs; a triage of the assistant opens its own."""
    if task == "ask":
        async with with_mailbox(app) as box:
            yield box
    elif task == "triage" and system == ONE:
        async with open_mailbox(app.settings, app.options, app.store.database) as box:
            app.clients = {Gmail: box.gmail}
            app.as_of = app.options.as_of or box.as_of
            yield box
    else:
        yield None


async def _document(app: App, job: Job, box: OpenMailbox | None) -> Document:
    """Run a job in the same way as its command."""
    if job.task == "sweep":
        return await sweep(app, SweepOptions(job.channels))
    if job.task == "triage":
        return await triage_mailbox(app)
    if job.task == "review":
        profile = load_profile(job.profile, app.settings.panel.profiles)
        return await review(app, ReviewArgs(source=str(job.material), profile=job.profile), profile)
    return await answer_question(app, job.question, box)


async def _count_denied(app: App, run: str) -> int:
    """Return the number of tool calls that the gate denied in a run."""
    return sum(each.verdict == "deny" for each in await app.store.decisions(run))


async def _read_in_one(app: App, job: Job) -> AnswerDocument:
    """Run a job in one context with the same tools; it has the time and money of the task."""
    channels = await app.channels() if app.reader else []
    week = app.window(timedelta(days=app.settings.sweep.since_days))
    window = app.window(app.as_of - EPOCH) if job.task == "triage" else week
    if job.task == "sweep":
        channels = select_channels(channels, job.channels)
    async with app.run("ask", f"{job.task} in one context", limits=_limits(app, job.task)) as run:
        brief = brief_of_job(run, job, channels, window)
        (result,) = await Fanout(run, app.spawner(run)).run_all([brief])
        findings = [finding.id for finding in result.findings]
        document = AnswerDocument(
            run_id=run.id,
            status=result.status,
            model=app.model_name,
            question=job.question or job.task,
            answer=result.text,
            statements=[CitedStatement(text=result.text, findings=findings)],
            coverage=coverage_of([result]),
            places={channel.id: f"#{channel.name}" for channel in channels},
            unsupported=len(result.unsupported),
            usage=TokenUsage.model_validate(result.usage),
            cost_usd=result.cost_usd,
            subagents=[result],
        )
        await app.finish(run, document)
        return document


def _limits(app: App, task: Task) -> LimitSettings:
    limits, settings = app.settings.limits, app.settings
    if task == "sweep":
        return limits.of_task(settings.sweep.time_s)
    if task == "triage":
        return limits.of_task(settings.triage.time_s, settings.triage.budget_usd)
    return limits


def _script(suite: Suite) -> list[SystemResult]:
    """Return the results of a script without agents; empty if the suite has no script."""
    began = time.monotonic()
    flagged: dict[Sources, frozenset[str]] = {}
    for case in suite.cases:
        if case.expected.needed is None:
            return []
        if case.sources not in flagged:
            flagged[case.sources] = _labels_of(case)
    runs = {s: Observation(flagged=f, filtered=frozenset()) for s, f in flagged.items()}
    outcomes = [outcome(case, runs[case.sources]) for case in suite.cases]
    seconds = Observation(seconds=time.monotonic() - began)
    return [system_result("script", outcomes, [seconds])]


def _labels_of(case: Case) -> frozenset[str]:
    """Return the items in the sources of a case that need action according to the script."""
    options = _options_for(case.sources, case.task, "offline")
    if case.task == "sweep":
        workspace = load_workspace(options)
        until = options.as_of or end_of(workspace, options)
        return asker_spoke_last(workspace, until) if workspace else frozenset()
    if not (options.mbox or options.sample):
        return frozenset()
    return with_question_mark(load_mailbox(options))


# ---- the baselines: one context that reads everything with the same tools, and scripts


MAIL_TASK = (
    "Read every mail thread of the mailbox. List each in which something is asked of the reader "
    "that is not done yet, or that is urgent, as a finding with the state unanswered, and all "
    "others in no_issue."
)


def brief_of_job(run: Run, job: Job, channels: Sequence[ChannelInfo], window: Window) -> Brief:
    """Return the brief of one context that does a whole job and reads all open sources."""
    titles = {channel.id: channel.name for channel in channels}
    task, contract, language = job.question, "answer", None
    if job.task == "sweep":
        names = ", ".join(titles.values())
        task, contract = prompt("sweep_task").replace("{name}", names), "issues"
        language = ENGLISH
    elif job.task == "triage":
        task, contract, titles, language = MAIL_TASK, "issues", {OPEN_MAIL: ""}, ENGLISH
    else:
        titles |= run.handles
    kinds = {scope_of(handle) for handle in titles}
    draft = BriefDraft(
        task=task,
        description="One context",
        scope=kinds.pop() if len(kinds) == 1 else ALL,
        contract=contract,
        handles=tuple(titles),
    )
    return Brief(draft, Handles(titles), window, TRUSTED_LABEL, language, requester=run.requester)


def asker_spoke_last(workspace: Workspace, until: datetime) -> frozenset[str]:
    """Return the threads, as `channel/ts`, whose last message is by the author of the first."""
    return frozenset(
        f"{channel.name}/{messages[0].ts}"
        for channel in workspace.channels
        for messages in _threads(channel, until)
        if messages[-1].user == messages[0].user
    )


def _threads(channel: Channel, until: datetime) -> Iterator[list[Message]]:
    """Yield the messages of each thread written before `until`, oldest first."""
    threads: dict[str, list[Message]] = {}
    for message in sorted(channel.messages, key=lambda each: float(each.ts)):
        if float(message.ts) < until.timestamp():
            threads.setdefault(message.thread_ts or message.ts, []).append(message)
    yield from threads.values()


def with_question_mark(mailbox: Mailbox) -> frozenset[str]:
    """Return the threads with a question mark in the text of a mail."""
    return frozenset(m.thread for m in mailbox.messages if b"?" in m.raw.partition(b"\r\n\r\n")[2])


@on_database
async def add_case(context: CommandContext, run: str, rating: str | None, folder: Path) -> None:
    """Write cases from a stored run into a folder of cases."""
    cases = await cases_of_run(context.database, run, rating)
    try:
        path = write_cases(cases, folder)
    except OSError as error:
        why = f"Nothing can be written to {folder} ({error.strerror})."
        raise SetupError("folder", why, "Name another folder with --into.") from None
    text = f"{path}: {len(cases)} case{'s' if len(cases) > 1 else ''} of the run {run}"
    context.show({"file": str(path), "cases": [case.id for case in cases]}, text)
