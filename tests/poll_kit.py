"""Mailboxes that are looked into between triages: Google and Slack on loopback, time by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from engine_kit import MUX
from gmail_kit import ME, START, mail
from outbox_kit import desk
from pg_kit import with_store
from pydantic import SecretStr

from bot.accounts.connected import GOOGLE
from bot.accounts.credentials import Credentials
from bot.local.google import pubsub as google_pubsub
from bot.local.google.gmail_state import Held
from bot.local.google.mbox import Mailbox
from bot.local.google.oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from bot.local.google.server import TOKEN, Grant, LocalGoogle
from bot.local.slack.server import LocalSlack
from bot.local.slack.state import BOT_USER
from bot.local.workspace import User, Workspace
from bot.mail.alarm import MailAlarm
from bot.mail.mailboxes import Mailboxes
from bot.mail.polling import MailPolling
from bot.mail.polls import Noticed, Poll, noticed
from bot.mail.state import MailState, seen_of
from bot.mail.sync import Sync, new_threads
from bot.mail.watching import MailWatching
from bot.policy.policy_file import PolicyFile
from bot.replies.outbox import Outbox
from bot.serving.metrics import Metrics
from bot.storage.store import Store
from config.settings import Settings, load_settings
from scopes.google.auth import token_credentials
from scopes.google.gmail import Gmail
from scopes.google.pubsub import Pubsub
from scopes.mail import MailThread
from scopes.tool import Window

ANA, EVA, ADMIN = "U0ANA", "U0EVA", "U0ADA"
TOPIC, SUBSCRIPTION = "projects/p/topics/mail", "projects/p/subscriptions/bot"
EVERY = timedelta(minutes=10)


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.moved = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.moved

    def seconds(self) -> float:
        return self().timestamp()


@dataclass
class Round:
    """One triage: what it listed, and what of it was new."""

    sync: Sync
    new: dict[str, list[str]] = field(default_factory=dict)
    """Thread -> ids of its messages."""
    seen: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Post:
    """A bot that several people have let into one mailbox."""

    google: LocalGoogle
    slack: LocalSlack
    settings: Settings
    store: Store
    outbox: Outbox
    clock: Hands
    url: str
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.state = MailState(self.store.database)
        self.credentials = Credentials(self.store.database)
        self.polling = self.process()
        named = self.settings.policy.model_copy(update={"admins": (ADMIN,)})
        self.policy = PolicyFile(None, named)

    def process(self) -> MailPolling:
        """The polling of another process."""
        mailboxes = Mailboxes(self.settings, Credentials(self.store.database), _nobody)
        return MailPolling(self.state, mailboxes, self.outbox, self.metrics, self.clock)

    def watching(self, pubsub: Pubsub | None) -> MailWatching:
        alarm = MailAlarm(self.store.database, self.outbox, self.policy, self.metrics)
        return MailWatching(self.polling, alarm, pubsub)

    def pubsub(self) -> Pubsub:
        """A subscription of the topic that the mailbox is to tell; closed by the test."""
        self.google.pubsub.subscribe(TOPIC, SUBSCRIPTION)
        self.google.pubsub.hold_s = 0.05
        access = token_credentials(google_pubsub.TOKEN)
        return Pubsub(access, self.settings.google, SUBSCRIPTION, self.url)

    async def connect(self, user: str) -> None:
        told = {"access_token": TOKEN, "refresh_token": "gone", "address": ME}
        await self.credentials.put(GOOGLE, user, {k: SecretStr(v) for k, v in told.items()})

    def revoke(self) -> None:
        """The mailbox's owner takes the access away, at Google."""
        self.google.tokens.pop(TOKEN, None)

    def allow(self) -> None:
        self.google.tokens[TOKEN] = Grant(ME)

    def come(self, number: int, labels: str = "INBOX", answers: int = 0) -> Held:
        return self.google.gmail.add(mail(number, answers=answers), labels.split())

    def asked(self, method: str = "") -> int:
        """Calls of a method, or of all of Gmail."""
        return sum(
            each.method.endswith(f".{method}") or not method for each in self.google.requests
        )

    async def look(self, after: timedelta = timedelta(0)) -> None:
        """What a process does every few seconds, some time later."""
        self.clock.moved += after
        await self.polling.look()

    async def poll(self, user: str = ANA) -> Poll:
        found = await self.polling.polls.get(user)
        assert found, "nothing is known of this mailbox"
        return found

    async def noticed(self, user: str = ANA) -> Noticed:
        cursor = await self.state.cursor(user)
        assert cursor
        return noticed(await self.polling.polls.get(user), cursor)

    async def triage(self, user: str = ANA, *, delivered: bool = True) -> Round:
        """As bot/triage/triage.py goes about it."""
        opened = await self.polling.mailboxes.open(user)
        assert opened
        try:
            made = Round(await self._listed(opened.gmail, user))
            for id in made.sync.threads:
                thread: MailThread = await opened.gmail.thread(id)
                made.seen[id] = seen_of(thread)
                if made.sync.is_new(thread):
                    made.new[id] = made.seen[id]
        finally:
            await opened.aclose()
        if delivered:
            await self.state.delivered(user, "r1", made.sync.cursor, made.seen, [])
        return made

    async def _listed(self, gmail: Gmail, user: str) -> Sync:
        window = Window(START - timedelta(days=1), datetime.now(UTC))
        return await new_threads(gmail, self.state, user, "{in:inbox in:spam}", window)

    def told(self, user: str = ANA) -> list[str]:
        """What the bot has written to somebody in private."""
        channel = self.slack.people.dm(user)
        return [m.text for m in self.slack.visible(channel) if m.user == BOT_USER]


