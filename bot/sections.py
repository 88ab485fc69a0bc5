"""The parts of a sweep's report, put together by code from the subagents' checked results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.cite import Statement
from bot.sources import Source
from subagents.contracts import NEEDS_ACTION
from subagents.evidence import Coverage, distinct
from subagents.result import Finding
from subagents.view import rank


def section(source: Source) -> dict[str, Any]:
    """One channel's part of the report, from its own subagents only."""
    results = source.results
    findings = sorted((f for r in results for f in r.findings), key=rank)
    states = [r.status for r in results]
    if source.fault:
        status = "cancelled" if source.stopped == "user" else "failed"
        summary = source.fault
    elif not results:
        status, summary = "complete", "no message in the window"
    else:
        summary = " ".join(r.text for r in results)
        status = states[0] if len(set(states)) == 1 else "partial"
    return {
        "item": source.channel.name,
        "subagents": [r.id for r in results],
        "status": status,
        "summary": summary,
        "findings": [f.model_dump(mode="json") for f in findings],
        "coverage": {
            **Coverage.sum([r.coverage for r in results]),
            **({"complete": False} if source.fault else {}),
        },
    }


def top_line(said: Statement, findings: Mapping[str, Finding]) -> dict[str, Any]:
    """A top line with what code counts over the findings that it cites."""
    cited = [findings[i] for i in said.findings]
    return {
        "text": said.text,
        "findings": list(said.findings),
        "customers": distinct_people(cited),
        "messages": sum(f.messages for f in cited),
        "links": [f.links[0] for f in cited if f.links],
    }


def distinct_people(findings: Sequence[Finding]) -> int:
    """Customers of several findings, each named one once; unnamed ones are added up."""
    named = distinct(name for f in findings for name in f.customers)
    return len(named) + sum(f.people for f in findings if not f.customers)


def by_count(findings: Sequence[Finding]) -> list[Statement]:
    """Top lines without a model: the first findings, ranked by code."""
    first = [f for f in sorted(findings, key=rank) if f.state in NEEDS_ACTION][:3]
    return [Statement(f"{f.claim} ({f.state})", (f.id,)) for f in first]
