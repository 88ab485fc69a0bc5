"""The offline model over Slack: it reads every page and says where threads stand.

Of threads of the sample it says what careful readers said of them, as long as they end where they
ended then; of any other one by who spoke last, whether the asker thanked, and whether anything was
asked at all.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
    counted,
    next_pages,
    use,
)
from bot.local.sample_workspace import load_sample, read_data, ts_at
from bot.local.samples import SAMPLE_AS_OF

_REASONS = {
    "high": "the customer loses money or sales, or breaks a law",
    "medium": "work goes on by a detour",
    "low": "a question, nothing is broken",
}


@dataclass(frozen=True)
class Verdict:
    """Where a thread stands: its state, severity, and what it is about."""

    state: str
    """unanswered, unsolved, waiting, solved, or none where it holds no issue."""
    severity: str
    reason: str = ""
    issue: str = ""
    """Threads of a channel with one state and one issue are one finding; empty: on its own."""


def verdict_of(root: str, last: str) -> Verdict | None:
    """Return what is recorded of a thread of the sample with this root and last message."""
    recorded_last, verdict = _threads().get(root, ("", None))
    return verdict if recorded_last == last else None


@cache
def _threads() -> Mapping[str, tuple[str, Verdict]]:
    """Return id of a thread's root -> id of its last message, and what its label says."""
    sample, labels = load_sample(), read_data("labels")
    end = f"{SAMPLE_AS_OF.timestamp():.6f}"
    last = {
        f"{channel.id}/{message.thread_ts or message.ts}": f"{channel.id}/{message.ts}"
        for channel in sample.channels
        for message in sorted(channel.messages, key=lambda each: each.ts)
        if message.ts < end and message.subtype != "tombstone"
    }
    roots = {
        f"{channel.id}/{ts_at(at)}": _verdict(label, labels["issues"])
        for channel in sample.channels
        for at, label in labels["threads"][channel.name].items()
    }
    return {root: (last[root], verdict) for root, verdict in roots.items() if root in last}


def _verdict(label: str, titles: Mapping[str, str]) -> Verdict:
    """Return what "STATE SEVERITY ISSUE", or "none", stands for."""
    if label == "none":
        return Verdict("none", "low")
    state, severity, issue = label.split()
    return Verdict(state, severity, _REASONS[severity], titles.get(issue, ""))


STATES = ("unanswered", "unsolved", "waiting", "solved")
SEVERITIES = ("high", "medium", "low")
CHARS = 120
"""Longest claim or quote."""
_LINE = re.compile(
    r"^(?P<indent> *)\[(?P<id>[^\]\s]+/[^\]\s]+)\] \d{4}-\d\d-\d\d \d\d:\d\d (?P<rest>.*)$"
)
_NOTES = re.compile(r" \{((?:(?:reactions: |edited|files: |before window|bot)[^{}]*)?)\}$")
_DONE = re.compile(r"(?:white|heavy)_check_mark|ballot_box_with_check")
_THANKS = re.compile(
    r"\b(?:thank|thx|danke|gracias|merci|grazie|obrigad|bedankt|solved|works now|fixed|gelöst"
    r"|resuelto|résolu|risolto)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"^\*([^*]{3,300})\*")
_TAGS = re.compile(r"^(?:\[[^\]]{1,60}\]\s*)+")
_TAG = re.compile(r"\[([^\W\d_][^\[\]|]{1,60})\]")
_ENDS = re.compile(r"(?<=[.!?…])\s+")
_MARKS = re.compile(r"[*_~`]+(?=\W|$)|(?<!\w)[*_~`]+")
_CHANNEL = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,})\b(?!/)")
_THREAD = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,}/\d+\.\d+)")
_LIST = re.compile(r"(?<![\w/])(F[A-Z0-9]{2,})\b(?!/)")
_READERS = ("read_channel_history", "read_thread", "search_messages")
_STEPS = {
    "unanswered": "Answer {}: nobody has replied.",
    "unsolved": "Go back to {}: it is still open.",
    "waiting": "Wait for {}, then ask again.",
}
_BRIEF, _SHORT = ("waiting", "solved"), ("claim", "state", "evidence")
"""States of which the contract `issues` wants these fields alone."""
_CORE = ("claim", "state", "severity", "evidence", "customers")

_OPEN = r"open|broken|needs? (?:action|attention|an answer)|todo|to do"
"""Words for what needs action, answered or not."""
_ASKED = {
    "unanswered": r"unanswered|no (?:answer|reply)|nobody (?:has )?(?:answered|replied)",
    "unsolved": rf"unsolved|unresolved|not (?:yet )?(?:solved|resolved)|{_OPEN}",
    "waiting": r"waiting|wait for",
    "solved": r"(?<!not )(?<!not yet )(?:solved|resolved)|fixed|closed",
}

