"""Refusals of the local Google, and failures that a test scripts."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from bot.local.google.api import REASONS, Call, GoogleRefused, Reason

_QUOTA = (
    "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute per user' of service "
    "'gmail.googleapis.com' for consumer 'project_number:1'."
)
_SCOPES = "Request had insufficient authentication scopes."
_REFUSED, _SPENT, _DENIED = "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED"
REASONS.update(
    {
        "parseError": Reason(400, _REFUSED, "Parse Error"),
        "aborted": Reason(409, "ABORTED", "Label name exists or conflicts"),
        "failedPrecondition": Reason(400, "FAILED_PRECONDITION", "Precondition check failed."),
        "quotaExceeded": Reason(403, _SPENT, "Quota Exceeded"),
        "rateLimitExceeded": Reason(403, _SPENT, _QUOTA),
        "dailyLimitExceeded": Reason(403, _SPENT, "Daily Limit Exceeded"),
        "insufficientPermissions": Reason(403, _DENIED, _SCOPES),
        "forbidden": Reason(403, _DENIED, "The caller does not have permission."),
        "accessNotConfigured": Reason(403, _DENIED, "Google Sheets API has not been used."),
        "invalid": Reason(400, _REFUSED, "Invalid value."),
        "invalidQuery": Reason(400, _REFUSED, "Invalid query."),
        "bytesBilledLimitExceeded": Reason(400, _REFUSED, "Limit for bytes billed exceeded."),
        "stopped": Reason(400, _REFUSED, "Job execution was cancelled."),
        "accessDenied": Reason(403, _DENIED, "Access Denied."),
        "duplicate": Reason(409, "ALREADY_EXISTS", "Already Exists."),
        "backendError": Reason(500, "INTERNAL", "Internal error encountered."),
        "unavailable": Reason(503, "UNAVAILABLE", "The service is currently unavailable."),
    }
)
"""`rateLimitExceeded` also comes as a 429. From `invalid` to `duplicate` they are BigQuery's
(cloud.google.com/bigquery/docs/error-messages)."""
_STATUSES = {
    "400": "invalidArgument",
    "401": "authError",
    "403": "quotaExceeded",
    "404": "notFound",
    "409": "aborted",
    "500": "backendError",
    "503": "unavailable",
}


def invalid(message: str) -> None:
    raise GoogleRefused("invalidArgument", message)


def one_of(call: Call[Any], name: str, values: Sequence[str]) -> None:
    """Refuse a query parameter that is sent with another value than these."""
    value = call.text(name).lower()
    if value and value not in values:
        invalid(f"Invalid value at '{name}': {value!r}")


_DONE = ("late", "lost", "malformed")


class DroppedConnection(Exception):
    """The connection drops instead of an answer."""


class Fault(NamedTuple):
    """A scripted failure of the next `times` calls of a method."""

    method: str
    """`threads.get`, the whole `gmail.users.threads.get`, or "*" for any."""
    kind: str
    """A status (400, 401, 403, 404, 409, 429, 500, 503), a reason of google_errors.REASONS, "drop"
    (the connection, before anything is done), "lost" (all is done, then the connection drops),
    "slow" (is done and answered late), "late" (is done at once, answered late) or "malformed" (cut
    JSON)."""
    times: int = 1
    seconds: float = 0.0
    """Delay of all but a refusal; its Retry-After: 0 = none is sent, as Google mostly does."""


def next_fault(faults: list[Fault], method: str) -> Fault | None:
    """Take the first fault for this method, once."""
    for number, fault in enumerate(faults):
        if fault.method == "*" or f".{method}".endswith(f".{fault.method}"):
            if fault.times > 1:
                faults[number] = fault._replace(times=fault.times - 1)
            else:
                del faults[number]
            return fault
    return None


async def before(fault: Fault) -> None:
    """Refuse, drop or delay a call before it is carried out."""
    _refuse(fault)
    if fault.kind not in _DONE:
        await asyncio.sleep(fault.seconds)
    if fault.kind == "drop":
        raise DroppedConnection


async def after(fault: Fault, content: bytes) -> bytes:
    """Return the answer that leaves after the call is carried out."""
    if fault.kind in _DONE:
        await asyncio.sleep(fault.seconds)
    if fault.kind == "lost":
        raise DroppedConnection
    return content[: len(content) // 2] if fault.kind == "malformed" else content


def _refuse(fault: Fault) -> None:
    headers = {"retry-after": str(round(fault.seconds))} if fault.seconds else {}
    if fault.kind == "429":
        message = "User-rate limit exceeded."
        raise GoogleRefused("rateLimitExceeded", message, code=429, headers=headers)
    if reason := _STATUSES.get(fault.kind, fault.kind if fault.kind in REASONS else ""):
        raise GoogleRefused(reason, headers=headers)
    if fault.kind not in ("drop", "slow", *_DONE):
        raise ValueError(f"There is no fault {fault.kind!r}.")
