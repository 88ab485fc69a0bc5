"""The parts of a sweep's report, put together by code from the subagents' checked results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bot.replies.cite import Statement
from bot.sweep.sources import Source
from scopes.tool import iso
from subagents.contracts import NEEDS_ACTION
from subagents.evidence import Coverage, distinct
from subagents.result import Finding
from subagents.view import rank

NOBODY: Final = "nobody"
"""The owner of an issue that nobody has taken."""
_UNSAID: Final = {
    "unanswered": "Answer it: nobody has replied.",
    "unsolved": "Tell them where it stands.",
    "waiting": "Ask whether it is solved.",
}
"""The next step where a subagent names none, by state."""
UNCOMPARED: Final = {"issue": None, "change": None, "first": None, "age_days": None}
"""What is said of a finding where nothing is compared."""


def section(source: Source, tracked: Mapping[str, Any]) -> dict[str, Any]:
    """One channel's part of the report, from its own subagents only.

    `tracked`: what is known of each finding's row in the tracker, by id of the finding.
    """
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
        "channel": source.channel.id,
        "window": {"oldest": iso(source.window.oldest), "latest": iso(source.window.latest)},
        "subagents": [r.id for r in results],
        "status": status,
        "summary": summary,
        "findings": [finding_json(f, tracked) for f in findings],
        "coverage": {
            **Coverage.sum([r.coverage for r in results]),
            **({"complete": False} if source.fault else {}),
        },
    }


def finding_json(finding: Finding, tracked: Mapping[str, Any]) -> dict[str, Any]:
    """A finding as its reader needs it: who has it, what is next, why it is so severe."""
    told = finding.model_dump(mode="json")
    if finding.state != "none":
        told["owner"] = finding.owner or NOBODY
        told["next_step"] = finding.next_step or _UNSAID.get(finding.state, "")
        told["severity_reason"] = finding.severity_reason or _extent(finding)
    return {**told, **UNCOMPARED, "tracker": tracked.get(finding.id)}


def _extent(finding: Finding) -> str:
    """Why it matters, in numbers, where its subagent gave no reason."""
    return f"{finding.people} customers, {finding.messages} messages"


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
