"""Reads the views that a parent gets of its subagents, and ranks what is in them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.local.grouping import alike, keys_in, text_signs
from bot.local.phrases import OFFLINE, phrase

NEEDS_ACTION = ("unanswered", "unsolved")
MAX_LINES = 6
_SEVERITIES = ("high", "medium", "low")
_HEAD = re.compile(
    r"^\w+ (?P<status>complete|partial|failed|cancelled|refused)\b(?:.*?\(\w+, \w+\))?"
    r"[^:]*: ?(?P<text>.*)$"
)
_FINDING = re.compile(
    r"^\[(?P<id>F\d+\.\d+)\] (?P<claim>.*?)"
    r"(?: \| (?P<state>\w+), (?P<severity>high|medium|low)(?:, since \S+)?"
    r" \| (?P<messages>\d+) messages, (?P<people>\d+) customers(?P<names> \(.*?\))?)?"
    r"(?: \| owner: (?P<owner>.*?))?(?: \| next: (?P<next>.*))?$"
)
_CUT = re.compile(r"^\(cut: (\d+) more")


@dataclass(frozen=True)
class ViewFinding:
    """One finding as the parent sees it."""

    id: str
    claim: str
    state: str
    severity: str
    messages: int
    people: int
    next_step: str
    names: bool
    """It names customers: a report about the product, not a question of one person."""
    section: str = ""


@dataclass(frozen=True)
class View:
    """One subagent's result as the parent sees it."""

    status: str
    text: str
    findings: tuple[ViewFinding, ...] = ()
    left_out: int = 0
    """Findings that the view has no room for."""


@dataclass
class _Draft:
    status: str
    text: str
    findings: list[ViewFinding] = field(default_factory=list)
    left_out: int = 0


def parse_views(text: str) -> list[View]:
    """The views in a tool result, or in a package of an earlier session, in their order."""
    drafts: list[_Draft] = []
    for line in text.splitlines():
        if found := _FINDING.match(line):
            if drafts:
                drafts[-1].findings.append(_finding(found))
        elif head := _HEAD.match(line):
            drafts.append(_Draft(head["status"], head["text"]))
        elif drafts and (cut := _CUT.match(line)):
            drafts[-1].left_out = int(cut[1])
    return [View(d.status, d.text, tuple(d.findings), d.left_out) for d in drafts]


def _finding(found: re.Match[str]) -> ViewFinding:
    return ViewFinding(
        found["id"],
        found["claim"],
        found["state"] or "none",
        found["severity"] or "low",
        int(found["messages"] or 0),
        int(found["people"] or 0),
        found["next"] or "-",
        bool(found["names"]),
    )


def top_lines(sections: Iterable[tuple[str, str]], language: str) -> str:
    """What to do first across sections (name, views): 3 to 6 lines, each citing its findings."""
    open_ones = [
        replace(finding, section=name)
        for name, views in sections
        for view in parse_views(views)
        for finding in view.findings
        if finding.state in NEEDS_ACTION
    ]
    if not open_ones:
        return f"{phrase(language, 'found_none')} {OFFLINE}"
    issues = sorted(_join(open_ones), key=_rank)
    first = issues[:3]
    for name in dict.fromkeys(finding.section for finding in open_ones):
        if len(first) < MAX_LINES and all(name != f.section for issue in first for f in issue):
            first.append(next(i for i in issues if any(f.section == name for f in i)))
    *lines, last = (_line(issue, language) for issue in sorted(first, key=_rank))
    told = [f"- {line} {cited}" for line, cited in lines]
    return "\n".join([*told, f"- {last[0]} {OFFLINE} {last[1]}"])


def _join(findings: Sequence[ViewFinding]) -> list[list[ViewFinding]]:
    """Findings of one issue together, whichever section they stand in."""
    issues: list[list[ViewFinding]] = []
    for finding in findings:
        home = next((issue for issue in issues if any(_same(finding, o) for o in issue)), None)
        if home is None:
            issues.append([finding])
        else:
            home.append(finding)
    return issues


def _same(one: ViewFinding, two: ViewFinding) -> bool:
    first, second = (text_signs(f.claim) | keys_in(f"{f.claim} {f.next_step}") for f in (one, two))
    return alike(first, second, one.names and two.names)


def _rank(issue: Sequence[ViewFinding]) -> tuple[int, int, int, str]:
    severity = min(_severity(finding) for finding in issue)
    people = sum(finding.people for finding in issue)
    return severity, -people, -sum(finding.messages for finding in issue), issue[0].id


def _severity(finding: ViewFinding) -> int:
    return _SEVERITIES.index(finding.severity) if finding.severity in _SEVERITIES else 3


def _line(issue: Sequence[ViewFinding], language: str) -> tuple[str, str]:
    """What is to be done about an issue, and its citations."""
    lead = max(issue, key=lambda finding: (finding.people, finding.messages))
    where = ", ".join(dict.fromkeys(finding.section for finding in issue))
    act = phrase(language, "act", lead.claim.rstrip(" ."))
    place = f" {phrase(language, 'in', where)}" if where else ""
    cited = "".join(f"[{finding.id}]" for finding in issue)
    return f"{act}{place}", cited


def section_lines(view: View, language: str, most: int) -> list[str]:
    """A view as lines of an answer, each citing its finding."""
    if view.status in ("failed", "cancelled", "refused"):
        return [phrase(language, "failed", view.text)]
    lines = [phrase(language, "partial", view.text)] if view.status == "partial" else []
    if not view.findings:
        return [*lines, phrase(language, "found_none")]
    for finding in view.findings[:most]:
        people = f"; {finding.next_step}" if finding.next_step not in ("", "-") else ""
        lines.append(
            f"- «{finding.claim}» ({finding.state}, {finding.severity}{people.rstrip('.')}) "
            f"[{finding.id}]"
        )
    more = len(view.findings) - len(view.findings[:most]) + view.left_out
    return [*lines, phrase(language, "more", more) + "."] if more else lines
