"""Implement `assistant eval`: run a suite with the assistant and two baselines, and compare."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from bot.cli.ask import ReadingOptions, SweepOptions, answer_question, sweep, with_mailbox
from bot.cli.output import CommandContext, on_database
from bot.cli.review import ReviewArgs, review
from bot.cli.triage import OpenMailbox, load_mailbox, open_mailbox, triage_mailbox
from bot.context import EPOCH, App, open_app
from bot.errors import SetupError
from bot.evaluation.baselines import (
    asker_spoke_last,
    brief_of_job,
    context_document,
    newest,
    one_context,
    with_question_mark,
)
from bot.evaluation.cases import Case, Job, Sources, Suite, Task, suite_of, write_cases
from bot.evaluation.feedback import cases_of_run
from bot.evaluation.observation import Observation, observe, observe_context, outcome
from bot.evaluation.statistics import (
    EvaluationReport,
    SystemResult,
    earlier_result,
    figure_text,
    report,
    report_text,
    scipy_stats,
    system_result,
)
from bot.local_mode import end_of, loaded
from bot.reports.documents import Document
from bot.tasks.sources import chosen
from bot.terminal import DONE, INCOMPLETE, dump, errors_reported, say, tell
from config.panels import load_profile
from config.prompts import BadPrompts, prompts_from
from config.sections import LimitSettings
from config.settings import Settings, load_settings
from scopes.google.gmail import Gmail
from subagents.events import ignore

System = Literal["assistant", "one context"]
OURS: Final = "assistant"
ONE: Final = "one context"
AT_ONCE = 4
"""Runs at a time; the offline model has one, so that what its cache saves is the same twice."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of `assistant eval`, as they were typed."""

    suite: str
    model: str
    data: Path | None = None
    prompts: Path | None = None
    compare: Path | None = None
    save: Path | None = None
    limit: int | None = None
    alone: bool = False
    json: bool = False


