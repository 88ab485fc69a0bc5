"""Join findings of one channel that several subagents, or several threads, tell twice."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bot.tasks.tracker import keys_in, words_of
from scopes.tool import one_line
from subagents.evidence import distinct
from subagents.result import CustomerCase, Finding
from subagents.summary import SEVERITIES, rank

_STANDARD: Final = re.compile(r"(?:UTF|ISO|RFC|SHA|AES|MD|CVE)-")
"""Beginnings of names that look like the key of a bug."""
_BUG: Final = re.compile(r"(?:\bbug\s*#?|show_bug\.cgi\?id=)(\d{4,})", re.IGNORECASE)
ALIKE: Final = 0.5
"""Minimum share of words that two claims of one customer have in common if they are one issue."""


def join_duplicates(
    findings: Sequence[Finding], keys: Mapping[str, Sequence[str]]
) -> list[tuple[Finding, list[str]]]:
    """Return each issue once, ranked, with the ids of the findings that were joined to its first.

    One known bug stands once for all who wait for it, and one issue of one customer once.
    `keys`: root of a thread -> the bug keys that it names.
    """
    groups: list[list[Finding]] = []
    for finding in sorted(findings, key=rank):
        own = next((g for g in groups if any(_same(f, finding, keys) for f in g)), None)
        if own is None:
            groups.append([finding])
        else:
            own.append(finding)
    joined = [(_joined(group), [f.id for f in group[1:]]) for group in groups]
    return sorted(joined, key=lambda each: rank(each[0]))


def _same(one: Finding, other: Finding, keys: Mapping[str, Sequence[str]]) -> bool:
    if one.state != other.state or one.state == "none":
        return False
    if one.state == "known" and _bugs(one, keys) & _bugs(other, keys):
        return True
    return is_one_issue(one, other)


def is_one_issue(one: Finding, other: Finding) -> bool:
    """Return whether two findings of a channel tell one issue of a customer, in any state."""
    shared = distinct(one.customers) & distinct(other.customers)
    return bool(shared) and _alike(one.claim, other.claim)


def _bugs(finding: Finding, keys: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the bugs that a finding names, else the one that its threads name."""
    said = " ".join([finding.claim, finding.next_step, *finding.quotes])
    named = {k for k in keys_in(said) if not _STANDARD.match(k)} | set(_BUG.findall(said))
    read = {k for root in finding.threads for k in keys.get(root, ()) if not _STANDARD.match(k)}
    return named or (read if len(read) == 1 else set())


def _alike(one: str, other: str) -> bool:
    if one_line(one).casefold() == one_line(other).casefold():
        return True
    first, second = words_of(one), words_of(other)
    return bool(first and second) and len(first & second) >= ALIKE * len(first | second)


def _joined(group: Sequence[Finding]) -> Finding:
    """Return the first finding with what the others add."""
    first, *others = group
    if not others:
        return first
    merged = {
        name: list(dict.fromkeys(each for f in group for each in getattr(f, name)))
        for name in ("evidence", "quotes", "customers", "links", "queries", "threads", "sources")
    }
    waits = list(dict.fromkeys(name for f in group for name in f.waits))
    cases: dict[str, CustomerCase] = {}
    for case in (each for f in group for each in f.cases):
        cases.setdefault(case.customer.casefold(), case)
    people = len(distinct(merged["customers"])) or len(waits)
    return first.model_copy(
        update={
            **merged,
            "waits": waits,
            "cases": list(cases.values()),
            "deadline": min((f.deadline for f in group if f.deadline), default=""),
            "people": max(people, *(f.people for f in group)),
            "messages": sum(f.messages for f in group),
            "severity": min((f.severity for f in group), key=SEVERITIES.index),
            "since": min((f.since for f in group if f.since), default=None),
            "waits_since": min((f.waits_since for f in group if f.waits_since), default=None),
        }
    )
