"""Implement `assistant review`: a panel over a file, a folder or a page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from bot.cli.ask import run_reading
from bot.cli.output import result_text
from bot.cli.triage import run_to_resume
from bot.context import App
from bot.errors import SetupError
from bot.options import Options
from bot.reports.documents import PanelReport
from bot.reports.markdown import report_markdown
from bot.storage.tables import StoredRun
from bot.tasks.base import Request
from bot.tasks.material import (
    MaterialRefused,
    ReviewMaterial,
    check_size,
    material_of_page,
    material_of_path,
)
from bot.tasks.panel import Panel
from config.panels import Profile, load_profile
from config.settings import Settings, load_settings
from scopes.tool import Window
from subagents.run import Run

KIND = "panel"
HINT = "Give a text, a document, a folder of texts, or the address of a page."


class ReviewArgs(BaseModel):
    """The stored options of a review, with which `--resume` goes on."""

    source: str
    profile: str
    language: str = ""


def run_review(
    given: Options, args: ReviewArgs | None, resume: str | None, as_json: bool, markdown: bool
) -> int:
    """Review a material, or go on with the review of the run `resume`."""
    text = partial(report_markdown, place="") if markdown else result_text
    if bool(args) == bool(resume):
        what = "Give FILE, FOLDER or URL, or --resume RUN; one of them."
        raise SetupError("review_what", what, HINT)
    settings, stored = load_settings(), None
    if resume:
        stored = asyncio.run(run_to_resume(settings, resume, KIND))
        args = ReviewArgs.model_validate(stored.args)
        given = replace(given, model=stored.model)
    assert args
    profile = load_profile(args.profile, settings.panel.profiles)
    work = partial(review, args=args, profile=profile, stored=stored)
    return run_reading(given, work, text, as_json)


async def review(
    app: App, args: ReviewArgs, profile: Profile, stored: StoredRun | None = None
) -> PanelReport:
    """Review a material. Raises SetupError before any model is called."""
    settings, material = app.settings, None
    is_page = args.source.startswith(("http://", "https://"))
    path = await asyncio.to_thread(Path(args.source).absolute)
    if not (is_page or stored):
        material = await _read(app.settings, path)
    limits = settings.limits.of_task(settings.panel.time_s, settings.panel.budget_usd)
    given = args.model_copy(update={"source": args.source if is_page else str(path)})
    question = f"review {args.source} as {args.profile}"
    resumed = stored.id if stored else None
    async with app.run(KIND, question, given.model_dump(), limits, resumed) as run:
        key = f"{run.id}/material"
        page = run if is_page else None

        async def read() -> ReviewMaterial:
            return material or await _read(settings, path, page, args.source)

        known = await run.once(key, ReviewMaterial, read)
        request = Request(question, Window(app.as_of, app.as_of))
        task = Panel(app, run, request, known, profile, given.source, language=args.language)
        document = await task.work()
        await app.finish(run, document)
        await task.record_delivery(document)
        return document


async def _read(
    settings: Settings, path: Path, run: Run | None = None, address: str = ""
) -> ReviewMaterial:
    try:
        found = await (material_of_page(run, address) if run else material_of_path(path))
        return check_size(found, settings)
    except MaterialRefused as refusal:
        raise SetupError("bad_material", str(refusal), HINT) from None