def run_evaluation(given: EvaluationOptions) -> int:
    """Run a suite with all systems, print the table; return the exit code."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    with errors_reported(given.json):
        try:
            document = _evaluate(given)
        except BadPrompts as error:
            raise SetupError("bad_prompts", str(error), "") from None
        for each in document.systems:
            tell(f"time of {each.name}: {figure_text(each.seconds)} s")
        if given.json:
            dump(document.model_dump(mode="json"))
        else:
            say(report_text(document))
        if given.save:
            _save(document, given.save)
    ours = document.systems[0]
    return DONE if all(each.covered for each in ours.outcomes) else INCOMPLETE


def _evaluate(given: EvaluationOptions) -> EvaluationReport:
    scipy_stats()
    suite = suite_of(given.suite, given.data)
    suite = Suite(suite.name, suite.cases[: given.limit])
    settings = load_settings()
    systems: list[SystemResult] = []
    if given.compare:
        systems.append(earlier_result(given.compare, suite.name))
    with prompts_from(given.prompts):
        ours = _measure(settings, suite, given.model, OURS, OURS)
        if not given.alone:
            systems.append(_measure(settings, suite, given.model, ONE, ONE))
            systems += _script(suite)
    return report(suite, given.model, [ours, *systems])


def _save(document: EvaluationReport, path: Path) -> None:
    try:
        path.write_text(document.model_dump_json(indent=1) + "\n", "utf-8")
    except OSError as error:
        raise SetupError("not_saved", f"{path} cannot be written: {error.strerror}.", "") from None


def _measure(
    settings: Settings, suite: Suite, model: str, system: System, name: str
) -> SystemResult:
    """Run all jobs of a suite and compare what they say with its cases."""
    seen: dict[Job, Observation] = {}
    for sources, task in dict.fromkeys((job.sources, job.task) for job in suite.jobs):
        jobs = [job for job in suite.jobs if (job.sources, job.task) == (sources, task)]
        tell(f"{name}: {len(jobs)} run{'s' if len(jobs) > 1 else ''} of {task}")
        seen |= asyncio.run(_run_all(settings, jobs, _reading(sources, task, model), system))
    outcomes = [outcome(case, seen[case.job]) for case in suite.cases]
    if not any(each.covered for each in outcomes):
        faults = filter(None, (each.fault for each in seen.values()))
        tell(f"warning: {name} covers no case: {next(faults, 'no run is complete')}")
    return system_result(name, outcomes, list(seen.values()))


def _reading(sources: Sources, task: Task, model: str) -> ReadingOptions:
    """Return the options with which a command would read these sources."""
    in_slack = sources.sample or sources.slack_export
    elsewhere = sources.mbox or sources.database or sources.folder
    no_slack = task in ("triage", "review") or bool(elsewhere and not in_slack)
    return ReadingOptions(
        slack_export=sources.slack_export,
        sample=sources.sample,
        as_of=sources.as_of,
        since=sources.since,
        model=model,
        database=sources.database if task == "ask" else None,
        folder=sources.folder,
        mbox=sources.mbox,
        me=sources.reader,
        as_user=sources.as_user,
        mail=no_slack,
    )


async def _run_all(
    settings: Settings, jobs: Sequence[Job], given: ReadingOptions, system: System
) -> dict[Job, Observation]:
    """Run jobs of one task on one set of sources, some at a time."""
    room = asyncio.Semaphore(1 if given.model == "offline" else AT_ONCE)
    if system == ONE:  # of a review, one context plays all specialists
        limits = settings.limits.model_copy(update={"max_subagents": 0})
        settings = settings.model_copy(update={"limits": limits})
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(settings, given.options(), ignore))
        for problem in app.problems:
            tell(f"warning: {problem}")
        box = await stack.enter_async_context(_mailbox(app, jobs[0].task, system))

        async def one(job: Job) -> Observation:
            async with room:
                began = time.monotonic()
                if system == ONE and job.task != "review":
                    return await _read_in_one(app, job, began)
                document = await _document(app, job, given, box)
                denied = await _denied(app, document.run_id)
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


async def _document(app: App, job: Job, given: ReadingOptions, box: OpenMailbox | None) -> Document:
    """Run a job as its command does."""
    if job.task == "sweep":
        return await sweep(app, SweepOptions(job.channels))
    if job.task == "triage":
        return await triage_mailbox(app, given)
    if job.task == "review":
        profile = load_profile(job.profile, app.settings.panel.profiles)
        return await review(app, ReviewArgs(source=str(job.material), profile=job.profile), profile)
    return await answer_question(app, job.question, box)


async def _denied(app: App, run: str) -> int:
    """Return how many calls of tools the gate denied in a run."""
    return sum(each.verdict == "deny" for each in await app.store.decisions(run))


async def _read_in_one(app: App, job: Job, began: float) -> Observation:
    """Run a job in one context with the same tools; it has the time and money of the task."""
    channels = await app.channels() if app.reader else []
    week = app.window(timedelta(days=app.settings.sweep.since_days))
    window = app.window(app.as_of - EPOCH) if job.task == "triage" else week
    if job.task == "sweep":
        channels = chosen(channels, job.channels)
    names = {channel.id: channel.name for channel in channels}
    async with app.run("ask", f"{job.task} in one context", limits=_limits(app, job.task)) as run:
        result = await one_context(app, run, brief_of_job(run, job, channels, window))
        await app.finish(run, context_document(run.id, app.model_name, job, result))
    return observe_context(result, names, await _denied(app, run.id), time.monotonic() - began)


def _limits(app: App, task: Task) -> LimitSettings:
    limits, settings = app.settings.limits, app.settings
    if task == "sweep":
        return limits.of_task(settings.sweep.time_s)
    if task == "triage":
        return limits.of_task(settings.triage.time_s, settings.triage.budget_usd)
    return limits


def _script(suite: Suite) -> list[SystemResult]:
    """Return what a script without agents makes of a suite; nothing if there is none for it."""
    began = time.monotonic()
    flagged: dict[Sources, frozenset[str]] = {}
    for case in suite.cases:
        if case.expected.needed is None:
            return []
        if case.sources not in flagged:
            flagged[case.sources] = _flagged(case, suite)
    runs = {s: Observation(flagged=f, filtered=frozenset()) for s, f in flagged.items()}
    outcomes = [outcome(case, runs[case.sources]) for case in suite.cases]
    seconds = Observation(seconds=time.monotonic() - began)
    return [system_result("script", outcomes, [seconds])]


def _flagged(case: Case, suite: Suite) -> frozenset[str]:
    """Return what the script says needs action in the sources of a case."""
    options = _reading(case.sources, case.task, "offline").options()
    if case.task == "sweep":
        workspace = loaded(options)
        until = options.as_of or end_of(workspace, options)
        return asker_spoke_last(workspace, until) if workspace else frozenset()
    if not (options.mbox or options.sample):
        return frozenset()
    mailbox = load_mailbox(options)
    if case.expected.asked is not None:
        return with_question_mark(mailbox)
    return newest(mailbox, [each for each in suite.cases if each.sources == case.sources])


@on_database
async def add_case(context: CommandContext, run: str, rating: str | None, folder: Path) -> None:
    """Write cases from a stored run into a folder of cases."""
    cases = await cases_of_run(context.database, run, rating)
    path = write_cases(cases, folder)
    said = f"{path}: {len(cases)} case{'s' if len(cases) > 1 else ''} of the run {run}"
    context.show({"file": str(path), "cases": [case.id for case in cases]}, said)
