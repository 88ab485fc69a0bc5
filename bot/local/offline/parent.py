"""The offline model as a parent agent: whom it asks, and what it then writes.

A request is one question to one scope. Plain orders in English are one call of a tool each, and
what came of it: a sweep, a triage, a schedule of either, a reminder, a preference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
    Exchange,
    View,
    ViewFinding,
    parse_views,
    sections,
    use,
)
from bot.local.offline.data import COUNTED, SELECT
from bot.local.offline.threads import SEVERITIES, STATES

Json = dict[str, Any]

MAX_CHANNELS = 5
"""Most channels that a question which names none is taken to."""
MAX_LINES = 12
"""Most findings of one question that an answer tells; the rest is counted."""
MAX_FIRST = 3
"""Most lines on what to do first."""
HELP = (
    "The offline rules say where the threads of a channel stand («What is open in #support?»),"
    " sweep channels («sweep csm-*»), count the rows of a table («How many orders are there?»)"
    " and keep notes («Note that ...»)."
)
BEYOND = f"This needs a language model. {HELP}"
NOTE = re.compile(r"\W*(?:please )?(?:note|remember) that (?P<text>\S.*)", re.I | re.S)
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|help|good (?:morning|evening)|thanks?|thank you|what can you do)\W*$"
    r"|\(The message mentions you and says nothing else\.\)$",
    re.IGNORECASE,
)
_CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_MENTION = re.compile(r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>|#([CG][A-Z0-9]{8,}\b)")
_LOOKING = re.compile(r"\n\(While asking, the user has the channel (\w+) open;[^\n]*\)\s*$")
_FACTS = re.compile(r"^(?:NOTES|DATA): ", re.MULTILINE)
_HANDLE = re.compile(r"(?<![\w:])((?:data|notes):[\w.-]+)")
_LISTED = re.compile(r"^\s*\[([CG][A-Z0-9]+)\] #(\S+?)(?:: .*)?$", re.MULTILINE)
_SLACK = re.compile(r"\b(?:slack|channels?|threads?|unanswered|unsolved)\b", re.IGNORECASE)
_DATA = re.compile(r"\b(?:how (?:many|much)|total|sum|refunds?|tables?|database)\b", re.IGNORECASE)
_UNREAD = re.compile(
    r"\b(?:e-?mails?|mails?|inbox|mailbox|notes?|noted|files?|folder|code|repository|scheduled?)\b"
    r"|\w+\.(?:py|md|toml|txt|cfg)\b|https?://",
    re.IGNORECASE,
)
"""Words for what the rules do not read."""
_WRITE = re.compile(
    r"\W*(?:please )?(?:post|send|write|announce|tell (?!me\b|us\b)|dm|message|draft|reply|pause"
    r"|resume|delete)\b",
    re.IGNORECASE,
)
"""Orders that no rule carries out."""


@dataclass(frozen=True)
class Question:
    """A request as the rules understand it, and the scope that can answer it."""

    text: str
    scope: str
    handles: tuple[str, ...]
    """What a subagent of that scope is given; of Slack the channels it names, as written."""
    here: str
    """Id of the channel that it was asked in or beside; empty where that is none to read."""


def as_parent(talk: Conversation) -> Answer:
    """Return the parent's next turn: the call of an order, subagents, or the answer."""
    if any("WRITE: top lines" in text for text in talk.opening):
        return _say(top_lines(talk))
    question = _question(talk)
    free = bool(talk.tools) and not talk.must_end
    order = order_turn(question.text, talk, free)
    if isinstance(order, str):
        return _say(order if order == "NONE" else f"{order}\n\n{OFFLINE}")
    if order:
        return Answer([order])
    if _GREETING.match(question.text):
        return _say(f"{HELP}\n\n{OFFLINE}")
    calls = _calls(question, talk) if free else []
    return Answer(calls) if calls else _say(_written(question, talk))


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


# ---- what is asked


def _question(talk: Conversation) -> Question:
    told = talk.section("REQUEST") or "\n".join(talk.told)
    beside = _LOOKING.search(told)
    text = _MENTION.sub(r"\1\2", _LOOKING.sub("", told)).strip()
    rooms = [key for key, name in talk.here.items() if key[0] in "CG" and name.startswith("#")]
    here = beside[1] if beside else next((key for key in rooms if "/" not in key), "")
    facts = "\n".join(talk.told).partition("\nFENCE:")[2].splitlines()
    held = [h for line in facts if _FACTS.match(line) for h in _HANDLE.findall(line)]
    scope = _scope(text, held, talk)
    given = [handle for handle in held if handle.startswith(f"{scope}:")]
    handles = _CHANNEL.findall(text) if scope == "slack" else given
    return Question(text, scope, tuple(dict.fromkeys(handles)), here)


