"""The offline model over mail: one thread judged by a few rules, and the lines of a digest.

Something is asked of the reader if the last mail is somebody else's, is addressed to them, and
holds a question or an invitation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, next_pages, parse_views, use

MARK = "(offline)"
"""Ends each action that fixed rules proposed, not a reader or a language model."""
READERS = ("read_mail_thread", "read_thread")
"""The tools that show a thread by its id, whichever is offered."""
"""Begins a recorded line on what to do first."""
FIRST = 3
"""Most lines on what to do first, and most facts of a thread."""
NEAR = timedelta(3)
"""How near to a deadline, before or behind it, what is asked is urgent."""
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
_WROTE = "wrote|schrieb|a écrit|escribió|ha scritto|schreef|escreveu"
_QUOTED = re.compile(
    rf"(?:^|\s)(?:On|Am|Le|El|Il|Op|Em)\s[^<>]{{5,80}}(?:<[^<>\s]+>)?\s*(?:{_WROTE})\s?:\s.*",
    re.DOTALL,
)
_END = re.compile(r"(?<=[.!?…])(?<!\b[A-Z]\.)(?<!\b(?:Dr|Mr|Ms|St|Nr|No)\.)(?<!\bMrs\.)\s+")
_INVITED = "Calendar invitation:"
_HANDLE = re.compile(r"(?:^|; )([0-9a-f]{6,})(?= \(|;|$)")
_READER = re.compile(
    r"The reader is (?:(?P<name>[^<>\n]*?) ?<)?(?P<address>[^\s<>]+@[^\s<>]+?)(?:>|\.(?=\s|$))"
)
_TODAY = re.compile(r"(?:Today is|TODAY:) \w+,? (\d{4}-\d\d-\d\d)")
_ADDRESS = re.compile(r"[^\s<>,;()]+@[^\s<>,;()]*[^\s<>,;().]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CATEGORY = re.compile(r"^- ([\w /&'-]{1,60}): (.+)$", re.MULTILINE)


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
        """Return its own sentences, without the subject and what it quotes."""
        text = _QUOTED.sub("", _SUBJECT.sub("", self.text, count=1))
        return [part.strip() for part in _END.split(text) if len(part.split()) > 1]


def as_triage(talk: Conversation) -> Answer:
    """Return the next turn of a subagent that triages one thread: read on, or hand in a verdict."""
    if not talk.must_end and (calls := _to_read(talk)):
        return Answer(calls)
    return Answer([use("submit_result", **_verdict(talk))])


def _to_read(talk: Conversation) -> list[dict[str, Any]]:
    """Return the calls that read the pages of the thread which were not shown yet."""
    name = next((name for name in READERS if name in talk.tools), "")
    if not name or any(text.startswith("MATERIAL") for text in talk.opening):
        return []
    wanted = [{"thread": id} for id in _HANDLE.findall(talk.section("MAY READ"))]
    wanted += [arguments for tool, arguments in next_pages(talk) if tool == name]
    done = [dict(exchange.input) for exchange in talk.exchanges]
    return [use(name, **arguments) for arguments in wanted if arguments not in done]


def _verdict(talk: Conversation) -> dict[str, Any]:
    readings = [e for e in talk.exchanges if e.name in READERS]
    gaps = [e.text[:300] for e in readings if e.is_error]
    material = [text for text in talk.opening if text.startswith("MATERIAL")]
    mails = _mails([*material, *(e.text for e in readings if not e.is_error)])
    if not mails:
        return {
            **{"category": "other", "priority": "low", "asked_of_me": False},
            **{"key_facts": [], "proposed_action": "", "evidence": []},
            **{"not_covered": gaps, "needs": "" if gaps else "a mail thread to read"},
        }
    known = talk.section("KNOWN")
    named = dict(_CATEGORY.findall(f"{talk.section('OUTPUT')}\n{talk.section('QUESTIONS')}"))
    told = _by_rules(mails, known, list(named))
    told["proposed_action"] = f"{told['proposed_action']} {MARK}"
    return {"deadline": "", **told, "not_covered": gaps}


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
            mail = Mail(line["id"], name, address, text, to[1] if to else "")
            found[line["id"]] = mail
    return list(found.values())


def _person(text: str) -> tuple[str, str]:
    """Return name and address; the address for a name where there is none."""
    if found := _PERSON.fullmatch(text):
        address = found["address"].lower()
        return found["name"] or address, address
    return text, text.lower() if "@" in text else ""


def _by_rules(mails: Sequence[Mail], known: str, named: Sequence[str]) -> dict[str, Any]:
    reader = _READER.search(known)
    me = reader["address"].lower() if reader else ""
    last = mails[-1]
    own = bool(me) and last.address == me
    to_me = not (me and last.to) or me in _ADDRESS.findall(last.to.lower())
    invited = _INVITED in last.text
    questions = [sentence for sentence in last.sentences if sentence.endswith("?")]
    asked = to_me and not own and bool(questions or invited)
    today = _date(_TODAY.search(known)) or date.min
    days = [_date(found) for found in _DAY.finditer(last.text)] if asked else []
    until = min((day for day in days if day and day >= today), default=None)
    near = until is not None and until - today <= NEAR
    sentences = [s for mail in reversed(mails) for s in mail.sentences if s not in questions]
    return {
        "category": _category(named, asked, invited),
        "priority": ("high" if near else "medium") if asked or own else "low",
        "deadline": until.isoformat() if until else "",
        "asked_of_me": asked,
        "key_facts": [_cut(sentence) for sentence in sentences[:FIRST]],
        "proposed_action": _action(last, questions if asked else [], asked, own),
        "draft_reply": _draft(last, questions, reader) if questions and asked else "",
        "evidence": list(dict.fromkeys([last.id, mails[0].id])),
    }


def _category(named: Sequence[str], asked: bool, invited: bool) -> str:
    wanted = "meeting" if invited else "colleague" if asked else "other"
    return wanted if wanted in named else next(iter(named[-1:]), "other")


def _action(last: Mail, questions: Sequence[str], asked: bool, own: bool) -> str:
    if questions:
        return f"Answer {last.name}: «{_cut(questions[0])}»"
    if asked:
        return f"Accept or decline the invitation of {last.name}."
    if own:
        return "Wait for the answer; ask again if none comes."
    return "Read it; nothing is asked of you."


def _draft(last: Mail, questions: Sequence[str], reader: re.Match[str] | None) -> str:
    """Return a reply that repeats the questions and leaves the answers open."""
    name = reader["name"] or "" if reader else ""
    quoted = "\n".join(f"> {_cut(question)}" for question in questions[:FIRST])
    return f"Hello {last.name},\n\n{quoted}\n\n[answer]\n\nBest regards,\n{name}".strip()


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS else text[:_CHARS].rsplit(" ", 1)[0] + "…"


def _date(found: re.Match[str] | None) -> date | None:
    try:
        return date.fromisoformat(found[found.lastindex or 0]) if found else None
    except ValueError:
        return None


# ---- the digest


@dataclass(frozen=True)
class _Told:
    """What a view tells of one thread."""

    id: str
    fact: str
    step: str
    level: str
    due: date
    asked: bool


def is_digest(talk: Conversation) -> bool:
    """Return whether this asks for the lines of a digest."""
    return talk.opening[-1].strip() == "WRITE: digest lines"


def digest_lines(talk: Conversation) -> str:
    """Return at most three lines on what to do first."""
    found = [told for text in talk.opening for told in _told(text)]
    today = _date(_TODAY.search(talk.opening[0])) or date.min
    first = _by_rank([told for told in found if told.asked], today)
    return "\n".join(first or [f"Nothing is asked of you. {OFFLINE}"])


def _by_rank(asked: Iterable[_Told], today: date) -> list[str]:
    ranked = sorted(asked, key=lambda told: _rank(told, today))[:FIRST]
    first = [f"- {told.step or told.fact} [{told.id}]" for told in ranked]
    if first:
        head, _, cited = first[-1].rpartition(" [")
        first[-1] = f"{head} {OFFLINE} [{cited}"
    return first


def _told(text: str) -> Iterator[_Told]:
    """Return the threads that a block shows: `[F1.1] customer | high | (fact1) ... | next: ...`."""
    for view in parse_views(text):
        found = re.match(r"\[(?P<id>F\d+\.\d+)\] (?P<rest>.*)", view.text)
        if not found:
            continue
        parts = found["rest"].split(" | ")
        due = re.search(r"(?:^|\| )due (\d{4}-\d\d-\d\d)(?= \||$)", found["rest"])
        step = re.search(r"(?:^|\| )next: ([^|]*)", found["rest"])
        fact = re.search(r"\(fact1\) (.*?)(?: \(fact2\)| \||$)", found["rest"])
        yield _Told(
            id=found["id"],
            fact=(fact[1] if fact else parts[0]).rstrip("…"),
            step=step[1].removesuffix(MARK).strip() if step else "",
            level=next((part for part in parts[:2] if part in ("high", "medium", "low")), "low"),
            due=_date(due) or date.max,
            asked="asked of the reader" in parts[:4],
        )


def _rank(told: _Told, today: date) -> tuple[int, date, str]:
    near = told.due != date.max and abs(told.due - today) <= NEAR
    return ("high", "medium", "low").index(told.level), told.due if near else date.max, told.id
