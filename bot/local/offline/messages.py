"""Read Slack threads from tool results, and tell by three rules where each of them stands.

The rules: who spoke last, whether the asker thanked, whether anything was asked at all.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

CHARS = 120
"""Longest claim or quote."""
_LINE = re.compile(
    r"^(?P<indent> *)\[(?P<id>[^\]\s]+/[^\]\s]+)\] \d{4}-\d\d-\d\d \d\d:\d\d (?P<rest>.*)$"
)
_NOTES = re.compile(r" \{((?:(?:reactions: |edited|files: |before window|bot)[^{}]*)?)\}$")
_REACTION = re.compile(r"(?:reactions: |, )([\w+-]+) (\d+)")
_DONE = {"white_check_mark", "heavy_check_mark", "ballot_box_with_check"}
_RAISED = {"raised_hand", "raising_hand", "hand", "heavy_plus_sign"}
_MANY = 5
"""People who say by a reaction that they have the problem too, from which it is severe."""
_THANKS = re.compile(
    r"\b(?:thank|thx|danke|gracias|merci|grazie|obrigad|bedankt|solved|works now|fixed|gelöst"
    r"|resuelto|résolu|risolto)",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"\bbug\s*#?\d{3,}|show_bug\.cgi|\b(?!UTF|ISO|RFC|SHA)[A-Z][A-Z0-9]{1,9}-\d{1,6}\b"
    r"|\bknown (?:bug|issue|problem)|will be fixed|bekannte[rs]? (?:Fehler|Problem)"
    r"|(?:error|problema) conocido|bogue connu|bug noto|bekende fout|známá chyba",
    re.IGNORECASE,
)
_DECLINED = re.compile(r"\b(?:won['’]?t fix|will not (?:fix|add|change)|not planned)\b", re.I)
_TITLE = re.compile(r"^\*([^*]{3,300})\*")
_TAGS = re.compile(r"^(?:\[[^\]]{1,60}\]\s*)+")
_TAG = re.compile(r"\[([^\W\d_][^\[\]|]{1,60})\]")
_ENDS = re.compile(r"(?<=[.!?…])\s+")
_MARKS = re.compile(r"[*_~`]+(?=\W|$)|(?<!\w)[*_~`]+")


@dataclass(frozen=True)
class Line:
    """One message as a tool shows it."""

    id: str
    author: str
    text: str
    reactions: tuple[tuple[str, int], ...] = ()
    bot: bool = False


@dataclass(frozen=True)
class Thread:
    """A root and its replies in order of time; `lines` is never empty."""

    lines: tuple[Line, ...]

    @property
    def root(self) -> Line:
        return self.lines[0]

    @property
    def people(self) -> list[Line]:
        """Return the messages that no bot wrote."""
        return [line for line in self.lines if not line.bot]


@dataclass(frozen=True)
class Verdict:
    """Where a thread stands: its state, severity, and what it is about."""

    state: str
    """unanswered, unsolved, waiting, known, declined, solved, or none where it holds no issue."""
    severity: str
    reason: str = ""
    issue: str = ""
    """Threads of a channel with one state and one issue are one finding; empty: on its own."""


def read_threads(pages: Iterable[str]) -> list[Thread]:
    """Return the threads of all pages; a thread that a page end cuts is put together again."""
    threads: dict[str, Thread] = {}
    for page in pages:
        for thread in _parse(page):
            known = threads.get(thread.root.id, Thread(()))
            ids = {line.id for line in known.lines}
            more = tuple(line for line in thread.lines if line.id not in ids)
            threads[thread.root.id] = Thread(known.lines + more)
    return list(threads.values())


def _parse(page: str) -> list[Thread]:
    groups: list[list[Line]] = []
    for found in filter(None, map(_LINE.match, page.splitlines())):
        line = _line(found["id"], found["rest"])
        if found["indent"] and groups:
            groups[-1].append(line)
        else:
            groups.append([line])
    return [Thread(tuple(group)) for group in groups]


def _line(id: str, rest: str) -> Line:
    notes = _NOTES.search(rest)
    author, _, text = rest[: notes.start() if notes else None].partition(": ")
    line = Line(id, author, text)
    if not notes:
        return line
    reactions = tuple((name, int(count)) for name, count in _REACTION.findall(notes[1]))
    return replace(line, reactions=reactions, bot="bot" in notes[1].split("; "))


def judge(thread: Thread) -> Verdict:
    """Return where a thread stands, by who spoke last, thanks and question marks."""
    people = thread.people
    asker = thread.root.author
    asked = [line for line in people if line.author == asker]
    helped = [line for line in people if line.author != asker]
    asks = any("?" in line.text for line in asked)
    titled = thread.root.text.startswith(("[", "*"))
    if thread.root.bot or not (asks or titled or helped):
        return Verdict("none", "low")
    raised = sum(count for name, count in thread.root.reactions if name in _RAISED)
    severity, reason = ("medium", "somebody reports it")
    if raised >= _MANY:
        severity, reason = "high", f"{raised} others have it too"
    elif "?" in thread.root.text:
        severity, reason = "low", "a question"
    return Verdict(_state(thread, asked, helped), severity, reason)


def _state(thread: Thread, asked: Sequence[Line], helped: Sequence[Line]) -> str:
    if any(name in _DONE for line in thread.lines for name, _ in line.reactions):
        return "solved"
    if not helped:
        return "unanswered"
    last = asked[-1].text if len(asked) > 1 else ""
    if _THANKS.search(last) and "?" not in last:
        return "solved"
    if thread.people[-1] is not helped[-1]:
        return "unsolved"
    said = helped[-1].text
    return "declined" if _DECLINED.search(said) else "known" if _KNOWN.search(said) else "waiting"


def customers_of(thread: Thread) -> list[str]:
    """Return the names in square brackets that its messages begin with."""
    heads = [tags[0] for line in thread.lines if (tags := _TAGS.match(line.text))]
    return list(dict.fromkeys(name for head in heads for name in _TAG.findall(head)))


def claim_of(thread: Thread) -> str:
    """Return the asker's title, or the first sentence that says something, on one line."""
    text = html.unescape(_telling(thread.root.text))
    text = re.sub(r"(?<!\.)\.$", "", " ".join(_MARKS.sub("", text).split())) or "(no text)"
    if len(text) <= CHARS:
        return text
    return text[:CHARS].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"


def quote_of(line: Line) -> str:
    """Return the first telling sentence exactly as shown, cut at a word."""
    text = _telling(line.text)
    return text if len(text) <= CHARS else text[:CHARS].rsplit(" ", 1)[0]


def _telling(text: str) -> str:
    if title := _TITLE.match(text):
        return title[1]
    parts = _ENDS.split(_TAGS.sub("", text).strip())
    return next((part for part in parts if len(re.findall(r"\w+", part)) > 3), parts[0])
