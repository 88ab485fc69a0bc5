"""Connections to tool servers (Model Context Protocol), opened on first use and kept.

The task that enters a client of the SDK must also leave it, so each connection has its own task. It
connects, lists, watches the connection, and reconnects when it is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from scopes.mcp_servers.transports import TOO_MUCH, NoToken

log = logging.getLogger(__name__)

FRESH_S = 60.0
"""Seconds for which a listing is valid."""
CONNECT_S, LIST_S = 20.0, 10.0
"""Seconds for connecting, and for listing: a server that does not list in time counts as dead."""
CLOSE_S = 5.0
PATIENCE_S, START_S = 2.0, 10.0
"""Seconds that a run waits for a server at its beginning, and after the start of this process."""
MAX_BACKOFF_S = 60.0
MAX_PAGES, MAX_LISTED = 20, 1_000
"""Maximum pages and tools of one listing; the rest is ignored."""
DOUBTFUL = (types.INVALID_REQUEST, types.INTERNAL_ERROR)
"""Codes of errors that may mean that the connection is lost, such as a session that has ended."""
TRANSPORT_ERRORS = (OSError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError)

TransportOpener = Callable[[Callable[[str], None]], AbstractAsyncContextManager[TransportStreams]]
"""Opens the transport to a server; calls its argument when the transport has ended, with the reason
if it is useful."""


MAX_SCHEMA = 50_000
"""Maximum characters of a description, and of a schema, that are kept."""
MAX_NAME = 128
"""Characters of a tool's name, as the protocol allows."""
CLOSED_MESSAGE = "Connection closed"
"""The SDK's message for a closed connection; a server may use the same code for anything."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any] | None
    """None = too large to be kept."""
    digest: str
    """Digest of its whole description, including hints: they are not trusted, but must not change
    unnoticed."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The result of a call."""

    texts: tuple[str, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Kind -> number of pieces that are no text: images, sound, links."""
    failed: bool = False


def offer_of(tool: types.Tool) -> Offer:
    hints = tool.annotations.model_dump(exclude_none=True) if tool.annotations else {}
    description, schema = tool.description or "", json.dumps(tool.input_schema, sort_keys=True)
    text = json.dumps([tool.name, description, schema, hints], sort_keys=True)
    kept = tool.input_schema if len(schema) <= MAX_SCHEMA else None
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Offer(tool.name, description[:MAX_SCHEMA], kept, digest)


def answer_of(found: types.CallToolResult) -> ServerAnswer:
    texts, left_out = list[str](), Counter[str]()
    for piece in found.content:
        if isinstance(piece, types.TextContent):
            texts.append(piece.text)
        elif isinstance(piece, types.EmbeddedResource) and isinstance(
            piece.resource, types.TextResourceContents
        ):
            texts.append(piece.resource.text)
        else:
            left_out[piece.type.replace("_", " ")] += 1
    if not texts and found.structured_content is not None:
        texts.append(json.dumps(found.structured_content, ensure_ascii=False))
    return ServerAnswer(tuple(texts), left_out, bool(found.is_error))


def why(error: BaseException) -> str:
    """Return why a server cannot be used, in our own words: the server's are not trusted."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case NoToken():
            return f"cannot be asked: its token_file {error}"
        case FileNotFoundError() | PermissionError():
            return f"cannot be started: {error.strerror}: {error.filename}"
        case TimeoutError():
            return "does not answer in time"
        case httpx2.ConnectError():
            return "cannot be reached"
        case httpx2.HTTPStatusError():
            return f"refuses us (HTTP {error.response.status_code})"
        case MCPError() if _is_closed(error):
            return "ended before it answered"
        case MCPError():
            return f"refuses us (error {error.code})"
    return f"does not follow the protocol ({type(error).__name__})"


class Unreachable(Exception):
    """A server cannot be reached; `sent` = it may have received the call and acted."""

    def __init__(self, why: str, *, sent: bool = False) -> None:
        self.sent = sent
        super().__init__(why)


def _is_closed(error: MCPError) -> bool:
    return error.code == types.CONNECTION_CLOSED and error.message == CLOSED_MESSAGE


class Connection:
    """One server. `trouble` says why it cannot be reached; empty = it can, or was not tried."""

    def __init__(
        self,
        name: str,
        way: TransportOpener,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.timeout_s, self.trouble = name, timeout_s, ""
        self._way, self._clock = way, clock
        self._client: Client | None = None
        self._offers: tuple[Offer, ...] = ()
        self._listed_at = -FRESH_S
        self._failures, self._not_before = 0, 0.0
        self._owner: asyncio.Task[None] | None = None
        self._wanted, self._stir, self._settled = (asyncio.Event() for _ in range(3))
        self._lost = self._closing = False
        self._ended_by = ""
        self._began = clock()

    def begin(self) -> None:
        """Connect, in the background."""
        if self._owner is None or self._owner.done():
            self._owner = asyncio.create_task(self._own(), name=f"tools of {self.name}")
        self._wanted.set()

    def patience_s(self) -> float:
        """Return the seconds to wait for it: more while it starts for the first time."""
        started = self._clock() - self._began
        return PATIENCE_S if self.trouble or self._client else max(PATIENCE_S, START_S - started)

    async def offers(self, within_s: float) -> tuple[Offer, ...]:
        """Return what it offers, at most a minute old.

        Raises Unreachable, also after `within_s`: then the owner continues, and the next caller may
        get it.
        """
        if self._client is None or self._clock() - self._listed_at >= FRESH_S:
            await self._ask(within_s)
        return self._offers

    def still_offers(self, offer: Offer) -> bool:
        """Return whether its description of the tool is unchanged since the last listing."""
        return any(each.digest == offer.digest for each in self._offers)

    async def ready(self) -> Client:
        """Return the connected client. Raises Unreachable."""
        if self._client is None:
            await self._ask(self.timeout_s)
        assert self._client, "it was asked for"
        return self._client

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ServerAnswer:
        """Call a tool, once: nothing is repeated. Raises Unreachable."""
        client = await self.ready()
        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        request = types.CallToolRequest(params=params)
        try:
            # `call_tool` would check the output by the server's own schema, patterns included
            async with asyncio.timeout(self.timeout_s):
                found = await client.session.send_request(request, types.CallToolResult)
        except TimeoutError:
            self._stir.set()
            raise Unreachable(f"gave no answer within {self.timeout_s:g} s", sent=True) from None
        except ValidationError:
            raise Unreachable("answered with what is no result", sent=True) from None
        except TRANSPORT_ERRORS as error:
            raise self._break() from error
        except MCPError as error:
            if TOO_MUCH in error.message:
                raise Unreachable(TOO_MUCH, sent=True) from None
            if _is_closed(error):
                raise self._break() from None
            if error.code in DOUBTFUL:
                self._stir.set()
            return ServerAnswer((error.message,), failed=True)
        return answer_of(found)

    async def aclose(self) -> None:
        """End it and its process."""
        self._closing = True
        self._stir.set()
        self._wanted.set()
        if self._owner is None:
            return
        if self._client:
            await asyncio.wait({self._owner}, timeout=CLOSE_S)
        self._owner.cancel()
        await asyncio.wait({self._owner})

    def _break(self) -> Unreachable:
        """Note that the connection has ended, and return the error for the current call."""
        self.mark_ended()
        return Unreachable(self._ended_by or "ended while it was at work", sent=True)

    def mark_ended(self, why: str = "") -> None:
        """Handle the end of its transport."""
        self._lost, self._client = True, None
        self._ended_by = self._ended_by or why
        self._stir.set()

    async def _ask(self, within_s: float) -> None:
        """Make the owner connect, or list again, and wait for it."""
        wait = self._not_before - self._clock()
        if self._client is None and wait > 0:
            raise Unreachable(f"{self.trouble}; it is tried again in {wait:.0f} s")
        settled = self._settled
        self.begin()
        if self._client:  # otherwise its first list is on the way
            self._stir.set()
        try:
            async with asyncio.timeout(within_s):
                await settled.wait()
        except TimeoutError:
            raise Unreachable(f"did not answer within {within_s:g} s") from None
        if self._client is None:
            raise Unreachable(self.trouble)

    def _settle(self, trouble: str) -> None:
        """Pass the state to all who wait."""
        self.trouble = trouble
        self._settled.set()
        self._settled = asyncio.Event()

    async def _own(self) -> None:
        while not self._closing:
            await self._wanted.wait()
            if self._closing:
                return
            try:
                await self._serve()
                self.trouble = "ended"  # waiters now wait for the next connection
            except Exception as error:  # top-level boundary: errors of a server stay its own
                if why(error) != self.trouble:  # log it once for all attempts
                    log.warning("the tools of %s are away: %s", self.name, why(error))
                self._wanted.clear()
                self._failures += 1
                pause = min(MAX_BACKOFF_S, 2.0 ** (self._failures - 1)) - 1
                self._not_before = self._clock() + pause
                self._client = None
                self._settle(why(error))
            finally:
                self._client = None

    async def _serve(self) -> None:
        """Connect, list, and list again when asked, until the connection is lost or closed."""
        self._lost, self._ended_by = False, ""
        self._stir.clear()
        opening = Client(
            self._way(self.mark_ended), message_handler=self._handle_message, cache=None
        )
        async with asyncio.timeout(CONNECT_S) as limit:
            async with opening as client:
                await self._look(client)
                limit.reschedule(None)
                while not (self._lost or self._closing):
                    await self._stir.wait()
                    self._stir.clear()
                    if not (self._lost or self._closing):
                        await self._look(client)

    async def _look(self, client: Client) -> None:
        """List again; this also shows whether the server is alive."""
        async with asyncio.timeout(LIST_S):
            self._offers = await self._list(client)
        if self._lost:
            return
        self._listed_at, self._client, self._failures = self._clock(), client, 0
        self._wanted.clear()
        self._settle("")

    async def _list(self, client: Client) -> tuple[Offer, ...]:
        found: dict[str, Offer] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if 0 < len(tool.name) <= MAX_NAME and tool.name.isprintable():
                    found.setdefault(tool.name, offer_of(tool))
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_LISTED:
                break
        return tuple(found.values())[:MAX_LISTED]

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._listed_at = -FRESH_S  # list again at the next request, not at each notice
