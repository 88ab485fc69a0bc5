"""The console: pages of what the bot does, for those who run it. Each reads without scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from bot.runs.store import Store
from config.settings import Settings

PATH = "/console"
_HERE = Path(__file__).parent
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Page = Callable[[Request], Awaitable[Response]]


class ConsoleAccess(Protocol):
    """Decides who sees the console."""

    async def admit(self, request: Request) -> Response | None:
        """Return None for an administrator, else the page to send instead."""


@dataclass
class Console:
    """What the pages are made from, and how they are rendered."""

    store: Store
    settings: Settings
    access: ConsoleAccess
    navigation: list[tuple[str, str]] = field(default_factory=list)
    """Title and path of each page in the menu."""

    def __post_init__(self) -> None:
        loader = FileSystemLoader(_HERE / "templates")
        self._templates = Environment(
            loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )

    def render(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page; `values` are what its template names."""
        base: Mapping[str, Any] = {
            "navigation": self.navigation,
            "here": request.url.path,
            "root": PATH,
        }
        text = self._templates.get_template(template).render({**base, **values})
        return HTMLResponse(text, status, _HEADERS)

    def guarded(self, page: Page) -> Page:
        """Return a page that only those whom `access` admits see."""

        async def admitted(request: Request) -> Response:
            refused = await self.access.admit(request)
            if refused is None:
                return await page(request)
            for name, value in _HEADERS.items():
                refused.headers.setdefault(name, value)
            return refused

        return admitted

    def mount(self, routes: Sequence[Route], public: Sequence[BaseRoute] = ()) -> Mount:
        """Return the console below its path: `routes` behind `access`, `public` before it."""
        inside = [
            Route(each.path, self.guarded(each.endpoint), methods=each.methods) for each in routes
        ]
        static = Mount("/static", StaticFiles(directory=_HERE / "static"))
        return Mount(PATH, routes=[static, *public, *inside])
