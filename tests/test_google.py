"""Google's API called from async code: paced, retried where that is safe, with a timeout."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from google_kit import (
    PROFILE,
    TOKEN,
    Answer,
    Clock,
    Pauses,
    ScriptedGoogle,
    break_connection,
    close_connection,
    error_response,
    google_client,
    limits,
    read,
    send,
    served_stand,
    silent,
)
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from scopes.google.auth import (
    GoogleAccess,
    MailboxTokens,
    delegated_credentials,
    token_credentials,
    user_credentials,
)
from scopes.google.client import GoogleClient, Quota
from scopes.google.errors import GoogleBusy, GoogleError, GoogleRevoked, GoogleUnsure

TOO_FAST = [
    error_response(429, "rateLimitExceeded"),
    error_response(403, "rateLimitExceeded"),
    error_response(403, "quotaExceeded", "Quota exceeded: Queries per minute per user"),
    error_response(403, "dailyLimitExceeded"),
    error_response(403, status="PERMISSION_DENIED", details=[{"reason": "RATE_LIMIT_EXCEEDED"}]),
]
TOO_FEW_SCOPES = {"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}
MAY_BE_DONE: list[Answer] = [
    error_response(408),
    error_response(500, "backendError"),
    PlainTextResponse("<html>Bad gateway</html>", 502),
    break_connection,
    close_connection,
    PlainTextResponse("no JSON"),
    JSONResponse([1]),
]


@pytest.mark.parametrize("answer", [*TOO_FAST, *MAY_BE_DONE])
async def test_read_is_retried_after_a_temporary_failure(answer: Answer) -> None:
    stand, pauses = ScriptedGoogle(answer), Pauses()
    async with google_client(stand, pauses=pauses) as google:
        assert await read(google) == PROFILE
    assert len(pauses) <= 1
    requests = [(each.path, each.token) for each in stand.asked]
    assert requests == [("/gmail/v1/users/me/profile", TOKEN)] * 2


@pytest.mark.parametrize("answer", TOO_FAST)
async def test_rate_limited_write_is_retried(answer: Answer) -> None:
    stand, clock = ScriptedGoogle(answer), Clock()
    began = clock()
    async with google_client(stand, clock=clock) as google:
        await send(google)
    assert len(stand.asked) == 2
    assert clock() > began, "no other call starts in the meantime"


@pytest.mark.parametrize("answer", [*MAY_BE_DONE, silent])
async def test_write_with_unknown_outcome_is_reported_and_not_retried(answer: Answer) -> None:
    stand, pauses = ScriptedGoogle(answer), Pauses()
    async with google_client(stand, pauses=pauses, timeout_s=1.0) as google:
        with pytest.raises(GoogleUnsure, match=r"not known whether .*gmail\.users\.messages\.send"):
            await send(google)
    assert (len(stand.asked), pauses) == (1, [])


async def test_write_that_could_not_connect_is_retried() -> None:
    stand, pauses = ScriptedGoogle(), Pauses()
    async with google_client(stand) as stopped:
        url = stopped.gmail()._baseUrl.removesuffix("/gmail/v1/")
    google = GoogleClient(token_credentials(TOKEN), limits(max_attempts=3), url, sleep=pauses)
    try:
        with pytest.raises(GoogleBusy, match="could not answer") as raised:
            await send(google)
    finally:
        await google.aclose()
    assert not isinstance(raised.value, GoogleUnsure)
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error_response(400, "invalidArgument"), "did not accept a call .*getProfile, 400"),
        (error_response(403, "accessNotConfigured"), "not switched on in the Google Cloud project"),
        (error_response(403, "domainPolicy"), "did not accept a call .*403 domainPolicy"),
        (error_response(400, "failedPrecondition"), "may have no Gmail"),
        (error_response(403, "insufficientPermissions"), "OAuth scope that Gmail needs"),
        (error_response(403, details=[TOO_FEW_SCOPES]), "OAuth scope that Gmail needs"),
    ],
)
async def test_permanent_errors_are_explained_without_googles_text_and_not_retried(
    answer: Response, message: str
) -> None:
    stand = ScriptedGoogle(answer)
    async with google_client(stand) as google:
        with pytest.raises(GoogleError, match=message) as raised:
            await read(google)
    assert "No." not in str(raised.value)
    assert (len(stand.asked), raised.value.code) == (1, answer.status_code)


async def test_a_redirect_is_not_followed_with_the_token() -> None:
    elsewhere = ScriptedGoogle()
    async with google_client(elsewhere) as other:
        target = other.gmail()._baseUrl
        async with google_client(ScriptedGoogle(RedirectResponse(target))) as google:
            with pytest.raises(GoogleError) as raised:
                await read(google)
    assert (raised.value.code, elsewhere.asked) == (307, [])


def shown(error: BaseException) -> str:
    """Return all that a log could show of an error."""
    return f"{error!r} {vars(error)} {''.join(traceback.format_exception(error))}"


async def test_errors_of_calls_show_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"www-authenticate": f"Bearer {TOKEN}"}
    answer = error_response(400, f"{TOKEN}", f"Bearer {TOKEN}", headers)
    access = token_credentials(TOKEN)
    async with google_client(ScriptedGoogle(answer), lambda url: access) as google:
        with pytest.raises(GoogleError) as raised:
            await read(google)
        seen = f"{shown(raised.value)} {google!r} {access!r}"
    assert TOKEN not in seen + caplog.text


CALLS = st.lists(
    st.tuples(
        st.integers(1, 120),  # units, also more than the minute has
        st.floats(0, 50),  # seconds until the next call comes
    ),
    min_size=1,
    max_size=60,
)


@example(calls=[(1, 1.5448315574245193), (1, 2.0), (1, 0.0), (40, 0.0)], limit=40)
@given(calls=CALLS, limit=st.integers(40, 100))
async def test_quota_units_per_minute_stay_within_the_limit(
    calls: list[tuple[int, float]], limit: int
) -> None:
    clock = Clock()
    subject, grants = Quota(limit, clock, clock.sleep), []
    for units, pause in calls:
        await subject.take(units)
        grants.append((clock.now, min(units, limit)))
        clock.now += pause
    for start, _ in grants:
        assert sum(u for at, u in grants if start <= at < start + 60) <= limit


# ---- tokens: renewed once for all calls; errors say how to reconnect

ANA = "ana@acme.example"
HOUR = timedelta(hours=1)
SECRETS = ("ya29.old", "1//refresh", "GOCSPX-secret")


def tokens(ends_in: timedelta = HOUR) -> MailboxTokens:
    return MailboxTokens(
        access_token=SecretStr("ya29.old"),
        refresh_token=SecretStr("1//refresh"),
        expires_at=datetime.now(UTC) + ends_in,
    )


def user(url: str, mailbox: MailboxTokens | None = None) -> GoogleAccess:
    return user_credentials(mailbox or tokens(), "client", "GOCSPX-secret", url)


REVOKED = JSONResponse({"error": "invalid_grant", "error_description": "1//refresh is wrong"}, 400)


async def test_rejected_token_is_renewed_once_for_all_concurrent_calls() -> None:
    stand = ScriptedGoogle()
    stand.valid = {"ya29.renewed-1"}
    async with google_client(stand, user) as subject:
        answers = await asyncio.gather(*(read(subject) for _ in range(20)))
    assert answers == [PROFILE] * 20
    assert [a.form["refresh_token"] for a in stand.token_asked] == ["1//refresh"]


@pytest.mark.parametrize("ends_in", [timedelta(minutes=1), -HOUR])
async def test_expired_or_expiring_token_is_renewed_before_use(ends_in: timedelta) -> None:
    stand = ScriptedGoogle()
    async with google_client(stand, partial(user, mailbox=tokens(ends_in))) as subject:
        await asyncio.gather(*(read(subject) for _ in range(5)))
    assert {a.token for a in stand.asked} == {"ya29.renewed-1"}
    assert len(stand.token_asked) == 1


async def test_revoked_access_is_detected_once_and_error_says_how_to_reconnect() -> None:
    stand = ScriptedGoogle(tokens=(REVOKED,))
    async with google_client(stand, partial(user, mailbox=tokens(-HOUR))) as subject:
        for _ in range(3):
            with pytest.raises(GoogleRevoked, match=r"no longer lets .* `assistant connect goog"):
                await read(subject)
    assert (len(stand.token_asked), stand.asked) == (1, [])


async def test_errors_of_token_renewals_show_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stand, seen = ScriptedGoogle(tokens=(PlainTextResponse("ya29.old"), REVOKED)), ""
    with served_stand(stand) as url:
        access = user(url, tokens(-HOUR))
        for kind in (GoogleBusy, GoogleRevoked):
            with pytest.raises(kind) as raised:
                await access.token()
            seen += shown(raised.value)
        seen += f"{access!r} {tokens()!r}"
    assert [secret for secret in SECRETS if secret in seen + caplog.text] == []


@pytest.mark.parametrize("content", [None, "[]", '{"type": "service_account"}'])
def test_error_for_an_unusable_key_file_names_the_setting(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "key.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GoogleError, match=r"google\.service_account names no usable key file"):
        delegated_credentials(path, ANA)
