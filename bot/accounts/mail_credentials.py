"""What opens the mailbox of a user: the one that they connected, or their own by delegation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from pydantic import SecretStr

from bot.accounts.connected import GOOGLE, OPERATOR
from bot.accounts.credentials import Credentials
from bot.accounts.credentials import Tokens as Stored
from bot.accounts.google_oauth import needed_oauth
from config.settings import Settings
from scopes.google.auth import (
    Access,
    Tokens,
    delegated_credentials,
    token_credentials,
    user_credentials,
)
from scopes.tool import iso


async def mail_credentials(
    settings: Settings, store: Credentials, account: str, address: str | None
) -> Access | None:
    """The credentials of a Slack user, or of the operator at the command line; None = there are
    none: nothing is connected.

    `address` is the user's own, as Slack vouches for it: a service account may open that mailbox
    and no other. A mailbox that was connected goes first. The fixed token of the environment is
    the operator's alone. Raises StoreError, SetupError where the OAuth client is not set any more,
    GoogleError where the service account's key cannot be used.
    """
    fixed, google = settings.secrets.google_access_token, settings.google
    if account == OPERATOR and fixed:
        return token_credentials(fixed.get_secret_value())
    stored = await store.get(GOOGLE, account)
    endpoint = settings.endpoints.google_oauth_endpoint
    if stored:
        client = needed_oauth(settings)
        return user_credentials(
            _tokens(stored),
            client.client_id,
            client.client_secret.get_secret_value(),
            endpoint,
            _renewed(store, account, stored),
            google.timeout_s,
        )
    if google.service_account and address:
        return delegated_credentials(
            Path(google.service_account), address, endpoint, google.timeout_s
        )
    return None


def _tokens(stored: Stored) -> Tokens:
    plain = {name: value.get_secret_value() for name, value in stored.items()}
    ends = plain.get("expires_at")
    expires = datetime.fromisoformat(ends) if ends else None
    return Tokens(plain["access_token"], plain["refresh_token"], expires)


def _renewed(
    store: Credentials, account: str, before: Stored
) -> Callable[[Tokens], Awaitable[None]]:
    """Stores renewed tokens, unless the account was disconnected or connected anew meanwhile."""

    async def renewed(tokens: Tokens) -> None:
        now = await store.get(GOOGLE, account)
        if now is None or now["refresh_token"] != before["refresh_token"]:
            return
        latest = {"access_token": SecretStr(tokens.access)}
        if tokens.expires:
            latest["expires_at"] = SecretStr(iso(tokens.expires))
        await store.put(GOOGLE, account, {**now, **latest})

    return renewed
