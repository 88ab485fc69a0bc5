"""Read the views that a parent gets of its subagents."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEAD = re.compile(
    r"^\w+ (?P<status>complete|partial|failed|cancelled|refused)\b(?:.*?\(\w+, \w+\))?"
    r"[^:]*: ?(?P<text>.*)$"
)
_FINDING = re.compile(
    r"^\[(?P<id>F\d+\.\d+)\] (?P<claim>.*?)"
    r"(?: \| (?P<state>\w+)(?:, (?P<severity>high|medium|low))?(?:, since \S+)?"
    r"(?:, waits since \S+)?(?:, due \S+)?"
    r"(?: \| (?P<messages>\d+) messages, (?P<people>\d+) customers(?: \(.*?\))?)?)?"
    r"(?: \| owner: .*?)?(?: \| next: (?P<next>.*?))?"
    r"(?: \| in (?P<where>[CGD][A-Z0-9]+/\d+\.\d+))?$"
)
_CUT = re.compile(r"^\(cut: (\d+) more")


@dataclass(frozen=True)
class ViewFinding:
    """One finding as the parent sees it."""

    id: str
    claim: str
    state: str
    severity: str
    people: int
    next_step: str


@dataclass
class View:
    """One subagent's result as the parent sees it."""

    status: str
    text: str
    findings: list[ViewFinding] = field(default_factory=list)
    left_out: int = 0
    """Findings that the view has no room for."""


def parse_views(text: str) -> list[View]:
    """Return the views in a tool result, or in a package of an earlier session, in their order."""
    views: list[View] = []
    for line in text.splitlines():
        if found := _FINDING.match(line):
            if views:
                views[-1].findings.append(_finding(found))
        elif head := _HEAD.match(line):
            views.append(View(head["status"], head["text"]))
        elif views and (cut := _CUT.match(line)):
            views[-1].left_out = int(cut[1])
    return views


def _finding(found: re.Match[str]) -> ViewFinding:
    return ViewFinding(
        found["id"],
        found["claim"],
        found["state"] or "none",
        found["severity"] or "low",
        int(found["people"] or 0),
        found["next"] or "",
    )
