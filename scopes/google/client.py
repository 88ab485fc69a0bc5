"""The async face of google-api-python-client: paced, repeated where that is safe, one token.

Gmail's quota of an account is kept here: a call waits for its turn, so that a refusal is rare.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]

from config.sections import GoogleSettings as Limits
from scopes.google.auth import GoogleAccess
from scopes.google.auth import token_credentials as token_credentials
from scopes.google.errors import LOST, Garbled, GoogleFault, GoogleUnsure, fault_of
from scopes.google.errors import GoogleAbsent as GoogleAbsent
from scopes.google.errors import GoogleBusy as GoogleBusy
from scopes.google.errors import GoogleError as GoogleError
from scopes.google.errors import GoogleRevoked as GoogleRevoked
from scopes.google.http import Http, execute

WINDOW_S = 61.0
"""Google counts units a minute. The second more is for calls that reach it later than others."""


class Quota:
    """At most so many units in any minute, given out first come first served.

    What is left may be used at once: fifty threads are a third of a minute's units.
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
        self._given: deque[tuple[float, int]] = deque()
        """When they are free again, and how many."""
        self._used = 0
        self._held_until = 0.0

    async def take(self, units: int) -> None:
        """Wait until a call of so many units may be made. One above the limit waits for all."""
        units = min(units, self.units_per_minute)
        async with self._turn:
            while (wait := self._wait(units)) > 0:
                await self._sleep(wait)
            self._given.append((self._clock() + WINDOW_S, units))
            self._used += units

    def hold(self, seconds: float) -> None:
        """Google said to wait: nobody starts before it is over."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _wait(self, units: int) -> float:
        """Return the seconds until the units are free, or until it is worth to look again.

        0 = now.
        """
        now = self._clock()
        while self._given and self._given[0][0] <= now:
            self._used -= self._given.popleft()[1]
        held = self._held_until - now
        if self._used + units <= self.units_per_minute:
            return max(held, 0.0)
        return max(held, self._given[0][0] - now)


RETRY_AFTER_CAP_S = 60.0
"""Most seconds that a call waits because Google says so; every limit is one of a minute."""

BACKOFF_CAP_S = 16.0
CLOSE_S = 1.0


class GoogleClient:
    """One account's calls of Google's APIs. They run on threads: the client library is not async.

    No two threads share a connection, which httplib2 does not survive.
    """

    def __init__(
        self,
        credentials: GoogleAccess,
        settings: Limits,
        endpoint: str | None = None,
        quota: Quota | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`endpoint` is the root of the one API that is called; None = Google's. `quota` is the
        account's in this process; without one it is this object's alone."""
        self._access, self._settings, self._endpoint = credentials, settings, endpoint
        self._quota = quota or Quota(settings.units_per_minute)
        self._sleep = sleep
        self._slots = asyncio.Semaphore(settings.workers)
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="google")
        self._idle: list[Http] = []
        self._running: dict[Http, Future[dict[str, Any]]] = {}
        self._services: dict[str, Any] = {}

    def gmail(self) -> Any:
        """Gmail's `users()`: what it makes is handed to `call`, which adds the token."""
        return self.service("gmail", "v1").users()

    def service(self, name: str, version: str, path: str = "") -> Any:
        """Return an API of Google's; what it makes is handed to `call`.

        `path` is where it lies below the endpoint, which the client library leaves out where one is
        set.
        """
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

    async def call(self, request: Any, units: int, *, repeat: bool = True) -> dict[str, Any]:
        """Return the answer to a request; `units` is its price in Gmail's quota.

        `repeat` False: it is not sent again where it may have been done, but raises GoogleUnsure.
        Raises GoogleAbsent, GoogleRevoked, GoogleBusy, or GoogleError for any other refusal.
        """
        attempt = 1
        while True:
            outcome = await self._attempt(request, units, once=not repeat)
            if isinstance(outcome, dict):
                return outcome
            if outcome.retry and not (repeat or outcome.undone):
                raise _unsure(request, outcome)
            if not outcome.retry or attempt >= self._settings.max_attempts:
                raise outcome.error
            pause = _pause(outcome, attempt)
            if outcome.limited:
                self._quota.hold(pause)
            await self._sleep(pause)
            attempt += 1

    async def aclose(self) -> None:
        """End what is going on and close the connections."""
        running = dict(self._running)
        for line in running:
            line.hang_up()
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(wait, list(running.values()), CLOSE_S)
        for line in {*self._idle, *running}:
            line.drop()
        await self._access.aclose()
        for service in self._services.values():
            service.close()

    async def _attempt(self, request: Any, units: int, once: bool) -> dict[str, Any] | GoogleFault:
        """Make one attempt; a second at once when the token turns out to have ended."""
        spent: str | None = None
        async with self._slots:
            await self._quota.take(units)
            for _ in range(2):
                try:
                    token = await self._access.token(spent)
                except GoogleError as error:
                    return fault_of(error, request.methodId)
                outcome = await self._run(request, token, once)
                if isinstance(outcome, dict) or outcome.error.code != 401:
                    return outcome
                spent = token
        return GoogleFault(self._access.refused())

    async def _run(self, request: Any, token: str, once: bool) -> dict[str, Any] | GoogleFault:
        line = self._idle.pop() if self._idle else self._new_line()
        line.begin(fresh=once)
        future = self._running[line] = self._pool.submit(execute, request, token, line)
        future.add_done_callback(lambda _: self._let_go(line))
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await asyncio.wrap_future(future)
        except (HttpError, Garbled, *LOST) as error:
            fault = fault_of(error, request.methodId)
        finally:
            if not future.done():
                line.hang_up()  # its thread ends with an error that nobody waits for
        unsent = future.done() and not line.sent
        return GoogleFault(fault.error, fault.retry) if unsent else fault

    def _new_line(self) -> Http:
        return Http(self._settings.timeout_s, direct=self._endpoint is not None)

    def _let_go(self, line: Http) -> None:
        """Keep a connection for another call; its thread is done with it."""
        del self._running[line]
        self._idle.append(line)


def _pause(fault: GoogleFault, attempt: int) -> float:
    """Return the seconds before the next attempt: what Google asks, up to the cap, or backoff with
    jitter.
    """
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
