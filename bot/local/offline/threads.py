"""The offline model over Slack: it reads every page and reports the state of each thread.

It judges a thread by its last writer, by thanks of the asker, and by whether it has a question.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, format_count, read_on

STATES = ("unanswered", "unsolved", "waiting", "solved")
"""States of threads with an issue; the team has to act on the first two."""
MAX_CLAIM_CHARS = 120
"""Maximum length of a claim."""
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
_TITLE = re.compile(r"\*([^*]{3,300})\*")
_END = re.compile(r"(?<=[.!?…])\s+")
_CHANNEL = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,})\b(?!/)")
_THREAD = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,}/\d+\.\d+)")


@dataclass(frozen=True)
class Line:
    """One message as a tool shows it."""

    id: str
    author: str
    text: str
    notes: str
    """Reactions, files and other notes, in braces after the text."""

    @property
    def is_bot(self) -> bool:
        return "bot" in self.notes.split("; ")


Thread = list[Line]
"""A root and its replies in order of time; never empty."""


def as_reader(talk: Conversation) -> Answer:
    """Return the next turn: pages to read, or the result."""
    sources = talk.section("MAY READ")
    first = [
        *(("read_channel_history", {"channel": id}) for id in _CHANNEL.findall(sources)),
        *(("read_thread", {"thread": id}) for id in _THREAD.findall(sources)),
    ]
    return read_on(talk, first, _result)


def read_threads(pages: Iterable[str]) -> list[Thread]:
    """Return the threads of all pages; join a thread that is split by the end of a page."""
    threads: dict[str, dict[str, Line]] = {}
    for page in pages:
        root = ""
        for found in filter(None, map(_LINE.match, page.splitlines())):
            root = root if found["indent"] and root else found["id"]
            threads.setdefault(root, {}).setdefault(found["id"], _line(found["id"], found["rest"]))
    return [list(lines.values()) for lines in threads.values()]


def _line(id: str, rest: str) -> Line:
    notes = _NOTES.search(rest)
    author, _, text = rest[: notes.start() if notes else None].partition(": ")
    return Line(id, author, text, notes[1] if notes else "")


def judge(thread: Thread) -> str:
    """Return the state of a thread; `none` if it has no question or report."""
    root = thread[0]
    people = [line for line in thread if not line.is_bot]
    by_asker = [line for line in people if line.author == root.author]
    by_others = [line for line in people if line.author != root.author]
    has_title = root.text.startswith(("[", "*"))
    if root.is_bot or not (any("?" in line.text for line in by_asker) or has_title or by_others):
        return "none"
    if any(_DONE.search(line.notes) for line in thread):
        return "solved"
    if not by_others:
        return "unanswered"
    if len(by_asker) > 1 and _THANKS.search(by_asker[-1].text) and "?" not in by_asker[-1].text:
        return "solved"
    return "waiting" if people[-1] is by_others[-1] else "unsolved"


def _result(talk: Conversation) -> dict[str, Any]:
    threads = read_threads(talk.pages("read_channel_history", "read_thread"))
    states = {thread[0].id: judge(thread) for thread in threads}
    issues = talk.section("CONTRACT") == "issues"
    included = STATES if issues else _states_in(talk.section("TASK"))
    findings = [
        _make_finding(thread, state)
        for state in included
        for thread in threads
        if states[thread[0].id] == state
    ]
    none = [id for id, state in states.items() if state == "none"]
    gaps = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return {
        "summary" if issues else "text": _summary(states, len(findings)),
        **({"no_issue": none} if issues else {}),
        "findings": findings,
        "not_covered": [
            f"{e.name} {', '.join(map(str, e.input.values()))}: {e.text}"[:300] for e in gaps
        ],
        "needs": "" if talk.section("MAY READ") or threads else "a channel to read",
    }


def _states_in(question: str) -> tuple[str, ...]:
    """Return the states that a question asks for: only unanswered, or all that need action."""
    if re.search(r"\bunanswered\b", question, re.IGNORECASE):
        return STATES[:1]
    return STATES[:2]


def _summary(states: Mapping[str, str], findings: int) -> str:
    found = format_count(findings, "finding") if findings else "Nothing found"
    return f"{found} in {format_count(len(states), 'thread')}. {OFFLINE}"


def _make_finding(thread: Thread, state: str) -> dict[str, Any]:
    title, sentences = _TITLE.match(thread[0].text), _END.split(thread[0].text)
    first = next((each for each in sentences if len(each.split()) > 3), sentences[0])
    text = title[1] if title else first
    quote = text if len(text) <= MAX_CLAIM_CHARS else text[:MAX_CLAIM_CHARS].rsplit(" ", 1)[0]
    ids = dict.fromkeys([thread[0].id, thread[-1].id])
    claim = html.unescape(quote).rstrip(".") or "(no text)"
    return {"claim": claim, "state": state, "evidence": list(ids), "quotes": [quote]}
