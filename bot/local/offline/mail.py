"""The offline model over mail: one thread judged by a few rules, and the lines of a digest.

Something is asked of the reader if the last mail is somebody else's, is addressed to them, and
holds a question or an invitation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, next_pages, parse_views, use

MARK = "(offline)"
"""Ends each action that fixed rules proposed, not a reader or a language model."""
FIRST = 3
"""Most lines on what to do first, and most facts of a thread."""
_READ = "read_mail_thread"
_CHARS = 160
_LINE = re.compile(
    r"^ *\[(?P<id>[^\]\s]+/[^\]\s~]+)(?P<more>~\d+)?\] "
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d )?(?P<rest>.*)$"
)
_BY = re.compile(
    r"(?P<by>[^<>]*<[^<>\s]+>|\S+@\S+?|unknown sender|[^:]{1,80}): ?(?P<text>.*)", re.S
)
_PERSON = re.compile(r"\s*(?P<name>[^<>]*?)\s*<(?P<address>[^<>\s]+)>\s*")
_TO = re.compile(r"(?:^|; )to (.*?)(?=; cc |; attached|$)")
_SUBJECT = re.compile(r"Subject: .*?\. ")
_END = re.compile(r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|Nr|No)\.)(?<!\bMrs\.)\s+")
_INVITED = "Calendar invitation:"
_HANDLE = re.compile(r"(?:^|; )([0-9a-f]{6,})(?= \(|;|$)")
_READER = re.compile(r"The reader is (?:[^<>\n]*?<)?([^\s<>]+@[^\s<>]+?)(?:>|\.(?=\s|$))")
_ADDRESS = re.compile(r"[^\s<>,;()]+@[^\s<>,;()]*[^\s<>,;().]")
_CATEGORY = re.compile(r"^- ([\w /&'-]{1,60}): .+$", re.MULTILINE)
_LEVELS = ("high", "medium", "low")


@dataclass(frozen=True)
class Mail:
    """One message of a thread, as shown."""

    id: str
    name: str
    address: str
    text: str
    to: str

    @property
    def sentences(self) -> list[str]:
        """Return its sentences, without the subject."""
        text = _SUBJECT.sub("", self.text, count=1)
        return [part.strip() for part in _END.split(text) if len(part.split()) > 1]


def as_triage(talk: Conversation) -> Answer:
    """Return the next turn of a subagent that triages one thread: read on, or hand in a verdict."""
    if not talk.must_end and (calls := _to_read(talk)):
        return Answer(calls)
    return Answer([use("submit_result", **_verdict(talk))])


def _to_read(talk: Conversation) -> list[dict[str, Any]]:
    """Return the calls that read the pages of the thread which were not shown yet."""
    if _READ not in talk.tools or any(text.startswith("MATERIAL") for text in talk.opening):
        return []
    wanted = [{"thread": id} for id in _HANDLE.findall(talk.section("MAY READ"))]
    wanted += [arguments for tool, arguments in next_pages(talk) if tool == _READ]
    done = [dict(exchange.input) for exchange in talk.exchanges]
    return [use(_READ, **arguments) for arguments in wanted if arguments not in done]


def _verdict(talk: Conversation) -> dict[str, Any]:
    readings = [e for e in talk.exchanges if e.name == _READ]
    material = [text for text in talk.opening if text.startswith("MATERIAL")]
    mails = _mails([*material, *(e.text for e in readings if not e.is_error)])
    gaps = [e.text[:300] for e in readings if e.is_error]
    verdict = {
        **{"category": "other", "priority": "low", "deadline": "", "asked_of_me": False},
        **{"key_facts": [], "proposed_action": "", "evidence": []},
        "not_covered": gaps,
    }
    if not mails:
        return {**verdict, "needs": "" if gaps else "a mail thread to read"}
    named = _CATEGORY.findall(f"{talk.section('OUTPUT')}\n{talk.section('QUESTIONS')}")
    reader = _READER.search(talk.section("KNOWN"))
    return {**verdict, **_by_rules(mails, reader[1].lower() if reader else "", named)}


def _mails(pages: Iterable[str]) -> list[Mail]:
    """Return the messages shown, each once; `[id~2]` goes on with a long one."""
    found: dict[str, Mail] = {}
    for line in filter(None, (_LINE.match(raw) for page in pages for raw in page.splitlines())):
        rest, brace, notes = line["rest"].rpartition(" {")
        rest, notes = (rest, notes[:-1]) if brace and notes.endswith("}") else (line["rest"], "")
        by = _BY.match(rest)
        text = by["text"] if by else rest
        if line["more"] and line["id"] in found:
            before = found[line["id"]]
            found[line["id"]] = replace(before, text=f"{before.text} {text}")
        elif line["id"] not in found:
            name, address = _person(by["by"]) if by else ("", "")
            to = _TO.search(notes)
            found[line["id"]] = Mail(line["id"], name, address, text, to[1] if to else "")
    return list(found.values())


def _person(text: str) -> tuple[str, str]:
    """Return name and address; the address for a name where there is none."""
    if found := _PERSON.fullmatch(text):
        address = found["address"].lower()
        return found["name"] or address, address
    return text, text.lower() if "@" in text else ""


def _by_rules(mails: Sequence[Mail], me: str, named: Sequence[str]) -> dict[str, Any]:
    last = mails[-1]
    own = bool(me) and last.address == me
    to_me = not (me and last.to) or me in _ADDRESS.findall(last.to.lower())
    invited = _INVITED in last.text
    questions = [sentence for sentence in last.sentences if sentence.endswith("?")]
    asked = to_me and not own and bool(questions or invited)
    wanted = "meeting" if invited else "colleague" if asked else "other"
    sentences = [s for mail in reversed(mails) for s in mail.sentences if s not in questions]
    if asked:
        action = f"Answer {last.name}: «{_cut(questions[0])}»" if questions else ""
        action = action or f"Accept or decline the invitation of {last.name}."
    elif own:
        action = "Wait for the answer; ask again if none comes."
    else:
        action = "Read it; nothing is asked of you."
    return {
        "category": wanted if wanted in named else next(iter(named[-1:]), "other"),
        "priority": "medium" if asked or own else "low",
        "asked_of_me": asked,
        "key_facts": [_cut(sentence) for sentence in sentences[:FIRST]],
        "proposed_action": f"{action} {MARK}",
        "evidence": list(dict.fromkeys([last.id, mails[0].id])),
    }


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else text[:_CHARS].rsplit(" ", 1)[0] + "…"


# ---- the digest


def is_digest(talk: Conversation) -> bool:
    """Return whether this asks for the lines of a digest."""
    return talk.opening[-1].strip() == "WRITE: digest lines"


def digest_lines(talk: Conversation) -> str:
    """Return at most three lines on what to do first, the most urgent first."""
    lines: list[tuple[int, str]] = []
    for view in (view for text in talk.opening for view in parse_views(text)):
        for finding in view.findings:
            if "asked of the reader" in finding.facts:
                level = next((n for n, each in enumerate(_LEVELS) if each in finding.facts), 2)
                step = finding.next_step.removesuffix(MARK).strip() or finding.claim
                lines.append((level, f"- {step} {OFFLINE} [{finding.id}]"))
    if not lines:
        return f"Nothing is asked of you. {OFFLINE}"
    first = [line for _, line in sorted(lines, key=lambda each: each[0])[:FIRST]]
    return "\n".join([*(line.replace(f" {OFFLINE}", "") for line in first[:-1]), first[-1]])
