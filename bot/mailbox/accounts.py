"""The connected Google accounts: how they are connected, their tokens, and their owners.

https://developers.google.com/identity/protocols/oauth2/web-server, with PKCE (RFC 7636). The three
requests are made here with aiohttp: google-auth-oauthlib blocks a thread for each, writes the
tokens to its debug log, and refuses simulators on loopback.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import sqlalchemy as sa
from pydantic import SecretStr

from bot.errors import SetupError, StoreError
from bot.log import learn
from bot.mailbox.sync import MailState
from bot.storage.database import Database
from bot.storage.tables import credentials
from config.settings import Settings
from config.words import Text, phrase
from scopes.google.auth import (
    GoogleAccess,
    MailboxTokens,
    delegated_credentials,
    token_credentials,
    user_credentials,
)
from scopes.google.client import GoogleClient, Quota
from scopes.google.errors import MODIFY, GoogleError, reasons_in
from scopes.google.gmail import Gmail

log = logging.getLogger(__name__)

PROVIDER = "google"
"""The provider of all stored tokens."""


@dataclass(frozen=True, slots=True)
class ConnectedAccount:
    """An account that is connected, without its tokens."""

    provider: str
    account: str
    """The Slack user, or the operator."""
    address: str
    at: datetime
    """Time of the connection."""


class Credentials:
    """The tokens of one database, by account; no repr shows them. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def put(self, account: str, tokens: MailboxTokens) -> None:
        """Store the tokens of an account, replacing earlier ones."""
        _learn(tokens)
        of = {"provider": PROVIDER, "account": account}
        row = {**of, "body": tokens.model_dump_json(), "at": datetime.now(UTC)}
        insert = self.database.upsert(credentials, ("provider", "account"), ("body", "at"))
        await self.database.write(insert.values(row))

    async def get(self, account: str) -> MailboxTokens | None:
        """Return the tokens of an account; None = it has none."""
        query = sa.select(credentials.c.body).where(credentials.c.account == account)
        rows = await self.database.read(query)
        if not rows:
            return None
        tokens = MailboxTokens.model_validate_json(rows[0].body)
        _learn(tokens)
        return tokens

    async def address(self, account: str) -> str:
        """Return the address of an account's mailbox; empty = none is connected."""
        tokens = await self.get(account)
        return tokens.address if tokens else ""

    async def delete(self, account: str) -> None:
        """Delete the tokens of an account."""
        is_account = credentials.c.account == account
        await self.database.write(sa.delete(credentials).where(is_account))

    async def list_accounts(self) -> list[ConnectedAccount]:
        """Return the connected accounts, by name, for display."""
        rows = await self.database.read(sa.select(credentials).order_by(credentials.c.account))
        found = [(row, MailboxTokens.model_validate_json(row.body)) for row in rows]
        return [ConnectedAccount(r.provider, r.account, t.address, r.at) for r, t in found]

    async def accounts(self) -> list[str]:
        """Return the names of the accounts with tokens, sorted."""
        c = credentials.c
        rows = await self.database.read(sa.select(c.account).order_by(c.account))
        return [row.account for row in rows]


def _learn(tokens: MailboxTokens) -> None:
    """Keep tokens out of the log; the address with them is not secret."""
    learn(token.get_secret_value() for token in (tokens.access_token, tokens.refresh_token))


PERMISSIONS_PAGE = "https://myaccount.google.com/permissions"
_GMAIL = "https://gmail.googleapis.com"
_CODE = re.compile(r"[a-z][a-zA-Z_]{1,40}")
_INVALID_GRANT = {"code": "doctor", "code_verifier": "0" * 43, "redirect_uri": "http://127.0.0.1/"}
_EXPLAINED_ERRORS: Mapping[str, str] = {
    "access_denied": "connect.access_denied",
    "accessNotConfigured": "google.not_enabled",
    "invalid_client": "google.client",
    "invalid_grant": "connect.invalid_grant",
    "no_proper_answer": "google.no_answer",
    "no_scope": "connect.no_scope",
    "unreachable": "google.no_answer",
}
"""Error code, Google's or ours -> key of the text with what to do."""


