"""Scripted failures of the local Slack, and the error answers of its Web API."""

import asyncio
import json
import math
from typing import Any, Literal, NamedTuple, SupportsIndex

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bot.local.slack.server import json_response
from standins.connections import drop_connection

_ERROR = "error:"

StreamsRefused = Literal["404", "unknown_method", "channel_type_not_supported"]
"""How a Slack refuses to stream: an HTTP status (an older server, a proxy), or an error code."""


class Fault(NamedTuple):
    """One scripted failure: the next call of `method` ("*" = of any) fails in this way."""

    method: str
    kind: str
    """"429", "500", "drop" (the connection, before anything is done), "lost" (all is done, then
    the connection drops), "slow" (answers late), "malformed" (cut JSON), "empty" (a page without
    messages, with the cursor of the next one), "missing_scope", and "error:<code>" for any error
    of Slack's.
    """
    seconds: float = 1.0
    """Retry-After of a 429, delay of "slow"."""


class LastingFaults(list[Fault]):
    """Faults that stay until a test removes them."""

    def pop(self, index: SupportsIndex = -1) -> Fault:
        return self[index]


def next_fault(faults: list[Fault], method: str) -> Fault | None:
    """Take and return the first fault for this method."""
    for number, fault in enumerate(faults):
        if fault.method in (method, "*"):
            return faults.pop(number)
    return None


async def apply_fault(fault: Fault, request: Request) -> Response | None:
    """Apply a fault before the call; return None when the call is answered after all."""
    match fault.kind:
        case "429":
            return rate_limit_response(fault.seconds)
        case "500":
            return Response("<html>Internal Server Error</html>", 500, media_type="text/html")
        case "malformed":
            return Response('{"ok": true, "mess', media_type="application/json")
        case "drop":
            await drop_connection(request.scope)
            return Response()
        case "lost" | "empty":
            return None
        case "slow":
            await asyncio.sleep(fault.seconds)
            return None
        case "missing_scope":
            return refusal("missing_scope", needed="some:scope", provided="identify")
        case kind if kind.startswith(_ERROR):
            return refusal(kind.removeprefix(_ERROR))
    raise ValueError(f"There is no fault {fault.kind!r}.")


async def drop_if_lost(fault: Fault | None, request: Request) -> bool:
    """Drop the connection if the answer is to be lost; return whether it was."""
    if fault is None or fault.kind != "lost":
        return False
    await drop_connection(request.scope)
    return True


def empty_if_asked(fault: Fault | None, response: Response) -> Response:
    """Return the answer, without its messages if the page is to be empty."""
    if fault is None or fault.kind != "empty":
        return response
    return json_response({**json.loads(bytes(response.body)), "messages": []})


def refusal(code: str, **extra: Any) -> Response:
    return json_response({"ok": False, "error": code, **extra})


def stream_refusal(how: StreamsRefused) -> Response:
    """Answer a call of a method that streams in a Slack without streams."""
    return Response("Not Found", 404, media_type="text/plain") if how == "404" else refusal(how)


def rate_limit_response(seconds: float) -> Response:
    headers = {"retry-after": str(math.ceil(seconds))}
    return JSONResponse({"ok": False, "error": "ratelimited"}, 429, headers)
