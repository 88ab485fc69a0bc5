"""What a parent sees of a result: one line a finding, first things first, honestly cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scopes.tool import estimate_tokens, one_line
from subagents.contracts import NEEDS_ACTION
from subagents.fence import shorten
from subagents.result import Finding, SubagentResult

SEVERITIES = ("high", "medium", "low")
LATER = ("waiting", "none", "solved")
"""States that need no action of the team now, by how soon they may."""
CODE = "```"
"""What stands before code in Markdown."""
FRAME_TOKENS = 80
"""Kept back for the line that names what was cut."""


def rank(finding: Finding) -> tuple[int, int, int, int]:
    """Sorts findings by what to do first: open, severe, many customers, many messages."""
    state = 0 if finding.state in NEEDS_ACTION else 1 + LATER.index(finding.state)
    severity = SEVERITIES.index(finding.severity)
    return (state, severity, -finding.people, -finding.messages)


def parent_view(result: SubagentResult, max_tokens: int) -> str:
    """A result within `max_tokens`, with the ids of the findings that did not fit."""
    foot = _foot(result)
    room = max_tokens - _size(foot) - FRAME_TOKENS
    whole = room if _is_verdict(result) else room // 2
    shown = [shorten(_head(result), max(40, whole))]
    room -= _size(shown[0])
    # A verdict stands in the head as a whole: its one finding would say it again.
    ranked = [] if _is_verdict(result) else sorted(result.findings, key=rank)
    rows = [*map(row_line, _rows(result)), *_cells(result)]
    kept = fitting_lines(rows, room)
    shown += kept
    lines = fitting_lines(map(finding_line, ranked), room - sum(map(_size, kept)))
    shown += lines
    if more := len(rows) - len(kept):
        shown.append(f"(cut: {more} more rows{_CLOSED if _rows(result) else ''})")
    if left := ranked[len(lines) :]:
        shown.append(shorten(_cut(left), FRAME_TOKENS))
    return "\n".join([*shown, foot])


def fitting_lines(lines: Iterable[str], room: int) -> list[str]:
    """The first lines that fit together into so many tokens."""
    kept = []
    for line in lines:
        room -= _size(line)
        if room < 0:
            break
        kept.append(line)
    return kept


MIN_VIEW_TOKENS = 60


def fitted(views: Mapping[str, str], max_tokens: int) -> str:
    """Views (by id) that together fit, each shortened alike; those without room are named."""
    room = max(1, max_tokens // MIN_VIEW_TOKENS - 1)
    shown, left = list(views.items())[:room], list(views)[room:]
    share = max_tokens // max(1, len(shown) + bool(left))
    lines = [shorten(view, share) for _, view in shown]
    if left:
        named = f"({len(left)} more results are stored and in the report: {' '.join(left)}"
        lines.append(shorten(named, share - 1) + ")")
    return "\n\n".join(lines)


def _head(result: SubagentResult) -> str:
    ended = "" if result.stopped_by == "none" else f", stopped by {result.stopped_by}"
    why = f" ({one_line(result.reason)})" if result.reason else ""
    head = f"{result.id} {result.status}{ended}{why} ({result.scope}, {result.model}): "
    if _is_verdict(result):
        ids = " ".join(f"[{f.id}]" for f in result.findings)
        return f"{head}{ids} {_verdict(result.value or {})}"
    if result.contract != "draft" and CODE not in result.text:
        return head + one_line(result.text)
    # A draft and code keep their lines; the mark keeps any of them from passing for a finding.
    return head + "".join(f"\n> {line}" for line in result.text.splitlines())


def _is_verdict(result: SubagentResult) -> bool:
    return result.contract == "triage" and result.value is not None


def _verdict(value: Mapping[str, Any]) -> str:
    """A triage on one line: what decides its place, and its facts.

    They are numbered: two that follow each other in a mail would be an excerpt of it, unwritten by
    the subagent. The number is part of a word that no mail has: a bare one stands in the numbered
    lists of mails.
    """
    due = f"due {value['deadline']}" if value["deadline"] else ""
    asked = "asked of the reader" if value["asked_of_me"] else ""
    facts = " ".join(f"(fact{k}) {one_line(fact)}" for k, fact in enumerate(value["key_facts"], 1))
    step = f"next: {value['proposed_action']}" if value["proposed_action"] else ""
    parts = [value["category"], value["priority"], due, asked, facts, step]
    return " | ".join(one_line(part) for part in parts if part)


def _rows(result: SubagentResult) -> list[Mapping[str, Any]]:
    """The rows of a tracker, open ones first, then those closed last."""
    rows = (result.value or {}).get("rows", ()) if result.contract == "tracker" else ()
    newest = sorted(rows, key=lambda row: str(row["closed"]), reverse=True)
    return sorted(newest, key=lambda row: row["status"] != "open")


_CLOSED = ", of which closed ones were cut first"


def _cells(result: SubagentResult) -> list[str]:
    """A table: its columns, then its rows, numbered like the facts of a verdict (`_verdict`)."""
    if result.contract != "table" or not result.value:
        return []
    lines = [result.value["columns"], *result.value["rows"]]
    told = [" | ".join(map(one_line, line)) for line in lines]
    return [f"(row{k}) {line}" if k else f"columns: {line}" for k, line in enumerate(told)]


def row_line(row: Mapping[str, Any]) -> str:
    """A row of a tracker on one line; what says nothing is left out."""
    parts = [row["key"] or row["id"], row["status"], row["market"], row["title"]]
    return " | ".join(one_line(part) for part in parts if part)


def _cut(left: Sequence[Finding]) -> str:
    still = sum(f.state in NEEDS_ACTION for f in left)
    ids = " ".join(f.id for f in left)
    return f"(cut: {len(left)} more findings, {still} open, stored and in the report: {ids})"


def _foot(result: SubagentResult) -> str:
    missing = shorten("; ".join(map(one_line, result.not_covered)), 150) or "-"
    read = ", ".join(_read(result.coverage))
    told = [f"read: {read}"] if read else []
    return " | ".join([*told, f"not covered: {missing}", f"unsupported: {len(result.unsupported)}"])


def _read(cover: Mapping[str, Any]) -> Iterator[str]:
    """What was read, in words that hold for it; a source of messages may be empty."""
    messages, complete = int(cover.get("messages_read", 0)), bool(cover.get("complete"))
    items = int(cover.get("items_read", 0)) - messages
    if messages or (complete and not items):
        yield f"{messages} messages"
        yield f"{cover.get('threads_read', 0)} threads"
    if items > 0:
        yield f"{items} {'other items' if messages else 'items'}"
    if complete:
        yield "complete"
    elif messages:
        yield "not the whole source"


def finding_line(finding: Finding) -> str:
    """A finding on one line, as a parent or a brief shows it; what says nothing is left out."""
    parts = [f"[{finding.id}] {one_line(finding.claim)}"]
    if finding.state != "none":
        since = f", since {finding.since[:10]}" if finding.since else ""
        more = ", ..." if finding.customers[5:] else ""
        names = f" ({', '.join(finding.customers[:5])}{more})" if finding.customers else ""
        parts.append(f"{finding.state}, {finding.severity}{since}")
        if finding.messages or finding.people:
            parts.append(f"{finding.messages} messages, {finding.people} customers{names}")
    parts += [f"owner: {one_line(finding.owner)}"] if finding.owner else []
    parts += [f"next: {one_line(finding.next_step)}"] if finding.next_step else []
    return " | ".join(parts)


def _size(line: str) -> int:
    return estimate_tokens(line) + 1
