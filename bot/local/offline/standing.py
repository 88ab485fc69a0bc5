"""Reminders and preferences, as a plain order says; of any other words for them it is said so."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from bot.local.offline.calls import use
from bot.local.offline.conversation import Conversation
from bot.local.offline.schedules import Turn

REMIND, PREFER = "remind_me", "remember_preference"
NOT_SET = (
    "The offline rules set no reminder, schedule or preference from these words; a language model "
    "does. They know «remind me tomorrow at 15:00 to ...», «remind me in 2 hours to ...», «every "
    "Monday at 9 sweep csm-* and post here» and «from now on ...»."
)
_POLITE = r"\W*(?:please\W+)?"
_WHEN = (
    r"(?:in (?P<count>\d{1,3}) (?P<unit>minute|hour|day)s?"
    r"|(?P<day>today|tomorrow)? ?at (?P<hour>[01]?\d|2[0-3])(?::(?P<minute>[0-5]\d))?)"
)
_REMIND = (
    re.compile(rf"{_POLITE}remind me {_WHEN} (?:to|that|of|about) (?P<text>.+)", re.I | re.S),
    re.compile(rf"{_POLITE}{_WHEN},? remind me (?:to|that|of|about) (?P<text>.+)", re.I | re.S),
)
_PREFER = re.compile(rf"{_POLITE}from now on\b.+|.+ from now on\W*", re.IGNORECASE)
_OTHERS = re.compile(
    r"\b(?:remind (?:me|us|this|everyone|<@)|recu[eé]rdame|erinnere? mich|rappelle[- ]moi|ricordami"
    r"|from now on|a partir de ahora|künftig|désormais|d['’]ora in poi|in this channel,? always"
    r"|(?:every|each|cada|jede[nrsm]?|tous les|toutes les|chaque|ogni)\s.{0,40}?\s"
    r"(?:at|a las?|um|à|alle)\s+\d)",
    re.IGNORECASE,
)
_NOW = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


def turn(text: str, talk: Conversation, free: bool) -> Turn | None:
    """Return the next turn of a request for a reminder or a preference; None for any other one."""
    if not talk.tools & {REMIND, PREFER} or text.rstrip().endswith("?"):
        return None
    for exchange in talk.exchanges:
        if exchange.name in (REMIND, PREFER):
            return Turn(text=exchange.text.strip())
    if free and (at := _reminder(text, talk)):
        return Turn((use(REMIND, name=f"reminder-{at[1].replace(':', '')}", text=at[0], at=at[1]),))
    if free and PREFER in talk.tools and _PREFER.fullmatch(text.strip()):
        return Turn((use(PREFER, text=text.strip()),))
    return Turn(text=NOT_SET) if _OTHERS.search(text) else None


def _reminder(text: str, talk: Conversation) -> tuple[str, str] | None:
    """Return what a reminder says and when, on the requester's clock."""
    found = next(filter(None, (each.match(text) for each in _REMIND)), None)
    now = _NOW.search(talk.section("NOW"))
    if not (found and now and REMIND in talk.tools):
        return None
    clock = datetime.fromisoformat(now[0])
    if found["count"]:
        at = clock + timedelta(**{f"{found['unit'].lower()}s": int(found["count"])})
    else:
        at = clock.replace(hour=int(found["hour"]), minute=int(found["minute"] or 0))
        later = found["day"] == "tomorrow" or (not found["day"] and at <= clock)
        at += timedelta(days=later)
    return found["text"].strip(" .!"), f"{at:%Y-%m-%dT%H:%M}"
