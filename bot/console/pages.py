"""All pages of the console, for `serve` and for `assistant console`; those of what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from bot.approvals.cards import arguments, title
from bot.approvals.store import BATCH, GRANT, STATES, WAITS, Actions, StoredAction
from bot.console.app import PATH, Console, ConsoleAccess, refusal, static_files
from bot.console.costs import cost_routes
from bot.console.runs import RunPages
from bot.console.signin import SlackSignIn, TeamAccess
from bot.mailbox.accounts import Credentials
from bot.policy.directory import Grants
from bot.policy.policy import PolicyFault, PolicyFile
from bot.runs.store import Store
from bot.schedules import description
from bot.schedules.description import ScheduleStatus, schedule_statuses, status_facts
from bot.slack.blocks import show_invisible
from bot.storage.requests import RequestQueue
from config.settings import TEAMS, Settings

MENU = [
    (each, f"{PATH}/{each.lower()}")
    for each in ("Schedules", "Approvals", "Connections", "Policy", "Feedback")
]
"""Title and path of each page."""
SHOWN = 50
"""Finished approvals on the page."""
RATED = 200
DECIDED = tuple(state for state in STATES if state not in WAITS)
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")
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


@dataclass(frozen=True, slots=True)
class Records:
    """The pages of one console."""

    console: Console
    policy: PolicyFile

    def routes(self) -> list[Route]:
        """Return the routes, for `Console.mount`."""
        return [
            Route("/schedules", self.schedules),
            Route("/approvals", self.approvals),
            Route("/connections", self.connections),
            Route("/policy", self.effective_policy),
            Route("/feedback", self.feedback),
        ]

    async def schedules(self, request: Request) -> Response:
        now = datetime.now(UTC)
        settings = self.console.settings.schedules
        found = await schedule_statuses(self.console.store.database, settings, now)
        rows = [_schedule_row(each, now) for each in found]
        names = await self.console.names(*(row[key] for row in rows for key in ("owner", "to")))
        return self.console.render(request, "schedules.html", schedules=rows, names=names)

    async def approvals(self, request: Request) -> Response:
        """Show what waits with its exact arguments, and the latest decisions."""
        found = await Actions(self.console.store.database).in_state(*STATES)
        rows = [row for row in found if row.tool != BATCH]
        waiting = [_approval_row(row) for row in rows if row.state in WAITS]
        done = sorted(
            (row for row in rows if row.state in DECIDED),
            key=lambda row: row.decided_at or row.made,
            reverse=True,
        )
        grants = await Grants(self.console.store.database).all()
        standing = [each for each in grants if each.revoked_at is None]
        people = [id for row in rows for id in (row.requester, row.decided_by)]
        places = [id for each in standing for id in (*each.sources, each.destination, each.by)]
        return self.console.render(
            request,
            "approvals.html",
            waiting=waiting,
            finished=[_approval_row(row) for row in done[:SHOWN]],
            grants=standing,
            names=await self.console.names(*people, *places),
        )

    async def connections(self, request: Request) -> Response:
        """Show whose accounts are connected; their tokens are on no page."""
        settings = self.console.settings
        accounts = await Credentials(self.console.store.database).connected()
        return self.console.render(
            request,
            "connections.html",
            accounts=accounts,
            names=await self.console.names(*(each.account for each in accounts)),
            google=settings.google,
            servers=settings.mcp.servers,
        )

    async def effective_policy(self, request: Request) -> Response:
        """Show the policy that holds now, and the file that changes it."""
        try:
            policy = await self.policy.read()
        except PolicyFault as fault:
            return self.console.render(request, "policy.html", fault=str(fault))
        holds = yaml.safe_dump(policy.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        own, common = self.policy.own, self.policy.path
        file = own or common  # the common file names nobody, and the rest of it is the operator's
        text = file.read_text("utf-8") if file and file.exists() else ""
        name = f"{TEAMS}/{own.name}" if own else "assistant.yaml"
        shown = {"name": name, "text": text}
        return self.console.render(request, "policy.html", fault="", holds=holds, file=shown)

    async def feedback(self, request: Request) -> Response:
        ratings = await RequestQueue(self.console.store.database).ratings(RATED)
        names = await self.console.names(*(each.user for each in ratings))
        return self.console.render(request, "feedback.html", ratings=ratings, names=names)


def _schedule_row(each: ScheduleStatus, now: datetime) -> dict[str, Any]:
    stored = each.stored
    return {
        "name": stored.id,
        "kind": description.name(stored.spec.kind),
        "contents": show_invisible(description.contents(stored.spec)),
        "when": description.when(stored.spec),
        "to": stored.spec.to,
        "owner": stored.spec.owner,
        "state": stored.state if each.taken_up else "new",
        "why": _MENTION.sub(r"\1", stored.why),
        "facts": dict(status_facts(each, now)),
        "origin": stored.origin,
    }


def _approval_row(row: StoredAction) -> dict[str, Any]:
    """Return a row with the exact arguments of its action."""
    named = arguments(row.action) if row.tool != GRANT else ()
    return {
        "row": row,
        "title": title(row.action) if row.tool != GRANT else "Standing grant",
        "rule": show_invisible(row.action.rule),
        "arguments": [(show_invisible(name), value) for name, value, _ in named],
    }
