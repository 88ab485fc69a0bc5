"""Credentials of a Google account: a token is renewed before it ends, once for all calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from google.auth.exceptions import RefreshError, TransportError
from pydantic import BaseModel, SecretStr, field_serializer

from config.words import Text
from scopes.google.errors import MODIFY, GoogleBusy, GoogleError, GoogleRevoked

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

TOKEN_URI = "https://oauth2.googleapis.com/token"
CLIENT_FAULTS = frozenset({"invalid_client", "unauthorized_client", "deleted_client"})


class MailboxTokens(BaseModel, frozen=True):
    """The OAuth tokens that open one mailbox."""

    access_token: SecretStr
    refresh_token: SecretStr
    expires_at: datetime | None = None
    """End of the access token; None = unknown."""
    address: str = "a mailbox"

    @field_serializer("access_token", "refresh_token", when_used="json")
    def _plain(self, token: SecretStr) -> str:
        return token.get_secret_value()


@dataclass(frozen=True, slots=True)
class Sentences:
    """The advice for a refusal by Google, by kind of credentials."""

    revoked: Text | str
    client: Text | str = ""
    """For a refusal of this app, not of the user."""
    setting: str = "google.service_account"
    """Setting with the path of a service account's key file."""


FIXED_TOKEN_SENTENCES = Sentences(
    "Google does not accept GOOGLE_ACCESS_TOKEN: such a token lasts an hour. Set a new one."
)
USER = Sentences(Text("google.revoked"), Text("google.client"))
DELEGATED_SENTENCES = Sentences(
    Text("google.delegated_revoked"), Text("google.delegated_client", {"scope": MODIFY})
)


class GoogleAccess:
    """One account's credentials; all clients of the account share them."""

    def __init__(
        self,
        credentials: Credentials,
        sentences: Sentences,
        timeout_s: float = 30.0,
        direct: bool = False,
    ) -> None:
        self._credentials, self._sentences = credentials, sentences
        self._timeout_s, self._direct = timeout_s, direct
        self._renewal = asyncio.Lock()
        self._revoked = False

    async def token(self, spent: str = "") -> str:
        """Return a token other than the refused one, `spent`. Raises GoogleRevoked, GoogleBusy."""
        async with self._renewal:  # one renewal for all calls that wait
            if self._revoked:
                raise self.refusal()
            if not self._credentials.valid or self._credentials.token == spent:
                await asyncio.to_thread(self._refresh)
            return str(self._credentials.token)

    def refusal(self) -> GoogleRevoked:
        """Return the error for a token that Google refuses to renew, or has just given."""
        return GoogleRevoked(self._sentences.revoked, 401, "authError")

    def _refresh(self) -> None:
        import httplib2  # type: ignore[import-untyped]
        from google_auth_httplib2 import Request  # type: ignore[import-untyped]

        if self._sentences is FIXED_TOKEN_SENTENCES:
            raise self.refusal()
        proxy = None if self._direct else httplib2.proxy_info_from_environment
        line = httplib2.Http(timeout=self._timeout_s, proxy_info=proxy)
        line.follow_redirects = False
        try:
            self._credentials.refresh(Request(line))  # type: ignore[no-untyped-call]
        except RefreshError as error:
            failed = self._failure(error)
            self._revoked = isinstance(failed, GoogleRevoked)
        except (TransportError, TypeError, ValueError) as error:  # including an odd answer
            failed = GoogleBusy(f"Google's token service failed ({type(error).__name__}).")
        else:
            return
        finally:
            line.close()
        raise failed  # here, so that its traceback contains nothing of the answer

    def _failure(self, error: RefreshError) -> GoogleError:
        if error.retryable:
            return GoogleBusy(Text("google.no_answer", {"said": "token"}))
        body = error.args[1] if len(error.args) > 1 else None
        word = body.get("error") if isinstance(body, dict) else None
        if word in CLIENT_FAULTS:
            return GoogleError(self._sentences.client, 401, str(word))
        return self.refusal()


def token_credentials(token: str) -> GoogleAccess:
    """Return a fixed token, from GOOGLE_ACCESS_TOKEN; nothing renews it when it expires."""
    from google.oauth2.credentials import Credentials

    inner = Credentials(token)  # type: ignore[no-untyped-call]
    return GoogleAccess(inner, FIXED_TOKEN_SENTENCES)


def user_credentials(
    tokens: MailboxTokens,
    client_id: str,
    client_secret: str,
    oauth_endpoint: str | None = None,
    timeout_s: float = 30.0,
) -> GoogleAccess:
    """Return the credentials of a mailbox that its user connected.

    The endpoint is the address before `/token`; None = Google's. A renewed access token is not
    stored: the refresh token stays the same.
    """
    from google.oauth2.credentials import Credentials

    inner = Credentials(  # type: ignore[no-untyped-call]
        tokens.access_token.get_secret_value(),
        refresh_token=tokens.refresh_token.get_secret_value(),
        token_uri=_token_uri(oauth_endpoint),
        client_id=client_id,
        client_secret=client_secret,
        expiry=tokens.expires_at and tokens.expires_at.astimezone(UTC).replace(tzinfo=None),
    )
    return GoogleAccess(inner, USER, timeout_s, direct=oauth_endpoint is not None)


def delegated_credentials(
    key_file: Path,
    address: str | None,
    oauth_endpoint: str | None = None,
    timeout_s: float = 30.0,
    scopes: Sequence[str] = (MODIFY,),
    sentences: Sentences = DELEGATED_SENTENCES,
) -> GoogleAccess:
    """Return a service account as one user of its Workspace, or as itself. Raises GoogleError."""
    from google.oauth2 import service_account

    try:
        inner = service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
            str(key_file), scopes=list(scopes), subject=address
        )
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        failed = GoogleError(
            f"{sentences.setting} names no usable key file ({type(error).__name__}): it is the "
            "JSON file that Google Cloud gives for a key of a service account."
        )
    else:
        uri = _token_uri(oauth_endpoint)
        inner = inner.with_token_uri(uri) if oauth_endpoint else inner
        return GoogleAccess(inner, sentences, timeout_s, direct=oauth_endpoint is not None)
    raise failed


def _token_uri(oauth_endpoint: str | None) -> str:
    return f"{oauth_endpoint.rstrip('/')}/token" if oauth_endpoint else TOKEN_URI
