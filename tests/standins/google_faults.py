"""Failures of the local Google that a test asks for."""

import asyncio
from typing import NamedTuple

from bot.local.google.api import REASONS, GoogleRefused

_STATUSES = {
    "400": "invalidArgument",
    "401": "authError",
    "403": "quotaExceeded",
    "404": "notFound",
    "409": "aborted",
    "500": "backendError",
    "503": "unavailable",
}

_DONE = ("late", "lost", "malformed")


class Dropped(Exception):
    """The connection is to be cut instead of an answer."""


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
    """Take the first fault that is meant for this method, once."""
    for number, fault in enumerate(faults):
        if fault.method == "*" or f".{method}".endswith(f".{fault.method}"):
            if fault.times > 1:
                faults[number] = fault._replace(times=fault.times - 1)
            else:
                del faults[number]
            return fault
    return None


async def before(fault: Fault) -> None:
    """What a fault does before the call is carried out: it refuses it, drops it or delays it."""
    _refuse(fault)
    if fault.kind not in _DONE:
        await asyncio.sleep(fault.seconds)
    if fault.kind == "drop":
        raise Dropped


async def after(fault: Fault, content: bytes) -> bytes:
    """The answer as it leaves once the call is carried out."""
    if fault.kind in _DONE:
        await asyncio.sleep(fault.seconds)
    if fault.kind == "lost":
        raise Dropped
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
