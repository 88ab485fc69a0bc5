"""The pages on which a mailbox is connected: plain HTML, no script, nothing kept by the browser."""

from __future__ import annotations

import base64
import hashlib
import html
import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.accounts.connecting import BACK_PATH, START_PATH, Connecting, Owner, OwnerUnknown
from bot.accounts.google_oauth import ConnectFailed
from bot.errors import StoreError

log = logging.getLogger(__name__)

COOKIE_S = 1_200
"""Seconds that a browser is remembered: both halves of the way."""
MOST_CHARS = 4_000
"""Of what a query may hold."""
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
BEGIN_ANEW = (
    "This link is over: it counts for ten minutes, once, and in the browser that it was opened in. "
    "Open the Home tab of the assistant in Slack and press Connect Gmail."
)
LATER = "This cannot be done just now. Try it again in a few minutes."

Page = Callable[[Request], Awaitable[Response]]


def connect_routes(connecting: Connecting) -> list[Route]:
    """The way from the link in Slack to Google and back."""
    pages = _Pages(connecting)
    return [
        Route(START_PATH, _guarded(pages.start), methods=["GET"]),
        Route(START_PATH, _guarded(pages.leave), methods=["POST"]),
        Route(BACK_PATH, _guarded(pages.back), methods=["GET"]),
    ]


def _guarded(page: Page) -> Page:
    """Answers with a plain page whatever goes wrong."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except OwnerUnknown:
            return _told("Slack does not answer", LATER, 503)
        except StoreError as error:
            log.error("%s", error)
            return _told("Not now", LATER, 503)
        except Exception:  # the seam: one visit to a page
            log.exception("a page on which a mailbox is connected failed")
            return _told("Something went wrong", LATER, 500)

    return answer


class _Pages:
    def __init__(self, connecting: Connecting) -> None:
        self._connecting = connecting
        self._secure = connecting.is_https
        self._cookie = "__Host-connect" if self._secure else "connect"

    async def start(self, request: Request) -> Response:
        """Say whom the mailbox will be for, before anything is asked of Google."""
        owner = await self._connecting.owner(_asked(request, "state"))
        if owner is None:
            return _told("This link is over", BEGIN_ANEW, 410)
        oauth = self._connecting.oauth
        page = _page(
            "Connect a mailbox",
            _paragraph("The assistant will read the mailbox that you choose at Google for ")
            + _owner(owner)
            + "<p>If that is not you, close this page: whoever sent you here would read your mail."
            '</p><form method="post"><button>Go on to Google</button></form>',
            form_action=f"'self' {_origin(oauth.auth_url)}" if oauth else "'none'",
        )
        if not self._browser(request):
            self._remember(page)
        return page

    async def leave(self, request: Request) -> Response:
        """Off to Google, for who has seen the page before."""
        browser, state = self._browser(request), _asked(request, "state")
        url = await self._connecting.leave(state, browser) if browser else None
        if url is None:
            return _told("This link is over", BEGIN_ANEW, 410)
        return RedirectResponse(url, 303, _HEADERS)

    async def back(self, request: Request) -> Response:
        """Back from Google: show the code that says in Slack who sat here."""
        browser, state = self._browser(request), _asked(request, "state")
        asking = await self._connecting.returned(state, browser) if browser else None
        if asking is None:
            return _told("This link is over", BEGIN_ANEW, 410)
        try:
            if error := _asked(request, "error"):
                raise ConnectFailed(error)
            owner = await self._connecting.named(asking)
            address, code = await self._connecting.fetch(state, asking, _asked(request, "code"))
        except ConnectFailed as failed:
            return _told("Nothing is connected", str(failed), 400)
        if not code:
            return _told("This link is over", BEGIN_ANEW, 410)
        return _page("One more step", _last_step(owner, address, code))

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
            samesite="lax",  # it comes along on the way back from Google
        )


def _last_step(owner: Owner, address: str, code: str) -> str:
    return (
        _paragraph("Nothing is connected yet. The mailbox")
        + f"<p><strong>{html.escape(address)}</strong></p><p>will be read by the assistant for "
        + _owner(owner).removeprefix("<p>")
        + "<p>If that is you, type this code within ten minutes in the Home tab of the assistant "
        f'in Slack:</p><p><strong class="code">{code[:4]} {code[4:]}</strong></p>'
        "<p>If it is not, close this page, and tell the code to nobody, whoever asks for it: "
        "without the code nothing is connected, and what Google gave is deleted.</p>"
    )


def _owner(owner: Owner) -> str:
    name, workspace = html.escape(owner.name), html.escape(owner.workspace)
    return f"<p><strong>{name}</strong> of {workspace}, and for nobody else.</p>"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _told(title: str, text: str, status: int) -> Response:
    return _page(title, _paragraph(text), status)


def _page(title: str, body: str, status: int = 200, form_action: str = "'none'") -> HTMLResponse:
    """A page of this `body`, which is HTML, with what a browser must not do with it."""
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Assistant</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )
    return HTMLResponse(text, status, {**_HEADERS, "content-security-policy": policy})


def _asked(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:MOST_CHARS]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
