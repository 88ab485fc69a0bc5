"""What stands between Bolt and us: every request ends before Bolt looks into it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from slack_bolt.async_app import AsyncBoltRequest
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.internals import parse_body
from slack_bolt.response import BoltResponse


class Ear(AsyncMiddleware):
    """Ends every request here but the one with which Slack tries out an address."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Awaitable[BoltResponse]]) -> None:
        self._answer = answer

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,
        next: Callable[[], Awaitable[BoltResponse]],
    ) -> BoltResponse | None:
        if req.body.get("type") == "url_verification":
            return await next()
        return await self._answer(req.body)


def bolt_request(mode: str, headers: Mapping[str, str]) -> AsyncBoltRequest:
    """A request without a body: Bolt looks for users and channels in one, and trips over some."""
    return AsyncBoltRequest(body="", headers=dict(headers), mode=mode)


def is_checkable(headers: Mapping[str, str]) -> bool:
    """Whether a signature can be compared: the SDK raises where the headers are odd."""
    at, signature = (headers.get(f"x-slack-{n}", "") for n in ("request-timestamp", "signature"))
    return re.fullmatch("[0-9]{1,12}", at) is not None and signature.isascii()


def parsed_body(raw: str, content_type: str | None) -> dict[str, Any]:
    try:
        found = parse_body(raw, content_type)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
