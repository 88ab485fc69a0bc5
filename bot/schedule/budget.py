"""What a run of a schedule may spend: of its own budget, of its month, of the day of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from bot.policy.policy import LEAST_USD, day_of
from bot.requests.inbox import Inbox
from bot.schedule.records import StoredSchedule, Tick
from bot.schedule.tables import ticks
from bot.storage.database import Database
from bot.storage.serve_tables import purses
from bot.storage.tables import runs
from config.settings import Policy
from subagents.prices import Usage, cost_nanousd
from subagents.purse import NANO

FIXED_TOKENS = 4_000
"""Of a subagent's prompt, tools and brief."""
CALLS = 2
"""Of a subagent that reads one channel: it asks for the messages, then it submits."""
WRITTEN_TOKENS = 1_000
"""What a subagent writes, and what the parent does."""
VIEW_TOKENS = 800
"""What the parent is shown of a subagent."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one run may spend."""

    usd: float
    why: str = ""
    """Why it is nothing, in a sentence for its owner; empty while it is something."""
    waits: bool = False
    """It may be more once those at work have ended."""
    note: str = ""
    """Why it is less than the budget of one run; empty where it is not."""


async def allowance(
    database: Database, policy: Policy, schedule: StoredSchedule, tick: Tick, now: datetime
) -> Allowance:
    """What the next try of a tick may spend, after those before. Raises StoreError."""
    spec = schedule.spec
    usd, note = spec.budget_usd, ""
    if tick.tries and tick.cost_usd:
        usd = spec.budget_usd - tick.cost_usd
        if usd < LEAST_USD:
            most = f"its tries have spent the ${spec.budget_usd:.2f} of one run"
            return Allowance(0.0, f"It was not tried again: {most}. Its next run covers this time.")
        note = f"${usd:.2f} are left of the ${spec.budget_usd:.2f} of one run."
    if spec.month_usd is not None:
        left = spec.month_usd - await spent(database, schedule.id, month_of(tick.at, schedule))
        if left < LEAST_USD:
            most = f"the ${spec.month_usd:.2f} of this month are spent"
            return Allowance(0.0, f"It did not run: {most}. It runs again next month.")
        if left < usd:
            usd, note = left, f"${left:.2f} are left of the ${spec.month_usd:.2f} of this month."
    if policy.daily_usd is not None:
        paid, open_usd = await Inbox(database).spent(None, day_of(now))
        left = policy.daily_usd - paid - open_usd
        if left < LEAST_USD <= left + open_usd:
            most = f"others at work hold what is left of the ${policy.daily_usd:.2f}"
            return Allowance(0.0, f"It did not run: {most} of today.", waits=True)
        if left < LEAST_USD:
            most = f"the ${policy.daily_usd:.2f} that all may spend in a day are spent"
            return Allowance(0.0, f"It did not run: {most}. Ask an admin to raise it.")
        if left < usd:
            usd, note = left, f"${left:.2f} are left of what all may spend today."
    return Allowance(usd, note=note)


def month_of(at: datetime, schedule: StoredSchedule) -> datetime:
    """The beginning of the calendar month of `at`, as the schedule's own zone has it."""
    local = at.astimezone(schedule.spec.timetable.info)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)


async def spent(database: Database, schedule: str, since: datetime) -> float:
    """US dollars that all tries of the ticks since then have cost. Raises StoreError."""
    paid = (purses.c.spent_nanousd + purses.c.reserved_nanousd) * (1.0 / NANO)
    own = sa.func.coalesce(runs.c.cost_usd, paid, 0.0)
    before = sa.func.coalesce(ticks.c.cost_usd, 0.0)
    over = sa.func.coalesce(ticks.c.cost_usd, own)
    cost = sa.func.sum(sa.case((ticks.c.state == "running", before + own), else_=over)).label("usd")
    made = ticks.outerjoin(runs, runs.c.id == ticks.c.run)
    made = made.outerjoin(purses, purses.c.run == ticks.c.run)
    mine = sa.and_(ticks.c.schedule == schedule, ticks.c.at >= since)
    rows = await database.read(sa.select(cost).select_from(made).where(mine))
    return float(rows[0]["usd"] or 0.0)


def planned_usd(fast: str, main: str, sizes: Sequence[int]) -> float | None:
    """About what reading sources of so many tokens will cost, and the lines over them.

    None where the price of a model is not known.
    """
    read = [size for size in sizes if size]
    calls = [Usage(cache_write=FIXED_TOKENS + size, output=WRITTEN_TOKENS) for size in read]
    calls += [Usage(cache_read=FIXED_TOKENS + size) for size in read for _ in range(CALLS - 1)]
    costs = [cost_nanousd(fast, usage) for usage in calls]
    shown = Usage(input=VIEW_TOKENS * len(read), output=WRITTEN_TOKENS if read else 0)
    costs.append(cost_nanousd(main, shown))
    known = [cost for cost in costs if cost is not None]
    return sum(known) / NANO if len(known) == len(costs) else None