Finding = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One message as a tool shows it."""

    id: str
    author: str
    text: str
    done: bool = False
    """Somebody has put a check mark on it."""
    bot: bool = False


@dataclass(frozen=True)
class Thread:
    """A root and its replies in order of time; `lines` is never empty."""

    lines: tuple[Line, ...]

    @property
    def root(self) -> Line:
        return self.lines[0]


def as_reader(talk: Conversation) -> Answer:
    """Return the next turn: pages to read, or the result."""
    if not talk.must_end and (calls := _to_read(talk)):
        return Answer(calls)
    return Answer([use("submit_result", **_result(talk))])


def handles_in(text: str) -> bool:
    """Return whether a list of handles names something in Slack."""
    return bool(_CHANNEL.search(text) or _LIST.search(text))


def _to_read(talk: Conversation) -> list[dict[str, Any]]:
    """Return the calls that are left: first pages of everything, then the pages after them."""
    sources = talk.section("MAY READ")
    wanted = [
        *(("read_channel_history", {"channel": id}) for id in _CHANNEL.findall(sources)),
        *(("read_thread", {"thread": id}) for id in _THREAD.findall(sources)),
        *(("list_slack_list_items", {"list": id}) for id in _LIST.findall(sources)),
        *next_pages(talk),
    ]
    done = [(exchange.name, dict(exchange.input)) for exchange in talk.exchanges]
    left = [each for n, each in enumerate(wanted) if each not in done and each not in wanted[:n]]
    return [use(name, **arguments) for name, arguments in left if name in talk.tools]


def read_threads(pages: Iterable[str]) -> list[Thread]:
    """Return the threads of all pages; a thread that a page end cuts is put together again."""
    threads: dict[str, dict[str, Line]] = {}
    for page in pages:
        root = ""
        for found in filter(None, map(_LINE.match, page.splitlines())):
            root = root if found["indent"] and root else found["id"]
            threads.setdefault(root, {}).setdefault(found["id"], _line(found["id"], found["rest"]))
    return [Thread(tuple(lines.values())) for lines in threads.values()]


def _line(id: str, rest: str) -> Line:
    notes = _NOTES.search(rest)
    author, _, text = rest[: notes.start() if notes else None].partition(": ")
    if not notes:
        return Line(id, author, text)
    return Line(id, author, text, bool(_DONE.search(notes[1])), "bot" in notes[1].split("; "))


def judge(thread: Thread) -> Verdict:
    """Return where a thread stands, by who spoke last, thanks and question marks."""
    people = [line for line in thread.lines if not line.bot]
    asked = [line for line in people if line.author == thread.root.author]
    helped = [line for line in people if line.author != thread.root.author]
    titled = thread.root.text.startswith(("[", "*"))
    if thread.root.bot or not (any("?" in line.text for line in asked) or titled or helped):
        return Verdict("none", "low")
    last = asked[-1].text if len(asked) > 1 else ""
    if any(line.done for line in thread.lines):
        state = "solved"
    elif not helped:
        state = "unanswered"
    elif _THANKS.search(last) and "?" not in last:
        state = "solved"
    else:
        state = "waiting" if people[-1] is helped[-1] else "unsolved"
    if "?" in thread.root.text:
        return Verdict(state, "low", "a question")
    return Verdict(state, "medium", "somebody reports it")


def _claim(thread: Thread) -> str:
    """Return the asker's title, or the first sentence that says something, on one line."""
    text = html.unescape(_telling(thread.root.text))
    text = re.sub(r"(?<!\.)\.$", "", " ".join(_MARKS.sub("", text).split())) or "(no text)"
    return text if len(text) <= CHARS else text[:CHARS].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"


def _quote(line: Line) -> str:
    """Return the first telling sentence exactly as shown, cut at a word."""
    text = _telling(line.text)
    return text if len(text) <= CHARS else text[:CHARS].rsplit(" ", 1)[0]


def _telling(text: str) -> str:
    if title := _TITLE.match(text):
        return title[1]
    parts = _ENDS.split(_TAGS.sub("", text).strip())
    return next((part for part in parts if len(re.findall(r"\w+", part)) > 3), parts[0])


def _customers(thread: Thread) -> list[str]:
    """Return the names in square brackets that its messages begin with."""
    heads = [tags[0] for line in thread.lines if (tags := _TAGS.match(line.text))]
    return list(dict.fromkeys(name for head in heads for name in _TAG.findall(head)))


