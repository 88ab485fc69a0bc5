"""Adds up what the subagents of a run did: how they ended, what they read, what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subagents.evidence import Coverage
from subagents.prices import Usage
from subagents.result import SubagentResult

STATUSES = ("complete", "partial", "failed", "cancelled", "refused")


def coverage_of(results: Sequence[SubagentResult]) -> dict[str, Any]:
    """How many subagents ended how, what they read together, and what they did not cover."""
    missing = [f"{r.id}: {each}" for r in results for each in r.not_covered]
    nothing_ran = all_refused(results)
    for r in results:
        if not (nothing_ran or lost(r)):
            continue
        why = r.reason or r.stopped_by
        if not any(told.rstrip(".") in why for told in r.not_covered):
            missing.append(f"{r.id}: {r.status}, {why}")
    counts = {s: sum(r.status == s for r in results) for s in STATUSES}
    parts = [r.coverage for r in results if r.coverage]
    read = Coverage.sum(parts)
    read["complete"] = bool(parts) and read["complete"]  # nothing read is nothing read whole
    return {"items": len(results), **counts, "not_covered": missing, "read": read}


def all_refused(results: Sequence[SubagentResult]) -> bool:
    """Return whether subagents were asked for and none of them was started."""
    return bool(results) and all(r.status == "refused" for r in results)


def lost(result: SubagentResult) -> bool:
    """Whether something stays undone that it does not say itself.

    A brief refused for its form can be mended and sent again; a partial result that nothing has
    stopped tells what it lacks.
    """
    refused_for_good = result.reason.partition(":")[0] in ("max_subagents", "items")
    if result.status == "refused":
        return refused_for_good
    stopped = result.status == "partial" and result.stopped_by != "none"
    return stopped or result.status in ("failed", "cancelled")


def total(
    results: Sequence[SubagentResult], usage: Usage, cost: float | None
) -> tuple[Usage, float | None]:
    """Tokens and dollars of the parent and all its subagents; None where one price is unknown."""
    for result in results:
        parts = {k: v for k, v in result.usage.items() if k != "total"}
        usage += Usage(**parts)
        known = cost is not None and result.cost_usd is not None
        cost = (cost or 0.0) + (result.cost_usd or 0.0) if known else None
    return usage, cost
