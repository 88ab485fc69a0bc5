"""Contradictions: findings of different subagents about one thing, in different states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import scopes
from config.prompts import prompt
from config.words import phrase
from subagents.brief import BriefDraft
from subagents.contracts import NEEDS_ACTION, ReviewFinding
from subagents.errors import BriefRefused
from subagents.result import Finding
from subagents.sanitizer import Material, Withheld, sanitize

MOST = 5
"""Maximum contradictions that one call checks."""
Pair = tuple[Finding, Finding]


def share_evidence(one: Finding, other: Finding) -> bool:
    """Return whether two findings rest on one message or thread."""
    return not {*one.threads, *one.evidence}.isdisjoint([*other.threads, *other.evidence])


def contradictions(
    findings: Sequence[Finding], same: Callable[[Finding, Finding], bool] = share_evidence
) -> list[Pair]:
    """Return pairs of findings about the same thing whose states cannot both hold.

    Each finding is in one pair at most.
    """
    pairs: list[Pair] = []
    for one, other in combinations(findings, 2):
        taken = any(one in pair or other in pair for pair in pairs)
        if not taken and _contradict(one, other) and same(one, other):
            pairs.append((one, other))
    return pairs


def _contradict(one: Finding, other: Finding) -> bool:
    states = {one.state, other.state}
    apart = one.id.partition(".")[0] != other.id.partition(".")[0]
    return apart and len(states) == 2 and "none" not in states and not states <= {*NEEDS_ACTION}


def check_draft(pair: Pair) -> BriefDraft:
    """Return what a new context is to do about a contradiction; raise BriefRefused."""
    sources = tuple(dict.fromkeys(source for finding in pair for source in finding.sources))
    if not sources:
        ids = " and ".join(finding.id for finding in pair)
        raise BriefRefused("results", f"{ids} rest on nothing that can be read again")
    kinds = {scopes.scope_of(source) for source in sources}
    return BriefDraft(
        task=prompt("challenge_task"),
        description=phrase("plan.check"),
        scope=kinds.pop() if len(kinds) == 1 else scopes.ALL,
        handles=sources,
        model_preference="main",
    )


def claims(pair: Pair) -> tuple[str, ...]:
    """Return both claims with their quotes, sanitized; raise BriefRefused if one is withheld."""
    found = []
    for name, finding in zip("AB", pair, strict=True):
        place = finding.evidence[0]
        draft = ReviewFinding(
            id=name,
            category=finding.state,
            severity=finding.severity,
            confidence=1.0,
            claim=finding.claim,
            place=place,
            quotes=finding.quotes[:5],
        )
        # Its quotes were found in what it read: they stand for it here.
        material = Material({place: "\n".join(finding.quotes)})
        clean = sanitize(draft, material, [finding.state])
        if isinstance(clean, Withheld):
            raise BriefRefused("results", f"{finding.id} is not handed on ({clean.reason})")
        found.append(clean.line())
    return tuple(found)