def _scope(text: str, held: Sequence[str], talk: Conversation) -> str:
    """Return the scope that a question needs; an empty text where no rule reads that."""
    kinds = {handle.partition(":")[0] for handle in held}
    if _WRITE.match(text):
        return ""
    if "data" in kinds and SELECT.search(text):
        return "data"
    if "notes" in kinds and NOTE.match(text):
        return "notes"
    reads_slack = "list_channels" in talk.tools
    if _CHANNEL.search(text) or (reads_slack and _SLACK.search(text)):
        return "slack"
    if _UNREAD.search(text):
        return ""
    if "data" in kinds and (_DATA.search(text) or not reads_slack):
        return "data"
    return "slack" if reads_slack else ""


def _calls(question: Question, talk: Conversation) -> list[dict[str, Any]]:
    """Return the list of channels where one is needed, then the subagents."""
    called = {exchange.name for exchange in talk.exchanges}
    if "run_subagent" in called or "run_subagent" not in talk.tools:
        return []
    if _names_none(question) and "list_channels" in talk.tools - called:
        return [use("list_channels")]
    when = since(question.text, talk) if question.scope == "slack" else {}
    return [
        use(
            "run_subagent",
            task=task,
            description=" ".join(task.split()[:6])[:120],
            scope=question.scope,
            handles=list(handles),
            contract="answer",
            **when,
        )
        for task, handles in _tasks(question, talk)
    ]


def _names_none(question: Question) -> bool:
    """Return whether a question is one to Slack that names no channel and is asked in none."""
    return question.scope == "slack" and not (question.handles or question.here)


def _tasks(question: Question, talk: Conversation) -> list[tuple[str, Sequence[str]]]:
    """Return a task for each channel that a question names, or one for all that is held."""
    if question.scope == "slack" and len(question.handles) > 1:
        return [(f"{question.text} ({name})", [name]) for name in question.handles]
    handles = list(question.handles)
    if question.scope == "slack" and not handles:
        handles = [question.here] if question.here else list(_channels(talk))[:MAX_CHANNELS]
    return [(question.text, handles)] if handles else []


def _channels(talk: Conversation) -> Mapping[str, str]:
    """Return the channels that list_channels gave: id -> name without #."""
    listings = [e.text for e in talk.exchanges if e.name == "list_channels"]
    return {id: name for text in listings for id, name in _LISTED.findall(text)}


# ---- what to write


def _written(question: Question, talk: Conversation) -> str:
    """Return the answer; what an earlier session of the request found comes first."""
    earlier = [line for text in talk.told for view in parse_views(text) for line in _lines(view)]
    lines = _section(question, talk)
    if not lines and not earlier:
        lines = [BEYOND]
    parts = ["\n".join(part) for part in (earlier, lines) if part]
    return "\n\n".join([*parts, OFFLINE])


def _section(question: Question, talk: Conversation) -> list[str]:
    back = [exchange for exchange in talk.exchanges if exchange.name == "run_subagent"]
    lines: list[str] = []
    for exchange in back:
        if len(back) > 1:
            lines.append(f"**{', '.join(map(str, exchange.input['handles']))}**:")
        lines += _outcome(exchange)
    if _names_none(question) and back:
        names = [f"#{name}" for name in _channels(talk).values()]
        rest = f" Not read: {', '.join(names[MAX_CHANNELS:])}." if names[MAX_CHANNELS:] else ""
        lines.append(f"Read: {', '.join(names[:MAX_CHANNELS])}.{rest}")
    return lines


def _outcome(exchange: Exchange) -> list[str]:
    if exchange.is_error and "refused, handles" in exchange.text:
        named = ", ".join(map(str, exchange.input["handles"]))
        return [f"There is no {named} that I may read."]
    views = parse_views(exchange.text) or [View("failed", exchange.text)]
    return [line for view in views for line in _lines(view)]


