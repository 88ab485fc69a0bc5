"""Connections to tool servers (Model Context Protocol), opened on first use and kept.

The task that enters a client of the SDK must also leave it, so each connection has its own task,
which ends with it; the next request starts another one.
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
from functools import partial
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from scopes.cache import Cache, Clock, Key
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
LISTING: Final[Key] = ("tools",)
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
        clock: Clock = time.monotonic,
    ) -> None:
        self.name, self.timeout_s, self.trouble = name, timeout_s, ""
        self._way, self._clock, self._began = way, clock, clock()
        self._offers: tuple[Offer, ...] = ()
        self._listings = Cache(FRESH_S, clock)
        self._failures, self._not_before = 0, 0.0
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Client | None] = asyncio.Future()
        """The client that `_task` has opened; None = it failed."""
        self._ended, self._ended_by = asyncio.Event(), ""

    def begin(self) -> None:
        """Connect, in the background."""
        if self._task is None or self._task.done():
            self._opened, self._ended, self._ended_by = asyncio.Future(), asyncio.Event(), ""
            self._task = asyncio.create_task(self._serve(), name=f"tools of {self.name}")

    def patience_s(self) -> float:
        """Return the seconds to wait for it: more while it starts for the first time."""
        started = self._clock() - self._began
        is_tried = self.trouble or self._opened.done()
        return PATIENCE_S if is_tried else max(PATIENCE_S, START_S - started)

    async def offers(self, within_s: float) -> tuple[Offer, ...]:
        """Return what it offers, at most a minute old.

        Raises Unreachable, also after `within_s`: then it is still asked, and the next caller may
        get the answer.
        """
        await self.ready(within_s)
        return self._offers

    def still_offers(self, offer: Offer) -> bool:
        """Return whether its description of the tool is unchanged since the last listing."""
        return any(each.digest == offer.digest for each in self._offers)

    async def ready(self, within_s: float | None = None) -> Client:
        """Return the client of a server that has listed its tools a minute ago or later, within the
        time of a call if None. Raises Unreachable."""
        most = self.timeout_s if within_s is None else within_s
        try:
            async with asyncio.timeout(most):
                client = await self._connect()
                await self._listings.get(LISTING, partial(self._list, client))
        except TimeoutError:
            raise Unreachable(f"did not answer within {most:g} s") from None
        return client

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
            self._listings.forget()  # the next call lists again: is it alive?
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
                self._listings.forget()
            return ServerAnswer((error.message,), failed=True)
        return answer_of(found)

    async def aclose(self) -> None:
        """End it and its process."""
        await self._listings.aclose()
        self._ended.set()
        if self._task is None:
            return
        if self._opened.done():
            await asyncio.wait({self._task}, timeout=CLOSE_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    def _break(self) -> Unreachable:
        """Note that the connection has ended, and return the error for the current call."""
        self.mark_ended()
        return Unreachable(self._ended_by or "ended while it was at work", sent=True)

    def mark_ended(self, why: str = "") -> None:
        """Handle the end of its transport."""
        self._ended_by = self._ended_by or why
        self._ended.set()

    async def _connect(self) -> Client:
        """Return the client, a new one if the last connection has ended. Raises Unreachable."""
        if self._task and self._ended.is_set():
            await asyncio.wait({self._task})
        wait = self._not_before - self._clock()
        if wait > 0 and self._task and self._task.done():
            raise Unreachable(f"{self.trouble}; it is tried again in {wait:.0f} s")
        self.begin()
        client = await asyncio.shield(self._opened)
        if client is None:
            raise Unreachable(self.trouble)
        return client

    async def _serve(self) -> None:
        """Connect and list, then keep the connection until it is lost or closed."""
        opening = Client(
            self._way(self.mark_ended), message_handler=self._handle_message, cache=None
        )
        try:
            async with asyncio.timeout(CONNECT_S) as limit:
                async with opening as client:
                    self._offers = await _offers_of(client)
                    self._listings.put(LISTING, self._offers, FRESH_S)
                    limit.reschedule(None)
                    self.trouble, self._failures = "", 0
                    self._opened.set_result(client)
                    await self._ended.wait()
        except Exception as error:  # top-level boundary: errors of a server stay its own
            self._fail(error)
        finally:
            self._ended.set()
            if not self._opened.done():
                self._opened.set_result(None)

    async def _list(self, client: Client) -> tuple[Offer, ...]:
        """List again; this also shows whether the server is alive. Raises Unreachable."""
        try:
            self._offers = await _offers_of(client)
        except Exception as error:  # top-level boundary: errors of a server stay its own
            self._fail(error)
            self.mark_ended()
            raise Unreachable(self.trouble) from error
        return self._offers

    def _fail(self, error: Exception) -> None:
        """Note why it is away, log it once for all attempts, and pause before the next one."""
        if why(error) != self.trouble:
            log.warning("the tools of %s are away: %s", self.name, why(error))
        self.trouble = why(error)
        self._failures += 1
        pause = min(MAX_BACKOFF_S, 2.0 ** (self._failures - 1)) - 1
        self._not_before = self._clock() + pause

    async def _handle_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._listings.forget()  # list again at the next request, not at each notice


async def _offers_of(client: Client) -> tuple[Offer, ...]:
    found: dict[str, Offer] = {}
    cursor: str | None = None
    async with asyncio.timeout(LIST_S):
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if 0 < len(tool.name) <= MAX_NAME and tool.name.isprintable():
                    found.setdefault(tool.name, offer_of(tool))
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_LISTED:
                break
    return tuple(found.values())[:MAX_LISTED]
