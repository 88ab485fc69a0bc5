"""Socket Mode: several connections, each watched, and replaced when it is lost, old or deaf."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
from slack_sdk.errors import SlackApiError

from bot.errors import SetupError
from bot.hearing.connection import Connection, Hear
from config.settings import Slack
from scopes.slack_client import web_client

log = logging.getLogger(__name__)

STAGGER_S = 3.0
"""Between the first connections, so that Slack does not refresh them all at the same time."""
TURN_S = 8.0
"""Longest wait of a connection that Slack will close soon for another one's replacement."""
GAP_S = 0.5
"""Reconnects within this time are one gap."""
BACKOFF_S = (0.5, 30.0)
"""First and longest pause after a connection that could not be made."""
REFUSALS = frozenset(
    """invalid_auth not_authed account_inactive token_revoked token_expired missing_scope
    not_allowed_token_type no_permission access_denied team_access_not_granted org_login_required
    enterprise_is_restricted forbidden_team""".split()
)
"""Errors of apps.connections.open that waiting does not cure."""


class SocketRefused(SetupError):
    """Slack does not let this app token open a socket."""

    def __init__(self, code: str) -> None:
        self.reason = code
        super().__init__(
            "app_token",
            f"Slack refuses SLACK_APP_TOKEN: {code}.",
            "Make an app-level token (xapp-...) with connections:write and turn Socket Mode on.",
        )


class Sockets:
    """The connections of one app. `run` keeps them up; `healthy` and `counts` tell of them."""

    def __init__(
        self,
        hear: Hear,
        app_token: str,
        settings: Slack,
        *,
        base_url: str | None = None,
        on_gap: Callable[[], object] = lambda: None,
        stagger_s: float = STAGGER_S,
    ) -> None:
        """`on_gap` is called when something may have been missed: after every (re)connect."""
        self.counts: Counter[str] = Counter()
        """`connected`, `refused` (could not connect), and why they ended: `lost`, `deaf`, ..."""
        self.connected = asyncio.Event()
        """Set when the first connection has said hello."""
        self.settings = settings
        self._hear, self._token, self._on_gap = hear, app_token, on_gap
        self._stagger_s = stagger_s
        self._web = web_client(base_url, timeout=settings.timeout_s, retry_handlers=[])
        self._open: set[Connection] = set()
        self._turn = asyncio.Lock()
        self._gap: asyncio.TimerHandle | None = None
        self._closing = asyncio.Event()

    def healthy(self) -> bool:
        """Whether at least one connection lives."""
        return self.alive > 0

    @property
    def alive(self) -> int:
        """Connections that have said hello and gave a sign of life within `deaf_after_s`."""
        return sum(each.alive for each in self._open)

    async def run(self) -> None:
        """Keep the connections up until `close` or cancellation. Raises SocketRefused."""
        slots = [
            asyncio.ensure_future(self._keep(number * self._stagger_s))
            for number in range(self.settings.sockets)
        ]
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            done, _ = await asyncio.wait({*slots, closing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*slots, closing):
                task.cancel()
            await asyncio.gather(*slots, closing, return_exceptions=True)
            if self._gap:
                self._gap.cancel()

    def close(self) -> None:
        """Let `run` end, with every connection closed."""
        self._closing.set()

    async def _keep(self, delay: float) -> None:
        """One slot: a connection, and when it has ended the next one."""
        await asyncio.sleep(delay)
        connection = await self._connected()
        try:
            while True:
                planned = await self._watch(connection)
                async with self._in_turn(planned):
                    await self._drop(connection)
                    connection = await self._connected()
        finally:
            await self._drop(connection)

    async def _watch(self, connection: Connection) -> bool:
        """Returns when the connection is to be replaced; True = Slack leaves us time for it."""
        await connection.until_ended_or_deaf()
        why = connection.why or "deaf"
        self.counts[why] += 1
        log.info("a socket to Slack ended: %s", why)
        return why not in ("lost", "deaf")

    @asynccontextmanager
    async def _in_turn(self, planned: bool) -> AsyncIterator[None]:
        """Planned replacements come one after another, so that one connection always listens."""
        taken = False
        if planned:
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_S):
                    taken = await self._turn.acquire()
        try:
            yield
        finally:
            if taken:
                self._turn.release()

    async def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        await connection.close()

    async def _connected(self) -> Connection:
        """A connection that has said hello, however long that takes. Raises SocketRefused."""
        pause = BACKOFF_S[0]
        while True:
            try:
                connection = await self._connect()
            except _Later as later:
                self.counts["refused"] += 1
                wait = later.seconds or pause * random.uniform(0.7, 1.3)
                log.warning("no socket to Slack (%s); next try in %.1f s", later, wait)
                await asyncio.sleep(wait)
                pause = min(2 * pause, BACKOFF_S[1])
                continue
            self._open.add(connection)
            self.counts["connected"] += 1
            self.connected.set()
            self._note_gap()
            return connection

    async def _connect(self) -> Connection:
        """One try. Raises _Later or SocketRefused."""
        url = await self._address()
        connection = Connection(url, self._token, self._web, self.settings.deaf_after_s, self._hear)
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await connection.connect()
                await connection.greeted()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await connection.close()
            raise _Later(f"{type(error).__name__} {error}".strip()) from error
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _address(self) -> str:
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                response = await self._web.apps_connections_open(app_token=self._token)
            return str(response["url"])
        except SlackApiError as error:
            raise _refusal(error.response) from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            raise _Later(f"{type(error).__name__} {error}".strip()) from error

    def _note_gap(self) -> None:
        if self._gap is None:
            self._gap = asyncio.get_running_loop().call_later(GAP_S, self._tell)

    def _tell(self) -> None:
        self._gap = None
        self._on_gap()


class _Later(Exception):
    """No connection now; `seconds` is Slack's word for when, 0 = it did not say."""

    def __init__(self, why: str, seconds: float = 0.0) -> None:
        self.seconds = seconds
        super().__init__(why)


def _refusal(response: object) -> Exception:
    """What a refused apps.connections.open means; a garbled answer has no data."""
    data = getattr(response, "data", None)
    code = str(data.get("error") if isinstance(data, dict) else "no proper answer")
    if code in REFUSALS:
        return SocketRefused(code)
    headers = getattr(response, "headers", None) or {}
    told = headers.get("Retry-After") or headers.get("retry-after") or ""
    return _Later(code, float(told) if str(told).isdigit() else 0.0)
