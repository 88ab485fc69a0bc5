"""All pages of the console, for `serve` and for `assistant console`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from bot.console.app import PATH, Console, ConsoleAccess, refusal, static_files
from bot.console.costs import cost_routes
from bot.console.records import MENU, Records
from bot.console.runs import RunPages
from bot.console.signin import SlackSignIn, TeamAccess
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
    sign_in = access.sign_in if isinstance(access, TeamAccess) else None
    console = Console(store, settings, access, list(NAVIGATION))
    pages = [
        *RunPages(console).routes(),
        *cost_routes(console),
        *Records(console, policy or PolicyFile(None, settings.policy)).routes(),
        *(sign_in.routes() if sign_in else []),
    ]
    public = sign_in.public_routes() if sign_in else []
    return [Route(PATH, _first_page), console.mount([Route("/", _first_page), *pages], public)]


def routes_by_workspace(
    sign_in: SlackSignIn, find: Callable[[str], Sequence[BaseRoute] | None]
) -> list[BaseRoute]:
    """Return the routes below `/console` where several workspaces are served.

    Nobody names the workspace: it is the one that they signed in with. `find` returns its routes.
    """

    async def pages(request: Request) -> ASGIApp:
        session = sign_in.session(request)
        if session is None:
            return sign_in.ask(request)
        if routes := find(session.team):
            return Router(routes)
        return refusal("This workspace is not served at the moment.", 503)

    methods = ["GET", "POST"]
    inside = [Route(each, pages, methods=methods) for each in (PATH, f"{PATH}/{{rest:path}}")]
    public = [Route(PATH + each.path, each.endpoint) for each in sign_in.public_routes()]
    return [*public, static_files(PATH), *inside]


async def _first_page(request: Request) -> Response:
    return RedirectResponse(f"{PATH}/runs", 303)
