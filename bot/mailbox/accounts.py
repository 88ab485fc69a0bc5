"""The connected Google accounts: whose mailbox is which, and how it is disconnected."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from bot.errors import SetupError, StoreError
from bot.mailbox.google_oauth import (
    ConnectFailed,
    Credentials,
    GoogleOauth,
    MailboxTokens,
    needed_oauth,
)
from bot.mailbox.sync import MailState
from config.settings import Settings
from config.words import phrase
from scopes.google.auth import (
    GoogleAccess,
    GoogleTokens,
    delegated_credentials,
    token_credentials,
    user_credentials,
)
from scopes.google.client import GoogleClient
from scopes.google.errors import GoogleError
from scopes.google.gmail import Gmail
from scopes.google.quota import Quota

log = logging.getLogger(__name__)

OPERATOR = "operator"
"""The account of the command line; no Slack user has this name."""


@dataclass(frozen=True, slots=True)
class AccessWithdrawn:
    """A mailbox that was disconnected."""

    address: str
    fault: str = ""
    """Why Google could not be told; empty = it was."""
    shared: bool = False
    """True if somebody else here has connected it, too: Google's grant stays theirs."""


async def disconnect(
    store: Credentials, oauth: GoogleOauth | None, account: str
) -> AccessWithdrawn | None:
    """Delete an account's tokens, and revoke them at Google; None = there were none.

    Google has one grant for each mailbox and client, so it is revoked with the last account that
    connected that mailbox. Raises StoreError.
    """
    tokens = await store.get(account)
    if tokens is None:
        return None
    address = tokens.address
    await store.delete(account)
    if address in [each.address for each in await store.connected()]:
        return AccessWithdrawn(address, shared=True)
    try:
        if oauth is None:
            raise ConnectFailed("invalid_client")
        await oauth.revoke(tokens)
    except ConnectFailed as error:
        return AccessWithdrawn(address, str(error))
    return AccessWithdrawn(address)


async def mail_credentials(
    settings: Settings, store: Credentials, account: str, address: str | None
) -> GoogleAccess | None:
    """Return the credentials of a Slack user, or of the operator; None = nothing is connected.

    `address` is the user's own, as Slack gives it: a service account may open that mailbox
    and no other. A connected mailbox takes precedence. The fixed token of the environment is the
    operator's alone. Raises StoreError, SetupError if the OAuth client is not set any more, and
    GoogleError if the service account's key cannot be used.
    """
    fixed, google = settings.secrets.google_access_token, settings.google
    if account == OPERATOR and fixed:
        return token_credentials(fixed.get_secret_value())
    stored = await store.get(account)
    endpoint = settings.endpoints.google_oauth_endpoint
    if stored:
        client = needed_oauth(settings)
        access, refresh = stored.access_token, stored.refresh_token
        return user_credentials(
            GoogleTokens(access.get_secret_value(), refresh.get_secret_value(), stored.expires_at),
            client.client_id,
            client.client_secret.get_secret_value(),
            endpoint,
            _store_renewed(store, account, stored),
            google.timeout_s,
        )
    if google.service_account and address:
        return delegated_credentials(
            Path(google.service_account), address, endpoint, google.timeout_s
        )
    return None


def _store_renewed(
    store: Credentials, account: str, before: MailboxTokens
) -> Callable[[GoogleTokens], Awaitable[None]]:
    """Store renewed tokens, unless the account was disconnected or connected again meanwhile."""

    async def renewed(tokens: GoogleTokens) -> None:
        now = await store.get(account)
        if now is None or now.refresh_token != before.refresh_token:
            return
        ends = tokens.expires or now.expires_at
        latest = {"access_token": SecretStr(tokens.access), "expires_at": ends}
        await store.renew(account, now.model_copy(update=latest))

    return renewed


Address = Callable[[str], Awaitable[str | None]]
"""Returns the mail address of a Slack user, as the workspace gives it; None = not known."""


@dataclass
class Mailboxes:
    """Opens mailboxes of Slack users; Google's quota per minute is counted once for each."""

    settings: Settings
    store: Credentials
    address: Address
    _quotas: dict[str, Quota] = field(default_factory=dict)

    async def open(self, user: str | None) -> OpenedMail | None:
        """Open the mailbox of this user; None if none is connected, or it cannot be opened."""
        if user is None:
            return None
        try:
            address = await self.address(user) if self.settings.google.service_account else None
            access = await mail_credentials(self.settings, self.store, user, address)
            mailbox = await self.store.address(user) or address or ""
            since = await self._last_history(user, mailbox)
        except (SetupError, StoreError, GoogleError) as error:
            log.warning("the mailbox of %s cannot be opened: %s", user, error)
            return None
        if access is None:
            return None
        quota = self._quotas.setdefault(user, Quota(self.settings.google.units_per_minute))
        endpoint = self.settings.endpoints.gmail_api_endpoint
        google = GoogleClient(access, self.settings.google, endpoint, quota)
        return OpenedMail(Gmail(google, user, since), google)

    async def _last_history(self, user: str, address: str) -> str:
        """Return the history id of this mailbox's last triage; empty = there was none."""
        cursor = await MailState(self.store.database).cursor(user)
        return cursor.history if cursor and cursor.mailbox == address else ""


@dataclass(frozen=True)
class OpenedMail:
    """A mailbox that is open until `aclose`."""

    gmail: Gmail
    google: GoogleClient

    async def aclose(self) -> None:
        await self.google.aclose()


def how_to_connect(settings: Settings) -> str:
    """Return what a user without a mailbox can do."""
    google = settings.google.client_id and settings.secrets.google_client_secret
    is_offered = google and settings.serve.public_url
    return phrase("mail.press_connect" if is_offered else "mail.cannot_connect")
