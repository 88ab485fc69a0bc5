"""Keep Socket Mode connections open, and replace each one when it ends.

The SDK's client reconnects by itself, from three places at once (leaving connections open), with
an address that is valid only once, and forever with a token that is refused; see python-slack-sdk,
socket_mode/aiohttp/__init__.py. So a connection here is a websocket of aiohttp, whose heartbeat
also detects that nothing is received any more.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.proxy_env_variable_loader import load_http_proxy_from_env
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest

from bot.background import in_background
from bot.errors import SetupError
from config.sections import SlackSettings
from scopes.pages.hosts import is_here
from scopes.slack_client import web_client

log = logging.getLogger(__name__)

LINGER_S = 3.0
"""Seconds left for the acks of received events when a connection is closed."""
CLOSE_S = 1.0
"""Seconds that the other side has to answer our close."""
MAX_FRAME = 16 * 1024 * 1024
"""Bytes of one envelope; a longer one would end the connection."""
STAGGER_S = 3.0
"""Seconds between the first connections, so that Slack does not refresh them all together."""
BACKOFF_S = (0.5, 30.0)
"""First and longest pause after a failed connection."""
PERMANENT_ERRORS = frozenset(
    """invalid_auth not_authed account_inactive token_revoked token_expired missing_scope
    not_allowed_token_type no_permission access_denied team_access_not_granted org_login_required
    enterprise_is_restricted forbidden_team""".split()
)
"""Errors of apps.connections.open that no retry can fix."""

EnvelopeHandler = Callable[[Any], Awaitable[BoltResponse]]
"""Answers an envelope's payload; a status of 200 acks it."""


class SocketRefused(SetupError):
    """Slack does not let this app token open a socket."""

    def __init__(self, code: str) -> None:
        self.reason = code
        super().__init__(
            "app_token",
            f"Slack refuses SLACK_APP_TOKEN: {code}.",
            "Make an app-level token (xapp-...) with connections:write and turn Socket Mode on.",
        )


