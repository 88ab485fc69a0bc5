"""Turns the threads of a channel into findings: claim, severity, next step, evidence, quotes."""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from bot.local.mind.cues import fold, language_of, read_turn
from bot.local.mind.grouping import (
    TrackerItem,
    customers_of,
    group,
    match_tracker,
    names_customers,
)
from bot.local.mind.phrases import phrase
from bot.local.mind.threads import Line, Thread, Verdict, judge

CLAIM_CHARS = 120
MANY = 5
"""People who say by a reaction that they have the problem too, from which it is grave."""
CHAT_CHARS = 150
"""Length below which a lone message is a line of a chat."""
NEEDS_ACTION = ("unanswered", "unsolved")
_STATES = ("unanswered", "unsolved", "waiting", "solved")
_SEVERITIES = ("high", "medium", "low")
_CORE = ("claim", "state", "severity", "evidence", "customers")
_FACTS = (*_CORE, "owner", "next_step")
_TITLE = re.compile(r"^\*([^*]{3,300})\*")
_TAGS = re.compile(r"^(?:\[[^\]]{1,60}\]\s*)+")
_ENDS = re.compile(r"(?<=[.!?…])\s+")
_MARKS = re.compile(r"[*_~`]+(?=\W|$)|(?<!\w)[*_~`]+")
_RAISED = ("raised_hand", "raising_hand", "hand", "me_too", "heavy_plus_sign")

Finding = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """A thread with what the rules say of it."""

    thread: Thread
    verdict: Verdict
    severity: str
    reason: str


@dataclass(frozen=True)
class Board:
    """Everything that was read of one channel, judged."""

    threads: tuple[Judged, ...]
    groups: tuple[tuple[Judged, ...], ...]
    """Issues, the most pressing first."""
    no_issue: tuple[str, ...]
    tagged: bool


def read_board(threads: Sequence[Thread], report: str = "en") -> Board:
    """Judge and group the threads of one channel; `report` is the language of the reasons."""
    said = " ".join(line.text for thread in threads for line in thread.lines)
    language = language_of(fold(said))
    chat = _is_chat(threads)
    judged = {thread.root.id: _judged(thread, language, report, chat) for thread in threads}
    issues = [thread for thread in threads if judged[thread.root.id].verdict.state != "none"]
    states = {root: each.verdict.state for root, each in judged.items()}
    tagged = names_customers(threads)
    groups = [
        tuple(judged[thread.root.id] for thread in members)
        for members in group(issues, states, tagged)
    ]
    talk = tuple(root for root, state in states.items() if state == "none")
    return Board(tuple(judged.values()), tuple(sorted(groups, key=_press)), talk, tagged)


def _is_chat(threads: Sequence[Thread]) -> bool:
    """Whether people answer in the channel instead of in threads, as in a chat room."""
    alone = [thread for thread in threads if len(thread.lines) == 1]
    short = [thread for thread in alone if len(thread.root.text) < CHAT_CHARS]
    titled = sum(bool(_TITLE.match(thread.root.text)) for thread in threads)
    return len(threads) >= 20 and len(short) * 2 > len(threads) > titled * 4


def _judged(thread: Thread, language: str, report: str, chat: bool) -> Judged:
    tongue = language_of(fold(" ".join(line.text for line in thread.lines)), language)
    asked = [line.text for line in thread.lines if line.author == thread.root.author]
    turn = read_turn(" . ".join(asked), tongue)
    head = read_turn(claim_of(thread), tongue)
    raised = sum(count for name, count in thread.root.reactions if name in _RAISED)
    severity, reason = "medium", phrase(report, "hindered")
    if raised >= MANY:
        severity, reason = "high", phrase(report, "many", raised)
    elif head.asks and not head.troubled and not head.grave:
        severity, reason = "low", phrase(report, "how_to")
    elif turn.grave:
        severity, reason = "high", phrase(report, "grave", turn.grave)
    elif not turn.troubled:
        severity, reason = "low", phrase(report, "how_to")
    verdict = judge(thread, language)
    if chat and len(thread.lines) == 1 and not turn.question:
        verdict = replace(verdict, state="none", why="a remark in a chat")
    return Judged(thread, verdict, severity, reason)


def _press(members: Sequence[Judged]) -> tuple[int, int, int, str]:
    """Sorts needs-action first, then by severity and size."""
    severity = min(_SEVERITIES.index(each.severity) for each in members)
    state = _STATES.index(members[0].verdict.state)
    acts = 0 if members[0].verdict.state in NEEDS_ACTION else state
    return acts, severity, -len(members), members[0].thread.root.id