async def _nobody(user: str) -> str | None:
    return None


@asynccontextmanager
async def post(
    store: Store | Path, *messages: Any, users: tuple[str, ...] = (ANA,), **google: Any
) -> AsyncIterator[Post]:
    """A mailbox with these messages that `users` have connected; `google` changes settings."""
    clock = Hands()
    accounts = LocalGoogleOauth()
    served = LocalGoogle(Mailbox(ME, messages), now=clock.seconds, whose=accounts.whose)
    people = tuple(User(id, id.lower(), id) for id in (ANA, EVA, ADMIN))
    if isinstance(store, Path):
        with_store(store)
    opened = await Store.open(store) if isinstance(store, Path) else store
    try:
        with MUX.serving(served.app) as url, MUX.serving(accounts.app) as oauth:
            async with desk(LocalSlack(Workspace(users=people, channels=()))) as at:
                settings = _settings(url, oauth, google)
                made = Post(served, at.slack, settings, opened, at.outbox, clock, url)
                for user in users:
                    await made.connect(user)
                yield made
    finally:
        if isinstance(store, Path):
            await opened.aclose()


def _settings(url: str, oauth: str, google: Mapping[str, Any]) -> Settings:
    base = load_settings(env={})
    quick = {"client_id": CLIENT_ID, "max_attempts": 1, "timeout_s": 5.0}
    topic = {"pubsub_topic": TOPIC, "pubsub_subscription": SUBSCRIPTION}
    ends = {"gmail_api_endpoint": url, "google_oauth_endpoint": oauth, "pubsub_api_endpoint": url}
    return base.model_copy(
        update={
            "google": base.google.model_copy(update={**quick, **topic, **google}),
            "endpoints": base.endpoints.model_copy(update=ends),
            "secrets": base.secrets.model_copy(
                update={"google_client_secret": SecretStr(CLIENT_SECRET)}
            ),
        }
    )


def key_file(folder: Path) -> Path:
    """A service account's key file, as Google Cloud makes it."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    held = {
        "type": "service_account",
        "client_email": google_pubsub.ACCOUNT,
        "private_key_id": "1",
        "private_key": pem.decode(),
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path = folder / "pubsub.json"
    path.write_text(json.dumps(held), "utf-8")
    path.chmod(0o600)
    return path