def _result(talk: Conversation) -> dict[str, Any]:
    pages = [e.text for e in talk.exchanges if e.name in _READERS and not e.is_error]
    material = [text for text in talk.opening if text.startswith("MATERIAL")]
    threads = read_threads([*pages, *material])
    verdicts = {
        thread.root.id: verdict_of(thread.root.id, thread.lines[-1].id) or judge(thread)
        for thread in threads
    }
    issues = talk.section("CONTRACT") == "issues"
    main: dict[str, Any] = {}
    findings = _findings(threads, verdicts)
    if issues:
        main["no_issue"] = [id for id, verdict in verdicts.items() if verdict.state == "none"]
        findings = [{k: f[k] for k in _SHORT} if f["state"] in _BRIEF else f for f in findings]
    elif states := _states_in(f"{talk.section('TASK')}\n{talk.section('QUESTIONS')}"):
        findings = [finding for finding in findings if finding["state"] in states]
    gaps = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return {
        "summary" if issues else "text": _summary(findings, len(threads)),
        **main,
        "findings": _fitting(findings, talk.max_bytes - 1000),
        "not_covered": [
            f"{e.name} {', '.join(map(str, e.input.values()))}: {e.text}"[:300] for e in gaps
        ],
        "needs": "" if talk.section("MAY READ") or threads else "a channel to read",
    }


def _summary(findings: Sequence[Finding], threads: int) -> str:
    if not findings:
        return f"Nothing found in {threads} threads. {OFFLINE}"
    states = [finding["state"] for finding in findings]
    tally = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    found = f"{counted(len(findings), 'finding')} in {counted(threads, 'thread')}"
    return f"{found}{tally and f': {tally}'}. {OFFLINE}"


def _findings(threads: Iterable[Thread], verdicts: Mapping[str, Verdict]) -> list[Finding]:
    """Return a finding for each issue, the most pressing first.

    Recorded threads of one channel with the same issue and state share one.
    """
    groups: dict[tuple[str, ...], list[Thread]] = {}
    for thread in threads:
        verdict = verdicts[thread.root.id]
        if verdict.state != "none":
            channel = thread.root.id.partition("/")[0]
            key = (channel, verdict.issue, verdict.state) if verdict.issue else (thread.root.id,)
            groups.setdefault(key, []).append(thread)
    found = [_finding(members, verdicts) for members in groups.values()]
    return sorted(found, key=lambda f: (*_rank(f["state"], f["severity"]), -len(f["evidence"])))


def _rank(state: str, severity: str) -> tuple[bool, int, int]:
    """Return a key that sorts the most pressing first: what needs action, then by severity."""
    number = STATES.index(state)
    return number > 1, SEVERITIES.index(severity), number


def _finding(members: Sequence[Thread], verdicts: Mapping[str, Verdict]) -> Finding:
    judged = [verdicts[thread.root.id] for thread in members]
    worst = min(judged, key=lambda verdict: SEVERITIES.index(verdict.severity))
    lead = members[0]
    helpers = [x.author for x in lead.lines if not x.bot and x.author != lead.root.author]
    told = dict.fromkeys([lead.root, lead.lines[-1]])
    evidence = [line.id for thread in members for line in (thread.root, thread.lines[-1])]
    return {
        "claim": worst.issue or _claim(lead),
        "state": worst.state,
        "severity": worst.severity,
        "severity_reason": worst.reason,
        "owner": helpers[-1] if helpers else "",
        "next_step": _STEPS.get(worst.state, "None.").format(lead.root.author),
        "customers": list(dict.fromkeys(name for each in members for name in _customers(each))),
        "evidence": list(dict.fromkeys(evidence)),
        "quotes": [quote for line in told if (quote := _quote(line))],
    }


def _fitting(findings: Sequence[Finding], room: int) -> list[Finding]:
    """Return the findings, briefer ones where they would not fit into so many bytes of JSON."""
    if len(json.dumps(findings, ensure_ascii=False).encode()) <= room:
        return list(findings)
    return [{key: f[key] for key in _CORE if f.get(key)} for f in findings]


def _states_in(question: str) -> set[str]:
    """Return the states of threads that a question asks for; open ones include unanswered ones."""
    text = question.lower()
    found = {name for name, words in _ASKED.items() if re.search(rf"\b(?:{words})\b", text)}
    if re.search(rf"\b(?:{_OPEN})\b", text):
        found.add("unanswered")
    return found