class ConnectFailed(Exception):
    """An account could not be connected; the text is a sentence with what to do."""

    def __init__(self, code: str) -> None:
        self.code = code if _CODE.fullmatch(code) else "no_proper_answer"
        key = _EXPLAINED_ERRORS.get(self.code, "connect.refused")
        super().__init__(Text(key, {"said": self.code, "api": "Gmail"}))


@dataclass(frozen=True, slots=True)
class GoogleOauth:
    """The OAuth client of these settings. Methods that call Google raise ConnectFailed."""

    client_id: str
    client_secret: SecretStr
    auth_url: str
    token_url: str
    revoke_url: str
    gmail_url: str
    timeout_s: float
    direct: bool
    """True if it is a simulator: no proxy of the environment is used."""

    def address_to_open(self, redirect_uri: str, state: str, verifier: str) -> str:
        """Return the address of Google's consent page, which redirects back here."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        parameters = {
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "scope": MODIFY,  # docs/google.md explains this choice
            "state": state,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
            "access_type": "offline",
            "prompt": "consent select_account",  # otherwise Google gives no refresh token again
        }
        return f"{self.auth_url}?{urlencode(parameters)}"

    async def exchange(self, redirect_uri: str, code: str, verifier: str) -> MailboxTokens:
        """Return the tokens for the code of a person who returned; `address` is their mailbox."""
        form = {"code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
        answer = await self._post(self.token_url, self._as_client(form))
        if MODIFY not in str(answer.get("scope") or "").split():
            raise ConnectFailed("no_scope")
        refresh = answer.get("refresh_token")
        if not refresh:
            raise ConnectFailed("no_proper_answer")
        ends = datetime.now(UTC) + timedelta(seconds=float(answer.get("expires_in") or 0))
        access = str(answer.get("access_token"))
        return MailboxTokens(
            access_token=SecretStr(access),
            refresh_token=SecretStr(str(refresh)),
            expires_at=ends,
            address=await self._mailbox(access),
        )

    async def _mailbox(self, token: str) -> str:
        bearer = {"authorization": f"Bearer {token}"}
        url = f"{self.gmail_url}/gmail/v1/users/me/profile"
        answer = await self._request("GET", url, headers=bearer)
        address = answer.get("emailAddress")
        if not isinstance(address, str) or "@" not in address:
            raise ConnectFailed("no_proper_answer")
        return address

    async def revoke(self, tokens: MailboxTokens) -> None:
        """Have Google revoke all access of its owner's grant, even if it is already revoked."""
        token = tokens.refresh_token.get_secret_value()
        try:
            await self._post(self.revoke_url, {"token": token})
        except ConnectFailed as error:
            if error.code not in ("invalid_token", "invalid_grant"):
                raise

    async def check(self) -> None:
        """Check that Google knows this client."""
        try:
            await self._post(self.token_url, self._as_client(_INVALID_GRANT))
        except ConnectFailed as error:
            if error.code in ("invalid_client", "unauthorized_client", "unreachable"):
                raise

    def _as_client(self, form: Mapping[str, str]) -> dict[str, str]:
        secret = self.client_secret.get_secret_value()
        grant = {"grant_type": "authorization_code", "client_id": self.client_id}
        return {**grant, "client_secret": secret, **form}

    async def _post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        return await self._request("POST", url, data=form)

    async def _request(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        limit = aiohttp.ClientTimeout(total=self.timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, trust_env=not self.direct) as session,
                session.request(method, url, allow_redirects=False, **more) as response,
            ):
                answer = await response.json(content_type=None)
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("Google cannot be reached: %s", type(error).__name__)
            raise ConnectFailed("unreachable") from None
        except ValueError:
            answer, status = None, 0
        body: dict[str, Any] = answer if isinstance(answer, dict) else {}
        if status == 200 and isinstance(answer, dict | None):
            return body
        why = body.get("error")  # from the token endpoint or from the API
        failed = ConnectFailed(next(reasons_in(why), "") if isinstance(why, dict) else str(why))
        log.warning("Google answered %d: %s", status, failed.code)
        raise failed


