"""Errors between us and Google, in the sentences of `google.*`, and which calls to retry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from config.words import Text
from scopes.tool import SourceFailed

MODIFY = "https://www.googleapis.com/auth/gmail.modify"
"""Reading, labels, drafts and sending; not permanent deletion (Gmail API, scopes)."""

RATE = frozenset(
    {"ratelimitexceeded", "userratelimitexceeded", "quotaexceeded", "dailylimitexceeded"}
)
APIS: Mapping[str, str] = {
    "gmail": "Gmail",
    "bigquery": "BigQuery",
    "sheets": "Google Sheets",
}
"""Prefix of a method -> name of the API."""
QUERY_METHOD_PREFIX = "bigquery."
"""Prefix of methods whose refusals describe the error of a query, in words for a model."""
MAX_SAID = 400
"""Characters."""

SETUP_ADVICE_KEYS: Mapping[str, str] = {
    "accessnotconfigured": "google.not_enabled",
    "servicedisabled": "google.not_enabled",
    "failedprecondition": "google.no_gmail",
    "insufficientpermissions": "google.no_scope",
    "accesstokenscopeinsufficient": "google.no_scope",
}
"""Google's reason in lower case for a refusal due to the set-up -> key of the advice."""


class GoogleError(SourceFailed):
    """A call of Google failed; the text says what to do and contains nothing of the request.

    A `Text` is shown in the current language.
    """

    def __init__(self, text: Text | str, code: int = 0, reason: str = "", detail: str = "") -> None:
        self.code = code
        """HTTP status; 0 = none."""
        self.reason = reason
        """Google's reason, such as `insufficientPermissions`."""
        self.detail = detail
        """Google's message on a query, from the source: only for the model, never in a log."""
        super().__init__(text)

    @property
    def is_setup(self) -> bool:
        """Return whether the set-up is the cause, and the text says what to change there."""
        return _key(self.reason) in SETUP_ADVICE_KEYS


class GoogleAbsent(GoogleError):
    """It does not exist, or no longer (404)."""


class GoogleRevoked(GoogleError):
    """Google no longer accepts the credentials."""


class GoogleBusy(GoogleError):
    """Google gave no proper answer in any attempt."""


class GoogleUnsure(GoogleBusy):
    """A call without an answer that must not be repeated: it may have been done."""


class HttpRefused(Exception):
    """An answer with an error's status."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        """`headers` are found in any case."""
        self.status, self.headers, self.content = status, headers, content
        super().__init__(status)


ATTEMPT_ERRORS = (
    *(HttpRefused, GoogleError, aiohttp.ClientError, OSError),
    *(ValueError, RecursionError),
)
"""Errors of an attempt: an answer of Google, no token, a lost connection, an answer that is no
JSON."""


@dataclass(frozen=True, slots=True)
class GoogleFault:
    """The reason why one attempt failed."""

    error: GoogleError
    """The error if no other attempt follows."""
    retry: bool = False
    undone: bool = True
    """True if Google certainly did not do the request."""
    limited: bool = False
    """True if we send too many requests for this account."""
    wait: float | None = None
    """Seconds that Google asks us to wait; None = no request to wait."""


def fault_of(error: Exception, method: str) -> GoogleFault:
    """Return what one of `ATTEMPT_ERRORS` means for a call of this API method."""
    if isinstance(error, GoogleBusy):  # there was no token
        return GoogleFault(error, retry=True)
    if isinstance(error, GoogleError):
        return GoogleFault(error)
    if isinstance(error, HttpRefused):
        return _refusal(error, method)
    busy = GoogleBusy(Text("google.no_answer", {"said": f"{method}, {type(error).__name__}"}))
    return GoogleFault(busy, True, undone=isinstance(error, aiohttp.ClientConnectorError))


def _refusal(error: HttpRefused, method: str) -> GoogleFault:
    code, inner = error.status, _error_in(error.content)
    reasons = list(dict.fromkeys(reasons_in(inner)))
    keys, reason = {_key(r) for r in reasons}, reasons[0] if reasons else ""
    detail = f"{method}, {code} {reason}".rstrip()
    api = APIS.get(method.partition(".")[0], "Google")
    if code == 429 or (code == 403 and keys & RATE):
        limited = GoogleBusy(Text("google.limited", {"api": api, "said": detail}), code, reason)
        return GoogleFault(limited, retry=True, limited=True, wait=_wait(error, inner))
    if code == 408 or code >= 500:
        busy = GoogleBusy(Text("google.no_answer", {"said": detail}), code, reason)
        return GoogleFault(busy, retry=True, undone=False, wait=_wait(error, inner))
    message = " ".join(str(inner.get("message") or "").split())[:MAX_SAID]
    message = message if method.startswith(QUERY_METHOD_PREFIX) else ""
    if code == 404:
        absent = Text("google.absent", {"said": detail})
        return GoogleFault(GoogleAbsent(absent, code, reason, message))
    advice = sorted(keys & SETUP_ADVICE_KEYS.keys())
    key = SETUP_ADVICE_KEYS[advice[0]] if advice else "google.not_accepted"
    text = Text(key, {"api": api, "said": detail})
    return GoogleFault(GoogleError(text, code, reason, message))


def _error_in(content: bytes) -> dict[str, Any]:
    """Return the `error` of an answer, if it has Google's form."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    inner = body.get("error") if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def reasons_in(inner: dict[str, Any]) -> Iterator[str]:
    """Yield Google's reasons, the most specific first; only words in the form of an API reason."""
    for key in ("errors", "details"):
        entries = inner.get(key)
        for entry in entries if isinstance(entries, list) else ():
            reason = entry.get("reason") if isinstance(entry, dict) else None
            if isinstance(reason, str) and re.fullmatch(r"[A-Za-z_]{1,60}", reason):
                yield reason
    status = inner.get("status")
    if isinstance(status, str) and re.fullmatch(r"[A-Z_]{1,60}", status):
        yield status


def _key(reason: str) -> str:
    return reason.replace("_", "").lower()


def _wait(error: HttpRefused, inner: dict[str, Any]) -> float | None:
    """Return seconds to wait, from the header or Gmail's `Retry after 2026-11-22T10:00:00.000Z`."""
    try:
        return max(0.0, float(error.headers["retry-after"]))
    except (KeyError, ValueError):
        pass
    match = re.search(r"Retry after (\d{4}-\d\d-\d\dT[\d:.]+Z)", str(inner.get("message")))
    try:
        until = datetime.fromisoformat(match[1]) if match else None
    except ValueError:
        return None
    return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until else None
