"""All pages of the console, for `serve` and for `assistant console`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from bot.console.app import PATH, Console, ConsoleAccess
from bot.console.costs import CostPages
from bot.console.records import MENU, Records
from bot.console.runs import RunPages
from bot.console.signin import SlackSignIn
from bot.policy.policy import PolicyFile
from bot.runs.store import Store
from config.settings import Settings

NAVIGATION = [("Runs", f"{PATH}/runs"), ("Costs", f"{PATH}/costs"), *MENU]


def console_routes(
    store: Store,
    settings: Settings,
    access: ConsoleAccess,
    policy: PolicyFile | None = None,
) -> list[BaseRoute]:
    """Return the routes below `/console`; `policy` is the one that holds, if it can change."""
    sign_in = access if isinstance(access, SlackSignIn) else None
    origin = sign_in.origin if sign_in else ""
    console = Console(store, settings, access, list(NAVIGATION), origin)
    pages = [
        *RunPages(console).routes(),
        *CostPages(console).routes(),
        *Records(console, policy or PolicyFile(None, settings.policy)).routes(),
        *(sign_in.routes() if sign_in else []),
    ]
    public = sign_in.public_routes() if sign_in else []
    return [Route(PATH, _first_page), console.mount([Route("/", _first_page), *pages], public)]


async def _first_page(request: Request) -> Response:
    return RedirectResponse(f"{PATH}/runs", 303)
