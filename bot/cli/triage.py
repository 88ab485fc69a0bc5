"""Implement `assistant triage`, and open the mailboxes that commands read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from bot.cli.command import run_reading, run_to_resume
from bot.cli.output import result_text
from bot.context import App
from bot.errors import SetupError
from bot.local.samples import SAMPLE_AS_OF
from bot.local_mode import DAY
from bot.mailbox.accounts import OPERATOR, Credentials, mail_credentials
from bot.mailbox.sync import MailState
from bot.options import EPOCH, Options, RunSources
from bot.reports.documents import TriageReport
from bot.storage.database import Database
from bot.storage.tables import StoredRun
from bot.tasks.base import Request
from bot.tasks.reports import inbox_triage
from bot.terminal import tell
from config.settings import Settings, load_settings
from scopes.google.auth import token_credentials
from scopes.google.client import GoogleClient, Quota
from scopes.google.errors import GoogleError
from scopes.google.gmail import Gmail
from scopes.tool import Window

if TYPE_CHECKING:
    from bot.local.google.mbox import Mailbox

UNLIMITED_QUOTA = 1_000_000_000
"""Units per minute of a mailbox that is served locally."""


@dataclass(frozen=True)
class OpenMailbox:
    """A mailbox, and its properties that are known before reading."""

    gmail: Gmail
    address: str
    as_of: datetime
    """Current time; for files, the midnight after their last message."""
    is_file: bool = False
    problems: tuple[str, ...] = ()
    """Descriptions of parts of a file that could not be read."""


@asynccontextmanager
async def open_mailbox(
    settings: Settings, options: Options, database: Database
) -> AsyncIterator[OpenMailbox]:
    """Open the given mailbox. Raises SetupError with a sentence about what to do."""
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
        except GoogleError as error:  # also from reads inside the context
            raise SetupError("gmail", f"{error}", "") from error


def serve_mailbox(
    stack: AsyncExitStack, settings: Settings, options: Options, mailbox: Mailbox
) -> OpenMailbox:
    """Serve a mailbox on loopback until the stack is closed."""
    from bot.local.google.server import TOKEN, LocalGoogle
    from bot.local.server import LocalServer

    server = stack.enter_context(LocalServer(LocalGoogle(mailbox).app, "google"))
    google = GoogleClient(
        token_credentials(TOKEN), settings.google, server.url, Quota(UNLIMITED_QUOTA)
    )
    stack.push_async_callback(google.aclose)
    as_of = SAMPLE_AS_OF if options.sample else _end_of(mailbox)
    gmail = Gmail(google, mailbox.address)
    return OpenMailbox(gmail, mailbox.address, as_of, True, mailbox.problems)


def load_mailbox(options: Options) -> Mailbox:
    """Load the mailbox of a file or of the sample, without messages after `as_of`."""
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


def run_triage(options: Options, limit: int | None, resume: str | None, as_json: bool) -> int:
    """Triage a mailbox, or resume the triage of the run `resume`."""
    stored = None
    if not resume:
        options.check()
    else:
        _refuse_options(options, limit)
        stored = asyncio.run(run_to_resume(load_settings(), resume, "triage"))
        if options.model not in ("claude", stored.model):  # claude: --model was not set
            text = f"The triage {stored.id} was started with --model {stored.model}."
            raise SetupError("resume_alone", text, "Leave out --model.")
        options = Options.of_run(stored.model, RunSources.model_validate(stored.args), mail=True)
        limit = stored.args.get("limit")
    task = partial(triage_mailbox, limit=limit, stored=stored)
    return run_reading(options, task, result_text, as_json)


def _refuse_options(options: Options, limit: int | None) -> None:
    """Raise SetupError for options that would have no effect on a resumed run."""
    typed = {
        **{"--mbox": options.mbox, "--reader": options.me, "--sample": options.sample},
        **{"--as-of": options.as_of, "--since": options.since, "--limit": limit},
    }
    if names := [name for name, value in typed.items() if value]:
        text = f"--resume uses the options that the run had, not {names[0]}."
        raise SetupError("resume_alone", text, f"Leave out {', '.join(names)}.")


async def triage_mailbox(
    app: App, limit: int | None = None, stored: StoredRun | None = None
) -> TriageReport:
    """Triage the mailbox, or resume a stored run. Raises SetupError if there is no mailbox."""
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


def _window(app: App, box: OpenMailbox) -> Window:
    """Return the given window; else all of a file, or the last days of an account."""
    whole = app.as_of - EPOCH
    default = whole if box.is_file else timedelta(days=app.settings.triage.since_days)
    return Window(app.as_of - min(app.options.since or default, whole), app.as_of)
