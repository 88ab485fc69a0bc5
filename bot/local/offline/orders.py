"""Plain orders in English to the tools of a parent: one order, one call, and what came of it.

A sweep, a triage, a schedule of either, a reminder, a preference, words in quotes to post.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from bot.local.offline.conversation import Conversation, use

Json = dict[str, Any]

NOT_SET = (
    "The offline rules set no reminder, schedule or preference from these words; a language model "
    "does. They know «remind me tomorrow at 15:00 to ...», «remind me in 2 hours to ...», «every "
    "Monday at 9 sweep csm-* and post here» and «from now on ...»."
)
REPORTS = ("sweep_channels", "triage_inbox")
_TOOLS = (
    *(*REPORTS, "schedule_create", "schedule_list", "schedule_pause", "schedule_delete"),
    *("remind_me", "remember_preference", "post_message", "send_direct_message"),
)
_POLITE = r"\W*(?:(?:<@[UW]\w+(?:\|[^>]*)?>|@\w+|hi|hello|please|(?:could|can) you)\W+)*"
_MAIL = r"(?:in-?box|e-?mails?|mails?|mailbox)"
_TRIAGE = re.compile(
    rf"{_POLITE}(?:triage (?:all )?(?:of )?(?:my|the) (?:new |unread )?{_MAIL}\b"
    rf"|{_MAIL} triage\W*(?:please\W*)?$)",
    re.IGNORECASE,
)
_SWEEP = re.compile(rf"{_POLITE}(?:(?:bug )?sweep|scan)\s+(?P<rest>.+)", re.IGNORECASE | re.S)
_CHANNEL = re.compile(
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
_CHANGE = re.compile(
    r"\W*(?:please )?(pause|resume|delete) (?:the )?([\w-]+)(?: schedule)?\W*$", re.I
)
_LISTED = re.compile(r"\b(?:what(?:['’]s| is) scheduled|(?:list|show) \w* ?schedules)", re.I)
_SAY = re.compile(
    r"\s*(?:please )?(?:post|send|write|announce|tell|dm|message)\b[^\"“„«]*"
    r"[\"“„«](?P<said>[^\"“”„«»]+)[\"”»]",
    re.IGNORECASE,
)
_PLACE = re.compile(r"#[\w-]+|@[\w.-]+")
_NAMED = re.compile(r"([CGDUW][A-Z0-9]{2,})(?:/[\d.]+)?(?: \(([^()]*)\))?")


def order_turn(text: str, talk: Conversation, free: bool) -> Json | str | None:
    """Return the call that an order needs, or what came of it; None where it is no order."""
    done = [exchange for exchange in talk.exchanges if exchange.name in _TOOLS]
    if done and done[-1].name in REPORTS:
        return done[-1].text if done[-1].is_error else "NONE"
    if done:
        rows = re.sub(r"</?items-\w+>\n?", "", done[-1].text)
        return re.sub(r"^\s*\[[^\]]+\] ", "- ", rows, flags=re.MULTILINE).strip()
    for order in (_schedule, _standing, _report, _said):
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
    channels = _channels(rest)
    if not channels or _FILL.sub("", _CHANNEL.sub("", rest)):
        return None
    return use("sweep_channels", channels=channels, **since(text, talk))


def _channels(text: str) -> list[str]:
    return list(dict.fromkeys("".join(found).lstrip("#") for found in _CHANNEL.findall(text)))


def _schedule(text: str, talk: Conversation) -> Json | None:
    if _LISTED.search(text):
        return use("schedule_list")
    if change := _CHANGE.match(text):
        if change[1].lower() == "delete":
            return use("schedule_delete", name=change[2])
        resume = {"resume": True} if change[1].lower() == "resume" else {}
        return use("schedule_pause", name=change[2], **resume)
    kind = "triage" if re.search(rf"\btriage\b.*\b{_MAIL}\b", text, re.I) else "sweep"
    at, place = _AT.search(text), _POST.search(text)
    mine = re.search(r"\b(?:dm|send|tell) me\b", text, re.I)
    to = f"#{place[1]}" if place else "dm" if mine else "here"
    order = re.search(r"\bsweep (?P<rest>.+)", text, re.I | re.S)
    channels = [c for c in _channels(order["rest"] if order else "") if c != to.lstrip("#")]
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


def _standing(text: str, talk: Conversation) -> Json | str | None:
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


def _said(text: str, talk: Conversation) -> Json | None:
    """Return the call that posts the words in quotes to the place that the order names."""
    found = _SAY.match(text)
    place = _PLACE.search(text.replace(found["said"], "")) if found else None
    if not (found and place):
        return None
    name = place[0].lower()
    for id, title in _NAMED.findall(talk.section("NAMED SOURCES")):
        if name in (f"#{id}".lower(), f"@{id}".lower()) or title.lower().startswith(name):
            person = name.startswith("@")
            where = {"user": id} if person else {"channel": id}
            tool = "send_direct_message" if person else "post_message"
            return use(tool, **where, text=found["said"].strip())
    return None
