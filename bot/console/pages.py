"""All pages of the console, for `serve` and `assistant console`; pages of costs and records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

import sqlalchemy as sa
import yaml
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from bot.approvals.cards import arguments, title
from bot.approvals.store import BATCH, GRANT, STATES, UNDECIDED_STATES, Actions, StoredAction
from bot.console.app import PATH, Console, ConsoleAccess, refusal, static_files
from bot.console.runs import COMMAND_LINE, RunPages, channel_of, schedule_name
from bot.console.signin import SlackSignIn, TeamAccess
from bot.mailbox.accounts import Credentials
from bot.policy.directory import Grants
from bot.policy.policy import PolicyFault, PolicyFile
from bot.runs.store import Store
from bot.schedules import description
from bot.schedules.description import ScheduleStatus, schedule_statuses, status_facts
from bot.slack.blocks import show_invisible
from bot.storage.database import Database
from bot.storage.requests import SCHEDULE_KIND, RequestQueue
from bot.storage.tables import model_costs, runs
from config.settings import TEAMS, Settings

MAX_FINISHED = 50
"""Maximum finished approvals on the page."""
MAX_RATINGS = 200
DECIDED_STATES = tuple(state for state in STATES if state not in UNDECIDED_STATES)
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")


def console_routes(
    store: Store,
    settings: Settings,
    access: ConsoleAccess,
    policy: PolicyFile,
) -> list[BaseRoute]:
    """Return the routes below `/console`; `policy` is the effective one."""
    sign_in = access.sign_in if isinstance(access, TeamAccess) else None
    console = Console(store, settings, access)
    pages = [
        *RunPages(console).routes(),
        *cost_routes(console),
        *Records(console, policy).routes(),
        *(sign_in.routes() if sign_in else []),
    ]
    public = sign_in.public_routes() if sign_in else []
    return [Route(PATH, _first_page), console.mount([Route("/", _first_page), *pages], public)]


def routes_by_workspace(
    sign_in: SlackSignIn, find: Callable[[str], Sequence[BaseRoute] | None]
) -> list[BaseRoute]:
    """Return the routes below `/console` if several workspaces are served.

    The workspace is the one of the session, not of the address. `find` returns its routes.
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
        """Show waiting actions with their exact arguments, and the latest decisions."""
        found = await Actions(self.console.store.database).in_state(*STATES)
        rows = [row for row in found if row.tool != BATCH]
        waiting = [_approval_row(row) for row in rows if row.state in UNDECIDED_STATES]
        done = sorted(
            (row for row in rows if row.state in DECIDED_STATES),
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
            finished=[_approval_row(row) for row in done[:MAX_FINISHED]],
            grants=standing,
            names=await self.console.names(*people, *places),
        )

    async def connections(self, request: Request) -> Response:
        """Show the owners of connected accounts; no page shows their tokens."""
        settings = self.console.settings
        accounts = await Credentials(self.console.store.database).list_accounts()
        return self.console.render(
            request,
            "connections.html",
            accounts=accounts,
            names=await self.console.names(*(each.account for each in accounts)),
            google=settings.google,
            servers=settings.mcp.servers,
        )

    async def effective_policy(self, request: Request) -> Response:
        """Show the effective policy, and the file that changes it."""
        try:
            policy = await self.policy.read()
        except PolicyFault as fault:
            return self.console.render(request, "policy.html", fault=str(fault))
        holds = yaml.safe_dump(
            policy.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True
        )
        own, common = self.policy.own, self.policy.path
        file = (
            own or common
        )  # the common file names no person, and its other content is the operator's
        text = file.read_text("utf-8") if file and file.exists() else ""
        name = f"{TEAMS}/{own.name}" if own else "assistant.yaml"
        shown = {"name": name, "text": text}
        return self.console.render(request, "policy.html", fault="", holds=holds, file=shown)

    async def feedback(self, request: Request) -> Response:
        ratings = await RequestQueue(self.console.store.database).ratings(MAX_RATINGS)
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
    shown = arguments(row.action) if row.tool != GRANT else ()
    return {
        "row": row,
        "title": title(row.action) if row.tool != GRANT else "Standing grant",
        "rule": show_invisible(row.action.rule),
        "arguments": [(show_invisible(name), value) for name, value, _ in shown],
    }


USUAL_DAYS = 30
MOST_DAYS = 366
MOST_ROWS = 25
"""Maximum rows of one table, the most expensive ones."""
UNKNOWN = "not recorded"


@dataclass(frozen=True, slots=True)
class CostRow:
    """The total cost of the runs of one key."""

    key: str
    runs: int
    usd: float
    link: str = ""
    """List of these runs."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """The costs by one key."""

    title: str
    rows: Sequence[CostRow]

    def share(self, row: CostRow) -> str:
        """Return the length of a row's bar, in percent of the longest."""
        most = max((each.usd for each in self.rows), default=0.0)
        return f"{100 * row.usd / most if most else 0:.2f}%"


