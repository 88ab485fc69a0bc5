"""Implement `assistant sweep`, `triage`, `review`, and `demo`, which shows them on the samples."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from bot.cli.ask import answer_question, read, report_outcome, run_reading
from bot.cli.output import result_text
from bot.context import SAMPLE_LISTS, App
from bot.errors import SetupError
from bot.local.samples import SALES, SAMPLE_AS_OF
from bot.local_mode import DAY
from bot.mailbox.accounts import OPERATOR, Credentials, mail_credentials
from bot.mailbox.sync import MailState
from bot.options import EPOCH, Options, RunSources
from bot.reports.documents import (
    Answer,
    Gap,
    PanelReport,
    SweepReport,
    TriageReport,
)
from bot.reports.markdown import report_markdown
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.encryption import cipher_of
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
from bot.tasks.reports import inbox_triage
from bot.tasks.sources import chosen
from bot.tasks.sweep import Sweep
from bot.terminal import INCOMPLETE, dump, say, tell
from config.panels import Profile, load_profile
from config.schedules import Schedule
from config.settings import Settings, load_settings
from scopes.google.auth import token_credentials
from scopes.google.client import GoogleClient, Quota
from scopes.google.errors import GoogleError
from scopes.google.gmail import Gmail
from scopes.tool import Window
from subagents.run import Run

if TYPE_CHECKING:
    from bot.local.google.mbox import Mailbox


@dataclass(frozen=True)
class SweepOptions:
    """The options of a sweep besides the window, as they were typed."""

    channels: Sequence[str] = ()
    """Names or patterns."""
    tracker: str | None = None
    limit: int | None = None
    """Number of channels."""
    name: str = ""
    """Name of a sweep in assistant.yaml."""


def run_sweep(given: Options, wanted: SweepOptions, as_json: bool, markdown: bool) -> int:
    """Run a sweep by its name in assistant.yaml, or of the given channels."""
    text = partial(report_markdown, place="assistant sweep --json") if markdown else result_text
    name, spec = wanted.name, None
    if bool(name) == bool(wanted.channels):
        what = "Both a name and --channels are given." if name else "Nothing to sweep is given."
        hint = "Give the name of a sweep in assistant.yaml, or --channels 'support-*'."
        raise SetupError("which_sweep", what, hint)
    if markdown and as_json:
        what = "Both --markdown and --json are given."
        raise SetupError("which_form", what, "Leave one of them out.")
    if name:
        spec = _named_sweep(load_settings(), name)
        tracker = wanted.tracker or spec.tracker
        wanted = replace(wanted, channels=spec.channels, tracker=tracker)
    given.check()
    return run_reading(given, partial(sweep, wanted=wanted, spec=spec), text, as_json)


def _named_sweep(settings: Settings, name: str) -> Schedule:
    """Return the sweep of this name in assistant.yaml. Raises SetupError."""
    spec = settings.schedules.get(name)
    if spec and spec.kind == "sweep":
        return spec
    sweeps = sorted(n for n, s in settings.schedules.items() if s.kind == "sweep")
    known = f"There are {', '.join(sweeps)}." if sweeps else "Name one under `schedules`."
    what = f"{name!r} is a {spec.kind}" if spec else f"There is no sweep {name!r}"
    hint = f"{known} Or give --channels 'support-*'."
    raise SetupError("unknown_schedule", f"{what} in assistant.yaml.", hint)


async def sweep(app: App, wanted: SweepOptions, spec: Schedule | None = None) -> SweepReport:
    """Sweep channels; the `spec` of a named sweep has its own budget, language and look back."""
    channels = chosen(await app.channels(), wanted.channels)
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


UNLIMITED = 1_000_000_000
"""Units per minute of a mailbox that is served locally."""


@dataclass(frozen=True)
class OpenMailbox:
    """A mailbox, and what is known of it before it is read."""

    gmail: Gmail
    address: str
    as_of: datetime
    """Now; for files, the midnight after their last message."""
    is_file: bool = False
    problems: tuple[str, ...] = ()
    """Parts of a file that could not be read, in words."""


@asynccontextmanager
async def open_mailbox(
    settings: Settings, options: Options, database: Database
) -> AsyncIterator[OpenMailbox]:
    """Open the given mailbox. Raises SetupError with a sentence that says what to do."""
    if options.sample or options.mbox:
        async with AsyncExitStack() as stack:
            found = await asyncio.to_thread(load_mailbox, options)
            yield serve_mailbox(stack, settings, options, found)
        return
    credentials = await mail_credentials(settings, Credentials(database), OPERATOR, None)
    if credentials is None:
        hint = "Run `assistant connect google`, or give --mbox FILE, or --sample."
        raise SetupError("no_mailbox", "No mailbox is connected.", hint)
    google = GoogleClient(credentials, settings.google, settings.endpoints.gmail_api_endpoint)
    async with aclosing(google):
        try:
            gmail = Gmail(google, "")
            gmail.owner = address = await gmail.address()
            yield OpenMailbox(gmail, address, datetime.now(UTC))
        except GoogleError as error:  # also for what is read meanwhile
            raise SetupError("gmail", f"{error}", "") from error


def serve_mailbox(
    stack: AsyncExitStack, settings: Settings, options: Options, mailbox: Mailbox
) -> OpenMailbox:
    """Serve a mailbox on loopback until the stack is closed."""
    from bot.local.google.server import TOKEN, LocalGoogle
    from bot.local.server import LocalServer

    server = stack.enter_context(LocalServer(LocalGoogle(mailbox).app, "google"))
    google = GoogleClient(token_credentials(TOKEN), settings.google, server.url, Quota(UNLIMITED))
    stack.push_async_callback(google.aclose)
    as_of = SAMPLE_AS_OF if options.sample else _end_of(mailbox)
    gmail = Gmail(google, mailbox.address)
    return OpenMailbox(gmail, mailbox.address, as_of, True, mailbox.problems)


def load_mailbox(options: Options) -> Mailbox:
    """Load the mailbox of a file or of the sample; what came after `as_of` does not exist."""
    from bot.local.google.mbox import MboxError, load_mbox
    from bot.local.sample_workspace import load_sample_mailbox

    try:
        found = load_mbox(options.mbox, options.me) if options.mbox else load_sample_mailbox()
    except MboxError as error:
        raise SetupError("bad_mbox", str(error), "") from error
    if options.mbox and not options.me:
        tell(f"Read as the mailbox of {found.address}, by its headers; --reader names another one.")
    until = options.as_of or datetime.max.replace(tzinfo=UTC)
    return replace(found, messages=tuple(m for m in found.messages if m.at < until))


def _end_of(mailbox: Mailbox) -> datetime:
    last = max((m.at for m in mailbox.messages), default=datetime.now(UTC))
    return last.replace(hour=0, minute=0, second=0, microsecond=0) + DAY


def run_triage(given: Options, limit: int | None, resume: str | None, as_json: bool) -> int:
    """Triage a mailbox, or resume the triage of the run `resume`."""
    stored = None
    if not resume:
        given.check()
    else:
        _refuse_options(given, limit)
        stored = asyncio.run(run_to_resume(load_settings(), resume, "triage"))
        if given.model not in ("claude", stored.model):  # claude: --model was not given
            text = f"The triage {stored.id} was started with --model {stored.model}."
            raise SetupError("resume_alone", text, "Leave out --model.")
        given = Options.of_mail_run(stored.model, RunSources.model_validate(stored.args))
        limit = stored.args.get("limit")
    task = partial(triage_mailbox, limit=limit, stored=stored)
    return run_reading(given, task, result_text, as_json)


def _refuse_options(given: Options, limit: int | None) -> None:
    """Raise SetupError for options that would have no effect on a resumed run."""
    typed = {
        **{"--mbox": given.mbox, "--reader": given.me, "--sample": given.sample},
        **{"--as-of": given.as_of, "--since": given.since, "--limit": limit},
    }
    if named := [name for name, value in typed.items() if value]:
        text = f"--resume uses the options that the run had, not {named[0]}."
        raise SetupError("resume_alone", text, f"Leave out {', '.join(named)}.")


async def triage_mailbox(
    app: App, limit: int | None = None, stored: StoredRun | None = None
) -> TriageReport:
    """Triage the given mailbox, or go on with a stored run. Raises SetupError if there is none."""
    settings, database = app.settings, app.store.database
    async with open_mailbox(settings, app.options, database) as box:
        app.as_of = app.options.as_of or box.as_of
        app.problems = box.problems
        app.clients = {Gmail: box.gmail}
        question, resumed = f"triage {box.address}", stored.id if stored else None
        limits = settings.limits.of_task(settings.triage.time_s, settings.triage.budget_usd)
        app.mail = None if box.is_file else MailState(database)
        async with app.run("triage", question, {"limit": limit}, limits, resumed) as run:
            request = Request(question, _window(app, box))
            triage = await inbox_triage(app, run, request, account=OPERATOR)
            assert triage
            triage.limit = limit
            document = await triage.work()
            await app.finish(run, document)
            await triage.record_delivery(document)
            return document


async def run_to_resume(settings: Settings, id: str, kind: str) -> StoredRun:
    """Return an interrupted run of this kind. Raises SetupError for any other."""
    opened = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
    async with aclosing(opened) as store:
        stored = await store.run(id)
    if stored.kind != kind:
        hint = "`assistant runs` lists them."
        raise SetupError(f"no_{kind}", f"The run {stored.id} is no {kind}.", hint)
    if stored.result is not None:
        hint = f"`assistant show {stored.id}` shows its result."
        raise SetupError("complete", f"The {kind} {stored.id} has ended: {stored.status}.", hint)
    return stored


def _window(app: App, box: OpenMailbox) -> Window:
    """Return the window: the one given; else all of a file, or the last days of an account."""
    whole = app.as_of - EPOCH
    default = whole if box.is_file else timedelta(days=app.settings.triage.since_days)
    return Window(app.as_of - min(app.options.since or default, whole), app.as_of)


MATERIAL_HINT = "Give a text, a document, a folder of texts, or the address of a page."


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
        raise SetupError("review_what", what, MATERIAL_HINT)
    settings, stored = load_settings(), None
    if resume:
        stored = asyncio.run(run_to_resume(settings, resume, "panel"))
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
        material = await _read_material(app.settings, path)
    limits = settings.limits.of_task(settings.panel.time_s, settings.panel.budget_usd)
    given = args.model_copy(update={"source": args.source if is_page else str(path)})
    question = f"review {args.source} as {args.profile}"
    resumed = stored.id if stored else None
    async with app.run("panel", question, given.model_dump(), limits, resumed) as run:
        key = f"{run.id}/material"
        page = run if is_page else None

        async def read() -> ReviewMaterial:
            return material or await _read_material(settings, path, page, args.source)

        known = await run.once(key, ReviewMaterial, read)
        request = Request(question, Window(app.as_of, app.as_of))
        task = Panel(app, run, request, known, profile, given.source, language=args.language)
        document = await task.work()
        await app.finish(run, document)
        await task.record_delivery(document)
        return document


async def _read_material(
    settings: Settings, path: Path, run: Run | None = None, address: str = ""
) -> ReviewMaterial:
    try:
        found = await (material_of_page(run, address) if run else material_of_path(path))
        return check_size(found, settings)
    except MaterialRefused as refusal:
        raise SetupError("bad_material", str(refusal), MATERIAL_HINT) from None


TOP_LINES = 24
"""Lines of a report that are printed: two screens hold all three reports."""
QUESTION = "Which market had the largest refunds in March, and how much?"


def run_demo(as_json: bool) -> int:
    """Run sweep, triage and ask; as JSON, the sweep's document includes `triage` and `question`."""
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
    """Print the top of a report, and where the rest is."""
    lines = text.splitlines()
    say(f"=== {title} ===\n")
    say("\n".join(lines[:TOP_LINES]))
    if len(lines) > TOP_LINES:
        say(f"... {len(lines) - TOP_LINES} more lines: assistant show {run}")
    say("")


def _ask_sample(settings: Settings) -> tuple[Answer | None, int]:
    """Return the answer and its exit code; no answer if the store has become full before."""
    options = Options(model="offline", databases=(SALES,), as_of=SAMPLE_AS_OF)
    try:
        answer, fault = read(settings, options, lambda app: answer_question(app, QUESTION))
    except SetupError as error:
        tell(f"error: {error.message} {error.hint}".strip())
        return None, INCOMPLETE
    return answer, report_outcome(answer, fault)
