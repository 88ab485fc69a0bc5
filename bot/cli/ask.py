"""Implement `assistant ask`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from tzlocal import get_localzone_name

from bot.cli.command import run_reading
from bot.cli.output import result_text
from bot.context import App
from bot.errors import SetupError
from bot.local.samples import SAMPLE_OWNER
from bot.local_mode import no_workspace
from bot.memory import add_files
from bot.options import EPOCH, Options
from bot.reports.documents import Answer
from bot.slack.people import person_of
from bot.tasks.ask import Ask
from bot.tasks.base import Request, Requester
from bot.tasks.reports import GMAIL
from bot.terminal import tell
from scopes.intent import Intent, names_any
from scopes.slack_client import Absent
from scopes.tool import Clients

if TYPE_CHECKING:  # code that reads mail is imported only for a given mailbox
    from bot.cli.triage import OpenMailbox


def run_ask(options: Options, question: str, as_json: bool) -> int:
    async def work(app: App) -> Answer:
        if not question.strip():
            raise SetupError("no_question", "The question is empty.", "Put it in quotes.")
        async with with_mailbox(app) as box:
            return await answer_question(app, question, box)

    options.check()
    return run_reading(options.with_sales(), work, result_text, as_json)


async def answer_question(app: App, question: str, box: OpenMailbox | None = None) -> Answer:
    """Answer one request from all open sources. Raises SetupError if Slack cannot be read.

    Without a workspace, warn if the request names something in Slack.
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
    """Open the mailbox of a file; open that of the sample on first use, only for its owner.

    Yields None if no file is given.
    """
    options = app.options
    async with AsyncExitStack() as stack:
        if options.mbox:
            from bot.cli.triage import open_mailbox

            opened = open_mailbox(app.settings, options, app.store.database)
            box = await stack.enter_async_context(opened)
            app.problems += box.problems
            app.clients = {type(box.gmail): box.gmail}
            yield box
            return

        def open_sample() -> object:
            from bot.cli.triage import load_mailbox, serve_mailbox

            return serve_mailbox(stack, app.settings, options, load_mailbox(options)).gmail

        if options.sample and options.as_user in (None, SAMPLE_OWNER):
            app.clients = Clients({}, {GMAIL: cache(open_sample)})
        yield None


async def _requester(app: App) -> Requester:
    """Return the person for whom the request is answered.

    Without a person, days are in the time zone of this machine, or in UTC for files, since their
    period ends in UTC.
    """
    options = app.options
    is_live = not (options.as_of or options.sample or options.slack_export or options.mbox)
    user, zone = options.as_user, get_localzone_name() if is_live else "UTC"
    if not (user and app.reader):
        return Requester(zone=zone)
    with suppress(Absent):
        return Requester.of(person_of((await app.reader.user(user)).raw, ""), user)
    return Requester(id=user, zone=zone)


def _week(app: App) -> timedelta:
    return timedelta(days=app.settings.sweep.since_days)
