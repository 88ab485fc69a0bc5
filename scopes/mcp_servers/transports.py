"""Transports to a tool server, a process or an address, with limits on what they accept.

The SDK's own transport to a process accepts lines of any length, and does not report its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import httpx2
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from scopes.programs import die_with_parent

log = logging.getLogger(__name__)

MAX_MESSAGE = 1 << 20
"""Bytes of one message. Of its text some 24 KB are shown."""
MAX_VALUES = 30_000
"""Values in one answer: for 500,000 wrong ones the SDK creates 1.1 GB of errors, in 15 s."""
TOO_MUCH = "sent more than can be taken as one answer: ask it for less"
TOOLS_CHANGED_METHOD = "notifications/tools/list_changed"
LEAVE_S = 1.0
"""Seconds for a process to end by itself when its input ends."""
MAX_LOG = 1 << 20
"""Maximum bytes of a server's log; the next process truncates a longer file."""
REQUEST_S, STREAM_S = 30.0, 300.0
"""Seconds for connecting and sending, and between two pieces of an answer."""

EndCallback = Callable[[str], None]
"""Called with the reason why a transport has ended; empty = no useful reason."""


class NoToken(OSError):
    """The file with the token for a server cannot be read; the text says why."""


@asynccontextmanager
async def filter_stream(streams: TransportStreams) -> AsyncIterator[TransportStreams]:
    """Drop unsolicited messages and answers with too many values. The SDK starts a task for each
    question of a server, and these pile up if the server does not read the answers; here each
    one waits for the one before."""
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
                    await leaving.send(SessionMessage(_refusal(message.id, METHOD_NOT_FOUND)))
                elif isinstance(message, JSONRPCNotification):
                    if message.method == TOOLS_CHANGED_METHOD:  # its parameters may be anything
                        bare = JSONRPCNotification(jsonrpc="2.0", method=TOOLS_CHANGED_METHOD)
                        await arriving.send(SessionMessage(bare))
                elif isinstance(message, JSONRPCResponse) and _is_large(message.result):
                    refused = _refusal(message.id, INTERNAL_ERROR, TOO_MUCH)
                    await arriving.send(SessionMessage(refused))
                else:
                    await arriving.send(each)


def _refusal(id: RequestId, code: int, why: str = "Method not found") -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=why))


def _is_large(value: Any) -> bool:
    """Return whether it holds more values than allowed."""
    todo, count = [value], 0
    while todo and count <= MAX_VALUES:
        each = todo.pop()
        inner = each.values() if isinstance(each, dict) else each
        if isinstance(each, dict | list):
            count += len(inner)
            todo += inner if count <= MAX_VALUES else ()
    return count > MAX_VALUES


@asynccontextmanager
async def process(
    command: Sequence[str], folder: Path, ended: EndCallback
) -> AsyncIterator[TransportStreams]:
    """Start a server that communicates in lines of JSON. It has its own process group, an
    environment without our variables, and this folder as its home. `ended` is called when it
    ends. Raises OSError."""
    path = get_default_environment().get("PATH", os.defpath)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    with _log_in(folder) as complaints:
        server = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=complaints, cwd=folder, limit=MAX_MESSAGE,
            env={"PATH": path, "LANG": "C.UTF-8", "HOME": str(folder)}, start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )  # fmt: skip
    try:
        arriving, arrived = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, receive = anyio.create_memory_object_stream[SessionMessage](0)
        async with arriving, arrived, send, receive, anyio.create_task_group() as group:
            group.start_soon(_read, server, arriving, ended)
            group.start_soon(_write, server, receive)
            async with filter_stream((arrived, send)) as streams:
                yield streams
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(server)


def _log_in(folder: Path) -> BinaryIO:
    path = folder / "stderr.log"
    is_long = path.exists() and path.stat().st_size > MAX_LOG
    return path.open("wb" if is_long else "ab", 0)


async def _read(
    server: Process, arriving: ObjectSendStream[SessionMessage | Exception], ended: EndCallback
) -> None:
    assert server.stdout, "it was started with pipes"
    why = ""
    try:
        async with arriving:
            while line := await server.stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    log.debug("a server of tools wrote what is no message")
                    continue
                await arriving.send(SessionMessage(message))
    except ValueError:
        why = TOO_MUCH
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.debug("a server of tools is not read any more", exc_info=True)
    finally:
        ended(why)


async def _write(server: Process, receive: ObjectReceiveStream[SessionMessage]) -> None:
    assert server.stdin, "it was started with pipes"
    with suppress(OSError, anyio.ClosedResourceError):
        async with receive:
            async for sent in receive:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                server.stdin.write(line.encode() + b"\n")
                await server.stdin.drain()


async def _end(server: Process) -> None:
    """End it and everything that it started, with its process group."""
    assert server.stdin, "it was started with pipes"
    assert server.stdout, "it was started with pipes"
    server.stdin.close()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(server.wait(), LEAVE_S)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, signal.SIGKILL)
    with suppress(
        TimeoutError
    ):  # a process outside the group may hold the pipe, whose end closes it
        async with asyncio.timeout(LEAVE_S):
            while await server.stdout.read(MAX_MESSAGE):
                pass
            await server.wait()


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Refuses compressed and oversized answers, and reads no more than was requested."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            return httpx2.Response(405, request=request)  # like a server without such a stream
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("the server packs its answers unasked", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        events = response.headers.get("content-type", "").startswith("text/event-stream")
        # for the SDK this ends one call, not the connection
        refused = httpx2.SSEError if events else httpx2.StreamError
        response.stream = _Counted(response.stream, refused(TOO_MUCH))
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, refused: Exception) -> None:
        self._stream, self._refused = stream, refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE:
                raise self._refused
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def address(
    url: str, token_file: Path | None, _: EndCallback
) -> AsyncIterator[TransportStreams]:
    """Connect to a server at an address. The token is read for each connection and sent to this
    host only: redirects to other hosts are not followed. Raises NoToken."""
    headers = {}
    if token_file:
        try:
            token = await asyncio.to_thread(token_file.read_text, "utf-8")
        except FileNotFoundError:
            raise NoToken("does not exist") from None
        except OSError as error:
            raise NoToken(f"cannot be read ({error.strerror})") from None
        headers["Authorization"] = f"Bearer {token.strip()}"
    client = httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(REQUEST_S, read=STREAM_S),
        transport=_BoundedTransport(),
        trust_env=False,
    )
    streams = streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE)
    async with client, streams as opened, filter_stream(opened) as kept:
        yield kept
