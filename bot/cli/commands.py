"""The commands that read sources: settings, a run, a document, an exit code."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from bot.app import EPOCH, SAMPLE_LISTS, App, Options, open_app
from bot.cli.given import Given
from bot.cli.given_slack import no_workspace
from bot.cli.outcome import DONE, INCOMPLETE, Document, guarded, present, tell
from bot.cli.progress import showing
from bot.cli.report import ask_text, sweep_text
from bot.errors import SetupError
from bot.local.sample_mailbox import SAMPLE_OWNER
from bot.mail.mailbox import OpenMailbox, open_mailbox
from bot.parent import Ask
from bot.replies.attaching import with_files
from bot.reports.sweep_markdown import sweep_markdown
from bot.requests.asked import Request
from bot.schedule.series import NamedSweep, named_sweep
from bot.storage.store import StoreError
from bot.sweep.sources import chosen
from bot.sweep.sweep import Sweep
from config.settings import Settings, load_settings
from scopes.google.gmail import Gmail
from scopes.intent import Intent
from scopes.slack_names import names_any

SAMPLE_CHANNELS = "csm-*"

Work = Callable[[App], Awaitable[Document]]
Text = Callable[[Document], str]


def sample_options() -> Options:
    return Options(model="offline", sample=True)


async def sample_sweep(app: App) -> Document:
    return await _sweep(app, [SAMPLE_CHANNELS], next(iter(SAMPLE_LISTS)), None)


def run_sweep(
    given: Given,
    name: str | None,
    channels: Sequence[str],
    tracker: str | None,
    limit: int | None,
    *,
    markdown: bool = False,
) -> int:
    """A sweep by its name in assistant.yaml, or of the channels that are given."""
    if bool(name) == bool(channels):
        return guarded(lambda: _which_sweep(bool(name)), given.json)
    if markdown and given.json:
        return guarded(_which_form, given.json)
    text = partial(sweep_markdown, place="assistant sweep --json") if markdown else sweep_text
    if name:
        return _named_sweep(given, name, tracker, limit, text)
    return reading(
        given.options, lambda app: _sweep(app, channels, tracker, limit), given.json, text
    )


def _which_form() -> int:
    what = "Both --markdown and --json are given."
    raise SetupError("which_form", what, "Leave one of them out.")


def _which_sweep(both: bool) -> int:
    what = "Both a name and --channels are given." if both else "It is not said what to sweep."
    hint = "Give the name of a sweep in assistant.yaml, or --channels 'support-*'."
    raise SetupError("which_sweep", what, hint)


def _named_sweep(
    given: Given, name: str, tracker: str | None, limit: int | None, text: Text
) -> int:
    """What was printed is where the next one of this name goes on from."""

    def run() -> int:
        settings = load_settings()
        sweep = NamedSweep(name, named_sweep(settings, name), tracker, limit)
        document, fault = read(settings, given.options(), sweep.report)
        present(document, given.json, text)
        sys.stdout.flush()
        try:
            asyncio.run(sweep.delivered(settings, document))
        except StoreError as error:
            fault = fault or str(error)
        return ended(document, fault)

    return guarded(run, given.json)


def run_ask(given: Given, question: str) -> int:
    async def work(app: App) -> Document:
        if not question.strip():
            raise SetupError("no_question", "The question is empty.", "Put it in quotes.")
        async with with_mailbox(app) as box:
            return await answered(app, question, box)

    return reading(given.options, work, given.json, ask_text)


async def answered(app: App, question: str, box: OpenMailbox | None = None) -> Document:
    """The answer to one request, from all that is open; without a workspace a request that names
    something in Slack is warned of.

    Raises SetupError where Slack cannot be read.
    """
    if app.reader:
        await app.channels()
    else:
        if names_any(question):
            tell(f"warning: {no_workspace()}")
        if box:
            app.as_of = app.options.as_of or box.as_of
    for problem in app.toolkit.problems():
        app.problems = (*app.problems, problem)
        tell(f"warning: {problem}")
    only_mail = box is not None and app.reader is None
    window = app.window(app.as_of - EPOCH if only_mail else _week(app))
    async with app.run("ask", question) as run:
        request = Request(question, window, intent=Intent(question))
        document = await with_files(run, await Ask(app, run, request).answer())
        await app.finish(run, document)
        return document


@asynccontextmanager
async def with_mailbox(app: App) -> AsyncIterator[OpenMailbox | None]:
    """The mailbox of a file or of the sample, for its owner alone; none where none is given."""
    options = app.options
    theirs = options.as_user in (None, SAMPLE_OWNER)
    if not (options.mbox or (options.sample and theirs)):
        yield None
        return
    async with open_mailbox(app.settings, options, app.store.database) as box:
        app.problems += box.problems
        app.clients[Gmail] = box.gmail
        yield box


async def _sweep(
    app: App, patterns: Sequence[str], tracker: str | None, limit: int | None
) -> Document:
    channels = chosen(await app.channels(), patterns)
    left_out = channels[limit:] if limit else []
    question = f"sweep {' '.join(patterns)}"
    seconds = app.settings.sweep.time_s
    limits = app.settings.limits.model_copy(update={"seconds": seconds})
    async with app.run("sweep", question, limits=limits) as run:
        request = Request(question, app.window(_week(app)))
        document = await Sweep(app, run, request, channels[:limit], tracker).report()
        missing = [f"{c.name}: left out by --limit {limit}" for c in left_out]
        document["coverage"]["not_covered"] += missing
        document["coverage"]["left_out"] = len(missing)
        await app.finish(run, document)
        return document


def _week(app: App) -> timedelta:
    return timedelta(days=app.settings.sweep.since_days)


def reading(
    options: Callable[[], Options], work: Work, as_json: bool, text: Callable[[Document], str]
) -> int:
    """Run one reading command from its options to its exit code."""

    def run() -> int:
        document, fault = read(load_settings(), options(), work)
        present(document, as_json, text)
        return ended(document, fault)

    return guarded(run, as_json)


def read(settings: Settings, options: Options, work: Work) -> tuple[Document, str]:
    """What the work gives, and why it was not stored; empty = it was."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)

    async def go() -> tuple[Document, str]:
        with showing(sys.stderr) as emit:
            async with open_app(settings, options, emit) as app:
                _stop_by_ctrl_c(app)
                for problem in app.problems:
                    tell(f"warning: {problem}")
                return await work(app), app.store_fault

    try:
        return asyncio.run(go())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def ended(document: Document, fault: str) -> int:
    """The exit code of a document that is shown, after what is wrong with it is said."""
    if fault:
        tell(f"warning: the run was not stored: {fault}")
    if why := _model_fault(document):
        hint = "Check ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and `models` in assistant.yaml."
        tell(f"error: The model answered nothing: {why}. {hint}")
    coverage = document["coverage"]
    gaps = len(coverage["not_covered"]) - coverage.get("left_out", 0)
    whole = document["status"] == "complete" and not gaps
    return DONE if whole and not fault else INCOMPLETE


def _stop_by_ctrl_c(app: App) -> None:
    """The first Ctrl-C ends the run with what there is, the second one ends the process.

    Not by an exception wherever the loop happens to be: it could lose a task, and wait for it.
    """
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work

    def stop() -> None:
        loop.add_signal_handler(signal.SIGINT, work.cancel)
        tell("stopping with what there is; Ctrl-C again to end at once")
        app.stop.set()

    loop.add_signal_handler(signal.SIGINT, stop)


def _model_fault(document: Document) -> str:
    """The one reason for which no model call gave anything, or nothing."""
    parts = [document, *document["subagents"]]
    faults = {p["reason"] for p in parts if p.get("stopped_by") in ("model_error", "rate_limit")}
    return str(faults.pop()) if document["status"] == "failed" and len(faults) == 1 else ""
