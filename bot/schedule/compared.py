"""A sweep's report compared with what earlier ones told: what is new, still open, changed, over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.schedule.identity import Issue, Match, Trace, change_of, matched, new_id
from scopes.tool import iso
from subagents.contracts import NEEDS_ACTION
from subagents.view import SEVERITIES

Json = dict[str, Any]

CHANGES = ("new", "open", "changed", "solved", "reopened")
"""What a finding is beside the last report; null = it says nothing that was not said before."""


def compared(
    document: Mapping[str, Any], known: Sequence[Issue], last: datetime | None, reports: int
) -> Json:
    """The document with an issue and a change in each finding, and with what is still open.

    `last`: end of the last report that was delivered, after `reports` of them; None before the
    first. `known`: what they told.
    """
    at = datetime.fromisoformat(document["window"]["latest"])
    noted = _annotations(document["sections"], known, at)
    sections = [{**s, "findings": _with(s["findings"], noted)} for s in document["sections"]]
    children = [{**c, "findings": _with(c["findings"], noted)} for c in document["subagents"]]
    told = {id for note in noted.values() for id in (note["issue"], *note["absorbed"])}
    still = _still_open(sections, [i for i in known if i.id not in told], at)
    return {
        **document,
        "sections": sections,
        "subagents": children,
        "compared": {"with": iso(last), "reports": reports} if last else None,
        "still_open": still,
        "counts": counts_of([f for s in sections for f in s["findings"]], still),
    }


def counts_of(findings: Iterable[Mapping[str, Any]], still_open: Sequence[Json]) -> dict[str, int]:
    """How many issues of a report need action (`open`, `high` of them), and how many are what
    beside the last one."""
    found = list(findings)
    ours = [each for each in [*found, *still_open] if each["state"] in NEEDS_ACTION]
    changes = [f.get("change") for f in found]
    return {
        "open": len(ours),
        **{change: changes.count(change) for change in CHANGES if change != "open"},
        "high": sum(each["severity"] == "high" for each in ours),
    }


def _annotations(
    sections: Sequence[Mapping[str, Any]], known: Sequence[Issue], at: datetime
) -> dict[str, Json]:
    """By id of finding: what is to be said of it."""
    found = [(s["channel"], f) for s in sections for f in s["findings"]]
    traces = [Trace.of(channel, finding) for channel, finding in found]
    matches = matched(traces, known)
    taken = {issue.id for issue in known}
    noted: dict[str, Json] = {}
    for k in sorted(range(len(found)), key=lambda k: (traces[k].order, k)):
        finding, match = found[k][1], matches[k]
        note = _annotation(finding, match, at)
        if match.issue is None and note["change"]:
            note["issue"] = new_id(traces[k], taken)
            taken.add(note["issue"])
        noted[finding["id"]] = note
    return noted


def _annotation(finding: Mapping[str, Any], match: Match, at: datetime) -> Json:
    was = match.issue or match.parent
    change = change_of(finding["state"], finding["severity"], finding["owner"], was)
    opened = [datetime.fromisoformat(finding["since"])] if finding["since"] else []
    before = [i.first for i in (match.issue, *match.absorbed) if i]
    first = min([*opened, *before], default=at)
    return {
        "issue": match.issue.id if match.issue else None,
        "change": change,
        "first": iso(first) if was or change else None,
        "age_days": _days(first, at) if was or change else None,
        "absorbed": [issue.id for issue in match.absorbed],
    }


def _with(findings: Sequence[Json], noted: Mapping[str, Json]) -> list[Json]:
    """The findings with what is to be said of each; one that no section tells has nothing."""
    return [{**f, **noted.get(f["id"], _NOTHING)} for f in findings]


_NOTHING: Json = {"issue": None, "change": None, "first": None, "age_days": None, "absorbed": []}


def _still_open(
    sections: Sequence[Mapping[str, Any]], unseen: Iterable[Issue], at: datetime
) -> list[Json]:
    """What needed action when it was last told, of these channels, and was not seen since."""
    names = {s["channel"]: s["item"] for s in sections}
    found = [i for i in unseen if i.needs_action and i.trace.channel in names]
    found.sort(key=lambda issue: (SEVERITIES.index(issue.severity), issue.first, issue.id))
    return list(_told(found, names, at))


def _told(issues: Iterable[Issue], names: Mapping[str, str], at: datetime) -> Iterator[Json]:
    for issue in issues:
        yield {
            "issue": issue.id,
            "claim": issue.claim,
            "item": names[issue.trace.channel],
            "severity": issue.severity,
            "state": issue.state,
            "owner": issue.owner,
            "first": iso(issue.first),
            "age_days": _days(issue.first, at),
            "links": list(issue.links),
        }


def _days(first: datetime, at: datetime) -> int:
    return max(0, (at - first).days)