class SocketConnection(AsyncBaseSocketModeClient):
    """One connection after Slack's hello: it reads and acks, and never reconnects."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, hear: EnvelopeHandler) -> None:
        self.logger = log
        self.ended = asyncio.Event()
        """Set when another connection must replace this one; it may still read."""
        self.why = ""
        """Why it ended: Slack's reason, `lost`, or `deaf` (nothing came, not even a pong)."""
        self._socket, self._handler = socket, hear
        self._answers: set[asyncio.Task[None]] = set()
        self._reader = asyncio.create_task(self._read())

    async def send_message(self, message: str) -> None:
        """Send an ack; if it is lost, Slack sends the event again, which does no harm."""
        try:
            await self._socket.send_str(message)
        except (aiohttp.ClientError, ConnectionError) as error:
            log.info("an ack was lost: %s", error)

    async def close(self) -> None:
        """Ack received events, close, and leave no task running."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=LINGER_S)
        try:
            await self._socket.close()
        finally:
            tasks = (self._reader, *self._answers)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type == aiohttp.WSMsgType.TEXT:
                    self._receive(message.data)
        finally:
            silent = isinstance(self._socket.exception(), aiohttp.ServerTimeoutError)
            self._end("deaf" if silent else "lost")

    def _receive(self, text: str) -> None:
        """Start to process an envelope at once; ack it even if its payload is malformed."""
        try:
            envelope = json.loads(text)
        except (ValueError, RecursionError):
            envelope = None
        if not isinstance(envelope, dict):
            log.warning("Slack sent %d characters that are no envelope", len(text))
        elif envelope.get("type") == "disconnect":
            self._end(str(envelope.get("reason") or "disconnect")[:40])
        else:
            payload = envelope.get("payload")
            whole = {**envelope, "payload": payload if isinstance(payload, dict) else {}}
            if request := SocketModeRequest.from_dict(whole):
                task = asyncio.create_task(self._answer(request))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)

    async def _answer(self, request: SocketModeRequest) -> None:
        started = time.time()
        response = await self._handler(request.payload)
        if response.status == 200:
            await send_async_response(self, request, response, started)

    def _end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()


class Sockets:
    """The connections of one app. `run` keeps them open."""

    def __init__(
        self,
        hear: EnvelopeHandler,
        app_token: str,
        settings: SlackSettings,
        *,
        base_url: str | None = None,
        on_gap: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_gap` is called when events may have been missed: at the first connect, and when a
        connection replaces another."""
        self.connected = asyncio.Event()
        """Set when the first connection has received its hello."""
        self.settings = settings
        self._handler, self._token, self._on_gap = hear, app_token, on_gap
        self._web = web_client(base_url, timeout=settings.timeout_s, retry_handlers=[])
        self._open: set[SocketConnection] = set()
        self._closing = asyncio.Event()

    @property
    def alive(self) -> int:
        """Connections that Slack may send events to, and that need no replacement."""
        return sum(not each.ended.is_set() for each in self._open)

    async def run(self) -> None:
        """Keep the connections open until `close` or cancellation. Raises SocketRefused."""
        async with aiohttp.ClientSession() as session:
            delays = (number * STAGGER_S for number in range(self.settings.sockets))
            try:
                async with in_background(self._keep(session, delay) for delay in delays):
                    await self._closing.wait()
            finally:
                await asyncio.gather(*(each.close() for each in self._open))
                self._open.clear()

    def close(self) -> None:
        """Close every connection and end `run`."""
        self._closing.set()

    async def _keep(self, session: aiohttp.ClientSession, delay: float) -> None:
        """Keep one connection open: the next one is open before an expiring one is closed."""
        await asyncio.sleep(delay)
        connection = await self._connect_until_hello(session)
        while True:
            await connection.ended.wait()
            log.info("a socket to Slack ended: %s", connection.why)
            old, connection = connection, await self._connect_until_hello(session)
            self._on_gap()
            await old.close()
            self._open.discard(old)

    async def _connect_until_hello(self, session: aiohttp.ClientSession) -> SocketConnection:
        """Return a connection that received its hello; retry until then. Raises SocketRefused."""
        pause = BACKOFF_S[0]
        while True:
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    socket = await self._connect(session)
            except SlackApiError as error:
                why, wait = _refusal(error.response)
                if why in PERMANENT_ERRORS:
                    raise SocketRefused(why) from error
            except (aiohttp.ClientError, OSError, TimeoutError, LookupError, ValueError) as error:
                why, wait = f"{type(error).__name__} {error}".strip(), 0.0
            else:
                connection = SocketConnection(socket, self._handler)
                self._open.add(connection)
                if not self.connected.is_set():
                    self.connected.set()
                    self._on_gap()
                return connection
            wait = wait or pause * random.uniform(0.7, 1.3)
            log.warning("no socket to Slack (%s); next try in %.1f s", why, wait)
            await asyncio.sleep(wait)
            pause = min(2 * pause, BACKOFF_S[1])

    async def _connect(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket, and wait for Slack's hello: nothing is delivered before it."""
        response = await self._web.apps_connections_open(app_token=self._token)
        url = str(response["url"])
        socket = await session.ws_connect(
            url,
            heartbeat=self.settings.deaf_after_s / 1.5,  # it waits half as long for a pong
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            proxy=None if is_here(url) else load_http_proxy_from_env(log),
            ssl=self._web.ssl or True,
            max_msg_size=MAX_FRAME,
        )
        try:
            hello = await socket.receive()
            greeting = json.loads(hello.data) if hello.type == aiohttp.WSMsgType.TEXT else {}
            if greeting.get("type") != "hello":
                raise ConnectionError("closed before hello")
        except BaseException:
            await socket.close()
            raise
        return socket


def _refusal(response: object) -> tuple[str, float]:
    """Return the reason of Slack's refusal, and the seconds that it asks to wait."""
    data = getattr(response, "data", None)  # a malformed answer has no data
    code = str((data.get("error") if isinstance(data, dict) else "") or "no proper answer")
    headers = getattr(response, "headers", None) or {}
    retry_after = headers.get("Retry-After") or headers.get("retry-after") or ""
    return code, float(retry_after) if str(retry_after).isdigit() else 0.0
