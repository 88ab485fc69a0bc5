"""The pages for connecting a mailbox: plain HTML, no script, nothing stored by the browser."""

from __future__ import annotations

import base64
import hashlib
import html
import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from babel import negotiate_locale
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.errors import StoreError
from bot.mailbox.google_oauth import ConnectFailed
from bot.mailbox.oauth import BACK_PATH, START_PATH, Connecting, Owner, OwnerUnknown
from config.words import current, in_language, languages, phrase

log = logging.getLogger(__name__)

COOKIE_S = 1_200
"""Seconds that a browser is remembered: both halves of the connection."""
MOST_CHARS = 4_000
"""Maximum characters that a query may hold."""
_STYLE = (
    "body{font:17px/1.5 system-ui,sans-serif;max-width:34em;margin:3em auto;padding:0 1em}"
    "strong.code{font-size:2em;letter-spacing:.1em}button{font:inherit;padding:.5em 1.2em}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
Page = Callable[[Request], Awaitable[Response]]


def connect_routes(connecting: Connecting) -> list[Route]:
    """Return the routes from the link in Slack to Google and back."""
    pages = _Pages(connecting)
    return [
        Route(START_PATH, _with_errors(pages.start), methods=["GET"]),
        Route(START_PATH, _with_errors(pages.leave), methods=["POST"]),
        Route(BACK_PATH, _with_errors(pages.back), methods=["GET"]),
    ]


def _with_errors(page: Page) -> Page:
    """Answer in the language of the browser, with a plain page whatever goes wrong."""

    async def answer(request: Request) -> Response:
        with in_language(_language(request)):
            try:
                return await page(request)
            except OwnerUnknown:
                return _message_page("connect.slack_silent", phrase("connect.later"), 503)
            except StoreError as error:
                log.error("%s", error)
                return _message_page("connect.not_now", phrase("connect.later"), 503)
            except Exception:  # top-level boundary: one visit to a page
                log.exception("a page on which a mailbox is connected failed")
                return _message_page("connect.wrong", phrase("connect.later"), 500)

    return answer


def _language(request: Request) -> str | None:
    """Return the first language of the browser that has a catalogue."""
    asked = request.headers.get("accept-language", "")[:MOST_CHARS].split(",")
    codes = [each.partition(";")[0].strip() for each in asked]
    return negotiate_locale(filter(None, codes), languages(), sep="-")


class _Pages:
    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._secure = connecting.is_https
        self._cookie = "__Host-connect" if self._secure else "connect"

    async def start(self, request: Request) -> Response:
        """Show whom the mailbox will belong to, before anything is asked of Google."""
        owner = await self._connecting.owner(_query(request, "state"))
        if owner is None:
            return _expired_page()
        oauth = self._connecting.oauth
        page = _page(
            "connect.title",
            _paragraph(phrase("connect.reads"))
            + _owner(owner)
            + _paragraph(phrase("connect.not_you"))
            + f'<form method="post"><button>{html.escape(phrase("connect.go_on"))}</button></form>',
            form_action=f"'self' {_origin(oauth.auth_url)}" if oauth else "'none'",
        )
        if not self._browser(request):
            self._remember(page)
        return page

    async def leave(self, request: Request) -> Response:
        """Redirect to Google after the person has seen the first page."""
        browser, state = self._browser(request), _query(request, "state")
        url = await self._connecting.leave(state, browser) if browser else None
        if url is None:
            return _expired_page()
        return RedirectResponse(url, 303, _HEADERS)

    async def back(self, request: Request) -> Response:
        """Handle the return from Google: show the code that proves who used this browser."""
        browser, state = self._browser(request), _query(request, "state")
        asking = await self._connecting.finish_consent(state, browser) if browser else None
        if asking is None:
            return _expired_page()
        try:
            if error := _query(request, "error"):
                raise ConnectFailed(error)
            owner = await self._connecting.find_owner(asking)
            address, code = await self._connecting.fetch(state, asking, _query(request, "code"))
        except ConnectFailed as failed:
            return _message_page("connect.nothing", str(failed), 400)
        if not code:
            return _expired_page()
        return _page("connect.last_step", _last_step(owner, address, code))

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


def _last_step(owner: Owner, address: str, code: str) -> str:
    return (
        _paragraph(phrase("connect.not_yet"))
        + f"<p><strong>{html.escape(address)}</strong></p>"
        + _paragraph(phrase("connect.will_be_read"))
        + _owner(owner)
        + _paragraph(phrase("connect.type_code"))
        + f'<p><strong class="code">{code[:4]} {code[4:]}</strong></p>'
        + _paragraph(phrase("connect.keep_code"))
    )


def _owner(owner: Owner) -> str:
    name = f"<strong>{html.escape(owner.name)}</strong>"
    workspace = html.escape(owner.workspace)
    return f"<p>{phrase('connect.owner', name=name, workspace=workspace)}</p>"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _message_page(title: str, text: str, status: int) -> Response:
    return _page(title, _paragraph(text), status)


def _expired_page() -> Response:
    return _message_page("connect.is_expired", phrase("connect.expired"), 410)


def _page(title: str, body: str, status: int = 200, form_action: str = "'none'") -> HTMLResponse:
    """Return a page of this `body`, which is HTML, with headers that restrict the browser.

    `title` is the key of its heading.
    """
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    text = (
        f'<!doctype html><html lang="{current().language}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Assistant</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(phrase(title))}</h1>{body}</body></html>"
    )
    return HTMLResponse(text, status, {**_HEADERS, "content-security-policy": policy})


def _query(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:MOST_CHARS]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
