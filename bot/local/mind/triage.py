"""The offline mind's triage: one mail thread judged by rules, in the languages that it knows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bot.local.mind.cues import fold
from bot.local.mind.hearing import Heard
from bot.local.mind.mail_asks import Ask, is_settled, orders_machine, pending
from bot.local.mind.mail_cues import has
from bot.local.mind.mail_facts import (
    Due,
    cancelled,
    category,
    due,
    facts,
    invited,
    is_grave,
    is_urgent,
)
from bot.local.mind.mail_read import Talk, read_talk
from bot.local.mind.mail_said import MARK, say
from bot.local.model.answer import Answer

Json = dict[str, Any]

READERS = ("read_mail_thread", "read_thread")
"""The tools that show a thread by its id, whichever is offered."""
_CATEGORY = re.compile(r"^- ([\w /&'-]{1,60}): (.+)$", re.MULTILINE)
_HANDLE = re.compile(r"(?:^|; )([0-9a-f]{6,})(?= \(|;|$)")
_NEAR = timedelta(3)
"""How near to a deadline, before or behind it, what is asked is urgent."""
_EVIDENCE = 6
"""Most messages that a verdict names."""
_ASK_CHARS = 160


@dataclass(frozen=True)
class Judged:
    """A thread with what the rules read in it."""

    talk: Talk
    asks: Sequence[Ask]
    due: Due | None
    settled: bool
    ordered: bool
    """It gives orders to a program that reads it."""
    report: str
    """Language of the proposed action."""

    @property
    def asked(self) -> bool:
        return not self.ordered and (bool(self.asks) or invited(self.talk))

    @property
    def waits(self) -> bool:
        """The reader wrote last, and something is still open."""
        return self.talk.mails[-1].own and not self.settled


def triage(heard: Heard) -> Answer:
    """The next turn of a subagent that triages one thread: read on, or hand in the verdict."""
    if not heard.must_end and (calls := _to_read(heard)):
        return Answer(calls)
    return Answer([{"type": "tool_use", "name": "submit_result", "input": verdict(heard)}])


def verdict(heard: Heard) -> Json:
    """What is handed in under contract `triage`."""
    known = heard.section("KNOWN")
    talk = read_talk(_shown(heard), known)
    if talk is None:
        needs = "" if any(e.is_error for e in heard.exchanges) else "a mail thread to read"
        gaps = [e.text[:300] for e in heard.exchanges if e.is_error and e.name in READERS]
        nothing: Json = {
            **{"category": "other", "priority": "low", "asked_of_me": False},
            **{"key_facts": [], "proposed_action": "", "evidence": []},
        }
        return {**nothing, "not_covered": gaps, "needs": needs}
    judged = _judge(talk, _report(heard, talk))
    named = dict(_CATEGORY.findall(heard.section("OUTPUT") + "\n" + heard.section("QUESTIONS")))
    told = _corrected(known, talk, named)
    found = facts(talk, judged.asks)
    asked = told["asked_of_me"] == "yes" if "asked_of_me" in told else judged.asked
    until = judged.due if judged.due and not judged.settled and not judged.ordered else None
    return {
        "category": told.get("category") or category(talk, named, judged.asked),
        "priority": told.get("priority") or _priority(judged),
        "deadline": until.day.isoformat() if until else "",
        "asked_of_me": asked,
        "key_facts": [text for text, _ in found],
        "proposed_action": f"{_action(judged, until)} {MARK}",
        "draft_reply": _draft(judged) if asked and judged.asks else "",
        "evidence": _evidence(judged, [mail.id for _, mail in found]),
        "not_covered": [e.text[:300] for e in heard.exchanges if e.is_error and e.name in READERS],
    }


def _shown(heard: Heard) -> list[str]:
    pages = [e.text for e in heard.exchanges if e.name in READERS and not e.is_error]
    return [*(text for text in heard.opening if text.startswith("MATERIAL")), *pages]


def _to_read(heard: Heard) -> list[Json]:
    """The thread's first page where it is not in the brief, then the pages after it."""
    name = next((name for name in READERS if name in heard.tools), "")
    if not name or any(text.startswith("MATERIAL") for text in heard.opening):
        return []
    wanted = [{"thread": id} for id in _HANDLE.findall(heard.section("MAY READ"))]
    for exchange in heard.exchanges:
        if exchange.name == name and exchange.cursor and not exchange.is_error:
            arguments = {k: str(v) for k, v in exchange.input.items() if k != "cursor"}
            wanted.append({**arguments, "cursor": exchange.cursor})
    done = [dict(exchange.input) for exchange in heard.exchanges]
    return [
        {"type": "tool_use", "name": name, "input": arguments}
        for arguments in wanted
        if arguments not in done
    ]


