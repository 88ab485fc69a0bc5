"""An async interface of google-api-python-client: rate-limited, with safe retries and one token.

The library builds requests and aiohttp sends them, because the library's own transport blocks a
thread for each. This module enforces Gmail's quota of an account: a call waits for its turn, so
that refusals are rare.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from yarl import URL

from config.sections import GoogleSettings as Limits
from scopes.google.auth import GoogleAccess
from scopes.google.errors import ATTEMPT_ERRORS, GoogleFault, GoogleUnsure, HttpRefused, fault_of
from scopes.tool import readable

UNITS: Mapping[str, int] = {
    "getProfile": 1, "threads.list": 10, "threads.get": 40, "threads.modify": 10,
    "messages.get": 20, "messages.list": 5, "messages.send": 100, "messages.attachments.get": 5,
    "history.list": 2, "labels.list": 1, "labels.create": 5, "drafts.list": 5, "drafts.create": 10,
}  # fmt: skip
"""Price of each method in Gmail's quota (developers.google.com/gmail/api/reference/quota; those of
`get` are for projects made since May 2026). Other APIs have none."""
WINDOW_S = 61.0
"""Google counts units a minute. The extra second is for calls that reach it late."""


class Quota:
    """At most so many units in any minute, first come, first served.

    All remaining units may be used at once: fifty threads are a third of a minute's units.
    """

    def __init__(
        self,
        units_per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` and `sleep` are in seconds."""
        self.units_per_minute = units_per_minute
        self._clock, self._sleep = clock, sleep
        self._turn = asyncio.Lock()
        self._in_use: deque[tuple[float, int]] = deque()
        """Units in use: when they are free again, and how many."""
        self._used = 0
        self._held_until = 0.0

    async def take(self, units: int) -> None:
        """Wait until a call of so many units may start. One above the limit waits for all units."""
        units = min(units, self.units_per_minute)
        async with self._turn:
            while (wait := self._wait(units)) > 0:
                await self._sleep(wait)
            self._in_use.append((self._clock() + WINDOW_S, units))
            self._used += units

    def hold(self, seconds: float) -> None:
        """Start no call for so many seconds, because Google said to wait."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _wait(self, units: int) -> float:
        """Return the seconds until the units are free, or until the next check; 0 = now."""
        now = self._clock()
        while self._in_use and self._in_use[0][0] <= now:
            self._used -= self._in_use.popleft()[1]
        held = self._held_until - now
        if self._used + units <= self.units_per_minute:
            return max(held, 0.0)
        return max(held, self._in_use[0][0] - now)


RETRY_AFTER_CAP_S = 60.0
"""Maximum seconds that a call waits at Google's request; every limit is per minute."""

BACKOFF_CAP_S = 16.0
MOST_CALLS = 8
"""Calls of one client at a time."""


class GoogleClient:
    """One account's calls of Google's APIs."""

    def __init__(
        self,
        credentials: GoogleAccess,
        settings: Limits,
        endpoint: str | None = None,
        quota: Quota | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`endpoint` is the root of the called API; None = Google's. `quota` is the account's in
        this process; None = a quota of this object only."""
        self._access, self._settings, self._endpoint = credentials, settings, endpoint
        self._quota = quota or Quota(settings.units_per_minute)
        self._sleep = sleep
        self._slots = asyncio.Semaphore(MOST_CALLS)
        self._kept: aiohttp.ClientSession | None = None
        self._services: dict[str, Any] = {}

    def gmail(self) -> Any:
        """Return Gmail's `users()`; pass its requests to `call`, which adds the token."""
        return self.service("gmail", "v1").users()

    def service(self, name: str, version: str, path: str = "") -> Any:
        """Return an API of Google; pass its requests to `call`.

        `path` is its path below the endpoint, which the client library leaves out if an endpoint is
        set.
        """
        from google.api_core.client_options import ClientOptions
        from google.auth.credentials import AnonymousCredentials
        from googleapiclient.discovery import build  # type: ignore[import-untyped]

        if name not in self._services:
            root = self._endpoint and self._endpoint.rstrip("/")
            options = ClientOptions(api_endpoint=f"{root}/{path}") if root else None
            self._services[name] = build(
                name,
                version,
                credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
                client_options=options,
                cache_discovery=False,
                static_discovery=True,
            )
        return self._services[name]

    async def call(self, request: Any, *, repeat: bool = True) -> dict[str, Any]:
        """Return the answer to a request.

        `repeat` False: if it may have been done, it is not sent again, but raises GoogleUnsure.
        Raises GoogleAbsent, GoogleRevoked, GoogleBusy, or GoogleError for any other refusal.
        """
        attempt, spent = 1, ""
        units = UNITS.get(request.methodId.removeprefix("gmail.users."), 0)
        while True:
            token = ""
            try:
                async with self._slots:
                    await self._quota.take(units)
                    token = await self._access.token(spent)
                    return await self._send(request, token, repeat)
            except ATTEMPT_ERRORS as error:
                fault = fault_of(error, request.methodId)
            if token and fault.error.code == 401:
                if spent:
                    raise self._access.refusal()
                spent = token  # it has just expired: try at once with a new one
                continue
            if fault.retry and not (repeat or fault.undone):
                raise _unsure(request, fault)
            if not fault.retry or attempt >= self._settings.max_attempts:
                raise fault.error
            pause = _pause(fault, attempt)
            if fault.limited:
                self._quota.hold(pause)
            await self._sleep(pause)
            attempt += 1

    async def pages(self, resource: Any, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield every page of a list of an API resource."""
        request = resource.list(**arguments)
        while request is not None:
            page = await self.call(request)
            yield page
            request = resource.list_next(request, page)

    async def aclose(self) -> None:
        """Close the connections; calls in progress fail."""
        if self._kept:
            await self._kept.close()
        for service in self._services.values():
            service.close()

    async def _send(self, request: Any, token: str, repeat: bool) -> dict[str, Any]:
        if repeat:
            self._kept = self._kept or self._session()
            return await self._ask(self._kept, request, token)
        async with self._session() as session:  # an idle connection may be dead without notice
            return await self._ask(session, request, token)

    def _session(self) -> aiohttp.ClientSession:
        limit = aiohttp.ClientTimeout(total=self._settings.timeout_s)
        return aiohttp.ClientSession(timeout=limit, trust_env=self._endpoint is None)

    async def _ask(
        self, session: aiohttp.ClientSession, request: Any, token: str
    ) -> dict[str, Any]:
        """Send it once. Raises HttpRefused, errors of aiohttp, and ValueError for no JSON object.

        An API has no redirects, and the token is only for Google.
        """
        async with session.request(
            request.method,
            URL(request.uri, encoded=True),
            data=request.body,
            headers={**request.headers, "authorization": f"Bearer {token}"},
            allow_redirects=False,
        ) as response:
            content = await response.read()
        if response.status >= 300:
            raise HttpRefused(response.status, response.headers, content)
        body = json.loads(content or b"{}")
        if not isinstance(body, dict):
            raise ValueError("no JSON object")
        return dict(readable(body))


def _pause(fault: GoogleFault, attempt: int) -> float:
    """Return the seconds before the next attempt: as Google requests, or backoff with jitter."""
    if fault.wait is not None:
        return min(fault.wait, RETRY_AFTER_CAP_S) + random.uniform(0.0, 0.5)
    return min(BACKOFF_CAP_S, 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)


def _unsure(request: Any, fault: GoogleFault) -> GoogleUnsure:
    return GoogleUnsure(
        f"It is not known whether Google carried out a call ({request.methodId}): no proper "
        "answer came.",
        fault.error.code,
        fault.error.reason,
    )
