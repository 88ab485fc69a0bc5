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


LEAST_TOKENS = 250
"""Below this share of the room for each, results are shown together, by what was found."""
NAMED_SHARE = 8
"""Each list of ids takes at most this part of the room (one eighth)."""
LOOK_UP = "to read one, give its id in `findings` of a new brief"


def overview(results: Sequence[SubagentResult], each: int, max_tokens: int) -> str:
    """The results of one call within `max_tokens`: a view of at most `each` tokens for each one,
    or, where that leaves too little for any, the findings of all, the equal ones joined."""
    if len(results) * LEAST_TOKENS > max_tokens:
        return _together(results, max_tokens)
    whole = [parent_view(result, each) for result in results]
    level = _level([_size(view) + 1 for view in whole], max_tokens)
    views = [
        view if _size(view) < level else parent_view(result, level - 2)
        for view, result in zip(whole, results, strict=True)
    ]
    return "\n\n".join(views)


def _level(sizes: Sequence[int], room: int) -> int:
    """The size that fits into the room if none is larger: what small ones leave is for others."""
    for k, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - k)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _together(results: Sequence[SubagentResult], max_tokens: int) -> str:
    """The findings of many subagents, the first of each first; what is not shown is counted and
    named as far as there is room."""
    found = [r for r in results if r.findings and not _is_verdict(r)]
    read = _made(results) if found else results
    named = max_tokens // NAMED_SHARE
    lines = [*_unfinished(results, named), *_empty(results, found, read, named)]
    room = max_tokens - sum(map(_size, lines)) - named - FRAME_TOKENS
    shown, left = _findings(found, room if not read else room // 2)
    if left:
        lines.append(_left_out(left, named))
    if read:
        room -= sum(map(_size, shown))
        most = room // MIN_VIEW_TOKENS  # of the others only the ids are shown
        views = {r.id: parent_view(r, LEAST_TOKENS) for r in read[:most]}
        lines.insert(0, fitted({**dict.fromkeys((r.id for r in read), ""), **views}, room))
    return shorten("\n".join([*shown, *lines]), max_tokens)


def _made(results: Sequence[SubagentResult]) -> list[SubagentResult]:
    """Those whose value is shown though it is no finding."""
    return [
        r
        for r in results
        if r.value and (_is_verdict(r) or (not r.findings and r.contract in ("table", "draft")))
    ]


def _findings(found: Sequence[SubagentResult], room: int) -> tuple[list[str], list[Finding]]:
    """Lines of findings that fit, and the findings that do not."""
    ranked = [
        (k, rank(finding), finding)
        for result in found
        for k, finding in enumerate(sorted(result.findings, key=rank))
    ]
    groups: dict[tuple[str, str], list[Finding]] = {}
    for _, _, finding in sorted(ranked, key=lambda each: each[:2]):
        claim = " ".join(finding.claim.casefold().split())
        groups.setdefault((claim, finding.state), []).append(finding)
    alike = list(groups.values())
    shown = fitting_lines(map(_joined_line, alike), room)
    return shown, [finding for group in alike[len(shown) :] for finding in group]


def _joined_line(alike: Sequence[Finding]) -> str:
    """Findings that say the same: the first, with the ids of the others."""
    first, *others = alike
    if not others:
        return finding_line(first)
    ids = " ".join(f"[{finding.id}]" for finding in others)
    return f"{finding_line(first)} | the same: {ids} (figures: those of {first.id})"


def _left_out(left: Sequence[Finding], room: int) -> str:
    still = sum(f.state in NEEDS_ACTION for f in left)
    head = f"(not shown: {len(left)} findings, {still} open, stored and in the report; {LOOK_UP}: "
    return _naming(head, [f.id for f in left], room)


def _empty(
    results: Sequence[SubagentResult],
    found: Sequence[SubagentResult],
    read: Sequence[SubagentResult],
    room: int,
) -> list[str]:
    told = {r.id for r in (*found, *read)}
    ids = [r.id for r in results if r.id not in told]
    head = f"({len(ids)} subagents found nothing; what they wrote is stored and in the report: "
    return [_naming(head, ids, room)] if ids else []


def _unfinished(results: Sequence[SubagentResult], room: int) -> list[str]:
    """How many ended in which way, those not complete by id, and what was not covered."""
    ends: dict[str, list[str]] = {}
    for r in results:
        stop = "" if r.stopped_by == "none" else f", stopped by {r.stopped_by}"
        ends.setdefault(f"{r.status}{stop}", []).append(r.id)
    told = [f"{len(ids)} {end}" for end, ids in ends.items()]
    gaps = sum(bool(r.not_covered) for r in results)
    dropped = sum(len(r.unsupported) for r in results)
    lines = [f"{', '.join(told)} | not all covered: {gaps} | unsupported: {dropped}"]
    for end, ids in ends.items():
        if end != "complete":
            lines.append(_naming(f"({end}: ", ids, room // len(ends)))
    return lines


def _naming(head: str, ids: Sequence[str], room: int) -> str:
    """As many ids as there is room for, and how many more there are."""
    room -= _size(head) + _size(f" and {len(ids)} more)")
    kept = len(fitting_lines(ids, room))
    more = f" and {len(ids) - kept} more" if kept < len(ids) else ""
    return f"{head}{' '.join(ids[:kept])}{more})"


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
