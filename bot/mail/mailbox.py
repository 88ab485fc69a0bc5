"""The mailbox that a command reads: a file served on loopback, the sample, or a real account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from bot.accounts.connected import OPERATOR as OPERATOR
from bot.accounts.credentials import Credentials
from bot.accounts.mail_credentials import mail_credentials
from bot.cli.options import Options
from bot.errors import SetupError
from bot.local.google.mbox import Mailbox, MboxError, load_mbox
from bot.local.google.server import TOKEN, LocalGoogle
from bot.local.sample_mailbox import SAMPLE_AS_OF, load_sample_mailbox
from bot.local.server import LocalServer
from bot.storage.database import Database
from config.settings import Settings
from scopes.google.client import Google, GoogleError, token_credentials
from scopes.google.gmail import Gmail
from scopes.google.quota import Quota

DAY = timedelta(days=1)
UNLIMITED = 1_000_000_000
"""Units a minute of a mailbox that is served by ourselves."""


@dataclass(frozen=True)
class OpenMailbox:
    """A mailbox, and what is known of it before it is read."""

    gmail: Gmail
    address: str
    as_of: datetime
    """Now; for files, the midnight after their last message."""
    is_file: bool = False
    problems: tuple[str, ...] = ()
    """What of a file could not be read, in words."""


@asynccontextmanager
async def open_mailbox(
    settings: Settings, options: Options, database: Database
) -> AsyncIterator[OpenMailbox]:
    """The mailbox that was given. Raises SetupError with a sentence that says what to do."""
    local = await asyncio.to_thread(_local, options)
    if local:
        with LocalServer(LocalGoogle(local).app, "google") as server:
            google = Google(token_credentials(TOKEN), settings.google, server.url, Quota(UNLIMITED))
            async with _closing(google):
                gmail = Gmail(google, local.address)
                as_of = SAMPLE_AS_OF if options.sample else _end_of(local)
                yield OpenMailbox(gmail, local.address, as_of, True, local.problems)
        return
    credentials = await mail_credentials(settings, Credentials(database), OPERATOR, None)
    if credentials is None:
        hint = "Run `assistant connect google`, or give --mbox FILE, or --sample."
        raise SetupError("no_mailbox", "No mailbox is connected.", hint)
    google = Google(credentials, settings.google, settings.endpoints.gmail_api_endpoint)
    async with _closing(google):
        try:
            address = await Gmail(google, "").address()
            yield OpenMailbox(Gmail(google, address), address, datetime.now(UTC))
        except GoogleError as error:  # also of what is read meanwhile
            raise SetupError("gmail", f"{error}", "") from error


def _local(options: Options) -> Mailbox | None:
    """The mailbox of a file; what came after `as_of` does not exist."""
    if not (options.sample or options.mbox):
        return None
    try:
        found = load_mbox(options.mbox, options.me) if options.mbox else load_sample_mailbox()
    except MboxError as error:
        raise SetupError("bad_mbox", str(error), "") from error
    until = options.as_of or datetime.max.replace(tzinfo=UTC)
    return replace(found, messages=tuple(m for m in found.messages if m.at < until))


@asynccontextmanager
async def _closing(google: Google) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await google.aclose()


def _end_of(mailbox: Mailbox) -> datetime:
    last = max((m.at for m in mailbox.messages), default=datetime.now(UTC))
    return last.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