def oauth_of(settings: Settings) -> GoogleOauth | None:
    """Return the OAuth client of the settings; None if it, or its secret, is not set."""
    google, secret = settings.google, settings.secrets.google_client_secret
    if not google.client_id or not secret:
        return None
    base = (settings.endpoints.google_oauth_endpoint or "").rstrip("/")
    return GoogleOauth(
        client_id=google.client_id,
        client_secret=secret,
        auth_url=f"{base}/auth" if base else "https://accounts.google.com/o/oauth2/v2/auth",
        token_url=f"{base}/token" if base else "https://oauth2.googleapis.com/token",
        revoke_url=f"{base}/revoke" if base else "https://oauth2.googleapis.com/revoke",
        gmail_url=(settings.endpoints.gmail_api_endpoint or _GMAIL).rstrip("/"),
        timeout_s=settings.google.timeout_s,
        direct=bool(base),
    )


def require_oauth(settings: Settings) -> GoogleOauth:
    """Return the OAuth client of the settings. Raises SetupError if there is none."""
    found = oauth_of(settings)
    if found is None:
        absent = "GOOGLE_CLIENT_SECRET" if settings.google.client_id else "google.client_id"
        hint = "docs/google.md explains how to create an OAuth client."
        raise SetupError("google_client", f"{absent} is not set.", hint)
    return found


OPERATOR = "operator"
"""The account of the command line; no Slack user has this name."""


@dataclass(frozen=True, slots=True)
class AccessWithdrawn:
    """A mailbox that was disconnected."""

    address: str
    fault: str = ""
    """Why the access could not be revoked at Google; empty = it was revoked."""
    shared: bool = False
    """True if somebody else here has connected it, too: then Google's grant stays."""


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
    if address in [each.address for each in await store.list_accounts()]:
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

    `address` is the user's own, from Slack: a service account may open only that mailbox. A
    connected mailbox takes precedence. The fixed token of the environment is only for the
    operator. Raises StoreError, SetupError if the OAuth client is not set any more, and GoogleError
    if the service account's key cannot be used.
    """
    fixed, google = settings.secrets.google_access_token, settings.google
    if account == OPERATOR and fixed:
        return token_credentials(fixed.get_secret_value())
    stored = await store.get(account)
    endpoint = settings.endpoints.google_oauth_endpoint
    if stored:
        client = require_oauth(settings)
        return user_credentials(
            stored,
            client.client_id,
            client.client_secret.get_secret_value(),
            endpoint,
            google.timeout_s,
        )
    if google.service_account and address:
        return delegated_credentials(
            Path(google.service_account), address, endpoint, google.timeout_s
        )
    return None


AddressLookup = Callable[[str], Awaitable[str | None]]
"""Returns the mail address of a Slack user in the workspace; None = not known."""


@dataclass
class Mailboxes:
    """Opens mailboxes of Slack users; counts Google's quota per minute once for each."""

    settings: Settings
    store: Credentials
    address: AddressLookup
    _quotas: dict[str, Quota] = field(default_factory=dict)

    async def open(self, user: str | None) -> Gmail | None:
        """Return this user's mailbox, open until `aclose`; None if it cannot be opened."""
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
        return Gmail(google, user, since)

    async def _last_history(self, user: str, address: str) -> str:
        """Return the history id of this mailbox's last triage; empty = none yet."""
        cursor = await MailState(self.store.database).cursor(user)
        return cursor.history if cursor and cursor.mailbox == address else ""


def how_to_connect(settings: Settings) -> str:
    """Return what a user without a mailbox can do."""
    google = settings.google.client_id and settings.secrets.google_client_secret
    is_offered = google and settings.serve.public_url
    return phrase("mail.press_connect" if is_offered else "mail.cannot_connect")