def _lines(view: View) -> list[str]:
    """Return a view as lines of an answer, each citing its finding."""
    text = view.text.replace(OFFLINE, "").strip()
    if view.status in ("failed", "cancelled", "refused"):
        return [f"This could not be read: {text}"]
    lines = [f"Only partly read: {text}"] if view.status == "partial" else []
    for finding in view.findings[:MAX_LINES]:
        facts = _standing(finding)
        lines.append(f"- «{finding.claim}»{facts and f' ({facts})'} [{finding.id}]")
    if more := len(view.findings[MAX_LINES:]) + view.left_out:
        lines.append(f"… and {more} more")
    if not view.findings or COUNTED in text:
        lines.append(text or "Nothing was found for this.")
    return lines


def _standing(finding: ViewFinding) -> str:
    """Return state, severity and next step, as far as they say anything."""
    state, step = ", ".join(finding.standing), finding.next_step
    if not state.startswith(STATES):
        return step
    return f"{state}; {step}" if step and not state.startswith("solved") else state


# ---- the top of a sweep's report


def top_lines(talk: Conversation) -> str:
    """Return what to do first over all sections: the most severe of what needs action."""
    bodies = [body for key, body in sections("\n".join(talk.opening)) if key == "SECTION"]
    found = [f for body in bodies for view in parse_views(body) for f in view.findings]
    open_ones = [f for f in found if f.standing and f.standing[0] in ("unanswered", "unsolved")]
    first = sorted(open_ones, key=lambda f: SEVERITIES.index((*f.standing, "low")[1]))[:MAX_FIRST]
    lines = [f"- {f.next_step or f.claim} [{f.id}]" for f in first]
    if not lines:
        return f"Nothing was found for this. {OFFLINE}"
    text, bracket, cited = lines[-1].rpartition(" [")
    return "\n".join([*lines[:-1], f"{text} {OFFLINE}{bracket}{cited}"])


# ---- orders

