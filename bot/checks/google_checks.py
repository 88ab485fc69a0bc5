"""What the doctor asks about Google: the OAuth client, the service account, who is connected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bot.accounts.connected import GOOGLE
from bot.accounts.credentials import Credentials
from bot.accounts.google_oauth import ConnectFailed, oauth_of
from bot.checks.checks import Missing, Problem
from bot.errors import StoreError
from bot.mail.alarm import is_ending, sentence
from bot.mail.polls import MailPolls
from bot.mail.watching import pubsub_of
from bot.storage.database import Database
from bot.storage.vault import vault_of
from config.settings import Settings, SettingsError
from scopes.google.client import GoogleError

PUBSUB = "google.pubsub_service_account"


def wanted(settings: Settings) -> Iterator[Awaitable[str]]:
    """The check, where anything of Google's is set."""
    google, secret = settings.google, settings.secrets.google_client_secret
    if google.client_id or google.service_account or secret:
        yield _google(settings)


async def _google(settings: Settings) -> str:
    """Whether mailboxes can be opened, and how many are connected."""
    google, found, file = settings.google, [], settings.google.service_account
    if google.client_id or settings.secrets.google_client_secret:
        found.append(await _client(settings))
    if file:
        found.append(await asyncio.to_thread(_service_account, Path(file), settings.data_dir))
    if google.pubsub_subscription:
        found.append(await _pubsub(settings))
    return "; ".join([*found, *await _accounts(settings)])


async def _pubsub(settings: Settings) -> str:
    """Whether what Gmail tells of new mail can be pulled."""
    file, name = settings.google.pubsub_service_account, settings.google.pubsub_subscription
    if file:
        await asyncio.to_thread(_service_account, Path(file), settings.data_dir, PUBSUB)
    pubsub = pubsub_of(settings)
    try:
        is_open = pubsub is not None and await pubsub.is_open()
    except GoogleError as error:
        raise Problem(f"{name}: {error}") from None
    finally:
        if pubsub:
            await pubsub.aclose()
    if not is_open:
        raise Problem(
            f"The service account may not pull {name}, or there is no such subscription: give it "
            "the role Pub/Sub Subscriber there (docs/google.md)."
        )
    return f"told by {name}"


async def _client(settings: Settings) -> str:
    oauth = oauth_of(settings)
    if oauth is None:
        absent = "GOOGLE_CLIENT_SECRET" if settings.google.client_id else "google.client_id"
        raise Missing(f"{absent} is not set: see docs/google.md.")
    try:
        await oauth.check()
    except ConnectFailed as error:
        raise Problem(str(error)) from None
    if settings.serve.public_url is None:
        return "the client is known; App Home offers nothing while serve.public_url is not set"
    return f"the client is known, comes back to {settings.serve.public_url}"


def _service_account(file: Path, data_dir: Path, key: str = "google.service_account") -> str:
    """Who the service account is. Whether it may stand for people, only their mailboxes tell."""
    try:
        held = json.loads(file.read_text("utf-8"))
        open_to_others = file.stat().st_mode & 0o077
        name = held["client_email"] if held["type"] == "service_account" else ""
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Problem(f"{file} cannot be read ({why}): mend {key}.") from None
    except (ValueError, KeyError, TypeError):
        name = ""
    if not name:
        raise Problem(f"{file} is no key file of a service account: mend {key}.")
    if open_to_others:
        raise Problem(f"Other accounts may read {file}: run `chmod 600 {file}`.")
    if file.resolve().is_relative_to(data_dir.resolve()):
        raise Problem(f"{file} lies in the data directory, and in its backups: move it elsewhere.")
    return f"service account {name}"


async def _accounts(settings: Settings) -> list[str]:
    """How many mailboxes are connected; nothing where the database is at fault: it has a line."""
    try:
        vault = vault_of(settings)
        database = await Database.open(settings.data_dir, settings.database_url, vault)
    except (StoreError, SettingsError):
        return []
    try:
        count = len(await Credentials(database).accounts(GOOGLE))
        polls = await MailPolls(database).all() if settings.google.pubsub_topic else []
    finally:
        await database.aclose()
    if ending := [poll for poll in polls if is_ending(poll, datetime.now(UTC))]:
        raise Problem(sentence(ending))
    return [f"{count} connected"]
