"""Add up what the subagents of a run did: outcomes, what they read, cost."""

from __future__ import annotations

from collections.abc import Sequence

from bot.reports.documents import STATUSES, ReadTotals, RunCoverage
from subagents.evidence import Coverage
from subagents.pricing import Usage, sum_usd
from subagents.result import SubagentResult


def counted(statuses: Sequence[str], missing: Sequence[str]) -> RunCoverage:
    """Return the coverage of parts that ended with these statuses."""
    counts = {status: statuses.count(status) for status in STATUSES}
    return RunCoverage.model_validate(
        {"items": len(statuses), **counts, "not_covered": list(missing)}
    )


def coverage_of(results: Sequence[SubagentResult]) -> RunCoverage:
    """Return how many subagents ended how, what they read together and did not cover."""
    missing = [f"{r.id}: {each}" for r in results for each in r.not_covered]
    nothing_ran = all_refused(results)
    for r in results:
        if not (nothing_ran or lost(r)):
            continue
        why = r.reason or r.stopped_by
        if not any(each.rstrip(".") in why for each in r.not_covered):
            missing.append(f"{r.id}: {r.status}, {why}")
    parts = [r.read for r in results if r.coverage]
    read = ReadTotals(**Coverage.sum(parts).model_dump(mode="json"))
    read.complete = bool(parts) and read.complete  # reading nothing is not a complete reading
    return counted([r.status for r in results], missing).model_copy(update={"read": read})


def all_refused(results: Sequence[SubagentResult]) -> bool:
    """Return whether subagents were asked for and none of them was started."""
    return bool(results) and all(r.status == "refused" for r in results)


def lost(result: SubagentResult) -> bool:
    """Return whether something stays undone that the result does not mention itself.

    A brief refused for its form can be fixed and sent again; a partial result that nothing stopped
    says what is missing.
    """
    refused_for_good = result.reason.partition(":")[0] in ("max_subagents", "items")
    if result.status == "refused":
        return refused_for_good
    stopped = result.status == "partial" and result.stopped_by != "none"
    return stopped or result.status in ("failed", "cancelled")


def total(
    results: Sequence[SubagentResult], usage: Usage, cost: float | None
) -> tuple[Usage, float | None]:
    """Return tokens and dollars of the parent and all subagents; None if a price is unknown."""
    for result in results:
        parts = {k: v for k, v in result.usage.items() if k != "total"}
        usage += Usage(**parts)
        cost = sum_usd(cost, result.cost_usd)
    return usage, cost
