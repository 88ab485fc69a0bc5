"""Implement `assistant ask`, and what commands that read have in common."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from tzlocal import get_localzone_name

from bot.cli.output import result_text, show_progress
from bot.context import App, open_app
from bot.errors import SetupError
from bot.local.samples import SAMPLE_OWNER
from bot.local_mode import no_workspace
from bot.memory import add_files
from bot.options import EPOCH, Options
from bot.reports.documents import Answer, AnswerDocument, Document
from bot.slack.people import person_of
from bot.tasks.ask import Ask
from bot.tasks.base import Request, Requester
from bot.tasks.reports import GMAIL
from bot.terminal import DONE, INCOMPLETE, dump, say, tell
from config.settings import Settings, load_settings
from scopes.intent import Intent, names_any
from scopes.slack_client import Absent
from scopes.tool import Clients

if TYPE_CHECKING:  # what reads mail is imported where a mailbox is given
    from bot.cli.reports import OpenMailbox


D = TypeVar("D", bound=Document)
Work = Callable[[App], Awaitable[D]]
TextOf = Callable[[D], str]


def run_ask(given: Options, question: str, as_json: bool) -> int:
    async def work(app: App) -> Answer:
        if not question.strip():
            raise SetupError("no_question", "The question is empty.", "Put it in quotes.")
        async with with_mailbox(app) as box:
            return await answer_question(app, question, box)

    given.check()
    return run_reading(given.with_sales(), work, result_text, as_json)


async def answer_question(app: App, question: str, box: OpenMailbox | None = None) -> Answer:
    """Answer one request from all open sources. Raises SetupError if Slack cannot be read.

    Without a workspace, warn of a request that names something in Slack.
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
    longest = min(timedelta(days=app.settings.reply.max_since_days), app.as_of - EPOCH)
    async with app.run("ask", question) as run:
        request = Request(
            question,
            window,
            earliest=window.oldest if app.options.since else app.as_of - longest,
            requester=await _requester(app),
            intent=Intent(question),
        )
        document = await Ask(app, run, request).work()
        await add_files(run, document)
        await app.finish(run, document)
        return document


@asynccontextmanager
async def with_mailbox(app: App) -> AsyncIterator[OpenMailbox | None]:
    """Open the mailbox of a file; that of the sample, for its owner alone, when it is first read.

    Yields None if no file is given.
    """
    options = app.options
    async with AsyncExitStack() as stack:
        if options.mbox:
            from bot.cli.reports import open_mailbox

            opened = open_mailbox(app.settings, options, app.store.database)
            box = await stack.enter_async_context(opened)
            app.problems += box.problems
            app.clients = {type(box.gmail): box.gmail}
            yield box
            return

        def open_sample() -> object:
            from bot.cli.reports import load_mailbox, serve_mailbox

            return serve_mailbox(stack, app.settings, options, load_mailbox(options)).gmail

        if options.sample and options.as_user in (None, SAMPLE_OWNER):
            app.clients = Clients({}, {GMAIL: cache(open_sample)})
        yield None


async def _requester(app: App) -> Requester:
    """Return whom the request is answered for.

    Without a person its days are those of this machine; UTC where files are given, as they end in
    UTC.
    """
    given = app.options
    is_live = not (given.as_of or given.sample or given.slack_export or given.mbox)
    user, zone = given.as_user, get_localzone_name() if is_live else "UTC"
    if not (user and app.reader):
        return Requester(zone=zone)
    with suppress(Absent):
        return Requester.of(person_of((await app.reader.user(user)).raw, ""), user)
    return Requester(id=user, zone=zone)


def _week(app: App) -> timedelta:
    return timedelta(days=app.settings.sweep.since_days)


def run_reading(given: Options, work: Work[D], text: TextOf[D], as_json: bool) -> int:
    """Run one reading command from its checked options to its exit code."""
    document, fault = read(load_settings(), given, work)
    dump(document.to_json()) if as_json else say(text(document))
    return report_outcome(document, fault)


def read(settings: Settings, options: Options, work: Work[D]) -> tuple[D, str]:
    """Return the document, and why it was not stored; empty = it was stored."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)

    async def go() -> tuple[D, str]:
        with show_progress(sys.stderr) as emit:
            async with open_app(settings, options, emit) as app:
                _stop_by_ctrl_c(app)
                for problem in app.problems:
                    tell(f"warning: {problem}")
                return await work(app), app.store_fault

    try:
        return asyncio.run(go())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def report_outcome(document: Document, fault: str) -> int:
    """Report what is wrong with a shown document; return its exit code."""
    if fault:
        tell(f"warning: the run was not stored: {fault}")
    if why := _model_fault(document):
        hint = (
            "Check ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and `models`, or run `assistant doctor`."
        )
        tell(f"error: The model answered nothing: {why}. {hint}")
    return DONE if document.status == "complete" and not fault else INCOMPLETE


def _stop_by_ctrl_c(app: App) -> None:
    """Make the first Ctrl-C end the run with partial results, and the second one the process.

    An exception wherever the loop happens to be could lose a task, and then wait for it.
    """
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work

    def stop() -> None:
        loop.add_signal_handler(signal.SIGINT, work.cancel)
        tell("stopping with what there is; Ctrl-C again to end at once")
        app.stop.set()

    loop.add_signal_handler(signal.SIGINT, stop)


def _model_fault(document: Document) -> str:
    """Return the one reason why no model call succeeded, or nothing."""
    own = [document] if isinstance(document, AnswerDocument) else []
    parts = [*own, *document.subagents]
    faults = {p.reason for p in parts if p.stopped_by in ("model_error", "rate_limit")}
    return faults.pop() if document.status == "failed" and len(faults) == 1 else ""