def finding_of(
    members: Sequence[Judged], tagged: bool, tracker: Sequence[TrackerItem], report: str
) -> Finding:
    """One finding; its state holds for every thread in its evidence."""
    worst = min(members, key=lambda each: _SEVERITIES.index(each.severity))
    lead = max(members, key=lambda each: (len(each.thread.lines), each.thread.root.id))
    named: dict[str, Line] = {}
    for each in members:
        named |= customers_of(each.thread, tagged)
    proof = [line.id for each in members for line in (each.thread.root, each.verdict.decided_by)]
    return {
        "claim": claim_of(lead.thread),
        "state": lead.verdict.state,
        "severity": worst.severity,
        "severity_reason": worst.reason,
        "owner": lead.thread.replies[-1].author if lead.thread.replies else "",
        "next_step": _next_step(lead, members, tracker, report),
        "customers": list(named),
        "evidence": list(dict.fromkeys([*proof, *(line.id for line in named.values())])),
        "quotes": _quotes(lead),
    }


def _next_step(
    lead: Judged, members: Sequence[Judged], tracker: Sequence[TrackerItem], report: str
) -> str:
    state, who = lead.verdict.state, lead.thread.root.author
    step = phrase(report, f"next_{state}", who)
    if not tracker or state == "solved":
        return step
    item = match_tracker([each.thread for each in members], tracker)
    if item is None:
        return f"{step} {phrase(report, 'untracked')}"
    kind = "tracked_closed" if item.closed else "tracked"
    return f"{step} {phrase(report, kind, item.key or item.id)}"


def claim_of(thread: Thread) -> str:
    """The asker's own words on one line: the title, or the first sentence that says something."""
    text = html.unescape(thread.root.text)
    title = _TITLE.match(text)
    text = title[1] if title else _first_sentence(_TAGS.sub("", text))
    text = re.sub(r"(?<!\.)\.$", "", " ".join(_MARKS.sub("", text).split()))
    return _shorten(text or html.unescape(thread.root.text) or "(no text)", CLAIM_CHARS)


def _first_sentence(text: str) -> str:
    parts = _ENDS.split(text.strip())
    telling = [part for part in parts if len(part.split()) > 3]
    return (telling or parts)[0]


def _shorten(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"


def _quotes(lead: Judged) -> list[str]:
    """At most two exact copies: of the question, and of what decides its state."""
    lines = [lead.thread.root]
    if lead.verdict.decided_by.id != lead.thread.root.id:
        lines.append(lead.verdict.decided_by)
    return [quote for line in lines if (quote := quote_of(line))]


def quote_of(line: Line) -> str:
    """The first telling sentence of a message, exactly as shown, cut at a word."""
    title = _TITLE.match(line.text)
    text = title[1] if title else _first_sentence(_TAGS.sub("", line.text))
    return text if len(text) <= CLAIM_CHARS else text[:CLAIM_CHARS].rsplit(" ", 1)[0]


def submission(
    boards: Iterable[Board], tracker: Sequence[TrackerItem], report: str, max_bytes: int
) -> tuple[list[Finding], list[str]]:
    """Findings and threads without an issue, told more briefly where `max_bytes` asks for it."""
    boards = list(boards)
    no_issue = [root for board in boards for root in board.no_issue]
    pairs = [(board, members) for board in boards for members in board.groups]
    pairs.sort(key=lambda pair: _press(pair[1]))
    full = [finding_of(members, board.tagged, tracker, report) for board, members in pairs]
    room = max_bytes - size_of(no_issue)
    solved, waiting, acts = (
        frozenset({"solved"}),
        frozenset({"solved", "waiting"}),
        frozenset(_STATES),
    )
    for shortened in (frozenset(), solved, waiting):
        findings = [_brief(finding, shortened) for finding in full]
        if size_of(findings) <= room:
            return findings, no_issue
    findings = _together(full, ("waiting", "solved"), report)
    for kept in (_FACTS, _CORE):
        if size_of(findings) > room:
            findings = [_brief(finding, acts, kept) for finding in findings]
    return findings if size_of(findings) <= room else _together(full, _STATES, report), no_issue


def _brief(finding: Finding, states: Set[str], kept: Sequence[str] = _CORE) -> Finding:
    """Only the fields to be kept, where the finding's state is one of `states`."""
    if finding["state"] not in states:
        return finding
    return {key: finding[key] for key in kept if finding.get(key)}


def _together(findings: Sequence[Finding], states: Sequence[str], report: str) -> list[Finding]:
    """One finding for each of these states; the others keep their own."""
    kept = [finding for finding in findings if finding["state"] not in states]
    for state in states:
        rest = [finding for finding in findings if finding["state"] == state]
        if rest:
            evidence = list(dict.fromkeys(i for finding in rest for i in finding["evidence"]))
            claim = phrase(report, f"rest_{state}", len(rest))
            severity = min((f["severity"] for f in rest), key=_SEVERITIES.index)
            kept.append(
                {"claim": claim, "state": state, "severity": severity, "evidence": evidence}
            )
    return kept


def size_of(value: object) -> int:
    """Bytes of a value as JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def counts(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many findings there are of each state."""
    return {state: sum(f["state"] == state for f in findings) for state in _STATES}
