"""The offline model as a parent agent: one call for a plain request, and an answer from its result.

Plain requests in English are a question to a channel or a database, which a subagent reads, and
orders: a sweep, a triage, a reminder, a preference. Anything else needs a language model.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, View, parse_views, use
from bot.local.offline.data import COUNT, SELECT, TABLES_QUESTION

Json = dict[str, Any]

MAX_LINES = 12
"""Most findings of a subagent in an answer; it counts the others."""
BEYOND = (
    "This needs a language model. The offline rules say where the threads of a channel that you"
    " name and may read stand («What is open in #support?»), count the rows of a table («How many"
    " orders are there?»), and follow «sweep csm-*», «triage my inbox», «remind me tomorrow at 9 to"
    " ...» and «from now on ...»."
)
_CHANNEL = re.compile(r"(?<![\w/])[CG][A-Z0-9]{2,}(?:/[\d.]+)?(?= \()")
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_STATES_QUESTION = re.compile(
    r"(?:which|what|who|is|are)\b.*\b(?:open|unanswered|unsolved)\b", re.IGNORECASE | re.DOTALL
)
"""A question about the state of threads."""
_TRIAGE = re.compile(r"(?:please )?triage my inbox\W*$", re.IGNORECASE)
_SWEEP = re.compile(r"(?:please )?sweep\s+(?P<channels>.+)", re.IGNORECASE | re.DOTALL)
_CHANNEL_NAME = re.compile(
    r"#?([\w-]*\*|[\w-]*-[\w-]+)|#([\w-]+)|<#([CG]\w+)[^>]*>|\b([CG][A-Z0-9]{8,})\b"
)
_CHANNEL_SEPARATORS = re.compile(r"\b(?:in|of|the|and)\b|[\s,;.!]+", re.IGNORECASE)
"""Text allowed between the channels of a sweep."""
_WINDOW = re.compile(
    r"\b(?:of|in|for) the (?:last|past) (?:(\d{1,3}) )?(day|week|month)s?\b", re.IGNORECASE
)
_UNITS = {"day": 1, "week": 7, "month": 30}
_REMINDER_REQUEST = re.compile(
    r"(?:please )?remind me (?P<day>today|tomorrow) at (?P<hour>[01]?\d|2[0-3])"
    r"(?::(?P<minute>[0-5]\d))? to (?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


def as_parent(talk: Conversation) -> Answer:
    """Return the parent's next turn: a call, or the answer."""
    if talk.told[-1].startswith("WRITE:"):
        return _say(f"The program ranks what was found. {OFFLINE}")
    if talk.exchanges and talk.exchanges[-1].name in ("sweep_channels", "triage_inbox"):
        last = talk.exchanges[-1]
        return _say(f"{last.text}\n\n{OFFLINE}" if last.is_error else "NONE")
    text = talk.section("REQUEST") or "\n".join(talk.told)
    call = _order(text.strip(), talk) or _question(text.strip(), talk)
    if call and call["name"] in talk.tools and not talk.exchanges and not talk.must_end:
        return Answer([call])
    return _say(_write_answer(talk))


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


# ---- the call


def _order(text: str, talk: Conversation) -> Json | None:
    """Return the call for a plain order; None if the order says more."""
    rest = _WINDOW.sub("", text)
    if _TRIAGE.match(rest):
        return use("triage_inbox", **_since(text, talk))
    if found := _SWEEP.match(rest):
        channels = ["".join(each) for each in _CHANNEL_NAME.findall(found["channels"])]
        if channels and not _CHANNEL_SEPARATORS.sub("", _CHANNEL_NAME.sub("", found["channels"])):
            return use("sweep_channels", channels=channels, **_since(text, talk))
    if text.lower().startswith("from now on"):
        return use("remember_preference", text=text)
    return _reminder(text, talk)


def _since(text: str, talk: Conversation) -> Json:
    """Return the `since` argument for the days that a text names, by the requester's clock."""
    found, now = _WINDOW.search(text), _NOW.search(talk.section("NOW"))
    if not (found and now):
        return {}
    days = max(1, min(int(found[1] or 1) * _UNITS[found[2].lower()], 366))
    return {"since": f"{datetime.fromisoformat(now[0]) - timedelta(days=days):%Y-%m-%dT%H:%M}"}


def _reminder(text: str, talk: Conversation) -> Json | None:
    found, now = _REMINDER_REQUEST.match(text), _NOW.search(talk.section("NOW"))
    if not (found and now):
        return None
    day = datetime.fromisoformat(now[0]) + timedelta(days=found["day"].lower() == "tomorrow")
    at = day.replace(hour=int(found["hour"]), minute=int(found["minute"] or 0))
    name = f"reminder-{at:%Y-%m-%dt%H%M}"
    return use("remind_me", name=name, text=found["text"].strip(" .!"), at=f"{at:%Y-%m-%dT%H:%M}")


def _question(text: str, talk: Conversation) -> Json | None:
    """Return the call of a subagent for a question, if rules can answer it."""
    databases = _HANDLE.findall(talk.section("DATA"))
    channels = _CHANNEL.findall(talk.section("NAMED SOURCES")) or [
        id for id, name in talk.here.items() if name.startswith("#") and "/" not in id
    ]
    if SELECT.search(text) or COUNT.match(text) or TABLES_QUESTION.match(text):
        scope, handles = "data", databases
    elif _STATES_QUESTION.match(text):
        scope, handles = "slack", channels
    else:
        return None
    brief = {"task": text, "description": " ".join(text.split()[:6])[:120], "scope": scope}
    window = _since(text, talk) if scope == "slack" else {}
    call = use("run_subagent", **brief, handles=handles, contract="answer", **window)
    return call if handles else None


# ---- the answer


def _write_answer(talk: Conversation) -> str:
    """Return the answer; findings of an earlier session of the request come first."""
    earlier = [view for text in talk.told for view in parse_views(text)]
    lines = [line for view in earlier for line in _lines(view)]
    for exchange in talk.exchanges:
        views = parse_views(exchange.text)
        lines += [line for view in views for line in _lines(view)] or [exchange.text]
    return "\n".join([*(lines or [BEYOND]), "", OFFLINE])


def _lines(view: View) -> list[str]:
    """Return a view as lines of an answer, each citing its finding."""
    text = view.text.replace(OFFLINE, "").strip()
    if view.status in ("failed", "cancelled", "refused"):
        return [f"This could not be read: {text}"]
    lines = [f"Only partly read: {text}" if view.status == "partial" else text]
    for id, claim, standing in view.findings[:MAX_LINES]:
        standing = standing.replace(", low", "")  # the rules do not judge severity
        lines.append(f"- «{claim}»{standing and f' ({standing})'} [{id}]")
    if more := len(view.findings[MAX_LINES:]) + view.left_out:
        lines.append(f"… and {more} more")
    return lines
