"""All pages of the console, for `serve` and for `assistant console`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from bot.console.app import PATH, Access, Console
from bot.console.costs import CostPages
from bot.console.runs import RunPages
from bot.runs.store import Store
from config.settings import Settings

NAVIGATION = [("Runs", f"{PATH}/runs"), ("Costs", f"{PATH}/costs")]


def console_routes(store: Store, settings: Settings, access: Access) -> list[BaseRoute]:
    """Return the routes below `/console`."""
    console = Console(store, settings, access, list(NAVIGATION))
    pages = [*RunPages(console).routes(), *CostPages(console).routes()]
    return [
        Route(PATH, _first_page),
        console.mount([Route("/", _first_page), *pages]),
    ]


async def _first_page(request: Request) -> Response:
    return RedirectResponse(f"{PATH}/runs", 303)
