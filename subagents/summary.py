"""The summary of a result that a parent sees: one line per finding, most important first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from scopes.tool import estimate_tokens, format_count, one_line
from subagents.contracts import (
    NEEDS_ACTION,
    RESTING_STATES,
    TableContract,
    TrackedRow,
    TriageVerdict,
)
from subagents.delimiter import fitting_lines, shorten
from subagents.evidence import Coverage
from subagents.result import Finding, SubagentResult, tracked_rows, verdict

SEVERITIES = ("high", "medium", "low")
LAST = "9999"
"""Sorts findings without a time after those with one."""
LATER = ("waiting", "known", "none", "declined", "solved")
"""States that need no action of the team now, by how soon they may."""
_DRAFT_GAP = re.compile(r"\[[^\[\]]+\]")
"""A gap that a draft leaves for the reader to fill."""
CODE = "```"
"""Precedes code in Markdown."""
FRAME_TOKENS = 80
"""Tokens reserved for the line that names the cut findings."""


def rank(finding: Finding) -> tuple[int, bool, str, int, int]:
    """Return the sort key of a finding: open, severe, long waiting, many customers first."""
    state = 0 if finding.state in NEEDS_ACTION else 1 + LATER.index(finding.state)
    since = finding.waits_since or finding.since or LAST
    return (state, finding.severity != "high", since, -finding.people, -finding.messages)


def parent_view(result: SubagentResult, max_tokens: int, *, with_reporters: bool = False) -> str:
    """Return a result within `max_tokens`, with the ids of the findings that did not fit.

    `with_reporters`: say who opened the threads of each issue, if there is room for all of it.
    """
    foot = _foot(result)
    room = max_tokens - _size(foot) - FRAME_TOKENS
    whole = room if verdict(result) else room // 2
    shown = [shorten(_head(result), max(40, whole))]
    room -= _size(shown[0])
    # A verdict is in the head as a whole: its one finding would repeat it.
    ranked = [] if verdict(result) else sorted(result.findings, key=rank)
    tracked, cells = _rows(result), _cells(result)
    rows = [*map(row_line, tracked), *cells]
    findings = [*map(finding_line, ranked)]
    named = [line + _openers_of(finding) for line, finding in zip(findings, ranked, strict=True)]
    if with_reporters and len(fitting_lines([*rows, *named], room)) == len(rows) + len(named):
        findings = named
    about = fitting_lines(findings, room // 2) if cells else []  # say what the rows are
    kept = fitting_lines(rows, room - sum(map(_size, about)))
    lines = fitting_lines(findings, room - sum(map(_size, kept)))
    shown += [*kept, *lines]
    if more := len(rows) - len(kept):
        shown.append(
            f"(cut: {format_count(more, 'more row')}{_CLOSED_CUT_SUFFIX if tracked else ''})"
        )
    if cut := ranked[len(lines) :]:
        head = f"(cut: {_unshown(cut, 'more finding')}: "
        named = [f"{f.id} ({f.customers[0]})" if f.customers else f.id for f in cut]
        line = f"{head}{' '.join(named)})"
        if _size(line) > FRAME_TOKENS:
            line = f"{head}{' '.join(f.id for f in cut)})"
        shown.append(shorten(line, FRAME_TOKENS))
    return "\n".join([*shown, foot])


def room_for(result: SubagentResult, usual: int) -> int:
    """Return the tokens that a view may take: more than usual where a caller would have to read the
    sources itself if it did not see each case."""
    return {"table": 4, "answer": 3}.get(result.contract, 1) * usual


LEAST_TOKENS = 250
"""If each result has less room than this, their findings are shown together."""
MIN_VIEW_TOKENS = 60
"""A result that would get less room than this is only named."""
NAMED_SHARE = 8
"""Each list of ids takes at most this part of the room (one eighth)."""
LOOK_UP = "to read one, give its id in `findings` of a new brief"


def overview(results: Sequence[SubagentResult], each: int, max_tokens: int) -> str:
    """Return the results of one call within `max_tokens`.

    Each has a view of `each` tokens, an answer or a table more; short views leave their room to
    long ones. If that leaves too little for any, return the findings of all.
    """
    if len(results) * LEAST_TOKENS > max_tokens:
        return _together(results, max_tokens)
    room = min(max_tokens, sum(room_for(result, each) for result in results))
    whole = [parent_view(result, room, with_reporters=True) for result in results]
    level = _level([_size(view) + 1 for view in whole], room)
    views = [
        view if _size(view) < level else parent_view(result, level - 2, with_reporters=True)
        for view, result in zip(whole, results, strict=True)
    ]
    return "\n\n".join(views)


def _level(sizes: Sequence[int], room: int) -> int:
    """Return the largest equal size that fits into the room; small ones leave theirs to others."""
    for k, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - k)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _together(results: Sequence[SubagentResult], max_tokens: int) -> str:
    """Return the findings of many subagents, the first of each first.

    The rest is counted, and named as far as there is room.
    """
    found = [r for r in results if r.findings and not verdict(r)]
    composed = ("table", "draft")  # their value is shown although it is not a finding
    read = [
        r
        for r in results
        if not found or verdict(r) or (r.value and not r.findings and r.contract in composed)
    ]
    named = max_tokens // NAMED_SHARE
    lines = _describe_unfinished(results, named)
    covered = {r.id for r in (*found, *read)}
    if empty := [r.id for r in results if r.id not in covered]:
        count = format_count(len(empty), "subagent")
        head = f"({count} found nothing; what was written is stored and in the report: "
        lines.append(_name_some(head, empty, named))
    room = max_tokens - sum(map(_size, lines)) - named - FRAME_TOKENS
    places = [enumerate(sorted(result.findings, key=rank)) for result in found]
    ranked = [f for _, f in sorted(chain(*places), key=lambda each: (each[0], rank(each[1])))]
    shown = fitting_lines(map(finding_line, ranked), room // 2 if read else room)
    if rest := ranked[len(shown) :]:
        head = f"(not shown: {_unshown(rest, 'finding')}; {LOOK_UP}: "
        lines.append(_name_some(head, [f.id for f in rest], named))
    whole = [parent_view(r, LEAST_TOKENS, with_reporters=True) for r in read]
    left = room - sum(map(_size, shown))
    level = max(MIN_VIEW_TOKENS, _level([*map(_size, whole)], left))
    views = fitting_lines([shorten(view, level - 1) for view in whole], left)
    if cut := read[len(views) :]:
        count = format_count(len(cut), "more result")
        head = f"(not shown: {count}, stored and in the report: "
        lines.append(_name_some(head, [r.id for r in cut], named))
    return shorten("\n".join([*shown, *views, *lines]), max_tokens)


def _unshown(findings: Sequence[Finding], noun: str) -> str:
    still = sum(f.state in NEEDS_ACTION for f in findings)
    return f"{format_count(len(findings), noun)}, {still} open, stored and in the report"


def _describe_unfinished(results: Sequence[SubagentResult], room: int) -> list[str]:
    """Return how many ended in which way, those not complete by id, and what was not covered."""
    ends: dict[str, list[str]] = {}
    for r in results:
        ends.setdefault(_end(r), []).append(r.id)
    counts = [f"{len(ids)} {end}" for end, ids in ends.items()]
    gaps = sum(bool(r.not_covered) for r in results)
    dropped = sum(len(r.unsupported) for r in results)
    lines = [f"{', '.join(counts)} | not all covered: {gaps} | unsupported: {dropped}"]
    for end, ids in ends.items():
        if end != "complete":
            lines.append(_name_some(f"({end}: ", ids, room // len(ends)))
    return lines


def _name_some(head: str, ids: Sequence[str], room: int) -> str:
    """Return as many ids as there is room for, and how many more there are."""
    room -= _size(head) + _size(f" and {len(ids)} more)")
    kept = len(fitting_lines(ids, room))
    more = f" and {len(ids) - kept} more" if kept < len(ids) else ""
    return f"{head}{' '.join(ids[:kept])}{more})"


def _end(result: SubagentResult) -> str:
    stop = "" if result.stopped_by == "none" else f", stopped by {result.stopped_by}"
    return f"{result.status}{stop}"


def _head(result: SubagentResult) -> str:
    why = f" ({one_line(result.reason)})" if result.reason else ""
    head = f"{result.id} {_end(result)}{why} ({result.scope}, {result.model}): "
    if found := verdict(result):
        ids = " ".join(f"[{f.id}]" for f in result.findings)
        return f"{head}{ids} {_verdict_line(found)}"
    if result.contract != "draft" and CODE not in result.text:
        return head + one_line(result.text)
    # A draft and code keep their lines; the mark keeps any of them from passing for a finding.
    return head + "".join(f"\n> {line}" for line in result.text.splitlines())


def _verdict_line(found: TriageVerdict) -> str:
    """Return a triage on one line: what decides its place, and its facts.

    Facts are numbered: two that follow each other in a mail would otherwise be an excerpt of it.
    The number is part of a word that no mail has, since bare ones occur in the numbered lists of
    mails.
    """
    due = f"due {found.deadline}" if found.deadline else ""
    asked_note = "asked of the reader" if found.asked_of_me else ""
    facts = " ".join(f"(fact{k}) {one_line(fact)}" for k, fact in enumerate(found.key_facts, 1))
    step = f"next: {found.proposed_action}" if found.proposed_action else ""
    gaps = " ".join(_DRAFT_GAP.findall(found.draft_reply))
    gap_note = f"its draft leaves open: {gaps}" if gaps else ""
    parts = [found.category, found.priority, due, asked_note, facts, step, gap_note]
    return " | ".join(one_line(part) for part in parts if part)


def _rows(result: SubagentResult) -> list[TrackedRow]:
    """Return the rows of a tracker, open ones first, then those closed last."""
    return sorted(tracked_rows(result), key=lambda r: (r.status == "open", r.closed), reverse=True)


_CLOSED_CUT_SUFFIX = ", of which closed ones were cut first"


def _cells(result: SubagentResult) -> list[str]:
    """Return a table: its columns, then its rows, numbered like the facts in `_verdict`."""
    if result.contract != "table" or not result.value:
        return []
    table = TableContract.model_validate(result.value)
    lines = [" | ".join(map(one_line, line)) for line in (table.columns, *table.rows)]
    return [f"(row{k}) {line}" if k else f"columns: {line}" for k, line in enumerate(lines)]


def row_line(row: TrackedRow) -> str:
    """Return a row of a tracker on one line, without empty parts."""
    parts = [row.key or row.id, row.status, row.market, row.title]
    return " | ".join(one_line(part) for part in parts if part)


def _foot(result: SubagentResult) -> str:
    missing = shorten("; ".join(map(one_line, result.not_covered)), 150) or "-"
    read = ", ".join(_read(result.read))
    parts = [f"read: {read}"] if read else []
    return " | ".join(
        [*parts, f"not covered: {missing}", f"unsupported: {len(result.unsupported)}"]
    )


def _read(cover: Coverage) -> Iterator[str]:
    """Return what was read, worded for its kind of source; a source of messages may be empty."""
    messages, complete = cover.messages_read, cover.complete
    items = cover.items_read - messages
    if messages or (complete and not items):
        yield f"{messages} messages"
        yield f"{cover.threads_read} threads"
    if items > 0:
        yield f"{items} {'other items' if messages else 'items'}"
    if cover.sources_read < cover.sources_listed:
        yield f"{cover.sources_read} of {cover.sources_listed} listed files or threads"
    if complete:
        yield "complete"
    elif messages:
        yield "not the whole source"


def finding_line(finding: Finding) -> str:
    """Return a finding on one line, as a parent or a brief shows it, without empty parts."""
    parts = [f"[{finding.id}] {one_line(finding.claim)}"]
    more = ", ..." if finding.customers[5:] else ""
    names = f" ({', '.join(finding.customers[:5])}{more})" if finding.customers else ""
    if finding.state in RESTING_STATES and finding.severity == "low":
        is_named = all(name in finding.claim for name in finding.customers)
        parts.append(finding.state if is_named else f"{finding.state}{names}")
    elif finding.state != "none":
        opened, waits = (finding.since or "")[:10], (finding.waits_since or "")[:10]
        since = f", since {opened}" if opened else ""
        since += f", waits since {waits}" if waits not in ("", opened) else ""
        since += f", due {finding.deadline}" if finding.deadline else ""
        parts.append(f"{finding.state}, {finding.severity}{since}")
        if names or finding.messages > 1 or finding.people > 1:
            parts.append(f"{finding.messages} messages, {finding.people} customers{names}")
    if finding.severity == "high" and finding.severity_reason:
        parts.append(f"why high: {one_line(finding.severity_reason)}")
    parts += [f"owner: {one_line(finding.owner)}"] if finding.owner else []
    parts += [f"next: {one_line(finding.next_step)}"] if finding.next_step else []
    return " | ".join(parts)


def _openers_of(finding: Finding) -> str:
    """Return who opened the threads of an issue, for the parent to name whom to turn to."""
    names = ", ".join(map(one_line, finding.waits[:3]))
    return f" | reported by: {names}" if names and finding.state != "none" else ""


def _size(line: str) -> int:
    return estimate_tokens(line) + 1
