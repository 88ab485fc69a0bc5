"""Errors between us and Google, in the sentences of `google.*`, and which calls to try again."""

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
"""Reading, labels, drafts and sending; not deleting for good (Gmail API, scopes)."""

RATE = frozenset({"ratelimitexceeded", "userratelimitexceeded", "quotaexceeded"})
DAILY = re.compile(r"daily|per ?day", re.IGNORECASE)
SCOPE = frozenset({"insufficientpermissions", "accesstokenscopeinsufficient"})
APIS: Mapping[str, str] = {
    "gmail": "Gmail",
    "bigquery": "BigQuery",
    "sheets": "Google Sheets",
}
"""How a method begins -> what the API is called."""
TELLS = "bigquery."
"""Methods whose refusals say what is wrong with a query, in words that a model can use."""
MAX_SAID = 400
"""Characters."""

SENTENCES: Mapping[str, str] = {
    "accessnotconfigured": "google.not_enabled",
    "servicedisabled": "google.not_enabled",
    "domainpolicy": "google.domain_policy",
    "failedprecondition": "google.no_gmail",
}
"""Google's word in small letters, for a refusal that is about the set-up -> key of what to do."""


class GoogleError(SourceFailed):
    """A call of Google failed; the text says what to do and holds nothing of what was asked.

    A `Text` is told in the language that is current where it is shown.
    """

    def __init__(self, text: Text | str, code: int = 0, reason: str = "", said: str = "") -> None:
        self.code = code
        """HTTP status; 0 = there was none."""
        self.reason = reason
        """Google's word for why, such as `insufficientPermissions`."""
        self.said = said
        """What Google says of a query, from the source and for the model alone; no log has it."""
        super().__init__(text)


class GoogleAbsent(GoogleError):
    """It does not exist, or no more (404)."""


class GoogleRevoked(GoogleError):
    """Google lets us in no longer."""


class GoogleBusy(GoogleError):
    """Google gave no proper answer however often it was asked."""


class GoogleUnsure(GoogleBusy):
    """A call that must not be repeated got no answer: it may have been done."""


class HttpRefused(Exception):
    """An answer with an error's status."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        """`headers` are found in any spelling."""
        self.status, self.headers, self.content = status, headers, content
        super().__init__(status)


FAILURES = (
    *(HttpRefused, GoogleError, aiohttp.ClientError, OSError),
    *(ValueError, RecursionError),
)
"""How an attempt fails: what Google answers, no token, a lost connection, an answer that is no
JSON."""


@dataclass(frozen=True, slots=True)
class GoogleFault:
    """Why one attempt gave nothing."""

    error: GoogleError
    """What it means when no other attempt follows."""
    retry: bool = False
    undone: bool = True
    """Google certainly did not do what it was asked."""
    limited: bool = False
    """We ask too fast, with everything that we do for this account."""
    wait: float | None = None
    """Seconds that Google asks us to wait; None = it said nothing."""


def fault_of(error: Exception, method: str) -> GoogleFault:
    """Return what one of `FAILURES` means for a call of this API method."""
    if isinstance(error, GoogleBusy):  # there was no token to be had
        return GoogleFault(error, retry=True)
    if isinstance(error, GoogleError):
        return GoogleFault(error)
    if isinstance(error, HttpRefused):
        return _refusal(error, method)
    lost = isinstance(error, (aiohttp.ClientError, OSError))
    key = "google.unreached" if lost else "google.garbled"
    busy = GoogleBusy(Text(key, {"method": method, "kind": type(error).__name__}))
    return GoogleFault(busy, True, undone=isinstance(error, aiohttp.ClientConnectorError))


def _refusal(error: HttpRefused, method: str) -> GoogleFault:
    code, inner = error.status, _error_in(error.content)
    reasons = list(dict.fromkeys(reasons_in(inner)))
    keys, reason = {_key(r) for r in reasons}, reasons[0] if reasons else ""
    said = f"{method}, {code} {reason}".rstrip()
    if code == 429 or (code == 403 and keys & RATE) or "dailylimitexceeded" in keys:
        return _rate_fault(error, inner, reasons, said)
    if code == 408 or code >= 500:
        busy = GoogleBusy(Text("google.no_answer", {"said": said}), code, reason)
        return GoogleFault(busy, retry=True, undone=False, wait=_wait(error, inner))
    told = " ".join(str(inner.get("message") or "").split())[:MAX_SAID]
    told = told if method.startswith(TELLS) else ""
    if code == 404:
        absent = Text("google.absent", {"said": said})
        return GoogleFault(GoogleAbsent(absent, code, reason, told))
    if code == 403 and keys & SCOPE:
        return GoogleFault(_scope_missing(error, method, reason))
    key = next((SENTENCES[k] for k in sorted(keys) if k in SENTENCES), "google.not_accepted")
    text = Text(key, {"api": _api(method), "said": said})
    return GoogleFault(GoogleError(text, code, reason, told))


def _api(method: str) -> str:
    return APIS.get(method.partition(".")[0], "Google")


def _rate_fault(
    error: HttpRefused, inner: dict[str, Any], reasons: list[str], said: str
) -> GoogleFault:
    code, reason = error.status, reasons[0] if reasons else ""
    values = {"api": _api(said), "said": said}
    if DAILY.search(" ".join((*reasons, str(inner.get("message")), str(inner.get("details"))))):
        return GoogleFault(GoogleBusy(Text("google.daily", values), code, reason))
    busy = GoogleBusy(Text("google.limited", values), code, reason)
    return GoogleFault(busy, retry=True, limited=True, wait=_wait(error, inner))


def _scope_missing(error: HttpRefused, method: str, reason: str) -> GoogleError:
    if not method.startswith("gmail."):
        values = {"api": _api(method), "method": method}
        return GoogleError(Text("google.no_scope", values), 403, reason)
    asked = str(error.headers.get("www-authenticate") or "")
    named = re.search(r'scope="?(https://www\.googleapis\.com/auth/[\w.]+)', asked)
    scope = named[1] if named else MODIFY
    return GoogleError(Text("google.no_mail_scope", {"scope": scope}), 403, reason)


def _error_in(content: bytes) -> dict[str, Any]:
    """Return the `error` of an answer, if it is made as Google makes them."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    inner = body.get("error") if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def reasons_in(inner: dict[str, Any]) -> Iterator[str]:
    """Yield Google's reasons, the most specific first; only words in the form of an API."""
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
    """Return seconds, from the header or Gmail's `Retry after 2026-11-22T10:00:00.000Z`."""
    try:
        return max(0.0, float(error.headers["retry-after"]))
    except (KeyError, ValueError):
        pass
    told = re.search(r"Retry after (\d{4}-\d\d-\d\dT[\d:.]+Z)", str(inner.get("message")))
    try:
        until = datetime.fromisoformat(told[1]) if told else None
    except ValueError:
        return None
    return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until else None
