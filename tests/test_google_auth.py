"""Tokens are renewed once for all calls and stored before use; a mailbox that is shut says so."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google_kit import PROFILE, Pauses, Stand, limits, read, serving
from pydantic import SecretStr
from starlette.responses import JSONResponse, PlainTextResponse

from scopes.google.auth import GoogleAccess, MailboxTokens, delegated_credentials, user_credentials
from scopes.google.client import GoogleClient
from scopes.google.errors import MODIFY, GoogleError, GoogleRevoked

ANA = "ana@acme.example"
HOUR = timedelta(hours=1)
SECRETS = ("ya29.old", "1//refresh", "GOCSPX-secret")


def tokens(ends_in: timedelta | None = HOUR) -> MailboxTokens:
    expires = datetime.now(UTC) + ends_in if ends_in else None
    return MailboxTokens(
        access_token=SecretStr("ya29.old"),
        refresh_token=SecretStr("1//refresh"),
        expires_at=expires,
    )


def user(
    url: str,
    given: MailboxTokens | None = None,
) -> GoogleAccess:
    return user_credentials(given or tokens(), "client", "GOCSPX-secret", url)


@asynccontextmanager
async def asking(
    stand: Stand,
    given: MailboxTokens | None = None,
    access: Callable[[str], GoogleAccess] | None = None,
) -> AsyncIterator[GoogleClient]:
    """A client of Gmail with a user's tokens, or with what `access` makes for the address."""
    with serving(stand) as url:
        made = access(url) if access else user(url, given)
        google = GoogleClient(made, limits(max_attempts=2), url, sleep=Pauses())
        try:
            yield google
        finally:
            await google.aclose()


def wrong(error: str, status: int = 400) -> JSONResponse:
    return JSONResponse({"error": error, "error_description": "1//refresh is not valid"}, status)


async def test_a_token_that_google_refuses_is_renewed_once_for_all_calls_that_met_it() -> None:
    stand = Stand()
    stand.valid = {"ya29.renewed-1"}
    async with asking(stand) as subject:
        answers = await asyncio.gather(*(read(subject) for _ in range(20)))
    assert answers == [PROFILE] * 20
    assert [a.form["refresh_token"] for a in stand.token_asked] == ["1//refresh"]


@pytest.mark.parametrize("ended", [timedelta(minutes=1), -HOUR])
async def test_a_token_at_its_end_is_renewed_before_it_is_used(ended: timedelta) -> None:
    stand = Stand()
    async with asking(stand, tokens(ended)) as subject:
        await asyncio.gather(*(read(subject) for _ in range(5)))
    assert {a.token for a in stand.asked} == {"ya29.renewed-1"}
    assert len(stand.token_asked) == 1


async def test_withdrawn_access_is_met_once_and_says_how_to_connect_again() -> None:
    stand = Stand(tokens=(wrong("invalid_grant"),))
    async with asking(stand, tokens(-HOUR)) as subject:
        for _ in range(3):
            with pytest.raises(GoogleRevoked, match=r"no longer lets .* `assistant connect goog"):
                await read(subject)
    assert (len(stand.token_asked), stand.asked) == (1, [])


async def test_no_secret_is_in_a_log_an_error_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stand, seen = Stand(tokens=(PlainTextResponse("ya29.old"), wrong("invalid_grant"))), ""
    with serving(stand) as url:
        access = user(url, tokens(-HOUR))
        for _ in range(2):
            with pytest.raises(GoogleError) as raised:
                await access.token()
            error = raised.value
            seen += f"{error!r} {vars(error)} {''.join(traceback.format_exception(error))}"
        seen += f"{access!r} {tokens()!r}"
    assert "GoogleRevoked" in seen
    assert "GoogleBusy" in seen
    assert [secret for secret in SECRETS if secret in seen + caplog.text] == []


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("key") / "service.json"
    account = {
        "type": "service_account",
        "client_email": "assistant@project.example",
        "private_key": key.decode(),
        "private_key_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path.write_text(json.dumps(account))
    return path


async def test_a_service_account_acts_for_one_address_with_the_one_scope(key_file: Path) -> None:
    stand = Stand()
    async with asking(stand, access=partial(delegated_credentials, key_file, ANA)) as subject:
        assert await read(subject) == PROFILE
    (asked,) = stand.token_asked
    claims = json.loads(base64.urlsafe_b64decode(asked.form["assertion"].split(".")[1] + "=="))
    assert (claims["sub"], claims["scope"]) == (ANA, MODIFY)
    assert claims["iss"] == "assistant@project.example"
    assert [a.token for a in stand.asked] == ["ya29.renewed-1"]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"type": "service_account"}'])
def test_a_bad_key_file_is_named_by_its_setting(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GoogleError, match=r"google\.service_account names no usable key file"):
        delegated_credentials(path, ANA)
