"""The thin client of Slack's Web API: reads that are repeated and paged, errors that are ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
    AsyncServerErrorRetryHandler,
)
from slack_sdk.web.async_client import AsyncWebClient

from config.settings import Slack
from scopes.tool import SourceFailed, readable

ABSENT = frozenset(
    {
        "channel_not_found",
        "not_in_channel",
        "thread_not_found",
        "message_not_found",
        "user_not_found",
        "list_not_found",
        "file_not_found",
        "no_permission",
        "access_denied",
    }
)
"""Errors that mean: for this caller it is not there. They are answered alike."""


class Absent(LookupError):
    """Slack says that it is not there, or not for this token."""


class SlackRefused(SourceFailed):
    """Slack refused a call, or its answer made no sense; `code` is Slack's word for why."""

    def __init__(self, method: str, code: str, needed: str) -> None:
        self.method, self.code, self.needed = method, code, needed
        scope = f" (the app needs the scope {needed})" if needed else ""
        super().__init__(f"Slack refused {method}: {code}{scope}")


@dataclass(frozen=True, slots=True)
class SlackClient:
    """One token's calls."""

    web: AsyncWebClient
    page_size: int
    """Objects asked for in one call of a paged method."""

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """One Web API call. Raises Absent, or SlackRefused for anything else that goes wrong."""
        try:
            response = await self.web.api_call(method, params=arguments)
        except SlackApiError as error:
            data = getattr(error.response, "data", None)  # of a garbled answer there is none
            body = data if isinstance(data, dict) else {}
            code = str(body.get("error") or "no proper answer")
            if code in ABSENT:
                raise Absent(code) from error
            raise SlackRefused(method, code, str(body.get("needed") or "")) from error
        return dict(readable(response.data)) if isinstance(response.data, dict) else {}

    async def pages(self, method: str, key: str, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        """Every object of a paged method, to the end, each once."""
        cursor, cursors, seen = "", {""}, set()
        while True:
            more = {"cursor": cursor} if cursor else {}
            body = await self.call(method, limit=self.page_size, **arguments, **more)
            for each in body.get(key) or ():
                mark = each.get("ts") or each.get("id") if isinstance(each, dict) else each
                if mark not in seen:  # some methods repeat a thread's root on each page
                    seen.add(mark)
                    yield each
            cursor = (body.get("response_metadata") or {}).get("next_cursor") or ""
            if cursor in cursors:
                return
            cursors.add(cursor)


def open_session(limits: Slack) -> aiohttp.ClientSession:
    """A session whose calls are given up in time: the SDK sets no limit to those of a given one."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limits.timeout_s))


def connect(
    session: aiohttp.ClientSession, token: str, base_url: str | None, limits: Slack
) -> SlackClient:
    """A client that waits out 429s and repeats reads that failed; writes must not go through it."""
    client = AsyncWebClient(
        token=token,
        timeout=limits.timeout_s,
        session=session,
        retry_handlers=[
            AsyncRateLimitErrorRetryHandler(max_retry_count=limits.retry_attempts),
            AsyncConnectionErrorRetryHandler(
                max_retry_count=limits.retry_attempts,
                error_types=[aiohttp.ServerConnectionError, aiohttp.ClientOSError, TimeoutError],
            ),
            AsyncServerErrorRetryHandler(max_retry_count=limits.retry_attempts),
        ],
    )
    if base_url:
        client.base_url = base_url if base_url.endswith("/") else base_url + "/"
    return SlackClient(client, limits.page_size)
