"""Compute what a scheduled run may spend: of its own budget, and of the shared daily one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.policy.policy import LEAST_USD, day_of
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from bot.storage.schedules import Occurrence, StoredSchedule
from config.sections import Models, Policy
from config.words import current
from subagents.budget import NANO
from subagents.pricing import Usage, cost_nanousd

FIXED_TOKENS = 4_000
"""Tokens of a subagent's prompt, tools and brief."""
CALLS = 2
"""Calls of a subagent that reads one channel: it asks for the messages, then it submits."""
WRITTEN_TOKENS = 1_000
"""Tokens that a subagent writes, and that the parent writes."""
VIEW_TOKENS = 800
"""Tokens of a subagent's result that the parent is shown."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The amount that one run may spend."""

    usd: float
    why: str = ""
    """Why it is nothing, in a sentence for its owner; empty if it is something."""
    waits: bool = False
    """Whether it may be more once other runs have ended."""
    note: str = ""
    """Why it is less than the budget of one run; empty if it is not."""


async def allowance(
    database: Database,
    policy: Policy,
    schedule: StoredSchedule,
    occurrence: Occurrence,
    now: datetime,
) -> Allowance:
    """Return what the next try may spend, after the earlier ones. Raises StoreError."""
    spec = schedule.spec
    usd, note, words = spec.budget_usd, "", current()
    if occurrence.tries and occurrence.cost_usd:
        usd = spec.budget_usd - occurrence.cost_usd
        if usd < LEAST_USD:
            return Allowance(0.0, words("budget.tries", limit=words.usd(spec.budget_usd)))
        values = {"left": words.usd(usd), "limit": words.usd(spec.budget_usd)}
        note = words("budget.left_of_run", **values)
    if policy.daily_usd is not None:
        paid, open_usd = await RequestQueue(database).spending(None, day_of(now))
        left = policy.daily_usd - paid - open_usd
        if left < LEAST_USD <= left + open_usd:
            held = words("budget.held", limit=words.usd(policy.daily_usd))
            return Allowance(0.0, held, waits=True)
        if left < LEAST_USD:
            return Allowance(0.0, words("budget.spent", limit=words.usd(policy.daily_usd)))
        if left < usd:
            usd, note = left, words("budget.left_today", left=words.usd(left))
    return Allowance(usd, note=note)


def planned_usd(models: Models, sizes: Sequence[int]) -> float | None:
    """Estimate the cost of reading sources of so many tokens, and of the lines over them.

    None if the price of a model is not known.
    """
    read = [size for size in sizes if size]
    calls = [Usage(cache_write=FIXED_TOKENS + size, output=WRITTEN_TOKENS) for size in read]
    calls += [Usage(cache_read=FIXED_TOKENS + size) for size in read for _ in range(CALLS - 1)]
    costs = [cost_nanousd(models.fast, usage, models.prices) for usage in calls]
    shown = Usage(input=VIEW_TOKENS * len(read), output=WRITTEN_TOKENS if read else 0)
    costs.append(cost_nanousd(models.main, shown, models.prices))
    known = [cost for cost in costs if cost is not None]
    return sum(known) / NANO if len(known) == len(costs) else None
