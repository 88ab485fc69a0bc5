"""The offline model over mail: it judges one thread by a few rules.

Something is asked of the reader if the last mail is somebody else's, is addressed to them, and
holds a question or an invitation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import Conversation, read_on

MARK = "(offline)"
"""Ends each action that was proposed by fixed rules, not by a reader or a language model."""
_READ = "read_mail_thread"
_MAX_CHARS = 160
_LINE = re.compile(
    r"^ *\[(?P<id>[^\]\s]+/[^\]\s~]+)(?:~\d+)?\] (?:\d{4}-\d\d-\d\d \d\d:\d\d )?"
    r"(?P<by>[^<>:]*<[^<>\s]+>|[^:]{1,80}): ?(?P<text>.*?)(?: \{(?P<notes>[^{}]*)\})?$"
)
_TO = re.compile(r"(?:^|; )to (.*?)(?=; cc |; attached|$)")
_SUBJECT = re.compile(r"Subject: .*?\. ")
_END = re.compile(r"(?<=[.!?…])\s+")
_DRAFT_MARK = "a draft, not sent"
_INVITATION_MARK = "Calendar invitation:"
_HANDLE = re.compile(r"(?:^|; )([0-9a-f]{6,})(?= \(|;|$)")
_READER = re.compile(r"The reader is (?:[^<>\n]*?<)?([^\s<>]+@[^\s<>]+?)(?:>|\.(?=\s|$))")


@dataclass(frozen=True)
class Mail:
    """One message of a thread, as the tool shows it."""

    id: str
    writer: str
    text: str
    to: str

    @property
    def sentences(self) -> list[str]:
        """Return its sentences, without the subject."""
        text = _SUBJECT.sub("", self.text, count=1)
        return [part for part in _END.split(text) if len(part.split()) > 1]


def as_triage(talk: Conversation) -> Answer:
    """Return the next turn of a subagent that triages one thread: read on, or submit a verdict."""
    first = [(_READ, {"thread": id}) for id in _HANDLE.findall(talk.section("MAY READ"))]
    return read_on(talk, first, _verdict)


def _verdict(talk: Conversation) -> dict[str, Any]:
    gaps = [e.text[:300] for e in talk.exchanges if e.name == _READ and e.is_error]
    if mails := _mails(talk.pages(_READ)):
        reader = _READER.search(talk.section("KNOWN"))
        return {**_by_rules(mails, reader[1].lower() if reader else ""), "not_covered": gaps}
    return {
        **{"category": "other", "priority": "low", "asked_of_me": False, "key_facts": []},
        **{"proposed_action": "", "evidence": [], "not_covered": gaps},
        "needs": "" if gaps else "a mail thread to read",
    }


def _mails(pages: Iterable[str]) -> list[Mail]:
    """Return the shown messages except drafts, each once; `[id~2]` continues a long one."""
    found: dict[str, Mail] = {}
    for line in filter(None, (_LINE.match(raw) for page in pages for raw in page.splitlines())):
        if before := found.get(line["id"]):
            found[line["id"]] = replace(before, text=f"{before.text} {line['text']}")
        elif not (line["notes"] or "").startswith(_DRAFT_MARK):
            to = _TO.search(line["notes"] or "")
            found[line["id"]] = Mail(line["id"], line["by"], line["text"], to[1] if to else "")
    return list(found.values())


def _by_rules(mails: Sequence[Mail], me: str) -> dict[str, Any]:
    last = mails[-1]
    own = bool(me) and last.writer.lower().rpartition("<")[2].rstrip(">") == me
    to_me = not (me and last.to) or me in last.to.lower()
    questions = [sentence for sentence in last.sentences if sentence.endswith("?")]
    is_asked = to_me and not own and bool(questions or _INVITATION_MARK in last.text)
    if is_asked and questions:
        action = f"Answer {last.writer}: «{_cut(questions[0])}»"
    elif is_asked:
        action = f"Accept or decline the invitation of {last.writer}."
    elif own:
        action = "Wait for the answer; ask again if none comes."
    else:
        action = "Read it; nothing is asked of you."
    return {
        "category": "other",
        "priority": "medium" if is_asked or own else "low",
        "asked_of_me": is_asked,
        "key_facts": [_cut(sentence) for sentence in last.sentences[:1]],
        "proposed_action": f"{action} {MARK}",
        "evidence": list(dict.fromkeys([last.id, mails[0].id])),
    }


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS].rsplit(" ", 1)[0] + "…"
