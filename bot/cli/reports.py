"""Implement `assistant sweep`, `review`, and `demo`, which shows reports on the samples."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from bot.cli.command import read, report_outcome, run_reading, run_to_resume
from bot.cli.output import result_text
from bot.context import SAMPLE_LISTS, App
from bot.errors import SetupError
from bot.local.samples import SALES, SAMPLE_AS_OF
from bot.options import Options
from bot.reports.documents import (
    Answer,
    Gap,
    PanelReport,
    SweepReport,
)
from bot.reports.markdown import report_markdown
from bot.storage.tables import StoredRun
from bot.tasks.base import Request
from bot.tasks.sources import select_channels
from bot.tasks.sweep import Sweep
from bot.terminal import INCOMPLETE, dump, say, tell
from config.schedules import Schedule
from config.settings import Settings, load_settings
from scopes.tool import Window
from subagents.run import Run

if TYPE_CHECKING:
    from bot.tasks.material import ReviewMaterial
    from config.panels import Profile


@dataclass(frozen=True)
class SweepOptions:
    """The options of a sweep, except for the window, as typed."""

    channels: Sequence[str] = ()
    """Names or patterns."""
    tracker: str | None = None
    limit: int | None = None
    """Number of channels."""
    name: str = ""
    """Name of a sweep in assistant.yaml."""


def run_sweep(options: Options, wanted: SweepOptions, as_json: bool, markdown: bool) -> int:
    """Run a sweep named in assistant.yaml, or a sweep of the given channels."""
    text = report_markdown if markdown else result_text
    name, spec = wanted.name, None
    if bool(name) == bool(wanted.channels):
        what = "Both a name and --channels are given." if name else "Nothing to sweep is given."
        hint = "Give the name of a sweep in assistant.yaml, or --channels 'support-*'."
        raise SetupError("which_sweep", what, hint)
    if markdown and as_json:
        what = "Both --markdown and --json are given."
        raise SetupError("which_form", what, "Leave one of them out.")
    if name:
        spec = _find_sweep(load_settings(), name)
        tracker = wanted.tracker or spec.tracker
        wanted = replace(wanted, channels=spec.channels, tracker=tracker)
    options.check()
    return run_reading(options, partial(sweep, wanted=wanted, spec=spec), text, as_json)


def _find_sweep(settings: Settings, name: str) -> Schedule:
    """Return the sweep of this name in assistant.yaml. Raises SetupError."""
    spec = settings.schedules.get(name)
    if spec and spec.kind == "sweep":
        return spec
    sweeps = sorted(n for n, s in settings.schedules.items() if s.kind == "sweep")
    existing = f"There are {', '.join(sweeps)}." if sweeps else "Name one under `schedules`."
    what = f"{name!r} is a {spec.kind}" if spec else f"There is no sweep {name!r}"
    hint = f"{existing} Or give --channels 'support-*'."
    raise SetupError("unknown_schedule", f"{what} in assistant.yaml.", hint)


async def sweep(app: App, wanted: SweepOptions, spec: Schedule | None = None) -> SweepReport:
    """Sweep channels; the `spec` of a named sweep has its own budget, language and period."""
    channels = select_channels(await app.channels(), wanted.channels)
    limit = wanted.limit
    left_out = channels[limit:] if limit else []
    question = f"sweep {wanted.name or ' '.join(wanted.channels)}"
    budget = spec.budget_usd if spec else None
    limits = app.settings.limits.of_task(app.settings.sweep.time_s, budget)
    days = (spec and spec.since_days) or app.settings.sweep.since_days
    window = app.window(timedelta(days=days))
    args = {"channels": list(wanted.channels)}
    async with app.run("sweep", question, args, limits) as run:
        task = Sweep(
            app,
            run,
            Request(question, window),
            channels[:limit],
            wanted.tracker,
            title=wanted.name,
            language=(spec and spec.language) or "",
        )
        document = await task.work()
        missing = [Gap(source=c.name, reason=f"left out by --limit {limit}") for c in left_out]
        document.coverage.not_covered += missing
        document.coverage.left_out = len(missing)
        await app.finish(run, document)
        return document


MATERIAL_HINT = "Give a text, a document, a folder of texts, or the address of a page."


class ReviewArgs(BaseModel):
    """The stored options of a review, which `--resume` uses."""

    source: str
    profile: str
    language: str = ""


def run_review(
    options: Options, args: ReviewArgs | None, resume: str | None, as_json: bool, markdown: bool
) -> int:
    """Review a material, or resume the review of the run `resume`."""
    from config.panels import load_profile

    text = report_markdown if markdown else result_text
    if bool(args) == bool(resume):
        what = "Give FILE, FOLDER or URL, or --resume RUN; one of them."
        raise SetupError("review_what", what, MATERIAL_HINT)
    settings, stored = load_settings(), None
    if resume:
        stored = asyncio.run(run_to_resume(settings, resume, "panel"))
        args = ReviewArgs.model_validate(stored.args)
        options = replace(options, model=stored.model)
    assert args
    profile = load_profile(args.profile, settings.panel.profiles)
    work = partial(review, args=args, profile=profile, stored=stored)
    return run_reading(options, work, text, as_json)


async def review(
    app: App, args: ReviewArgs, profile: Profile, stored: StoredRun | None = None
) -> PanelReport:
    """Review a material. Raises SetupError before any model is called."""
    from bot.tasks.material import ReviewMaterial
    from bot.tasks.panel import Panel

    settings, material = app.settings, None
    is_page = "://" in args.source
    path = await asyncio.to_thread(Path(args.source).absolute)
    if not (is_page or stored):
        material = await _read_material(app.settings, path)
    limits = settings.limits.of_task(settings.panel.time_s, settings.panel.budget_usd)
    stored_args = args.model_copy(update={"source": args.source if is_page else str(path)})
    question = f"review {args.source} as {args.profile}"
    resumed = stored.id if stored else None
    async with app.run("panel", question, stored_args.model_dump(), limits, resumed) as run:
        key = f"{run.id}/material"
        page = run if is_page else None

        async def read() -> ReviewMaterial:
            return material or await _read_material(settings, path, page, args.source)

        loaded = await run.once(key, ReviewMaterial, read)
        request = Request(question, Window(app.as_of, app.as_of))
        task = Panel(app, run, request, loaded, profile, stored_args.source, language=args.language)
        document = await task.work()
        await app.finish(run, document)
        await task.record_delivery(document)
        return document


async def _read_material(
    settings: Settings, path: Path, run: Run | None = None, address: str = ""
) -> ReviewMaterial:
    from bot.tasks.material import MaterialRefused, check_size, material_of_page, material_of_path

    try:
        found = await (material_of_page(run, address) if run else material_of_path(path))
        return check_size(found, settings)
    except MaterialRefused as refusal:
        raise SetupError("bad_material", str(refusal), MATERIAL_HINT) from None


TOP_LINES = 24
"""Maximum printed lines of a report, so that all three reports fit on two screens."""
QUESTION = "Which market had the largest refunds in March, and how much?"


def run_demo(as_json: bool) -> int:
    """Run sweep, triage and ask; in JSON, the sweep's document includes `triage` and `question`."""
    from bot.cli.triage import triage_mailbox

    settings, sample = load_settings(), Options("offline", sample=True)
    wanted = SweepOptions(["csm-*"], next(iter(SAMPLE_LISTS)))
    report, fault = read(settings, sample, partial(sweep, wanted=wanted))
    if not as_json:
        _show("A sweep of five channels", result_text(report), report.run_id)
    digest, later = read(settings, replace(sample, mail=True), triage_mailbox)
    if not as_json:
        _show("A triage of one mailbox", result_text(digest), digest.run_id)
    answer, code = _ask_sample(settings)
    if as_json:
        question = answer.to_json() if answer else None
        dump({**report.to_json(), "triage": digest.to_json(), "question": question})
    elif answer:
        _show(f"A question to a database: {QUESTION}", result_text(answer), answer.run_id)
        say("Next: `assistant serve --local --open` opens the sample workspace in a browser.")
    return max(report_outcome(report, fault), report_outcome(digest, later), code)


def _show(title: str, text: str, run: str) -> None:
    """Print the top of a report, and the command that shows the rest."""
    lines = text.splitlines()
    say(f"=== {title} ===\n")
    say("\n".join(lines[:TOP_LINES]))
    if len(lines) > TOP_LINES:
        say(f"... {len(lines) - TOP_LINES} more lines: assistant show {run}")
    say("")


def _ask_sample(settings: Settings) -> tuple[Answer | None, int]:
    """Return the answer and its exit code; no answer if the store became full before it."""
    from bot.cli.ask import answer_question

    options = Options(model="offline", databases=(SALES,), as_of=SAMPLE_AS_OF)
    try:
        answer, fault = read(settings, options, lambda app: answer_question(app, QUESTION))
    except SetupError as error:
        tell(f"error: {error.message} {error.hint}".strip())
        return None, INCOMPLETE
    return answer, report_outcome(answer, fault)
