"""The console: read-only pages about the bot's work, for its operators.

Each page is readable without scripts.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bot.console.timeline import SPAN_NAMES, seconds_text
from bot.errors import StoreError
from bot.runs.store import Store
from bot.storage.run_index import Names
from config.settings import Settings

log = logging.getLogger(__name__)

PATH = "/console"
NAVIGATION = [
    (each, f"{PATH}/{each.lower()}")
    for each in ("Runs", "Costs", "Schedules", "Approvals", "Connections", "Policy", "Feedback")
]
"""Title and path of each page in the menu."""
_HERE = Path(__file__).parent
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}

PageHandler = Callable[[Request], Awaitable[Response]]

_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_TEMPLATES.globals |= {"root": PATH, "seconds_text": seconds_text, "kinds": SPAN_NAMES}


class ConsoleAccess(Protocol):
    """Decides who may see the console."""

    async def admit(self, request: Request) -> Response | None:
        """Return None for an administrator, else the page to send instead.

        It may store their Slack id in `request.state.visitor`.
        """


FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers with which a proxy names another client."""
REFUSAL = (
    "The console answers browsers on its own machine only, by http://127.0.0.1 or localhost.\n"
)


class LoopbackAccess:
    """Admits browsers on this machine.

    The host name is checked, too: a page elsewhere may resolve its own name to 127.0.0.1 (DNS
    rebinding), and would read the answers.
    """

    async def admit(self, request: Request) -> Response | None:
        client = request.client.host if request.client else ""
        host = _host_of(request.headers.get("host", ""))
        forwarded = any(name in request.headers for name in FORWARDING_HEADERS)
        if _is_loopback(client) and _is_loopback(host) and not forwarded:
            return None
        return PlainTextResponse(REFUSAL, 403)


def _host_of(header: str) -> str:
    """Return the host of a Host header without its port; empty if it is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def show(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; `values` are the variables of its template."""
    text = _TEMPLATES.get_template(template).render(values)
    return HTMLResponse(text, status, _HEADERS)


def refusal(reason: str, status: int, sign_in: str = "") -> HTMLResponse:
    """Return a page that says in a sentence why nothing else is shown.

    `sign_in` is the address at which to sign in.
    """
    base = {"navigation": [], "here": "", "visitor": ""}
    return show("refused.html", status, **base, reason=reason, sign_in=sign_in)


def static_files(path: str = "") -> Mount:
    """Return what all pages need, below this path."""
    return Mount(f"{path}/static", StaticFiles(directory=_HERE / "static"))


@dataclass
class Console:
    """The data and templates of all pages."""

    store: Store
    settings: Settings
    access: ConsoleAccess

    async def names(self, *ids: str | None) -> dict[str, str]:
        """Return the names of people and channels, as far as they are stored."""
        return await Names(self.store.database).find_names(filter(None, ids))

    def render(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page; `values` are the variables of its template."""
        base: Mapping[str, Any] = {
            "navigation": NAVIGATION,
            "here": request.url.path,
            "visitor": getattr(request.state, "visitor", ""),
            "names": {},
        }
        return show(template, status, **{**base, **values})

    def guard(self, page: PageHandler) -> PageHandler:
        """Return a page that only those whom `access` admits see."""

        async def serve_page(request: Request) -> Response:
            try:
                answer = await self.access.admit(request) or await page(request)
            except StoreError as error:
                log.error("%s", error)
                answer = refusal("The bot's database cannot be used at the moment.", 503)
            for name, value in _HEADERS.items():
                answer.headers.setdefault(name, value)
            return answer

        return serve_page

    def mount(self, routes: Sequence[Route], public: Sequence[BaseRoute] = ()) -> Mount:
        """Return the console below its path: `routes` behind `access`, `public` before it."""
        inside = [
            Route(each.path, self.guard(each.endpoint), methods=each.methods) for each in routes
        ]
        return Mount(PATH, routes=[static_files(), *public, *inside])