NOT_SET = (
    "The offline rules set no reminder, schedule or preference from these words; a language model "
    "does. They know «remind me tomorrow at 15:00 to ...», «remind me in 2 hours to ...», «every "
    "Monday at 9 sweep csm-* and post here» and «from now on ...»."
)
REPORTS = ("sweep_channels", "triage_inbox")
_TOOLS = (*REPORTS, "schedule_create", "remind_me", "remember_preference")
_POLITE = r"\W*(?:(?:<@[UW]\w+(?:\|[^>]*)?>|@\w+|hi|hello|please|(?:could|can) you)\W+)*"
_MAIL = r"(?:in-?box|e-?mails?|mails?|mailbox)"
_TRIAGE = re.compile(
    rf"{_POLITE}(?:triage (?:all )?(?:of )?(?:my|the) (?:new |unread )?{_MAIL}\b"
    rf"|{_MAIL} triage\W*(?:please\W*)?$)",
    re.IGNORECASE,
)
_SWEEP = re.compile(rf"{_POLITE}(?:(?:bug )?sweep|scan)\s+(?P<rest>.+)", re.IGNORECASE | re.S)
_NAMED_CHANNEL = re.compile(
    r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>|#?([\w-]*\*)|#([\w-]+)|\b([CG][A-Z0-9]{8,}|\w+(?:-\w+)+)"
)
_WINDOW = re.compile(r"\b(?:last|past) (?:(\d{1,3}) )?(day|week|month)s?\b", re.IGNORECASE)
_UNITS = {"day": 1, "week": 7, "month": 30}
_FILL = re.compile(
    r"\b(?:in|of|for|over|from|the|all|and|also|channels?|please|now|my|our)\b|[\s,;.!?&+]+", re.I
)
_NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_REMIND = re.compile(
    rf"{_POLITE}remind me (?:in (?P<count>\d{{1,3}}) (?P<unit>minute|hour|day)s?"
    r"|(?P<day>today|tomorrow)? ?at (?P<hour>[01]?\d|2[0-3])(?::(?P<minute>[0-5]\d))?) "
    r"(?:to|that|of|about) (?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_PREFER = re.compile(rf"{_POLITE}from now on\b.+|.+ from now on\W*", re.IGNORECASE)
_OTHERS = re.compile(r"\bremind me\b|\bfrom now on\b|\bevery\s.{0,40}?\sat\s+\d", re.IGNORECASE)
_DAY = re.compile(r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)
_OFTEN = re.compile(r"\b(?:daily|every (?:day|morning)|weekly|weekdays?|\w+days?)\b", re.IGNORECASE)
_AT = re.compile(r"\bat\s+(\d{1,2})(?::(\d\d))?\b", re.IGNORECASE)
_POST = re.compile(r"\b(?:post|send|report)\b[^#]*?\bto\s+#?([\w-]+)", re.IGNORECASE)


def order_turn(text: str, talk: Conversation, free: bool) -> Json | str | None:
    """Return the call that an order needs, or what came of it; None where it is no order."""
    done = [exchange for exchange in talk.exchanges if exchange.name in _TOOLS]
    if done and done[-1].name in REPORTS:
        return done[-1].text if done[-1].is_error else "NONE"
    if done:
        return done[-1].text
    for order in (_schedule, _lasting, _report):
        call = order(text, talk)
        if isinstance(call, str):
            return call
        if call and free and call["name"] in talk.tools:
            return call
    return None


def since(text: str, talk: Conversation) -> Json:
    """Return the argument for so many days back as a text says, by the requester's clock."""
    found, now = _WINDOW.search(text), _NOW.search(talk.section("NOW"))
    if not (found and now):
        return {}
    days = max(1, min(int(found[1] or 1) * _UNITS[found[2].lower()], 366))
    return {"since": f"{datetime.fromisoformat(now[0]) - timedelta(days=days):%Y-%m-%dT%H:%M}"}


def _report(text: str, talk: Conversation) -> Json | None:
    """Return a sweep or a triage: of the text only a verb, channels and how far back count."""
    if _TRIAGE.match(text):
        return use("triage_inbox", **since(text, talk))
    order = _SWEEP.match(text)
    rest = _WINDOW.sub("", order["rest"]) if order else ""
    channels = _named_channels(rest)
    if not channels or _FILL.sub("", _NAMED_CHANNEL.sub("", rest)):
        return None
    return use("sweep_channels", channels=channels, **since(text, talk))


def _named_channels(text: str) -> list[str]:
    return list(dict.fromkeys("".join(found).lstrip("#") for found in _NAMED_CHANNEL.findall(text)))


def _schedule(text: str, talk: Conversation) -> Json | None:
    kind = "triage" if re.search(rf"\btriage\b.*\b{_MAIL}\b", text, re.I) else "sweep"
    at, place = _AT.search(text), _POST.search(text)
    mine = re.search(r"\b(?:dm|send|tell) me\b", text, re.I)
    to = f"#{place[1]}" if place else "dm" if mine else "here"
    order = re.search(r"\bsweep (?P<rest>.+)", text, re.I | re.S)
    channels = [c for c in _named_channels(order["rest"] if order else "") if c != to.lstrip("#")]
    if not (at and _OFTEN.search(text)) or (kind == "sweep" and not channels):
        return None
    days = ",".join(dict.fromkeys(day[:3].lower() for day in _DAY.findall(text))) or "*"
    days = "mon-fri" if re.search(r"\bweekdays?\b", text, re.I) else days
    about = re.sub(r"[^a-z0-9]+", "-", channels[0].lower()).strip("-") if channels else ""
    return use(
        "schedule_create",
        name="-".join(part for part in (kind, about) if part)[:40],
        kind=kind,
        cron=f"{int(at[2] or 0)} {int(at[1])} * * {days}",
        to=to,
        **({"channels": channels} if kind == "sweep" else {}),
    )


def _lasting(text: str, talk: Conversation) -> Json | str | None:
    """Return a reminder or a preference; of other words for them, that they are not understood."""
    if not talk.tools & {"remind_me", "remember_preference"} or text.rstrip().endswith("?"):
        return None
    found, now = _REMIND.match(text), _NOW.search(talk.section("NOW"))
    if found and now:
        clock = datetime.fromisoformat(now[0])
        if found["count"]:
            at = clock + timedelta(**{f"{found['unit'].lower()}s": int(found["count"])})
        else:
            at = clock.replace(hour=int(found["hour"]), minute=int(found["minute"] or 0))
            at += timedelta(days=found["day"] == "tomorrow" or (not found["day"] and at <= clock))
        name, said = f"reminder-{at:%Y-%m-%dt%H%M}", found["text"].strip(" .!")
        return use("remind_me", name=name, text=said, at=f"{at:%Y-%m-%dT%H:%M}")
    if _PREFER.fullmatch(text.strip()):
        return use("remember_preference", text=text.strip())
    return NOT_SET if _OTHERS.search(text) else None
