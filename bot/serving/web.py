"""Serve HTTP: Slack's events if sent by HTTP, health, metrics, the pages to connect a mailbox."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from babel import negotiate_locale
from jinja2 import Template
from slack_bolt.adapter.starlette.async_handler import to_async_bolt_request, to_starlette_response
from slack_bolt.async_app import AsyncBoltRequest
from slack_bolt.oauth.async_callback_options import (
    AsyncCallbackOptions,
    AsyncFailureArgs,
    AsyncSuccessArgs,
)
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
from slack_bolt.response import BoltResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message

from bot.errors import SetupError, StoreError
from bot.mailbox.accounts import ConnectFailed
from bot.mailbox.oauth import BACK_PATH, START_PATH, MailboxConnector, OwnerUnknown
from bot.manifest import EVENTS_PATH, REDIRECT_PATH, bot_permissions
from bot.metrics import CONTENT_TYPE, Metrics
from bot.serving.observability import Health, HealthReport
from bot.slack.installations import Installations, InstallStates
from bot.storage.database import Database
from config.settings import Settings
from config.words import current, in_language, languages, phrase
from scopes.slack_client import web_client

log = logging.getLogger(__name__)

EventHandler = Callable[[Request], Awaitable[Response]]
"""For example the `handle` of Bolt's AsyncSlackRequestHandler."""

MOST_BYTES = 1_000_000
"""Maximum bytes of a request's body; Slack's own are far smaller."""
BODY_S = 5.0
FREE = "Set serve.host and serve.port to an address that is free."
_STOP_S = 5.0
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_NO_STORE = {"cache-control": "no-store"}