@dataclass(frozen=True, slots=True)
class CostWindow:
    """The first and the last day of the costs, both included."""

    first: date
    last: date
    fault: str = ""

    @classmethod
    def of(cls, query: QueryParams, today: date) -> CostWindow:
        usual = cls(today - timedelta(days=USUAL_DAYS - 1), today)
        begin, end = (query.get(name, "").strip() for name in ("first", "last"))
        try:
            last = date.fromisoformat(end) if end else today
            ago = timedelta(days=USUAL_DAYS - 1)
            first = date.fromisoformat(begin) if begin else last - ago
        except (ValueError, OverflowError):
            return cls(usual.first, usual.last, "Write days as 2026-11-28.")
        if not first <= last < first + timedelta(days=MOST_DAYS):
            fault = f"The first day comes before the last, at most {MOST_DAYS} days."
            return cls(usual.first, usual.last, fault)
        return cls(first, last)

    @property
    def days(self) -> list[str]:
        length = (self.last - self.first).days + 1
        return [(self.first + timedelta(days=n)).isoformat() for n in range(length)]

    def inside(self, started: sa.Column[datetime] = runs.c.started) -> sa.ColumnElement[bool]:
        """Return the condition for runs of these days, in UTC."""
        start = datetime.combine(self.first, time(), UTC)
        end = datetime.combine(self.last, time.max, UTC)
        return started.between(start, end)


async def costs_by_day(database: Database, window: CostWindow) -> CostTable:
    day = sa.func.substr(sa.type_coerce(runs.c.started, sa.String), 1, 10)
    found = {row.key: row for row in await _sum_by(database, day, window.inside())}
    rows = [found.get(each, CostRow(each, 0, 0.0)) for each in window.days]
    return CostTable("By day", rows)


async def cost_tables(database: Database, window: CostWindow) -> list[CostTable]:
    """Return the costs by channel, user, schedule and model. Raises StoreError."""
    inside, c = window.inside(), runs.c
    requested, scheduled = sa.and_(inside, c.request.is_not(None)), c.kind == SCHEDULE_KIND
    channels = await _sum_by(database, channel_of(database.shared), requested, "where")
    requester = sa.func.coalesce(c.requester, COMMAND_LINE)
    users = await _sum_by(database, requester, inside, "who")
    schedules = await _sum_by(database, schedule_name(), sa.and_(inside, scheduled), "where")
    return [
        CostTable("By channel", channels),
        CostTable("By user", users),
        CostTable("By schedule", schedules),
        CostTable("By model", await _by_model(database, window)),
    ]


async def _sum_by(
    database: Database,
    key: sa.ColumnElement[str],
    condition: sa.ColumnElement[bool],
    field: str = "",
) -> list[CostRow]:
    usd = sa.func.coalesce(sa.func.sum(runs.c.cost_usd), 0.0)
    query = sa.select(key.label("grouped_by"), sa.func.count().label("runs"), usd.label("usd"))
    query = query.select_from(runs).where(condition).group_by(sa.text("grouped_by"))
    if field:
        query = query.order_by(usd.desc(), sa.text("grouped_by")).limit(MOST_ROWS)
    found = []
    for row in await database.read(query):
        if name := row.grouped_by:
            link = f"{PATH}/runs?{urlencode({field: name})}" if field else ""
            found.append(CostRow(name, row.runs, row.usd, link))
    return found


async def _by_model(database: Database, window: CostWindow) -> list[CostRow]:
    """Return the costs by model, with the number of runs that paid for it."""
    c = model_costs.c
    usd = sa.func.sum(c.usd)
    query = sa.select(c.model, sa.func.count().label("runs"), usd.label("usd"))
    query = query.where(window.inside(c.started)).group_by(c.model).order_by(usd.desc(), c.model)
    rows = await database.read(query)
    return [CostRow(row.model or UNKNOWN, row.runs, row.usd) for row in rows]


def cost_routes(console: Console) -> list[Route]:
    """Return the page of costs of a console."""

    async def show(request: Request) -> Response:
        window = CostWindow.of(request.query_params, datetime.now(UTC).date())
        database = console.store.database
        days, tables = await costs_by_day(database, window), await cost_tables(database, window)
        return console.render(
            request,
            "costs.html",
            400 if window.fault else 200,
            window=window,
            days=days,
            total=sum(row.usd for row in days.rows),
            runs=sum(row.runs for row in days.rows),
            tables=tables,
            names=await console.names(*(row.key for table in tables for row in table.rows)),
        )

    return [Route("/costs", show)]
