"""One Socket Mode connection, from the address to the close.

The SDK's client reconnects by itself, from three places at once (leaving connections behind), with
an address that counts only once, and for ever with a token that is refused. So here a client lives
for one connection, and whatever makes it want another one ends it; see python-slack-sdk,
socket_mode/aiohttp/__init__.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from slack_bolt.adapter.socket_mode.async_internals import send_async_response
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from scopes.pages.hosts import is_here

log = logging.getLogger(__name__)

LINGER_S = 3.0
"""Time left to the acks of what was received when a connection is closed."""
CLOSE_S = 1.0
"""Time that the other side has to answer our close."""
MAX_FRAME = 16 * 1024 * 1024
"""Bytes of one envelope; a longer one would end the connection."""

Hear = Callable[[Any], Awaitable[BoltResponse]]
"""Answers an envelope's payload; a status of 200 acks it."""


class Connection(SocketModeClient):
    """The SDK's client for one connection: it reads, acks and pings, but never reconnects."""

    def __init__(
        self, url: str, app_token: str, web: AsyncWebClient, deaf_after_s: float, hear: Hear
    ) -> None:
        super().__init__(app_token, log, web, ping_interval=deaf_after_s / 4)
        self.wss_uri = url
        if is_here(url):
            self.proxy = None
        self.ended = asyncio.Event()
        self.why = ""
        """Why it ended: Slack's reason, or `lost`."""
        self._hear = hear
        self._deaf_after_s = deaf_after_s
        self._hello = asyncio.Event()
        self._at_work: set[asyncio.Task[None]] = set()
        self._sign = time.monotonic()
        self.socket_mode_request_listeners.append(self._answer)

    @property
    def deaf(self) -> bool:
        """Whether nothing came, not even an answer to a ping, for as long as is set."""
        return time.monotonic() - self._sign >= self._deaf_after_s

    @property
    def alive(self) -> bool:
        return self._hello.is_set() and not self.ended.is_set() and not self.deaf

    async def connect(self) -> None:
        """Once. Raises what aiohttp raises."""
        self.current_session = await self.aiohttp_client_session.ws_connect(
            str(self.wss_uri),
            autoping=False,
            proxy=self.proxy,
            ssl=self.web_client.ssl or True,
            max_msg_size=MAX_FRAME,
        )
        self._sign = time.monotonic()
        self.message_receiver = asyncio.ensure_future(self.receive_messages())
        self.current_session_monitor = asyncio.ensure_future(self.monitor_current_session())

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        """Where the SDK would connect anew."""
        self._end("lost")

    async def greeted(self) -> None:
        """Returns at Slack's hello; before it nothing is delivered. Raises ConnectionError."""
        waits = [asyncio.ensure_future(e.wait()) for e in (self._hello, self.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if not self._hello.is_set():
            raise ConnectionError(f"closed before hello: {self.why}")

    async def until_ended_or_deaf(self) -> None:
        """Returns when another connection is to take this one's place."""
        while not self.ended.is_set():
            left = self._sign + self._deaf_after_s - time.monotonic()
            if left <= 0:
                # After a stall of our own loop its answers are still to be read.
                await asyncio.sleep(self._deaf_after_s / 20)
                if self.deaf:
                    return
                continue
            try:
                async with asyncio.timeout(left):
                    await self.ended.wait()
            except TimeoutError:
                continue

    async def monitor_current_session(self) -> None:
        """Ping, so that there is a sign of life from a connection on which nothing happens."""
        session = self.current_session
        assert session
        try:
            while not session.closed:
                await asyncio.sleep(self.ping_interval)
                await session.ping(b"assistant")
        except (aiohttp.ClientError, ConnectionError):
            self._end("lost")

    async def receive_messages(self) -> None:
        """Read until the end. Every frame, an answer to a ping too, is a sign of life."""
        session = self.current_session
        assert session
        kinds = aiohttp.WSMsgType
        try:
            while (message := await session.receive()).type not in (
                kinds.CLOSE,
                kinds.CLOSING,
                kinds.CLOSED,
                kinds.ERROR,
            ):
                self._sign = time.monotonic()
                if message.type == kinds.PING:
                    await session.pong(message.data)
                elif message.type == kinds.TEXT:
                    await self.enqueue_message(message.data)
        except (aiohttp.ClientError, ConnectionError) as error:
            log.info("a socket to Slack failed: %s", error)
        finally:
            self._end("lost")

    async def enqueue_message(self, message: str) -> None:
        """Begin with an envelope at once; an odd one is made one that can be acked."""
        try:
            said = json.loads(message)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            log.warning("Slack sent %d characters that are no envelope", len(message))
        elif said.get("type") == "hello":
            self._hello.set()
        elif said.get("type") == "disconnect":
            self._end(str(said.get("reason") or "disconnect")[:40])
        else:
            if not isinstance(said.get("payload"), dict):
                said["payload"] = {}
            task = asyncio.ensure_future(self.run_message_listeners(said, message))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    async def send_message(self, message: str) -> None:
        """Send an ack; one that is lost makes Slack send the event again, which does no harm."""
        try:
            assert self.current_session
            await self.current_session.send_str(message)
        except (aiohttp.ClientError, ConnectionError) as error:
            log.info("an ack was lost: %s", error)

    async def close(self) -> None:
        """Ack what was received, close, and leave no task behind."""
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=LINGER_S)
        self.closed = True
        tasks = [self.message_processor, self.current_session_monitor, self.message_receiver]
        owned = [task for task in (*tasks, *self._at_work) if task]
        try:
            async with asyncio.timeout(CLOSE_S):
                if self.current_session:
                    await self.current_session.close()
        except TimeoutError:
            pass  # the session takes the connection down
        finally:
            for task in owned:
                task.cancel()
            await asyncio.gather(*owned, return_exceptions=True)
            await self.aiohttp_client_session.close()

    async def _answer(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        started = time.time()
        response = await self._hear(request.payload)
        if response.status == 200:
            await send_async_response(self, request, response, started)

    def _end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()
