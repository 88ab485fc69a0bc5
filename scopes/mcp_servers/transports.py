"""Ways to a server of tools: a process of its own, or an address; bounded in what they take.

What a server sends is counted before it is parsed, slowed down and filtered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from scopes.programs import die_with_parent

MAX_MESSAGE = 2 << 20
"""Bytes of one message: a picture of 1.5 MB in base64. Of its text some 24 KB are shown. The SDK
writes a debug line of each event, 65 bytes for a byte where it holds signs of the worst kind."""
MAX_VALUES = 30_000
"""Values in one message, those in its strings not counted. What can be shown holds 12,000 at most,
a list of a hundred tools about as many. One that is wrong makes five errors of 250 bytes."""
TOO_MUCH = "sent more than can be taken as one answer: ask it for less"
PIECE = 1 << 16
SHARE = 0.25
"""Of the loop's time, that one server may take while it sends without end."""
AHEAD_S = 2.0
"""Seconds by which it may be ahead of that: some messages as large as they may be."""
BYTE_S, VALUE_S, LINE_S = 1e-8, 6e-6, 1e-4
"""Seconds of the loop for each, with all that is done with it; about twice what was measured."""
STRING = re.compile(rb'"(?:[^"\\\r\n]++|\\[^\r\n])*+"?')
"""No line ends in a string of JSON, so one that has no end ends there."""
CHANGED = "notifications/tools/list_changed"


class TooMuch(ValueError):
    """A message that is not parsed."""


class Measure:
    """The bytes received of one message, or of one stream of events."""

    def __init__(self) -> None:
        self._size, self._values, self._open = 0, 0, b""

    def add(self, piece: bytes) -> float:
        """Return the seconds that this piece will take. Raises TooMuch."""
        values, self._open = _values(self._open + piece)
        self._size += len(piece)
        self._values += values
        if self._size > MAX_MESSAGE or self._values > MAX_VALUES:
            raise TooMuch(TOO_MUCH)
        return len(piece) * BYTE_S + values * VALUE_S + piece.count(b"\n") * LINE_S


