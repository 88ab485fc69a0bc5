"""Serve HTTP: Slack's events if they come by HTTP, health, and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message

from bot.errors import SetupError
from bot.local.listeners import close_listeners
from bot.metrics import CONTENT_TYPE, Metrics
from bot.serving.observability import Health, HealthReport

log = logging.getLogger(__name__)

Events = Callable[[Request], Awaitable[Response]]
"""For example the `handle` of Bolt's AsyncSlackRequestHandler."""

EVENTS_PATH = "/slack/events"
MOST_BYTES = 1_000_000
"""Bytes of a request's body; Slack's own are far smaller."""
BODY_S = 5.0
_STOP_S = 5.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_NO_STORE = {"cache-control": "no-store"}


def web_app(
    health: Health,
    metrics: Metrics,
    events: Events | None = None,
    body_s: float = BODY_S,
    pages: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the app: `/healthz`, `/readyz`, `/metrics`, `pages`, and Slack's events if enabled.

    Anything else gets a JSON 404. `body_s`: seconds in which a body must arrive.
    """

    async def healthz(request: Request) -> Response:
        return _report(await health.alive())

    async def readyz(request: Request) -> Response:
        return _report(await health.ready())

    async def numbers(request: Request) -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    routes: list[BaseRoute] = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", numbers),
        *pages,
    ]
    if events:
        routes.append(Route(EVENTS_PATH, _with_limits(events, body_s), methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refusal})
    app.router.redirect_slashes = False
    return app


def _report(report: HealthReport) -> Response:
    return JSONResponse(report.to_json(), 200 if report.ok else 503, _NO_STORE)


def _with_limits(events: Events, body_s: float) -> Events:
    """Read the body with limits on size and time, and answer 500 for unexpected errors.

    Slack resends an event that did not get a 200.
    """

    async def handle(request: Request) -> Response:
        try:
            body = await _body(request, body_s)
        except ClientDisconnect:
            return JSONResponse({"error": "the body was not sent whole"}, 400)

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            return await events(Request(request.scope, receive))
        except Exception:
            log.exception("an event that came by HTTP could not be taken")
            return JSONResponse({"error": "the event could not be taken"}, 500)

    return handle


async def _body(request: Request, within_s: float) -> bytes:
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        raise HTTPException(413, f"a body may have {MOST_BYTES:,} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise HTTPException(413, f"a body may have {MOST_BYTES:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {within_s:g} s") from None
    return bytes(body)


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = {"connection": "close"} if error.status_code in (408, 413) else None
    return JSONResponse({"error": error.detail.lower()}, error.status_code, headers)


@asynccontextmanager
async def serve_app(app: ASGIApp, host: str, port: int) -> AsyncIterator[str]:
    """Serve the app from this event loop, and yield its URL; port 0 takes a free one.

    At the end, open requests get 5 s. Installs no signal handlers. Raises SetupError if the address
    is not available.
    """
    with await _listen(host, port) as listener:
        server = _Server(app)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="web")
        try:
            await server.wait_started(task)
            shown = _WILDCARDS.get(host, host)
            shown = f"[{shown}]" if ":" in shown else shown
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.stop()
            await task


async def _listen(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        # asyncio disables Nagle's delay (40 ms a response) only if the protocol is named
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise _unusable(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise _unusable(host, port, error) from error
    return listener


def _unusable(host: str, port: int, error: OSError) -> SetupError:
    why = (error.strerror or str(error)).lower()
    what = f"The bot cannot listen on {host}, port {port}: {why}."
    return SetupError("serve", what, "Set serve.host and serve.port to an address that is free.")


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, started and stopped by events, not by polling."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=int(_STOP_S),
        )
        super().__init__(config)
        self._ready, self._stopping = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Skip uvicorn's pause of a tenth of a second if nobody is connected."""
        await close_listeners(self.servers)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)

    async def wait_started(self, serving: asyncio.Task[None]) -> None:
        """Return when requests are accepted; raise the error if startup failed."""
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if serving.done():
            serving.result()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave SIGTERM to the serve command, which drains first."""
        yield