def web_app(
    health: Health,
    metrics: Metrics,
    events: EventHandler | None = None,
    body_s: float = BODY_S,
    pages: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the app: `/healthz`, `/readyz`, `/metrics`, `pages`, and Slack's events if enabled.

    Other paths get a JSON 404. `body_s`: seconds in which a body must arrive.
    """

    async def healthz(request: Request) -> Response:
        return _report(await health.report(live_only=True))

    async def readyz(request: Request) -> Response:
        return _report(await health.report())

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


def _with_limits(events: EventHandler, body_s: float) -> EventHandler:
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
async def serve_app(app: ASGIApp, host: str, port: int, hint: str = FREE) -> AsyncIterator[str]:
    """Serve the app from this event loop, and yield its URL; port 0 takes a free one.

    At the end, open requests get 5 s. Installs no signal handlers. Raises SetupError with this hint
    if the address is not available.
    """
    with await _listen(host, port, hint) as listener:
        server = _Server(app)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="web")
        try:
            while not server.started:
                if task.done():
                    task.result()  # raises the cause
                await asyncio.sleep(0.002)
            shown = _WILDCARDS.get(host, host)
            shown = f"[{shown}]" if ":" in shown else shown
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.stop()
            await task


async def _listen(host: str, port: int, hint: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, address = found[0]
        # asyncio disables Nagle's delay (40 ms per response) only if the protocol is named
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        what = f"The bot cannot listen on {host}, port {port}: {why}."
        raise SetupError("serve", what, hint) from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the command `serve` drains before it ends."""

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
        self._stopping = asyncio.Event()

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Skip uvicorn's pause of a tenth of a second if nobody is connected."""
        for server in self.servers:
            server.close()
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


COOKIE_S = 1_200
"""Lifetime of the browser's cookie in seconds, for both halves of the connection."""
MOST_CHARS = 4_000
"""Maximum characters of a query."""
_STYLE = (
    "body{font:17px/1.5 system-ui,sans-serif;max-width:34em;margin:3em auto;padding:0 1em}"
    "strong.code{font-size:2em;letter-spacing:.1em}button{font:inherit;padding:.5em 1.2em}"
)
_TEMPLATE = Template(Path(__file__).with_name("connect.html").read_text("utf-8"), autoescape=True)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
PageHandler = Callable[[Request], Awaitable[Response]]


def connect_routes(find: Callable[[str], MailboxConnector | None]) -> list[Route]:
    """Return the routes from the link in Slack to Google and back; `find` takes their state."""

    def of_state(page: Callable[[_Pages, Request], Awaitable[Response]]) -> PageHandler:
        async def answer(request: Request) -> Response:
            connecting = find(_query(request, "state"))
            return await page(_Pages(connecting), request) if connecting else _expiry_page()

        return _with_errors(answer)

    return [
        Route(START_PATH, of_state(_Pages.start), methods=["GET"]),
        Route(START_PATH, of_state(_Pages.leave), methods=["POST"]),
        Route(BACK_PATH, of_state(_Pages.back), methods=["GET"]),
    ]


def install_routes(
    settings: Settings, database: Database, on_install: Callable[[], object]
) -> list[Route]:
    """Return the routes on which a workspace installs the app: Bolt's own, with our pages.

    `on_install` is called after each installation. Raises SetupError if a required setting is
    missing.
    """
    secret, public = settings.secrets.slack_client_secret, settings.serve.public_url
    if not (secret and public):
        hint = "Set SLACK_CLIENT_SECRET and serve.public_url, or slack.client_id: null."
        raise SetupError("install", "No workspace can install the app.", hint)

    async def installed(args: AsyncSuccessArgs) -> BoltResponse:
        on_install()
        return _to_bolt(_message_page("install.done", phrase("install.next"), 200))

    oauth = AsyncOAuthSettings(
        client_id=settings.slack.client_id,
        client_secret=secret.get_secret_value(),
        scopes=[each.scope for each in bot_permissions(settings)],
        user_scopes=[],
        redirect_uri=public.rstrip("/") + REDIRECT_PATH,
        install_page_rendering_enabled=False,
        callback_options=AsyncCallbackOptions(success=installed, failure=_not_installed),
        installation_store=Installations(database),
        state_store=InstallStates(database),
        logger=log,
    )
    client = web_client(settings.endpoints.slack_api_url, timeout=settings.slack.timeout_s)
    flow = AsyncOAuthFlow(client=client, logger=log, settings=oauth)

    def page(handle: Callable[[AsyncBoltRequest], Awaitable[BoltResponse]]) -> PageHandler:
        async def answer(request: Request) -> Response:
            return to_starlette_response(await handle(to_async_bolt_request(request, b"")))

        return _with_errors(answer)

    return [
        Route(oauth.install_path, page(flow.handle_installation), methods=["GET"]),
        Route(oauth.redirect_uri_path, page(flow.handle_callback), methods=["GET"]),
    ]


async def _not_installed(args: AsyncFailureArgs) -> BoltResponse:
    log.warning("a workspace did not install the app: %s", args.reason)
    return _to_bolt(_message_page("connect.wrong", phrase("install.failed"), 400))


def _to_bolt(page: Response) -> BoltResponse:
    headers: dict[str, str | Sequence[str]] = {
        name: each for name, each in page.headers.items() if name != "content-length"
    }
    return BoltResponse(status=page.status_code, body=bytes(page.body).decode(), headers=headers)


def _with_errors(page: PageHandler) -> PageHandler:
    """Answer in the language of the browser, with a plain page for any error."""

    async def answer(request: Request) -> Response:
        with in_language(_language(request)):
            try:
                return await page(request)
            except (OwnerUnknown, StoreError) as error:
                log.error("%s", error)
                return _message_page("connect.wrong", phrase("connect.later"), 503)
            except Exception:  # top-level boundary: one visit to a page
                log.exception("a page on which a mailbox is connected failed")
                return _message_page("connect.wrong", phrase("connect.later"), 500)

    return answer


def _language(request: Request) -> str | None:
    """Return the first language of the browser that has a catalogue."""
    accepted = request.headers.get("accept-language", "")[:MOST_CHARS].split(",")
    codes = [each.partition(";")[0].strip() for each in accepted]
    return negotiate_locale(filter(None, codes), languages(), sep="-")


class _Pages:
    def __init__(self, connecting: MailboxConnector) -> None:
        self._connecting = connecting
        self._secure = connecting.is_https
        self._cookie = "__Host-connect" if self._secure else "connect"

    async def start(self, request: Request) -> Response:
        """Show the future owner of the mailbox, before any request to Google."""
        owner = await self._connecting.owner(_query(request, "state"))
        if owner is None:
            return _expiry_page()
        oauth = self._connecting.oauth
        action = f"'self' {_origin(oauth.auth_url)}" if oauth else "'none'"
        page = _page("connect.title", form_action=action, owner=owner)
        if not self._browser(request):
            self._remember(page)
        return page

    async def leave(self, request: Request) -> Response:
        """Redirect to Google after the person has seen the first page."""
        browser, state = self._browser(request), _query(request, "state")
        url = await self._connecting.leave(state, browser) if browser else None
        if url is None:
            return _expiry_page()
        return RedirectResponse(url, 303, _HEADERS)

    async def back(self, request: Request) -> Response:
        """Handle the return from Google: show the code that identifies the user of this browser."""
        browser, state = self._browser(request), _query(request, "state")
        asking = await self._connecting.states.spend(state, browser) if browser else None
        if asking is None:
            return _expiry_page()
        try:
            if error := _query(request, "error"):
                raise ConnectFailed(error)
            owner = await self._connecting.find_owner(asking)
            address, code = await self._connecting.fetch(state, asking, _query(request, "code"))
        except ConnectFailed as failed:
            return _message_page("connect.nothing", str(failed), 400)
        if not code:
            return _expiry_page()
        return _page("connect.last_step", owner=owner, address=address, code=code)

    def _browser(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")[:MOST_CHARS]

    def _remember(self, page: Response) -> None:
        page.set_cookie(
            self._cookie,
            secrets.token_urlsafe(32),
            max_age=COOKIE_S,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",  # the browser sends it on the way back from Google
        )


def _message_page(title: str, text: str, status: int) -> Response:
    return _page(title, status, text=text)


def _expiry_page() -> Response:
    return _message_page("connect.nothing", phrase("connect.expired"), 410)


def _page(
    title: str, status: int = 200, form_action: str = "'none'", **shown: object
) -> HTMLResponse:
    """Return a page with this content, and with headers that restrict the browser.

    `title` is the key of its heading.
    """
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    frame = {"language": current().language, "phrase": phrase, "style": _STYLE, "title": title}
    headers = {**_HEADERS, "content-security-policy": policy}
    return HTMLResponse(_TEMPLATE.render(**frame, **shown), status, headers)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _query(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:MOST_CHARS]