def _report(heard: Heard, talk: Talk) -> str:
    """The language of the brief, where it names one; else the thread's."""
    told = heard.section("LANGUAGE")
    return told if told and " " not in told else talk.language


def _judge(talk: Talk, report: str) -> Judged:
    settled = not talk.mails[-1].own and is_settled(talk)
    return Judged(talk, pending(talk), due(talk), settled, orders_machine(talk) is not None, report)


def _priority(judged: Judged) -> str:
    """High: asked, and late soon, called urgent, or grave. Low: nothing asked and nothing wrong."""
    talk = judged.talk
    if judged.ordered or judged.settled or cancelled(talk):
        return "low"
    if judged.asked:
        near = judged.due is not None and abs(judged.due.day - talk.today) <= _NEAR
        return "high" if near or is_urgent(talk) or is_grave(talk) else "medium"
    last = fold(talk.mails[-1].text)
    return "medium" if judged.due or judged.waits or has("trouble", last) else "low"


def _action(judged: Judged, until: Due | None) -> str:
    talk, report = judged.talk, judged.report
    who, day = talk.other.called, until.day.isoformat() if until else ""
    last = fold(talk.mails[-1].text)
    if judged.ordered:
        return say(report, "machine")
    if cancelled(talk):
        return say(report, "gone", who)
    if judged.asks:
        ask = _chief(judged.asks)
        said, who = _cut(ask.text), ask.mail.by.called
        if has("pay", fold(said)) and has("bill", last):
            return say(report, "pay", day) if day else say(report, "bill", who)
        return say(report, "answer_by", who, day, said) if day else say(report, "answer", who, said)
    if invited(talk):
        return say(report, "invited", who)
    if judged.settled:
        return say(report, "solved")
    if judged.waits:
        return say(report, "wait", ", ".join(p.called for p in talk.mails[-1].to[:2]) or who)
    if has("bill", last):
        return say(report, "pay", day) if day else say(report, "bill", who)
    return say(report, "trouble", who) if has("trouble", last) else say(report, "read")


def _chief(asks: Sequence[Ask]) -> Ask:
    """The request to answer: of the last mail that asks, its first question, else its first one."""
    last = [ask for ask in asks if ask.mail == asks[-1].mail]
    return next((ask for ask in last if ask.text.endswith("?")), last[0])


def _cut(text: str) -> str:
    """A request that fits a line; of a long question its end."""
    if len(text) <= _ASK_CHARS:
        return text
    if text.endswith("?"):
        return "…" + text[-_ASK_CHARS:].partition(" ")[2]
    return text[:_ASK_CHARS].rsplit(" ", 1)[0] + "…"


def _draft(judged: Judged) -> str:
    """A reply in the thread's language that holds the question and leaves its answer open."""
    language, asked = judged.talk.language, judged.asks[-1]
    by, me = asked.mail.by, judged.talk.reader
    name = me.name or " ".join(
        part.capitalize() for part in re.split(r"[._-]", me.address.partition("@")[0])
    )
    questions = list(dict.fromkeys(a.text for a in judged.asks if a.mail == asked.mail))[:3]
    return "\n\n".join(
        [
            say(language, "hail", by.given if by.domain == me.domain else by.called),
            say(language, "thanks") + "".join(f"\n> {_cut(text)}" for text in questions),
            say(language, "fill"),
            f"{say(language, 'bye')}\n{name}",
        ]
    )


def _evidence(judged: Judged, told: Sequence[str]) -> list[str]:
    """The messages behind the verdict: who asks, who sets the deadline, who tells the facts."""
    asked = [ask.mail.id for ask in reversed(judged.asks)]
    until = [judged.due.mail.id] if judged.due else []
    last = judged.talk.mails[-1].id
    return list(dict.fromkeys([*asked[:2], *until, *told, last]))[:_EVIDENCE]


def _corrected(known: str, talk: Talk, named: Mapping[str, str]) -> dict[str, str]:
    """What the reader has corrected before about somebody who wrote here."""
    told: dict[str, str] = {}
    writers = {m.by.address for m in talk.mails if not m.own and m.by.address}
    for sentence in re.split(r"(?<=[.!?])\s+", known):
        if "correct" not in sentence or not any(w in sentence.lower() for w in writers):
            continue
        said = fold(re.sub(r"\S+@\S+", " ", sentence))
        if "urgent" in said:
            told["priority"] = "low" if "not urgent" in said else "high"
        if "medium priority" in said:
            told["priority"] = "medium"
        if found := re.search(r"ask (some|no)thing of the reader", said):
            told["asked_of_me"] = "yes" if found[1] == "some" else "no"
        if (named_as := re.search(r'category "(.+?)"', sentence)) and named_as[1] in named:
            told["category"] = named_as[1]
    return told
