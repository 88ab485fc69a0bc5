"""The page of costs: what runs have cost by day, channel, user, schedule and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode

import sqlalchemy as sa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.console.app import PATH, Console
from bot.console.runs import COMMAND_LINE, channel_of, schedule_name
from bot.storage.database import Database
from bot.storage.requests import SCHEDULED
from bot.storage.tables import model_costs, runs

USUAL_DAYS = 30
MOST_DAYS = 366
MOST_ROWS = 25
"""Rows of one table; the dearest."""
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
    """The costs by one thing."""

    title: str
    rows: Sequence[CostRow]

    def share(self, row: CostRow) -> str:
        """Return the length of a row's bar, in percent of the longest."""
        most = max((each.usd for each in self.rows), default=0.0)
        return f"{100 * row.usd / most if most else 0:.2f}%"


@dataclass(frozen=True, slots=True)
class CostWindow:
    """The days that are added up, both included."""

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
    found = {row.key: row for row in await _grouped(database, day, window.inside())}
    rows = [found.get(each, CostRow(each, 0, 0.0)) for each in window.days]
    return CostTable("By day", rows)


async def cost_tables(database: Database, window: CostWindow) -> list[CostTable]:
    """Return the costs by channel, user, schedule and model. Raises StoreError."""
    inside, c = window.inside(), runs.c
    asked, scheduled = sa.and_(inside, c.request.is_not(None)), c.kind == SCHEDULED
    channels = await _grouped(database, channel_of(database.shared), asked, "where")
    requester = sa.func.coalesce(c.requester, COMMAND_LINE)
    users = await _grouped(database, requester, inside, "who")
    schedules = await _grouped(database, schedule_name(), sa.and_(inside, scheduled), "where")
    return [
        CostTable("By channel", channels),
        CostTable("By user", users),
        CostTable("By schedule", schedules),
        CostTable("By model", await _by_model(database, window)),
    ]


async def _grouped(
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
    """Return the costs by model, with the number of runs that it was paid for."""
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
