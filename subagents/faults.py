"""Why a model call gave nothing usable, and whether to try again: by error type, not by status."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx2
from anthropic import APIConnectionError, APIStatusError

RETRIED = frozenset({"rate_limit_error", "overloaded_error", "api_error", "timeout_error"})
"""Error types worth another try. By type: an SSE `error` event carries status 200."""
RATE_LIMITED = frozenset({"rate_limit_error", "overloaded_error"})
MISCONFIGURED = frozenset({"authentication_error", "permission_error", "not_found_error"})
UNFINISHED = (APIConnectionError, httpx2.TransportError, json.JSONDecodeError, UnicodeDecodeError)
"""Ends of a call that leave open whether it was paid for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why one attempt gave nothing, what it may have cost, and whether to try again."""

    reason: str
    kind: str
    retry: bool
    paid: bool
    """It may have been paid for although nothing usable came back."""
    retry_after: float | None = None


class Unusable(Exception):
    """A reply that ended in its middle."""


def fault_of(error: Exception) -> Fault:
    """What an exception of the SDK, or of what lies below it, means for this call."""
    if isinstance(error, APIStatusError):
        kind = str(error.type or "")
        reason = f"{kind or 'error'} {error.status_code}: {_message(error)}"
        if kind in MISCONFIGURED or error.status_code in (401, 403, 404):
            return Fault(reason, "misconfigured", retry=False, paid=False)
        limited = kind in RATE_LIMITED or error.status_code in (429, 529)
        retry = limited or kind in RETRIED or error.status_code in (408, 409)
        retry = retry or error.status_code >= 500
        what = "rate_limit" if limited else "model_error"
        begun = error.status_code == 200  # an error in mid-stream: what came before it is paid
        return Fault(reason, what, retry, paid=begun, retry_after=_retry_after(error))
    if isinstance(error, (*UNFINISHED, Unusable)):
        name = "connection lost" if not isinstance(error, Unusable) else str(error)
        detail = "" if isinstance(error, Unusable) else f" ({type(error).__name__})"
        return Fault(f"{name}{detail}", "model_error", retry=True, paid=True)
    return Fault(f"{type(error).__name__}: {error}"[:300], "model_error", retry=False, paid=False)


def _message(error: APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    text = inner.get("message") if isinstance(inner, dict) else None
    return str(text or error.message)[:300]


def _retry_after(error: APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
