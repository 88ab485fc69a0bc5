"""Reads the views that a parent gets of its subagents, and ranks what is in them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.local.mind.grouping import alike, keys_in, text_signs
from bot.local.mind.orders import NOT_DONE
from bot.local.mind.phrases import OFFLINE, phrase
from bot.local.mind.talk import say

NEEDS_ACTION = ("unanswered", "unsolved")
STATES = (*NEEDS_ACTION, "waiting", "solved")
MAX_LINES = 6
MAX_FIRST = 3
_SEVERITIES = ("high", "medium", "low")
_HEAD = re.compile(
    r"^\w+ (?P<status>complete|partial|failed|cancelled|refused)\b(?:.*?\(\w+, \w+\))?"
    r"[^:]*: ?(?P<text>.*)$"
)
_FINDING = re.compile(
    r"^\[(?P<id>F\d+\.\d+)\] (?P<claim>.*?)"
    r"(?: \| (?P<state>\w+), (?P<severity>high|medium|low)(?:, since (?P<since>\S+))?"
    r"(?: \| (?P<messages>\d+) messages, (?P<people>\d+) customers(?: \((?P<names>.*?)\))?)?)?"
    r"(?: \| owner: (?P<owner>.*?))?(?: \| next: (?P<next>.*?))?"
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
    messages: int
    people: int
    next_step: str
    names: str = ""
    """The customers it names, if any: a report about the product, not one person's question."""
    owner: str = ""
    since: str = ""
    """Day, as YYYY-MM-DD; empty where it is not known."""
    where: str = ""
    """Id of a message in its thread; empty where that is not told."""
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
        found["names"] or "",
        (found["owner"] or "").strip("- "),
        found["since"] or "",
        found["where"] or "",
    )


def listed_findings(text: str) -> list[ViewFinding]:
    """The findings that a text lists, one a line, outside of any view."""
    return [_finding(found) for line in text.splitlines() if (found := _FINDING.match(line))]


def top_lines(sections: Iterable[tuple[str, str]], language: str) -> str:
    """What to do first across sections (name, views), and what several have, each line cited."""
    read = [(name, parse_views(views)) for name, views in sections]
    lines = first_things(read, language)[:MAX_FIRST]
    if not lines:
        return f"{phrase(language, 'found_none')} {OFFLINE}"
    told = [f"- {line} {cited}" for line, cited in lines[:-1]]
    line, cited = lines[-1]
    return "\n".join([*told, f"- {line} {OFFLINE} {cited}", *_patterns(read, language)])


def _patterns(sections: Iterable[tuple[str, Iterable[View]]], language: str) -> list[str]:
    """A line for each issue that several sections have, whatever its state there."""
    every = [
        replace(finding, section=name)
        for name, views in sections
        for view in views
        for finding in view.findings
        if finding.state in STATES
    ]
    issues = sorted(_join(every), key=_rank)
    shared = [issue for issue in issues if len({f.section for f in issue}) > 1]
    told = [(max(i, key=lambda f: (f.people, f.messages)), i) for i in shared]
    return [
        f"PATTERN: {phrase(language, 'pattern', lead.claim.rstrip(' .'), _places(issue))} "
        + "".join(f"[{finding.id}]" for finding in issue)
        for lead, issue in told
    ]


def _places(issue: Sequence[ViewFinding]) -> str:
    return ", ".join(dict.fromkeys(finding.section for finding in issue))


def first_things(
    sections: Iterable[tuple[str, Iterable[View]]], language: str
) -> list[tuple[str, str]]:
    """The lines of `top_lines` with their citations; none where nothing is open."""
    open_ones = [
        replace(finding, section=name)
        for name, views in sections
        for view in views
        for finding in view.findings
        if finding.state in NEEDS_ACTION
    ]
    issues = sorted(_join(open_ones), key=_rank)
    first = issues[:3]
    for name in dict.fromkeys(finding.section for finding in open_ones):
        if len(first) < MAX_LINES and all(name != f.section for issue in first for f in issue):
            first.append(next(i for i in issues if any(f.section == name for f in i)))
    return [_line(issue, language) for issue in sorted(first, key=_rank)]


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
    return alike(first, second, bool(one.names and two.names))


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


def standing(finding: ViewFinding, language: str) -> list[str]:
    """State with severity, and the next step, as far as they say anything."""
    solved = finding.state == "solved"
    steps = [] if solved or finding.next_step in ("", "-") else [finding.next_step]
    if finding.state not in STATES:
        return steps
    return [f"{say(language, finding.state)}, {say(language, finding.severity)}", *steps]


def section_lines(view: View, language: str, most: int) -> list[str]:
    """A view as lines of an answer, each citing its finding."""
    if view.status == "unknown":
        return [view.text]
    if view.status in ("failed", "cancelled", "refused"):
        return [phrase(language, "failed", view.text)]
    if view.text.startswith(NOT_DONE[0]):
        return [view.text.replace(OFFLINE, "").strip()]
    lines = [phrase(language, "partial", view.text)] if view.status == "partial" else []
    if not view.findings:
        return [*lines, phrase(language, "found_none")]
    for finding in view.findings[:most]:
        facts = "; ".join(part.rstrip(".") for part in standing(finding, language))
        lines.append(f"- «{finding.claim}»{facts and f' ({facts})'} [{finding.id}]")
    more = len(view.findings) - len(view.findings[:most]) + view.left_out
    return [*lines, phrase(language, "more", more)] if more else lines
