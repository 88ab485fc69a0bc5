"""A mailbox on loopback for tests: their mails, the local Gmail, and the real client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from engine_kit import MUX
from mail_kit import ME
from standins.google import TOKEN, LocalGoogle

from bot.local.google.gmail_mime import attachment_id, parts_of
from bot.local.google.mbox import Mailbox, StoredMessage
from config.settings import load_settings
from scopes.google.auth import token_credentials
from scopes.google.client import GoogleClient
from scopes.google.gmail import Gmail
from scopes.google.mail_text import message_of
from scopes.mail import MailMessage, MailText

OWNER = "U0ANA"
START = datetime(2025, 1, 6, 9, tzinfo=UTC)


def stored_message(
    number: int, raw: bytes, thread: int = 1, labels: frozenset[str] = frozenset({"INBOX"})
) -> StoredMessage:
    at = START + timedelta(hours=number)
    return StoredMessage(id_of(number), id_of(thread), at, raw, labels)


def resource_of(raw: bytes, id: str = "m1", labels: Iterable[str] = ("INBOX",)) -> dict[str, Any]:
    """A message as Gmail gives it."""
    about = {"id": id, "threadId": "t", "labelIds": list(labels), "sizeEstimate": len(raw)}
    return about | {"internalDate": "1736150400000", "payload": parts_of(raw).json(id)}


def gmail_message(raw: bytes, id: str = "m1", labels: Iterable[str] = ("INBOX",)) -> MailMessage:
    """A message as it is read from Gmail."""
    texts = {attachment_id(id, part.id): part.content for part in parts_of(raw).walk()}
    return message_of(resource_of(raw, id, labels), texts)


def reduced_text(raw: bytes) -> MailText:
    return gmail_message(raw).text


def id_of(number: int) -> str:
    return f"{number:016x}"


@dataclass
class Office:
    """The local Gmail and the client that reads it."""

    local: LocalGoogle
    gmail: Gmail
    made: Callable[[], Gmail]
    """Creates another client of the same mailbox, as another run does."""

    def count_calls(self, method: str) -> int:
        """Return how often a method was called, failures included."""
        return sum(each.method == f"gmail.users.{method}" for each in self.local.requests)

    def units(self) -> int:
        return sum(each.units for each in self.local.requests)


@asynccontextmanager
async def office(
    *messages: StoredMessage, owner: str = OWNER, cursor: str = "", **local: Any
) -> AsyncIterator[Office]:
    """A mailbox with these messages."""
    served = LocalGoogle(Mailbox(ME, messages), **local)
    limits = load_settings(env={}).google.model_copy(update={"max_attempts": 2, "timeout_s": 5})

    async def at_once(seconds: float) -> None:
        """Tests do not wait as long as Google asks."""

    with MUX.served_app(served.app) as url:
        google = GoogleClient(token_credentials(TOKEN), limits, url, sleep=at_once)
        try:
            yield Office(served, Gmail(google, owner, cursor), lambda: Gmail(google, owner, cursor))
        finally:
            await google.aclose()