def _values(text: bytes) -> tuple[int, bytes]:
    """Return how many values of JSON it holds at most, and how its end begins if that is in a
    string.
    """
    bare, strings = STRING.subn(b"", text + b"|")
    values = max(strings // 2, sum(map(bare.count, (b"{", b"[", b","))))
    if bare.endswith(b"|"):
        return values, b""
    escaping = (len(text) - len(text.rstrip(b"\\"))) % 2
    return values, b'"' + b"\\" * escaping


def measured(line: bytes) -> float:
    """Return the seconds that a message will take. Raises TooMuch as soon as that is known."""
    measure = Measure()
    return sum(measure.add(line[at : at + PIECE]) for at in range(0, len(line), PIECE))


class ServerPace:
    """Of one server: how fast it is listened to. Who sends faster waits at its own pipe."""

    def __init__(self) -> None:
        self._due = 0.0

    async def spend(self, seconds: float) -> None:
        now = time.monotonic()
        self._due = max(self._due, now) + seconds / SHARE
        if (ahead := self._due - now) > AHEAD_S:
            await asyncio.sleep(ahead - AHEAD_S)


@asynccontextmanager
async def filter_stream(streams: TransportStreams) -> AsyncIterator[TransportStreams]:
    """The same without what nobody asked for. The SDK starts a task for each question of a server,
    and these heap up where it does not take the answers; here the next waits for the last."""
    came, leaving = streams
    arriving, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with arriving, arrived, anyio.create_task_group() as group:
        group.start_soon(_sift, came, arriving, leaving)
        yield arrived, leaving
        group.cancel_scope.cancel()


async def _sift(
    came: ReadStream[SessionMessage | Exception],
    arriving: ObjectSendStream[SessionMessage | Exception],
    leaving: WriteStream[SessionMessage],
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with arriving:
            async for each in came:
                message = each.message if isinstance(each, SessionMessage) else None
                if isinstance(message, JSONRPCRequest):
                    await leaving.send(SessionMessage(_reply(message)))
                elif not isinstance(message, JSONRPCNotification):
                    await arriving.send(each)
                elif message.method == CHANGED:  # what else it says of it may be anything
                    bare = JSONRPCNotification(jsonrpc="2.0", method=CHANGED)
                    await arriving.send(SessionMessage(bare))


def _reply(asked: JSONRPCRequest) -> JSONRPCMessage:
    if asked.method == "ping":
        return JSONRPCResponse(jsonrpc="2.0", id=asked.id, result={})
    refused = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
    return JSONRPCError(jsonrpc="2.0", id=asked.id, error=refused)


log = logging.getLogger(__name__)

LEAVE_S = 1.0
"""Seconds for a process to end by itself when its input ends, then again by SIGTERM."""
MAX_LOG = 1 << 20
"""Bytes of each of the two files that hold the last of what a server complains of."""
REQUEST_S, STREAM_S = 30.0, 300.0
"""Seconds for connecting and sending, and between two pieces of an answer."""
ANSWER_S = 2e-3
"""Seconds of the loop for each answer over HTTP, beside what it holds."""

Ended = Callable[[str], None]
"""Is told why a way has ended; empty = for a reason that helps nobody."""


@asynccontextmanager
async def process(
    command: Sequence[str], folder: Path, ended: Ended
) -> AsyncIterator[TransportStreams]:
    """A server that is started here and speaks in lines of JSON; it has its own process group, an
    environment without anything of ours, and this folder as its home. `ended` is called when it
    ends. Raises OSError. The SDK's own way has no bound, and tells of an end only who asks."""
    path = get_default_environment().get("PATH", os.defpath)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    server = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=folder, limit=MAX_MESSAGE,
        env={"PATH": path, "LANG": "C.UTF-8", "HOME": str(folder)}, start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )  # fmt: skip
    assert server.stdout, "it was started with pipes"
    assert server.stderr, "it was started with pipes"
    complaints = asyncio.create_task(_keep(server.stderr, folder))
    try:
        arriving, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        leaving, left = anyio.create_memory_object_stream[SessionMessage](0)
        async with arriving, arrived, leaving, left, anyio.create_task_group() as group:
            group.start_soon(_read, server, arriving, ended)
            group.start_soon(_write, server, left)
            async with filter_stream((arrived, leaving)) as streams:
                yield streams
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(server)
            with suppress(TimeoutError):  # what it left behind may hold the pipes
                await asyncio.wait_for(complaints, LEAVE_S)
                await asyncio.wait_for(_ignored(server.stdout), LEAVE_S)  # only its end closes it


async def _keep(said: asyncio.StreamReader, folder: Path) -> None:
    """Write down what a server complains of, within bounds. A full disk takes no server down."""
    try:
        await _written(said, folder)
    except OSError as error:
        log.warning("what a server of tools complains of is not kept: %s", error)
        await _ignored(said)


async def _ignored(said: asyncio.StreamReader) -> None:
    while await said.read(PIECE):
        pass


async def _written(said: asyncio.StreamReader, folder: Path) -> None:
    piece = b""
    while True:
        with _log_in(folder) as file:
            file.write(piece)
            while piece := await said.read(PIECE):
                if file.tell() + len(piece) > MAX_LOG:
                    break
                file.write(piece)
            else:
                return


def _log_in(folder: Path) -> BinaryIO:
    """Return a new file; what it held before goes into the second one."""
    path = folder / "stderr.log"
    if path.exists() and path.stat().st_size:
        path.replace(folder / "stderr.old.log")
    return path.open("wb", 0)


async def _read(
    server: Process,
    arriving: ObjectSendStream[SessionMessage | Exception],
    ended: Ended,
) -> None:
    assert server.stdout, "it was started with pipes"
    pace, why = ServerPace(), ""
    try:
        async with arriving:
            while line := await server.stdout.readline():
                await pace.spend(measured(line))
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    log.debug("a server of tools wrote what is no message")
                    continue
                await arriving.send(SessionMessage(message))
    except ValueError as error:  # TooMuch, or the line is too long
        log.warning("a server of tools is cut off: %s", error)
        why = TOO_MUCH
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        log.warning("a server of tools is cut off: %s", error)
    finally:
        ended(why)


async def _write(server: Process, left: ObjectReceiveStream[SessionMessage]) -> None:
    assert server.stdin, "it was started with pipes"
    with suppress(OSError, anyio.ClosedResourceError):
        async with left:
            async for sent in left:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                server.stdin.write(line.encode() + b"\n")
                await server.stdin.drain()


async def _end(server: Process) -> None:
    """End it and all that it started; nothing of its group is left."""
    assert server.stdin, "it was started with pipes"
    server.stdin.close()
    try:
        await _wait(server)
        _kill(server, signal.SIGTERM)
        await _wait(server)
    finally:
        _kill(server, signal.SIGKILL)
    await server.wait()


async def _wait(server: Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await server.wait()


def _kill(server: Process, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, sign)


class _Bounded(httpx2.AsyncHTTPTransport):
    """Takes no packed answers, none beyond a size, and listens to no more than was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._pace = ServerPace()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405, request=request)  # as from a server that has no such stream
        await self._pace.spend(ANSWER_S)
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("the server packs its answers unasked", request=request)
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        response.headers["content-type"] = kind  # in another charset the count would be wrong
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        events = kind.lower() == "text/event-stream"
        response.stream = _Counted(response.stream, self._pace, events)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, pace: ServerPace, events: bool) -> None:
        self._stream, self._pace = stream, pace
        self._refused = httpx2.SSEError if events else httpx2.StreamError
        """What the SDK takes for the end of one call, not of the connection."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        measure = Measure()
        async for piece in self._stream:
            try:
                seconds = measure.add(piece)
            except TooMuch as error:
                raise self._refused(str(error)) from None
            await self._pace.spend(seconds)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def address(
    url: str, token_file: Path | None, ended: Ended
) -> AsyncIterator[TransportStreams]:
    """A server behind an address; the token, read anew each time, is sent to it alone: redirects
    are followed only where they stay on its host. Raises OSError."""
    headers = {}
    if token_file:
        token = await asyncio.to_thread(token_file.read_text, "utf-8")
        headers["Authorization"] = f"Bearer {token.strip()}"
    client = httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(REQUEST_S, read=STREAM_S),
        transport=_Bounded(),
        trust_env=False,
    )
    try:
        async with (
            client,
            streamable_http_client(
                url, http_client=client, max_sse_event_size=MAX_MESSAGE
            ) as streams,
            filter_stream(streams) as kept,
        ):
            yield kept
    finally:
        ended("")
