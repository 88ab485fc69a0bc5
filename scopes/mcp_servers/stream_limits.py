"""Limit what an MCP server sends: count it before it is parsed, slow it down, filter it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ObjectSendStream
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

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
